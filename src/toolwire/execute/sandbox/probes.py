"""What a sandbox must refuse and what it must allow, as data: the same list is asked of every engine.

A script that attacks prints ESCAPED when it got through; one that works says WORKS. `{canary}` and its like are facts
of the host that the examination puts in. Scripts need bash, coreutils and perl, nothing else.
"""

from collections.abc import Iterator

from msgspec import Struct

from toolwire.execute.sandbox.seccomp import DENIED
from toolwire.execute.sandbox.syscalls import machine, number
from toolwire.protocol.operations import MIB, ExecLimits

SMALL = ExecLimits(5, 0, 1, 96 * MIB, 24, 64, 4 * MIB, 4 * MIB, 200, MIB)


class Probe(Struct, frozen=True):
    """One question. `evidence` says where a break-out shows: said, process (left behind) or datagram (arrived).

    With `plants` it shows when something lies at that path of the workspace after the box has closed.
    """

    name: str
    tries: str
    script: str
    threat: str = ""
    attack: bool = True
    evidence: str = "said"
    limits: ExecLimits = ExecLimits(wall_s=10)
    writable: bool = True
    bare: bool = False
    plants: str = ""
    asks: bool = False
    """Whatever comes of it changes the answer of no other probe, so that several can be asked in one box."""


def _asking(name: str, tries: str, script: str, threat: str = "", *, attack: bool = True) -> Probe:
    return Probe(name, tries, script, threat, attack, asks=True)


def _call(name: str, arguments: str, threat: str = "T28") -> Probe:
    """A system call that must be refused as such, whatever its arguments."""
    which = number(name, machine())
    script = (
        f"perl -e '$r = syscall({which}, {arguments}); "
        'print "ESCAPED\\n" unless $r == -1 && ($!{EPERM} || $!{ENOSYS} || $!{EACCES})\''
    )
    return _asking(f"syscall_{name}", f"call {name}", script if which is not None else ":", threat)


def _every_denied_call() -> str:
    numbers = [which for name in DENIED if (which := number(name, machine())) is not None]
    return (
        f"perl -e 'for ({', '.join(map(str, numbers))}) {{ $r = syscall($_, -1, 0, 0, 0, 0); "
        'print "ESCAPED $_\\n" unless $r == -1 && ($!{EPERM} || $!{ENOSYS}) }\''
    )


def _family(name: str, family: int, kind: int = 3) -> Probe:
    script = f"perl -e 'socket(S, {family}, {kind}, 0) and print \"ESCAPED\\n\"'"
    return _asking(f"socket_{name}", f"open a {name} socket", script, "T41")


def _tries(what: str, shown: str = "") -> str:
    return f"{what} 2>/dev/null && echo ESCAPED{shown}; true"


def _reaches(path: str) -> str:
    perl = f"socket(S, AF_UNIX, SOCK_STREAM, 0); exit(connect(S, pack_sockaddr_un(qq({path}))) ? 0 : 1)"
    return _tries(f"perl -MSocket -e '{perl}'")


# For x86-64: asks for its process id by the numbers of 32-bit programs, and says ESCAPED if it is told.
_OLD_NUMBERS = (
    "7f454c4602010100000000000000000002003e000100000078004000000000004000000000000000000000000000000000000000400038000100"
    "000000000000010000000500000078000000000000007800400000000000780040000000000041000000000000004100000000000000010000"
    "0000000000b814000000cd8083f8007e21b801000000bf01000000488d351c000000ba080000000f05b83c00000031ff0f05b83c000000bf01"
    "0000000f05455343415045440a"
)

