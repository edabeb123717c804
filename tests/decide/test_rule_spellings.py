"""A rule that denies means the thing: every spelling of an address, values of any length, programs behind options."""

import pytest
from msgspec.structs import replace

from toolwire import Effect, Grant, Tier, Tool
from toolwire.decide.addresses import address_fits
from toolwire.decide.globs import fits
from toolwire.decide.policy import Ruling, ruling
from toolwire.decide.reading import only_reads
from toolwire.decide.shell import read_shell
from toolwire.protocol.policy import Autonomy, Rule, Verdict

ALLOW, ASK, DENY = Verdict.ALLOW, Verdict.ASK, Verdict.DENY
TEXT = {"type": "string"}
BASH = Tool("bash", "Run.", {"properties": {"command": TEXT}}, tier=Tier.RUN, needs=frozenset({"shell"}))
FETCH = Tool("webfetch", "", {"properties": {"url": TEXT}}, effect=Effect.IDEMPOTENT, needs=frozenset({"network"}))
BROWSER = replace(FETCH, name="browser", tier=Tier.RUN)
WRITE = Tool("write", "", {"properties": {"path": TEXT, "content": TEXT}}, tier=Tier.RUN)
ONLINE = Grant(Tier.RUN, frozenset({"shell", "network"}), ("/w",), network=("good.test:8099",), autonomy=Autonomy.FULL)
ADMIN = "deny webfetch where url is http://good.test:8099/admin*"

OFFLINE = replace(ONLINE, network=())


def under_secrets(text: str) -> Ruling:
    """What comes of a command where files in a folder may not be read."""
    rule = Rule.parse("deny read where path is secrets/*")
    return ruling(BASH, {"command": text}, replace(OFFLINE, rules=(rule,)))


SAME = [
    *("http://good.test:8099/admin", "http://good.test:8099//admin/x", "http://good.test:8099/./admin"),
    *("http://good.test:8099/a/../admin", "http://good.test:8099/%61dmin", "http://good.test:8099/%2561dmin"),
    *("http://good.test.:8099/admin", "http://good.test:08099/admin", "HTTP://GOOD.TEST:8099/ADMIN"),
    *("http://me:pw@good.test:8099/admin", "http://good.test:8099/admin?x=1", "http://good.test:8099/admin#x"),
    *("http://good.test:8099/ad\tmin", " http://good.test:8099/admin", "http://good.test:8099\\admin"),
    *("http://good%2etest:8099/admin", "http://good\u3002test:8099/admin", "http://go\u00adod.test:8099/admin"),
    *("http://good.test:8099/%2e%2e/admin", "http://good.test:8099/x/%2e%2e/admin", "http://good.test:8099/;/../admin"),
    *("http:/good.test:8099/admin", "http://good.test:8099/\uff41dmin", "http://good.test:8099/x%2f..%2fadmin"),
]
OTHERS = [
    *("http://good.test:8099/", "http://good.test:8099/docs/admin", "http://good.test:8099/x?u=/admin"),
    *("http://other.test:8099/admin", "http://good.test:8098/admin", "http://good.test:8099@other.test/admin"),
]


@pytest.mark.parametrize("tool", [FETCH, BROWSER], ids=["webfetch", "browser"])
@pytest.mark.parametrize("url", SAME)
def test_T92_every_spelling_of_an_address_is_the_address(tool: Tool, url: str) -> None:
    assert ruling(tool, {"url": url}, replace(ONLINE, rules=(Rule.parse(ADMIN),))).verdict is DENY


def test_T92_control_compared_as_text_most_spellings_are_other_addresses() -> None:
    passed = [url for url in SAME if not fits(url, "http://good.test:8099/admin*")]
    assert len(passed) == len(SAME) - 3


