"""Shell texts that only read need no yes. Whatever is not known to read is taken to write."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from toolwire import Effect, Grant, Tier, Tool, Toolbox, ToolCall
from toolwire.decide.ladder import Case, decide, explain
from toolwire.decide.reading import only_reads
from toolwire.decide.shell import read_shell
from toolwire.protocol.calls import Allowed, Denied, NeedsApproval
from toolwire.protocol.policy import Autonomy, Rule

SCHEMA = {"properties": {"command": {"type": "string"}}}
BASH = Tool("bash", "Run.", SCHEMA, tier=Tier.RUN, needs=frozenset({"shell"}), reading_box=True)
FREE = Grant(tier=Tier.RUN, permissions=frozenset({"shell"}), roots=("/w",))


def reads(text: str) -> bool:
    return only_reads(read_shell(text))


def judged(text: str, grant: Grant = FREE, tool: Tool = BASH, *, tainted: bool = False) -> type:
    case = Case(ToolCall(tool.name, {"command": text}, id="c"), Toolbox.of(tool), grant, tainted=tainted)
    return type(decide(case))


READING = [
    "ls", "ls -la | head -3", "cat a.txt b.txt", "wc -l src/*.py", "grep -rn 'def ' src --include='*.py'",
    "find . -name '*.py' -not -path './.git/*' -mtime -7 | sort", "sort -t, -k4 -n a.csv", "uniq -c a.txt",
    "sed -n '1,3p' a", "sed 's/a/b/g' a", "sed -e 1d -e '/x/d' a", "tr a-z A-Z < a", "diff <(ls a) <(ls b)",
    "git status --short", "git log --oneline -5", "git -C src diff HEAD~1 --stat", "git show HEAD:a.txt",
    "git branch -a", "git branch --merged main", "git tag -l 'v*'", "git stash list", "git config --get user.name",
    "git --no-pager log -p -- src/a.py", "git rev-parse --abbrev-ref HEAD", "git grep -n total", "timeout 5 ls",
    "nice -n 3 env ls", "command -v git", "env | sort", "time ls > /dev/null", "ls 2>/dev/null || true",
    "ls > /dev/null 2>&1", "for f in *.py; do wc -l < $f; done", "(cd src && ls)", "if grep -q a b; then echo yes; fi",
    "[ -d src ] && echo folder", "test -f a; echo $?", "echo \"$((3 * 7))\"", "printf '%s\\n' a", "date +%Y",
    "date -d yesterday -u", "ls *.py | xargs grep -l class", "find . -print0 | xargs -0 wc", "echo ${HOME} ${HOME%/x}",
    "# what is here\nls", "set -euo pipefail; ls", "python3 --version", "jq .a b.json", "rg -n --hidden total src",
    "tree -L 2", "ls \\\n  -la", "xxd a | head -1", "/bin/ls /usr",
]  # fmt: skip


@pytest.mark.parametrize("text", READING)
def test_a_command_that_only_reads_is_known_as_one(text: str) -> None:
    assert reads(text)
    assert judged(text) is Allowed


WRITING = [
    "rm x", "touch x", "tee x", "cp a b", "mv a b", "ln -s a b", "mkdir d", "chmod +x a", "dd if=a of=b", "split a",
    "ls > x", "ls >> x", "ls >| x", "ls &> x", "ls >& x", "ls 2> x", "ls 1<> x", "> x", "exec 3> x", "ls >&$f",
    "sort -o x a", "sort -nox a", "sort --output=x a", "sort a -o x", "sort --outp=x a", "sort -T . a",
    "sort --compress-program=./x a", "sort *", "sort $f", "sort -k $o a", "sort < a -o x", "sort > /dev/null -o x a",
    "uniq a x", "uniq -c a x", "shuf -o x a", "tree -o x", "xxd -r a x", "xxd a x", "xxd a -i", "xxd a \\ ",
    "# a\\\ntouch x\nls", "file -C -m a", "iconv -o x a", "find . -delete", "find . -exec rm {} +",
    "find . -ok rm {} ;", "find . -fprint x", "find . -fprintf x a", "find . -fls x", "find . -execdir ls", "find $x",
    "find . -files0-from a", "sed -i s/a/b/ a", "sed -ni 1p a", "sed --in-place s/a/b/ a", "sed -n 'w x' a",
    "sed 's/a/b/w x' a", "sed 's/a/b/e' a", "sed e a", "sed '1e touch x' a", "sed -f a b", "sed -s -i p a",
    "sed p a -i", "sed -n '$!w x' a", "sed 's/[/]/p;/w x/p' a", "sed 's/[]/]/p;/w x/p' a", "sed 's/[^]/]/p;/w x/p' a",
    "sed \"s/a/$b/\" a", "sed 'p;w x' a", "sed 's,a,b,w x' a", "sed '/a/,/b/w x' a", "sed 'y/a/b/;w x' a",
    "sed '1{p\nw x\n}' a", "sed 's/a/b/\nw x' a", "awk '{print > \"x\"}' a", "awk '{system(\"touch x\")}' a",
    "perl -e 1", "python3 -c 1", "python3 --version -c 1", "git add a", "git commit -m a", "git checkout b",
    "git push", "git -c core.pager=x log", "git log --output=x", "git diff --outpu=x", "git diff --ext-diff",
    "git grep -O a", "git grep --open-files-in-pager=x a", "git branch x", "git branch -D x", "git branch --list -D x",
    "git tag v1", "git tag -d v1", "git stash", "git stash drop", "git config user.name x",
    "git config --get a --add b c", "git reflog expire", "git remote add a b", "git st", "git --git-dir=x status",
    "git --exec-path=. status", "git -p log", "git worktree add x", "git archive -o x HEAD", "git log $x",
    "git log --show-signature", "git cat-file --textconv a", "git rev-parse --parseopt", "git bisect run ls",
    "xargs rm", "ls | xargs -I{} rm {}", "ls | xargs -Ils ls", "xargs -n1 sh -c ls", "xargs sort", "xargs -a x",
    "env A=1 ls", "env -S 'rm x'", "env -a ls rm x", "env -uC rm ls", "env -u $x ls", "exec -a ls rm x",
    "exec -als rm x", "timeout $x ls", "timeout --foreground 5 rm x", "/usr/bin/time -o x ls", "time -o ls rm x",
    "nice rm x", "sudo ls", "command rm x", "builtin eval ls", "coproc ls", "nohup touch x", "stdbuf -oL touch x",
    "setsid touch x", "watch ls", "PATH=. ls", "PATH=.; ls", "export PATH=.; ls", "declare -x PATH=.; ls",
    "for PATH in .; do ls; done", "unset x; ls", "read PATH; ls", "printf -v PATH .", "printf $f .", "printf -- a",
    "((PATH=1)); ls", "let PATH=1; ls", "hash -p ./x ls", "alias ls=rm; ls", "ls() { rm x; }; ls",
    "shopt -s expand_aliases", "set -k; ls", "set -- a", "set -o posix", "trap ls EXIT",
    "for f in 'a[$(touch x)]'; do echo $((f)); done", "[[ 'a[$(touch x)]' -eq 0 ]] && ls", "test -v 'a[$(touch x)]'",
    "[ -v 'a[$(touch x)]' ] && ls", "[ $f ] && ls", "[ a > x ] && ls", "[ -d s2>x ] && ls", "echo ${PATH:=.}",
    "echo ${f@P}", "echo ${!f}", "echo ${f[0]}", "echo ${f:a}", "[[ -v f ]] && ls", "echo $[f]", "ls $(touch x)",
    "ls `touch x`", "echo \"$(touch x)\"", "cat <(touch x)", "ls | tee x", "ls; rm x", "ls && rm x", "ls || rm x",
    "ls & rm x", "ls\nrm x", "{ ls; rm x; }", "(rm x)", "! rm x", "if rm x; then ls; fi", "while rm x; do ls; done",
    "cat <<< $(touch x)", "cat <<EOF\n$(touch x)\nEOF", "cat <<EOF\na\nEOF", "cat <<'EOF' | sh\nrm x\nEOF",
    "ls # a\nrm x", "./ls", "bin/ls", "~/ls", "$x", "$(echo ls)", "'r''m' x", "\\rm x", "r\\\nm x", "sort -\\\no x a",
    "ls\rrm x", "l\u00a0s", "ls\x0b-la", "date -s 1", "date 010100002026", "date +%Y -s 1", "hostname x", "unknown",
    "lss", "eval ls", ". ./ls", "source ls", "bash -c ls", "sh ls", "busybox ls", "curl x", "ssh x ls", "kill 1",
    "mktemp", "make", "case a in *) rm x;; esac", "", " ", "# nothing", "ls 'open", "ls " + "a" * 20_000,
    "echo \ud800",
]  # fmt: skip


@pytest.mark.threat("T26")
@pytest.mark.parametrize("text", WRITING)
def test_nothing_that_could_write_or_run_something_else_is_taken_for_reading(text: str) -> None:
    assert not reads(text)


WRITERS = ["touch w", "tee w", "rm a", "sort -o w a", "sed -i p a", "unknown", "cp a w", "git add a", "find . -delete"]
FRAMES = [
    "{w}", "{r}; {w}", "{w} && {r}", "{r} | {w}", "{w} | {r}", "({r}; {w})", "{r} $({w})", "echo \"$({w})\"",
    "if {r}; then {w}; fi", "for f in a b; do {r}; {w}; done", "timeout 5 {w}", "nice {w}; {r}", "{r} &\n{w}",
    "cat <({w})", "{r} || ! {w}", "env {w}", "command {w} 2>/dev/null", "{{ {r}; {w}; }}", "echo `{w}`; {r}",
    "while {w}; do {r}; done", "2>/dev/null {w}", "exec {w}", "{r} # a\n{w}", "time {w}", "cat <<< $({w})",
]  # fmt: skip
WORDS = st.sampled_from(
    [
        *(
            "ls",
            "cat",
            "a",
            "b",
            "sort",
            "echo",
            "grep",
            "find",
            ".",
            "-o",
            "w",
            "-n",
            "touch",
            "tee",
            "-name",
            "-delete",
        ),
        *("'", '"', "$(", ")", "`", "|", ";", "&&", "&", ">", ">>", ">&", "2>", "<", "/dev/null", "1", "\\", "\n", "#"),
        *("$x", "${x}", "$((", "))", "{", "}", "(", "*", "-exec", "sed", "p", "-e", "w w", "-i", "for", "in", "do"),
        *(
            "done",
            "if",
            "then",
            "fi",
            "x=1",
            "env",
            "exec",
            "-a",
            "time",
            "test",
            "[",
            "]",
            "[[",
            "]]",
            "-v",
            "<(",
            "uniq",
        ),
        *("<<<", "!", "xargs", "printf", "-v", "PATH", ".", "\\\n", "cd", "git", "log", "--output=w", "timeout", "5"),
    ]
)


@given(st.sampled_from(FRAMES), st.sampled_from(READING), st.sampled_from(WRITERS))
def test_no_text_with_a_writing_command_anywhere_in_it_is_called_reading(
    frame: str, reading: str, writing: str
) -> None:
    assert not reads(frame.format(r=reading, w=writing))


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(WORDS, st.sampled_from(["", " ", " "])), min_size=1, max_size=9))
def test_what_is_called_reading_changes_nothing_in_a_real_shell(tmp_path: Path, pieces: list[tuple[str, str]]) -> None:
    text = "".join(f"{word}{gap}" for word, gap in pieces)
    if not reads(text):
        return
    for name in ("a", "b"):
        (tmp_path / name).write_text("p\n")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    with_nothing = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    shell = ["timeout", "2", "bash", "--noprofile", "--norc", "-c", text]
    subprocess.run(shell, cwd=tmp_path, env=with_nothing, stdin=subprocess.DEVNULL, capture_output=True, check=False)

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@given(st.text())
def test_any_text_can_be_judged(text: str) -> None:
    assert reads(text) in (True, False)


@pytest.mark.parametrize(
    ("grant", "outcome"),
    [
        (FREE, Allowed),
        (replace(FREE, autonomy=Autonomy.READONLY), Allowed),
        (replace(FREE, permissions=frozenset()), Denied),
        (replace(FREE, tier=Tier.WALK), Denied),
        (replace(FREE, rules=(Rule.parse("deny bash where command is ls"),)), Denied),
        (replace(FREE, rules=(Rule.parse("ask needs shell"),)), NeedsApproval),
    ],
)
def test_reading_is_free_within_the_grant_and_its_rules(grant: Grant, outcome: type) -> None:
    assert judged("ls -la", grant) is outcome


def test_reading_needs_no_approval_in_a_turn_that_has_read_untrusted_content() -> None:
    assert judged("ls", tainted=True) is Allowed
    assert judged("touch x", tainted=True) is NeedsApproval


def test_a_tool_that_promises_no_box_or_wants_confirmation_is_asked_about_as_ever() -> None:
    assert judged("ls", tool=replace(BASH, reading_box=False)) is NeedsApproval
    assert judged("ls", tool=replace(BASH, requires_confirmation=True)) is NeedsApproval
    assert judged("ls", replace(FREE, autonomy=Autonomy.READONLY), replace(BASH, reading_box=False)) is Denied
    assert replace(BASH).effect is Effect.UNSAFE


def test_an_explanation_says_that_it_only_reads() -> None:
    climb = explain(Case(ToolCall("bash", {"command": "ls | wc -l"}), Toolbox.of(BASH), FREE))
    [rung] = [one for one in climb if one.rule == "confirmation"]
    assert (rung.verdict, "only reads" in rung.sentence) == ("passed", True)


@pytest.mark.parametrize("text", ["curl --version", "ssh -V", "rsync --help", "rsync -a src/ copy/"])
def test_a_network_command_that_reaches_nothing_is_not_refused_for_want_of_a_network(text: str) -> None:
    assert judged(text) is NeedsApproval  # this tool knows no trials


@pytest.mark.parametrize(
    "text", ["curl http://a.example", "curl --version http://a.example", "rsync -a src/ a:b", "ssh a"]
)
def test_control_one_that_wants_to_reach_something_is(text: str) -> None:
    assert judged(text) is Denied