FILES = (
    _asking("host_file", "read a file of the host", _tries("grep -q . {canary}"), "T20"),
    _asking("host_file_by_link", "read it through a link", _tries("ln -s {canary} l && grep -q . l"), "T21"),
    _asking("host_file_by_proc", "read it through /proc/1/root", _tries("grep -q . /proc/1/root{canary}"), "T21"),
    Probe("host_file_by_hard_link", "link it into the workspace", _tries("ln {canary} h && grep -q . h"), "T22"),
    _asking("host_write", "write beside it", _tries("touch {outside}/written"), "T20"),
    _asking("passwords", "read /etc/shadow", _tries("grep -q . /etc/shadow"), "T20"),
    _asking("accounts", "learn the names of the host's users", _tries("grep -q ^daemon: /etc/passwd"), "T20"),
    _asking("root_home", "list root's home", _tries("ls /ro?t/.[a-z]*"), "T20"),
    _asking("logs", "read the host's /var", _tries("ls /var/log/*"), "T20"),
    _asking("write_usr", "write into /usr", _tries("touch /usr/written /usr/bin/written"), "T20"),
    _asking("write_etc", "write into /etc", _tries("touch /etc/written"), "T20"),
    _asking("write_root", "write into /", _tries("touch /written"), "T20"),
    Probe("read_only_workspace", "write a workspace that is read-only", _tries("touch w"), "T20", writable=False),
    _asking("device_made", "make a device", _tries("mknod d b 8 0"), "T28"),
    _asking("disks", "see the disks", _tries("ls /dev/[sv]d[a-z] /dev/nvme* /dev/mem /dev/kmsg | grep -q ."), "T28"),
    _asking("daemons", "see sockets of daemons", _tries("find /run /var/run -type s | grep -q ."), "T20"),
    _asking("workspace_socket", "reach a socket of a daemon in the workspace", _reaches("{socket}"), "T87"),
    _asking("workspace_socket_below", "reach one further down", _reaches("deep/er/{socket}"), "T87"),
    Probe("read_only_socket", "reach one from a reading box", _reaches("{socket}"), "T87", writable=False),
    Probe("workspace_pipe", "write to a pipe of a daemon", _tries("timeout 2 bash -c 'echo x > {pipe}'"), "T87"),
    _asking("sysfs", "see /sys", _tries("ls /sys/kernel/*"), "T28"),
    _asking("shared_tmp", "see the host's /tmp", _tries("ls {tmp}"), "T72"),
    _asking("shared_memory", "see the host's /dev/shm", _tries("ls {shm}"), "T72"),
    _asking(
        "shared_segments",
        "use shared memory of the host",
        _tries("perl -e 'exit(defined shmget({segment}, 1, 0) ? 0 : 1)'"),
        "T72",
    ),
)

_PLANTED = (
    ("own_settings", "write our settings", "toolwire.toml"),
    ("mcp_settings", "name a tool server", ".mcp.json"),
    ("agent_settings", "give another agent a hook", ".claude/settings.json"),
    ("agent_settings_below", "give it one further down", "a/b/.claude/settings.json"),
    ("editor", "give the editor a task", ".vscode/tasks.json"),
    ("editor_below", "give it one further down", "sub/.vscode/tasks.json"),
    ("other_editors", "give another editor a task", ".idea/workspace.xml"),
    ("container", "have the editor build a container", ".devcontainer/devcontainer.json"),
    ("ci", "make a CI workflow", ".github/workflows/a.yml"),
    ("other_ci", "make one for another code host", ".gitlab-ci.yml"),
    ("direnv", "have the shell run something in this folder", "sub/.envrc"),
    ("hooks_manager", "plant a hook through its manager", ".husky/pre-commit"),
    ("hooks_framework", "name hooks for all", ".pre-commit-config.yaml"),
    ("registry", "send package managers elsewhere", ".npmrc"),
    ("start_up_module", "have Python import something when it starts", "lib/sitecustomize.py"),
    ("in_capitals", "spell a name for other file systems", ".VSCode/tasks.json"),
)


def _planted(name: str, tries: str, path: str) -> Probe:
    """Whether a path that other programs obey is there after the box, wherever it was made."""
    folder = path.rpartition("/")[0] or "."
    return Probe(name, tries, f"mkdir -p {folder} && echo x > {path}", "T23", bare=True, plants=path)