@pytest.mark.parametrize("tool", [FETCH, BROWSER], ids=["webfetch", "browser"])
@pytest.mark.parametrize("url", OTHERS)
def test_other_addresses_are_not_taken_for_a_denied_one(tool: Tool, url: str) -> None:
    assert ruling(tool, {"url": url}, replace(ONLINE, rules=(Rule.parse(ADMIN),))).verdict is ALLOW


@pytest.mark.parametrize(
    ("pattern", "url"),
    [
        ("https://bücher.test/*", "https://xn--bcher-kva.test/a"),
        ("https://xn--bcher-kva.test/*", "https://BÜCHER.test/a"),
        ("http://127.0.0.1/*", "http://2130706433/x"),
        ("http://127.0.0.1/*", "http://0x7f.1/x"),
        ("http://127.0.0.1/*", "http://[::ffff:127.0.0.1]/x"),
        ("http://127.0.0.1:8099/*", "http://[::ffff:7f00:1]:8099/x"),
        ("http://[::ffff:7f00:1]/*", "http://127.1/x"),
        ("http://[::1]/*", "http://[0:0:0:0:0:0:0:1]/x"),
        ("https://good.test/*", "https://good.test:443"),
        ("https://good.test:443/*", "https://good.test/a"),
        ("https://good.test", "https://good.test/"),
        ("https://*.good.test/*", "https://a.good.test/"),
        ("good.test/admin*", "https://good.test/admin"),
        ("*evil.test*", "https://EVIL.test./"),
        ("https://GOOD.test./Admin", "https://good.test/admin/?a"),
    ],
)
def test_T92_patterns_and_addresses_are_brought_into_one_spelling(pattern: str, url: str) -> None:
    assert address_fits(url, pattern)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("curl http://good.test:8099/admin", DENY),
        ("curl -s good.test:8099/./admin -o x", DENY),
        ("wget --header=a:b http://good.test:8099//admin", DENY),
        ("curl -K config", ASK),
        ("curl http://good.test:8099/docs", ASK),
        ("python3 fetch.py", ASK),
        ("cat README.md | sort", ALLOW),
        ("mkdir -p a/b && touch a/b/c", ALLOW),
    ],
)
def test_T92_a_command_with_a_way_out_is_asked_about_where_an_address_is_denied(text: str, verdict: Verdict) -> None:
    ruled = ruling(BASH, {"command": text}, replace(ONLINE, rules=(Rule.parse(ADMIN),)))
    assert ruled.verdict is verdict, ruled.sentence
    assert ruling(BASH, {"command": text}, ONLINE).verdict is ALLOW, "the control: without the rule it runs"


