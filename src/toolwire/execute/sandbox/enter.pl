# Makes the system calls of a plan in order, then becomes the command. Tells the status descriptor how far it came.
# A plan is a list of steps: the number of fields, then the fields, each ended by NUL.
# In Perl because it starts in a millisecond, is part of every Debian, and can make any system call.
BEGIN { $^F = 65_535 }    # what is open stays open for a launcher; a command gets a closing call of its own
my ($plan, $status) = @ARGV;
open(my $told, ">&=", $status) or exit 125;
open(my $in, "<&=", $plan) or exit 125;
binmode $in;
my @fields = split /\0/, do { local $/; <$in> }, -1;
our $filter;

sub failed { syswrite($told, "fail $_[0]: $!\n"); exit 125 }

# i: an integer, s: text, h: bytes in hex, f: the address of a filter in hex with its length before it.
sub value {
    my ($type, $text) = (substr($_[0], 0, 1), substr($_[0], 1));
    return 0 + $text if $type eq "i";
    return $text if $type eq "s";
    return pack("H*", $text) if $type eq "h";
    $filter = pack("H*", $text);
    return pack("Sx6P", length($filter) / 8, $filter);
}

sub landlock {
    my ($attributes, @rules) = @_;
    $attributes = pack("H*", $attributes);
    my $ruleset = syscall(444, $attributes, length($attributes), 0);
    failed("landlock") if $ruleset < 0;
    while (my ($access, $path) = splice(@rules, 0, 2)) {
        sysopen(my $place, $path, 0x280000) or next;
        my $rule = pack("Ql", $access, fileno($place));
        failed("landlock $path") if syscall(445, $ruleset, 1, $rule, 0) < 0;
    }
    failed("landlock") if syscall(446, $ruleset, 0) < 0;
}

while (@fields > 1) {
    my $count = shift @fields;
    my ($kind, @given) = splice(@fields, 0, $count);
    if ($kind eq "call") {
        my ($name, $number, @values) = (shift @given, shift @given, map { value($_) } @given);
        failed($name) if syscall(0 + $number, @values) < 0;
    } elsif ($kind eq "landlock") {
        landlock(@given);
    } elsif ($kind eq "write") {
        open(my $out, ">", $given[0]) or failed("open $given[0]");
        syswrite($out, $given[1]) or failed("write $given[0]");
    } elsif ($kind eq "fresh") {
        %ENV = ();
    } elsif ($kind eq "set") {
        $ENV{$given[0]} = $given[1];
    } elsif ($kind eq "leave_namespace") {
        opendir(my $root, "/") or failed("open /");
        failed("unshare") if syscall(0 + $given[0], 0x00020000) < 0;
        chdir($root) or failed("return");
        chroot(".") or failed("chroot");
    } elsif ($kind eq "return_to_namespace") {
        open(my $namespace, "<", "/proc/self/ns/mnt") or failed("open the namespace");
        failed("setns") if syscall(0 + $given[0], fileno($namespace), 0x00020000) < 0;
    } elsif ($kind eq "enter") {
        chdir($given[0]) or failed("enter $given[0]");
    } elsif ($kind eq "wait") {
        syswrite($told, "ready\n");
        sysread(STDIN, my $nothing, 1);    # until the process that holds the other end is done, or dead
        exit 0;
    } elsif ($kind eq "exec") {
        syswrite($told, "ready\n");
        exec { $given[0] } @given;
        syswrite($told, "noexec $!\n");
        exit 127;
    }
}