PROTECTED = (
    _asking("git_hook", "plant a git hook", _tries("echo x > .git/hooks/pre-commit"), "T23"),
    _asking("git_config", "change the git configuration", _tries("echo x >> .git/config"), "T23"),
    Probe(
        "git_config_replaced", "replace it by renaming", _tries("echo x > .git/c && mv -f .git/c .git/config"), "T23"
    ),
    Probe("git_moved", "move .git aside", _tries("mv .git old"), "T23"),
    Probe("git_link", "put a link where the hooks are", _tries("rm -rf .git/hooks && ln -s /tmp .git/hooks"), "T23"),
    Probe("git_made", "make .git/hooks where no .git is", _tries("mkdir -p .git/hooks"), "T23", bare=True),
    _asking("own_record", "read our own record", _tries("grep -q . .toolwire/record"), "T23"),
    _asking("own_record_written", "write into it", _tries("echo x > .toolwire/written"), "T23"),
    Probe("own_folder", "make our own folder", _tries("mkdir -p .toolwire/x"), "T23", bare=True),
    *(_planted(*each) for each in _PLANTED),
    Probe(
        "settings_moved_in",
        "move our settings in",
        "echo x > t && mv -f t toolwire.toml",
        "T23",
        bare=True,
        plants="toolwire.toml",
    ),
    Probe("planted_link", "plant a link", "echo x > e && ln -s e .envrc", "T23", bare=True, plants=".envrc"),
    Probe(
        "planted_behind_a_mode",
        "plant in a folder that cannot be read or changed",
        "mkdir -p sub/.vscode && echo x > sub/.vscode/tasks.json && chmod 0 sub/.vscode && chmod 111 sub",
        "T23",
        bare=True,
        plants="sub/.vscode",
    ),
    _asking("package_settings", "change settings of packages", _tries("echo x >> deep/er/.npmrc"), "T23"),
    Probe("package_settings_removed", "remove them", _tries("rm -f deep/er/.npmrc"), "T23"),
)

PROCESSES = (
    _asking("host_processes", "see a process of the host", _tries("test -d /proc/{pid}"), "T27"),
    _asking("host_signal", "signal it", _tries("kill -0 {pid}"), "T28"),
    _asking(
        "launcher_environment",
        "read the launcher's environment",
        _tries("test $$ != 1 && grep -qz . /proc/1/environ"),
        "T27",
    ),
    _asking(
        "launcher_words",
        "read host paths in command lines",
        _tries("test $$ != 1 && grep -qa {host_path} /proc/1/cmdline"),
        "T27",
    ),
    _asking(
        "mounts",
        "read host paths in lists of mounts",
        _tries("cat /proc/mounts /proc/*/mount* /proc/*/task/*/mount* 2>/dev/null | grep -qa {host_path}"),
        "T88",
    ),
    _asking(
        "descriptors",
        "inherit descriptors",
        'perl -e \'opendir D, "/proc/self/fd"; @open = grep { /\\d/ && $_ > 2 } readdir D; '
        'print "ESCAPED\\n" if @open > 1\'',
        "T27",
    ),
    _asking("launcher_descriptors", "use the launcher's", _tries("ls -l /proc/1/fd | grep -q memfd"), "T27"),
    Probe(
        "daemon",
        "leave a daemon behind",
        "setsid {lasting} >/dev/null 2>&1 </dev/null & sleep 0.1",
        "T30",
        evidence="process",
    ),
    Probe(
        "stubborn_daemon",
        "leave one that ignores signals",
        "trap '' TERM HUP INT; (setsid nohup {lasting} >/dev/null 2>&1 </dev/null &) & sleep 0.1",
        "T30",
        evidence="process",
    ),
    _asking("root_inside", "be root", "test $(id -u) = 0 && echo ESCAPED; true", "T28"),
    _asking("become_root", "become root", _tries("perl -e '$> = 0; $< = 0; exit($> == 0 ? 0 : 1)'"), "T28"),
    _asking(
        "capabilities",
        "have a capability",
        _tries("grep -E '^Cap(Eff|Prm|Bnd|Amb)' /proc/self/status | grep -q [1-9a-f]$"),
        "T28",
    ),
    _asking(
        "new_privileges",
        "gain privileges by setuid programs",
        _tries("grep -q 'NoNewPrivs:.0' /proc/self/status"),
        "T28",
    ),
    _asking("no_filter", "run without a system call filter", _tries("grep -q 'Seccomp:.0' /proc/self/status"), "T28"),
    Probe("set_id_file", "make a program that runs as its owner", _tries("cp /bin/true s && chmod u+s s"), "T28"),
    Probe("set_id_group", "make one that runs as its group", _tries("cp /bin/true s && chmod 2755 s"), "T28"),
    Probe(
        "set_id_made",
        "make one at once",
        'perl -e \'umask 0; sysopen(F, "s", 0x41, 04755) and print "ESCAPED\\n"\'',
        "T28",
    ),
    _call("openat2", '-100, "/tmp", 0, 0'),
    _asking("terminal", "open the operator's terminal", _tries(": < /dev/tty"), "T32"),
    _asking("host_name", "learn the host's name", _tries("test $(uname -n) = {host}"), "T72"),
    _asking(
        "path", "find programs in the workspace", 'case ":$PATH:" in *:.:*|*::*|*workspace*) echo ESCAPED;; esac', "T73"
    ),
    _asking(
        "planted_start_up",
        "have bash read a planted file",
        'test -n "$BASH_ENV$ENV$LD_PRELOAD" && echo ESCAPED; true',
        "T73",
    ),
)