@pytest.mark.parametrize("before", [0, 9_999, 10_001, 3_000_000])
def test_T93_a_pattern_fits_values_of_any_length(before: int) -> None:
    grant = replace(ONLINE, rules=(Rule.parse("deny write where content is *PRIVATE KEY*"),))
    long = "a/" * (before // 2)
    assert ruling(WRITE, {"path": "a", "content": f"{long}-- private key --"}, grant).verdict is DENY
    assert ruling(replace(WRITE, name="write_file"), {"content": f"{long}private key"}, grant).verdict is DENY
    assert ruling(WRITE, {"path": "a", "content": f"{long}nothing"}, grant).verdict is ALLOW


def test_T93_control_a_bound_on_the_length_lets_the_rest_through() -> None:
    value = "x" * 10_001 + "PRIVATE KEY"
    assert fits(value, "*PRIVATE KEY*")
    assert not fits(value[:10_000], "*PRIVATE KEY*")


def test_a_pattern_with_many_stars_takes_time_that_grows_with_the_value_alone() -> None:
    grant = replace(ONLINE, rules=(Rule.parse(f"deny write where content is {'*a' * 50}*b"),))
    assert ruling(WRITE, {"content": "a" * 4_000_000}, grant).verdict is ALLOW


STARTS_A_PROGRAM = [
    *("git grep -O'touch x' foo", "git grep -Otouch foo", "git grep -nOtouch foo", "git grep -O/usr/bin/touch foo"),
    *("git grep --open-files-in-pager=touch foo", "git grep --open-files-in-pager='touch x' foo"),
    *("git -c core.pager='touch x' log", "git -c diff.external=touch diff", "git -c alias.x='!touch y' x"),
    *("rg --pre touch foo", "rg --pre=touch foo", "rg --hostname-bin=touch foo", "sort --compress-program=touch a"),
    *("find . -exec touch x ;", "find . -ok touch x ;", "find . -execdir touch x +", "xargs touch", "xargs -n1 touch"),
    *("tar --to-command=touch -xf a", "tar -I touch -xf a", "tar -Itouch -xf a", "less '+!touch x' a", "env touch x"),
    *("man -Ptouch ls", "man -H'touch x' ls", "ssh -oProxyCommand='touch x' h", "split --filter='touch x' a"),
]
WRITES_A_FILE = [
    *("git log --output=x", "git diff --output x", "git archive -o x HEAD", "git archive --output=x HEAD"),
    *("sort -o x a", "sort -ox a", "sort --output=x a", "tree -o x", "file -C -m x", "xxd -r a x", "xxd a x"),
    *("find . -fprintf x %p", "find . -fprint x", "find . -fls x", "find . -delete", "date -s now", "date 01010000"),
    *("shuf -o x a", "uniq a x", "iconv -o x a", "git diff --ext-diff", "git log --textconv -p", "git show --ext-diff"),
    *("git diff --no-index --ext-diff a b", "git cat-file --textconv HEAD:a", "git cat-file --filters HEAD:a"),
    *("git format-patch HEAD", "git branch x", "git tag x", "git config a.b c", "git remote add a b", "git stash"),
    *("git bundle create x HEAD", "git --exec-path=. log", "git --git-dir=x log", "git -p log", "sed -i s/a/b/ x"),
    *("sed -n 'w x' a", "sed 'e touch x' a", "hostname new", "printf -v x a", "env -S 'touch x'", "jq . a > x"),
]


@pytest.mark.parametrize("text", STARTS_A_PROGRAM)
def test_T94_a_program_behind_an_option_is_found_by_a_rule_that_denies_it(text: str) -> None:
    online = replace(ONLINE, network=())
    denied = replace(online, rules=(Rule.parse("deny bash where command is touch"),))
    assert ruling(BASH, {"command": text}, denied).verdict is not ALLOW
    assert ruling(BASH, {"command": text}, online).verdict is ALLOW, "the control: at full autonomy it runs unasked"


@pytest.mark.parametrize("text", [*STARTS_A_PROGRAM, *WRITES_A_FILE])
def test_T94_no_option_that_starts_a_program_or_writes_a_file_counts_as_reading(text: str) -> None:
    assert not only_reads(read_shell(text))


@pytest.mark.parametrize(
    "text", ["git grep -n touch", "git log --oneline -O1 || ls", "sort -n a", "find . -name touch"]
)
def test_a_denied_word_that_is_only_looked_for_is_not_asked_about(text: str) -> None:
    denied = replace(ONLINE, rules=(Rule.parse("deny bash where command is touch"),))
    assert ruling(BASH, {"command": text}, denied).verdict is ALLOW


def test_T94_control_a_table_without_options_would_take_git_grep_for_reading() -> None:
    assert only_reads(read_shell("git grep -n foo"))
    assert read_shell("git grep -Otouch foo").commands[0][:2] == ("git", "grep")


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("/usr/lib/git-core/git-push origin", DENY),
        ("/usr/libexec/git-core/git-push", DENY),
        ("cd /usr/lib/git-core && ./git-push", DENY),
        ("timeout 9 /usr/lib/git-core/git-push", DENY),
        ("ls | xargs /usr/lib/git-core/git-push", ASK),
        ("sh -c '/usr/lib/git-core/git-push x'", ASK),
        ("/usr/lib/git-core/git-status", ALLOW),
        ("git status", ALLOW),
        ("git-lfs status", ALLOW),
    ],
)
def test_T94_a_program_of_git_is_the_git_command_that_a_rule_denies(text: str, verdict: Verdict) -> None:
    denied = replace(ONLINE, rules=(Rule.parse("deny bash where command is git push"),))
    assert ruling(BASH, {"command": text}, denied).verdict is verdict
    assert ruling(BASH, {"command": text}, ONLINE).verdict is ALLOW, "the control: without the rule it runs"


def test_T94_a_program_with_the_name_of_a_git_command_is_not_allowed_by_a_rule_for_git() -> None:
    allowed = replace(
        ONLINE, autonomy=Autonomy.SUPERVISED, rules=(Rule.parse("allow bash where command is git commit"),)
    )
    asks = replace(BASH, requires_confirmation=True)
    assert ruling(asks, {"command": "git commit -m a"}, allowed).verdict is ALLOW
    assert ruling(asks, {"command": "./git-commit -m a"}, allowed).verdict is ASK


READS_IT = [
    *("find -L src", "rg -L x src", "tree -l src", "diff -r src x", "for i in 1 2; do cat k; cd secrets; done"),
    *("cat secrets/k", "cat ./secrets/k", "cat SECRETS/k", "cat /w/secrets/k", "cat /workspace/secrets/k", "cat $x"),
    *("cat ../workspace/secrets/k", "cat /proc/self/cwd/secrets/k", "cat /./proc/1/root/workspace/secrets/k"),
    *(
        "env -C secrets cat k",
        "cd secrets && cat k",
        "pushd secrets; cat k",
        "(cd secrets; cat k)",
        "cd x; cd -; cat k",
    ),
    *(
        "date -f secrets/k",
        "pgrep -F secrets/k",
        "wc --files0-from=secrets/k",
        "grep -fsecrets/k a",
        "grep -nf secrets/k a",
    ),
    *("read x < secrets/k", "while read l; do echo $l; done < secrets/k", "exec 3<secrets/k", "echo $(<secrets/k)"),
    *("git show HEAD:secrets/k", "git log -p", "git log -U3", "git log --binary", "git log --cc", "git log -S x"),
    *(
        "git diff",
        "git grep x",
        "git blame README.md",
        "git status -v",
        "git commit -v -m x",
        "git add -p",
        "git reflog -p",
    ),
    *(
        "git cat-file -p HEAD:secrets/k",
        "git archive HEAD",
        "git stash show -p",
        "git worktree add ../x",
        "git clone . y",
    ),
    *(
        "grep -r x .",
        "grep -R x src",
        "rg x",
        "find . -name k",
        "ls -R",
        "tree",
        "diff -r . src",
        "grep -r x /",
        "du -a .",
    ),
    *(
        "ls secrets",
        "ls -la secrets/",
        "cp -r . x",
        "cp -a . x",
        "mv secrets x",
        "ln -s secrets x",
        "ln -s . x",
        "tar cf x .",
    ),
    *(
        "python3 x.py",
        "make",
        "npm test",
        "awk 1 README.md",
        "sed -f x README.md",
        "xargs cat",
        "sh x",
        "source x",
        "vim x",
    ),
    *("echo secrets/*", "echo ./secrets/k*", "printf %s /workspace/secrets/*", "cd secrets && ls"),
    *(
        "grep --rec KEY",
        "grep --recurs KEY .",
        "grep --r KEY src .",
        "grep --dereference-rec KEY src",
        "grep -5r KEY .",
    ),
    *("sort --files0=-", "sort --files0-from=-", "wc --files0=list", "du --files0-from=-", "file --files-f list"),
    *("file -bf list", "file -f list", "file --files-from=list", "ls --rec", "ls -1R", "ls --recursive", "du --al ."),
    *("git status --verb", "git status --v", "git commit --dry-run --verb", "git commit --edi", "git add --pat"),
    *("sort --compress-program=src/x.sh -S1k a", "sort --compress-prog src/x.sh a", "rg --pre src/x.sh x src"),
    *(
        "rg --hostname-bin=src/x.sh x src",
        "install -s --strip-program=src/x.sh a b",
        "install --strip-p=src/x.sh -s a b",
    ),
    *("find src -exec sh -c 'cat s*/k' ;", "find src -files0-from list", "tree --fromfile src", "cp --rec . x"),
    *("du --deref src", "git for-each-ref --format='%(raw)'", "cp --arch . x", "tail --unknown a.txt"),
    *("jq -L secrets 'import \"k\" as $d; $d' a", "cat s*/k", "cat {secrets,src}/k", "cat ~/k", "zcat secrets/k.gz"),
]
READS_OTHERS = [
    *("echo src/*", "echo *", "cd src && ls", "echo secrets/", 'echo "secrets: $x"'),
    *("grep -rl x src", "tree src", "sort -u a.txt", "ls --color=auto", "ls --all src", "grep --recursive x src"),
    *("grep --include='*.py' -rn x src", "grep --color=never -n x a.txt", "sort --unique --key=2 a.txt", "ls -1"),
    *("git status --short --branch", "git status --porcelain=v1", "git add --all", "git commit --amend --no-edit"),
    *("git commit --message=change", "find src -name k -type f", "rg --hidden -n x src", "du --summarize src"),
    *(
        "rm --force a.txt",
        "cp --verbose a.txt b.txt",
        "mkdir --parents a/b",
        "head --lines=5 a.txt",
        "wc --lines a.txt",
    ),
    *("install -m 755 a.txt b.txt", "file --brief a.txt", "git branch --list"),
    *(
        "cat README.md",
        "cat ./src/main.py",
        "ls",
        "ls -la",
        "ls -ltr src",
        "pwd",
        "echo secrets",
        "date +%F",
        "wc -l a.txt",
    ),
    *("grep -rn x src", "grep x README.md", "rg x src", "find src -name k", "cd src && cat main.py", "sort -r a.txt"),
    *("git status", "git status --short", "git log --oneline -5", "git log --stat", "git branch -a", "git add -A"),
    *(
        "git commit -m 'change it'",
        "mkdir -p a/b",
        "touch a.txt",
        "rm a.txt",
        "cp a.txt b.txt",
        "head -n 5 src/main.py",
    ),
    *(
        "cat < README.md",
        "cat README.md 2>/dev/null",
        "du -sh src",
        "stat README.md",
        "cat /etc/hostname",
        "true < /dev/null",
    ),
]