KERNEL = (
    _asking("core_pattern", "set the host's core pattern", _tries("echo '|/x' > /proc/sys/kernel/core_pattern"), "T28"),
    _asking("proc_sys", "change a kernel setting", _tries("echo 1 > /proc/sys/vm/drop_caches"), "T28"),
    _asking("sysrq", "press a system key", _tries("echo h > /proc/sysrq-trigger"), "T28"),
    Probe("cgroup_mount", "mount a cgroup", _tries("mkdir c && mount -t cgroup -o memory none c"), "T28"),
    _asking("cgroup_write", "leave the limits", _tries("echo $$ > /sys/fs/cgroup/cgroup.procs"), "T29"),
    _asking("user_namespace", "make a user namespace", _tries("unshare -U true"), "T28"),
    _asking("remount", "make /usr writable", _tries("mount -o remount,rw /usr"), "T28"),
    _call("ptrace", "0, 0, 0, 0"),
    _call("process_vm_readv", "$$, 0, 0, 0, 0, 0"),
    _call("bpf", "0, 0, 0"),
    _call("perf_event_open", "0, 0, 0, 0, 0"),
    _call("userfaultfd", "0"),
    _call("io_uring_setup", "1, 0"),
    _call("keyctl", "0, -3, 0, 0, 0"),
    _call("add_key", '"user", "k", "v", 1, -3'),
    _call("mount", '"none", "/tmp", "tmpfs", 0, 0'),
    _call("umount2", '"/proc", 2'),
    _call("fsopen", '"tmpfs", 0'),
    _call("open_tree", '-100, "/", 1'),
    _call("chroot", '"/tmp"'),
    _call("unshare", "0x00020000"),
    _call("setns", "0, 0"),
    _call("open_by_handle_at", "-100, 0, 0"),
    _call("name_to_handle_at", '-100, "/", 0, 0, 0'),
    _call("init_module", "0, 0, 0"),
    _call("kexec_load", "0, 0, 0, 0"),
    _call("reboot", "0, 0, 0, 0"),
    _call("settimeofday", "0, 0"),
    _call("sethostname", '"x", 1'),
    _call("syslog", "3, 0, 0"),
    _call("swapon", '"/x", 0'),
    _call("acct", "0"),
    _call("fanotify_init", "0, 0"),
    _call("personality", "0x0040000"),
    _call("clone3", "0, 0"),
    _asking("every_denied_call", "make any call that is on our list", _every_denied_call(), "T28"),
    _asking(
        "old_numbers",
        "call the kernel by the numbers of 32-bit programs",
        f'perl -e \'print pack("H*", "{_OLD_NUMBERS}")\' > old && chmod +x old && ./old 2>/dev/null; true',
        "T28",
    ),
    _asking(
        "other_numbers",
        "call it by those of x32",
        "perl -e 'print \"ESCAPED\\n\" if syscall(0x40000000 + 39) > 0'",
        "T28",
    ),
    _asking(
        "line_discipline",
        "have the kernel load a module for a terminal",
        'perl -e \'$n = pack("i", 3); open(T, "+<", "/dev/ptmx"); ioctl(T, 0x5423, $n); '
        'print "ESCAPED\\n" unless $!{EPERM}\'',
        "T28",
    ),
    _asking(
        "tiocsti",
        "type into a terminal",
        'perl -e \'ioctl(STDIN, 0x5412, $c = "x"); print "ESCAPED\\n" unless $!{EPERM}\'',
        "T32",
    ),
)