LISTS_IT = [
    *("echo */*", "echo */k", "echo s*/*", "echo ?ecrets/*", "echo [a-z]*/*", "echo sec[qr]ets/*", "printf '%s\\n' **"),
    *("for f in secrets/*; do echo $f; done", "for f in */*; do :; done", "set -- secrets/*; echo $@", "echo **/*"),
    *("echo {secrets,src}/*", "echo {src,s{e,x}crets}/*", "echo sec{rets/,}*", "echo s{e..e}crets/*", "echo {a..z}*/*"),
    *("echo /work*/secrets/*", "echo /*/s*/*", "echo src/../secrets/*", "echo */../secrets/*", "echo ./secrets//k?"),
    *(
        "echo 'secrets'/*",
        'echo "sec"rets/*',
        "echo sec\\rets/*",
        "echo $'secrets'/*",
        "echo ~+/secrets/*",
        "echo SECRETS/*",
    ),
    *(
        "a=(secrets/*); echo ${a[@]}",
        "x=secrets/*; echo $x",
        "echo $x/*",
        "echo $(echo 'secrets/*')",
        "echo secrets/**",
    ),
    *("echo $(printf 'secrets/\\x2a')", "for f in 'secrets/*'; do echo $f; done", "test -e */*", "cd s*; echo *"),
    *("cd secrets; echo *", "cd src; echo ../secrets/*", "cd src; echo ../*/*", "read x <<< secrets/*; echo $x"),
    *("echo secrets/.*", "select f in */*; do echo; done", "echo secrets/*/", "echo {,secrets/}*", "true */*"),
]


@pytest.mark.parametrize("text", LISTS_IT)
def test_T113_a_pattern_that_may_list_denied_names_does_not_run_unasked(text: str) -> None:
    rule = Rule.parse("deny read where path is secrets/*")
    assert ruling(BASH, {"command": text}, replace(ONLINE, network=(), rules=(rule,))).verdict is not ALLOW


def test_T113_control_without_the_rule_these_run() -> None:
    plain = replace(ONLINE, network=())
    assert [text for text in LISTS_IT if ruling(BASH, {"command": text}, plain).verdict is not ALLOW] == []


LISTS_OTHERS = [
    *(
        "echo *",
        "echo */",
        "echo src/*",
        "echo src/**/*.py",
        "for f in src/*.py; do echo $f; done",
        "echo *.py",
        "echo *.*",
    ),
    *(
        "echo {a,b}",
        "echo {src,tests}/*.py",
        "echo 'secrets/*'",
        'echo "*/*"',
        "echo \\*/\\*",
        "echo a[1]",
        "echo *-secrets/*",
    ),
    *(
        "cd src; echo *",
        "cd src; echo ../*",
        "printf '%s\\n' *",
        "echo $x",
        "echo $((2 * 3))",
        "echo src/[a-z]*/*",
        "echo .*",
    ),
    *(
        "echo /etc/*",
        "echo \"$(ls src)\" 'a*'",
        "for f in *; do echo $f; done",
        "printf '%s\\n' $(echo a)",
        "echo secret/*",
    ),
]


@pytest.mark.parametrize("text", LISTS_OTHERS)
def test_patterns_that_list_no_denied_name_run_as_before(text: str) -> None:
    ruled = under_secrets(text)
    assert ruled.verdict is ALLOW, ruled.sentence


@pytest.mark.parametrize(
    ("pattern", "text", "asks"),
    [
        ("*.pem", "echo *.pem", True), ("*.pem", "echo src/k*", True), ("*.pem", "echo *.py", False),
        ("*.pem", "echo *", False), ("secrets", "echo */*", True), ("secrets", "echo *", False),
        ("**/private/**", "echo a/private/*", True), ("**/private/**", "echo a/*/*", True),
        ("/w/secrets/*", "echo */*", True),
        (".ssh/*", "echo */*", False), (".ssh/*", "echo .*/*", True), ("a/b/c/*", "echo a/*/*", False),
        ("a/b/c/*", "echo a/*/*/*", True), (".env", "echo .e*", True), (".env", "echo *", False),
    ],
)  # fmt: skip
def test_T113_patterns_are_compared_with_all_kinds_of_rules(pattern: str, text: str, *, asks: bool) -> None:
    rule = Rule.parse(f"deny read where path is {pattern}")
    ruled = ruling(BASH, {"command": text}, replace(ONLINE, network=(), rules=(rule,)))
    assert (ruled.verdict is not ALLOW) is asks


LISTS_BY_OTHER_NAMES = [
    *("echo ../workspace/secrets/*", "cd src; echo ../../workspace/*/*", "echo ../*/secrets/*", "echo ${x:-secrets/*}"),
    *("echo ${x:-s*/*}", "echo ${x:-$(echo s)*/*}", "echo ${x:-${y:-s*/*}}", "echo sec${x:-rets/*}", "echo ${x-s*/k*}"),
    *("echo /proc/self/cwd/s*/*", "echo /pro?/$$/cwd/*/*", "cd /; echo proc/*/root/workspace/*/*", "echo /dev/fd/3/*"),
]


@pytest.mark.parametrize("text", LISTS_BY_OTHER_NAMES)
def test_T138_a_pattern_that_reaches_the_workspace_by_another_way_does_not_run_unasked(text: str) -> None:
    assert under_secrets(text).verdict is not ALLOW
    assert ruling(BASH, {"command": text}, OFFLINE).verdict is ALLOW, "without the rule it runs"