NETWORK = (
    _asking(
        "host_port", "reach a port of the host", _tries("timeout 2 bash -c ': > /dev/tcp/127.0.0.1/{port}'"), "T41"
    ),
    Probe("internet", "reach the internet", _tries("timeout 2 bash -c ': > /dev/tcp/1.1.1.1/53'"), "T41"),
    Probe(
        "datagram", "send a datagram to the host", "echo x > /dev/udp/127.0.0.1/{udp}; true", "T41", evidence="datagram"
    ),
    _asking(
        "abstract_socket",
        "reach an abstract socket",
        _tries(
            "perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0); "
            'exit(connect(S, pack("Sa*", 1, "\\0{abstract}")) ? 0 : 1)\''
        ),
        "T41",
    ),
    _asking("interfaces", "see network interfaces", _tries("grep -v 'lo:' /proc/net/dev | grep -q :"), "T41"),
    Probe("names", "ask for a name", _tries("timeout 2 getent hosts example.com"), "T41"),
    _asking("raw_socket", "open a raw socket", "perl -e 'socket(S, 2, 3, 1) and print \"ESCAPED\\n\"'", "T41"),
    _asking(
        "socket_pair",
        "open a pair of TIPC sockets",
        "perl -e 'socketpair(A, B, 30, 1, 0); print \"ESCAPED\\n\" unless $!{EAFNOSUPPORT}'",
        "T41",
    ),
    _family("packet", 17),
    _family("vsock", 40, 1),
    _family("netlink", 16),
    _family("alg", 38, 5),
    _family("bluetooth", 31),
)

LIMITS = (
    Probe(
        "many_processes",
        "have more processes than allowed",
        (
            "perl -e 'for (1..60) { my $p = fork; last unless defined $p; if (!$p) { sleep 3; exit } $n++ } "
            'print "ESCAPED\\n" if $n > 30; kill 9, -$$\''
        ),
        "T29",
        limits=SMALL,
    ),
    Probe(
        "much_memory",
        "use more memory than allowed",
        'perl -e \'$x = "a" x 300_000_000; print "ESCAPED\\n"\'',
        "T29",
        limits=SMALL,
    ),
    Probe(
        "shared_memory_hog",
        "use it through files in memory",
        _tries("head -c 200000000 /dev/zero > /dev/shm/x"),
        "T29",
        limits=SMALL,
    ),
    Probe(
        "long_file", "write a longer file than allowed", _tries("head -c 20000000 /dev/zero > f"), "T29", limits=SMALL
    ),
    Probe("sparse_file", "make a huge file of nothing", _tries("truncate -s 100G f"), "T29"),
    Probe(
        "full_tmp",
        "fill /tmp",
        _tries("for i in 1 2 3 4; do head -c 3000000 /dev/zero > /tmp/$i || exit 0; done; true"),
        "T29",
        limits=SMALL,
    ),
    Probe(
        "many_names",
        "make more names in /tmp than allowed",
        _tries("mkdir /tmp/m && touch /tmp/m/{1..400}"),
        "T29",
        limits=SMALL,
    ),
    Probe(
        "many_files",
        "open more files than allowed",
        (
            'perl -e \'while (@f < 200) { open(my $f, "<", "/dev/null") or last; push @f, $f } '
            'print "ESCAPED\\n" if @f > 100\''
        ),
        "T29",
        limits=SMALL,
    ),
    _asking("core_dump", "leave a core dump", "test $(ulimit -c) = 0 || echo ESCAPED", "T29"),
    Probe(
        "spin",
        "use more processor time than allowed",
        "while :; do :; done; echo ESCAPED",
        "T29",
        limits=ExecLimits(4, 1),
    ),
    Probe("sleep", "never end", "sleep 100; echo ESCAPED", "T29", limits=ExecLimits(0.5)),
)