@pytest.mark.parametrize(
    "text",
    [
        *("echo ../*", "echo ../etc/*", "echo ${x:-none}", "echo ${x:-*.md}", "echo ${x%.*}", "echo ${x##*/}"),
        *("echo /proc/*/status", "echo /proc/cpu*", "echo /*/share", "echo ${x:-src/*}", 'echo "${x:-a}" src/*'),
    ],
)
def test_T138_control_patterns_that_find_other_names_run_as_before(text: str) -> None:
    ruled = under_secrets(text)
    assert ruled.verdict is ALLOW, ruled.sentence


READS_IN_ANOTHER_FOLDER = [
    *(
        "git -C secrets config -f k -l",
        "git --no-pager -C src -C ../secrets config --file=k --list",
        "git -C $d config -f k -l",
    ),
    *("git config -f /tmp/c --includes -l", "git config --fil /tmp/c -l", "git config --blob abc -l"),
    *("strings @/tmp/l", "strings -n 2 @src/list", "git -C secrets commit -F k", "git for-each-ref --format='%(*raw)'"),
]


@pytest.mark.parametrize("text", READS_IN_ANOTHER_FOLDER)
def test_T137_a_folder_or_list_that_a_command_is_given_does_not_hide_a_denied_file(text: str) -> None:
    assert under_secrets(text).verdict is not ALLOW
    assert ruling(BASH, {"command": text}, OFFLINE).verdict is ALLOW, "without the rule it runs"


@pytest.mark.parametrize(
    "text",
    [
        *("git -C src status", "git -C src config --get user.name", "git config -l", "git config user.name"),
        *("strings src/a.bin", "git -C src log --oneline", "git for-each-ref --format='%(refname)'"),
        *("git config --get-all remote.origin.url", "git config --global -l"),
    ],
)
def test_T137_control_the_same_commands_elsewhere_run_as_before(text: str) -> None:
    ruled = under_secrets(text)
    assert ruled.verdict is ALLOW, ruled.sentence


@pytest.mark.parametrize("text", READS_IT)
def test_T91_a_command_that_names_or_could_reach_a_denied_file_does_not_run_unasked(text: str) -> None:
    offline = replace(ONLINE, network=(), permissions=frozenset({"shell", "network"}))
    rule = Rule.parse("deny read where path is secrets/*")
    assert ruling(BASH, {"command": text}, replace(offline, rules=(rule,))).verdict is not ALLOW
    assert ruling(BASH, {"command": text}, offline).verdict is ALLOW, "the control: without the rule it runs"


@pytest.mark.parametrize("text", READS_OTHERS)
def test_a_command_that_cannot_reach_a_denied_file_runs_as_before(text: str) -> None:
    ruled = under_secrets(text)
    assert ruled.verdict is ALLOW, ruled.sentence


@pytest.mark.parametrize(
    "url",
    [
        *(
            "https://good.test/docs/../admin",
            "https://good.test/docs/%2e%2e/admin",
            "https://good.test/docs/..%2fadmin",
        ),
        *("https://good.test/docs/x/..", "https://good.test/docs//x", "https://good.test/docs\\..\\admin"),
        *("https://me@good.test/docs/x", "https://good.test/docs/%252e%252e/admin"),
    ],
)
def test_T92_a_rule_that_allows_some_addresses_does_not_allow_a_detour_out_of_them(url: str) -> None:
    asks = replace(FETCH, requires_confirmation=True)
    grant = replace(ONLINE, rules=(Rule.parse("allow webfetch where url is https://*good.test/docs*"),))
    assert ruling(asks, {"url": url}, grant).verdict is ASK
    assert ruling(asks, {"url": "https://good.test/docs/a/b.html?q=../x"}, grant).verdict is ALLOW