ORDINARY = (
    _asking("write", "write the workspace", "echo x > made && grep -q x made && echo WORKS", attack=False),
    _asking("read", "read the workspace", "grep -q hello hello.txt && echo WORKS", attack=False),
    Probe(
        "read_only",
        "read a workspace that is read-only",
        "grep -q hello hello.txt && echo WORKS",
        attack=False,
        writable=False,
    ),
    Probe(
        "folders", "make, move and remove folders", "mkdir -p a/b && mv a/b c && rm -r a c && echo WORKS", attack=False
    ),
    _asking("temporary", "use /tmp", "f=$(mktemp) && echo x > $f && echo WORKS", attack=False),
    _asking("home", "use its home", "echo x > ~/x && echo WORKS", attack=False),
    _asking(
        "pipes",
        "join programs",
        "seq 100 | grep -c 1 | grep -q 20 && diff <(echo a) <(echo a) && echo WORKS",
        attack=False,
    ),
    _asking("background", "wait for background work", "(sleep 0.05; echo WORKS) & wait", attack=False),
    _asking(
        "names_of_all_kinds", "use any file name", "touch 'ä b\"c' && ls | grep -q 'ä b' && echo WORKS", attack=False
    ),
    _asking(
        "null", "use the usual devices", "head -c 8 /dev/urandom > /dev/null && echo WORKS > /dev/stdout", attack=False
    ),
    _asking(
        "own_socket",
        "talk to itself through a socket in the workspace",
        (
            "perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0); bind(S, pack_sockaddr_un(qq(own))); listen(S, 1); "
            "socket(C, AF_UNIX, SOCK_STREAM, 0); connect(C, pack_sockaddr_un(qq(own))) and print qq(WORKS)'"
        ),
        attack=False,
    ),
    _asking("settings_read", "read settings of packages", "grep -q x=y deep/er/.npmrc && echo WORKS", attack=False),
    Probe(
        "folder_moved", "move a folder with such in it", "mv deep moved && mv moved deep && echo WORKS", attack=False
    ),
    _asking("here_documents", "use here documents", "cat <<< WORKS", attack=False),
    _asking(
        "loopback",
        "talk to itself",
        (
            'perl -MIO::Socket::INET -e \'$s = IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1") or die; '
            '$c = IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $s->sockport) and print "WORKS\\n"\''
        ),
        attack=False,
    ),
)

PROBES = (*FILES, *PROTECTED, *PROCESSES, *KERNEL, *NETWORK, *LIMITS, *ORDINARY)


_QUICK = "host_file git_hook launcher_environment root_inside syscall_mount host_port shared_tmp many_processes write"
QUICK = tuple(probe for probe in PROBES if probe.name in _QUICK.split())
"""A few of them that take little time together, one for each kind of wall."""


def probe_named(name: str) -> Probe:
    return next(probe for probe in PROBES if probe.name == name)


def by_threat(threat: str) -> Iterator[Probe]:
    return (probe for probe in PROBES if probe.threat == threat)
