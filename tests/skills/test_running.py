"""Calls to programs of skills: what they get, what comes of what they say, and what they cannot do."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.skills.conftest import Call
from tests.skills.making import GREET, all_trusted, greeter, one_tool, program, trusted
from toolwire.agent import Agent
from toolwire.errors import ToolFailure
from toolwire.execute.sandbox.engines import local_sandbox
from toolwire.execute.skill_folders import SkillCopies
from toolwire.protocol.outcomes import Code, Status
from toolwire.protocol.policy import Rule
from toolwire.testing import ScriptedModel
from toolwire.toolbox.skills.choice import choose
from toolwire.toolbox.skills.running import runnable_tools


@pytest.mark.feature("F055")
async def test_a_program_gets_its_arguments_as_json_and_gives_structured_output(call: Call, skills: Path) -> None:
    greeter(skills / "greeter")

    result = await call("greet", {"name": "Ada"})

    assert result.structured == {"greeting": "Hello, Ada!"}
    assert (result.status, result.exit_code, result.stderr) == (Status.SUCCESS, 0, "")


async def test_a_program_that_fails_is_a_failed_result_with_what_it_said(call: Call, skills: Path) -> None:
    greeter(skills / "greeter")

    result = await call("greet", {"name": "nobody"})

    assert (result.status, result.exit_code, result.stderr) == (Status.FAILED, 1, "there is nobody to greet\n")
    assert "ended with exit code 1. It said: there is nobody to greet" in result.text
    assert result.error is not None
    assert result.error.detail["engine"] == "bubblewrap"


async def test_flags_are_one_word_each_and_no_value_can_be_another_flag(call: Call, skills: Path) -> None:
    lines = ('input = "flags"', 'parameters = { name = "string", deep = "boolean", soft = "boolean", n = "integer", '
             'tags = "array", rest = "object", none = "string?" }')  # fmt: skip
    one_tool(skills / "flags", 'for word in "$@"; do echo "$word"; done', *lines)

    result = await call(
        "try-it",
        {"name": "--help; $(id)", "deep": True, "soft": False, "n": 5, "tags": ["a b", "c"], "rest": {"x": 1}},
    )

    assert result.text.splitlines() == [
        "--name=--help; $(id)", "--deep", "--no-soft", "--n=5", "--tags=a b", "--tags=c", '--rest={"x": 1}',
    ]  # fmt: skip


@pytest.mark.feature("F043")
@pytest.mark.parametrize(
    ("output", "says"),
    [
        ('{"greeting": 5}', "greeting: expected a string"),
        ("{}", "missing 'greeting'"),
        ('{"greeting": "a", "secret": "b"}', "unknown"),
        ("Hello", "not the JSON that it promises"),
        ("", "not the JSON that it promises"),
    ],
)
async def test_an_output_that_is_not_exactly_as_promised_is_a_failure(
    call: Call, skills: Path, output: str, says: str
) -> None:
    greeter(skills / "greeter", text=f"#!/bin/sh\necho '{output}'\n")

    result = await call("greet", {"name": "Ada"})

    assert (result.status, result.error and result.error.code) == (Status.FAILED, Code.INVALID_OUTPUT)
    assert says in result.text


async def test_without_an_output_schema_text_is_text_and_json_is_structured(call: Call, skills: Path) -> None:
    one_tool(skills / "plain", "echo hello", name="plain")
    one_tool(skills / "json", "echo '[1, 2]'", name="json")
    one_tool(skills / "odd", "echo '{odd'", name="odd")

    assert ((await call("plain")).text, (await call("plain")).structured) == ("hello", None)
    assert (await call("json")).structured == [1, 2]
    assert ((await call("odd")).text, (await call("odd")).structured) == ("{odd", None)


async def test_a_program_that_takes_too_long_is_ended(call: Call, skills: Path) -> None:
    one_tool(skills / "slow", "echo begun >&2; sleep 60", "timeout_ms = 1000")

    result = await call("try-it")

    assert (result.status, result.error and result.error.code) == (Status.TIMEOUT, Code.TIMEOUT)
    assert "was ended after" in result.text
    assert "begun" in result.text


async def test_a_program_sees_the_workspace_only_if_it_may_read_and_changes_it_only_if_it_may_write(
    call: Call, skills: Path, workspace: Path
) -> None:
    (workspace / "there").write_text("here I am")
    script = "cat there 2> /dev/null; echo new 2> /dev/null > made; true"
    one_tool(skills / "none", script, name="none")
    one_tool(skills / "reads", script, 'permissions = ["file_read"]', name="reads")
    one_tool(skills / "writes", script, 'permissions = ["file_write"]', name="writes")

    assert (await call("none")).text == "done"
    assert (await call("reads")).text == "here I am"
    assert not (workspace / "made").exists()
    assert (await call("writes")).text == "here I am"
    assert (workspace / "made").read_text() == "new\n"


async def test_a_program_has_no_network_and_no_variables_of_ours(
    call: Call, skills: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY", "tweet")
    one_tool(skills / "out", "env; ls /sys/class/net; cat /proc/net/route")
    text = (await call("try-it")).text
    assert "tweet" not in text
    assert "eth0" not in text


ASKING = """#!/usr/bin/python3
import urllib.error, urllib.request
try:
    urllib.request.urlopen("http://elsewhere.example/", timeout=3)
except urllib.error.HTTPError as answer:
    print("refused:", answer.read().decode())
except OSError:
    print("no way out")
"""


@pytest.mark.parametrize(
    ("permission", "network", "says"),
    [
        ("network", ("there.example",), "refused: elsewhere.example:80 is not among the hosts that the grant lists"),
        ("network", (), "no way out"),
        ("file_read", ("there.example",), "no way out"),
    ],
)
async def test_a_program_with_the_network_reaches_the_hosts_of_the_grant_and_no_others(
    call: Call, skills: Path, permission: str, network: tuple[str, ...], says: str
) -> None:
    one_tool(skills / "asks", "", f'permissions = ["{permission}"]')
    program(skills / "asks" / "run", ASKING)

    result = await call("try-it", network=network)

    assert result.text.startswith(says)
    assert not result.untrusted  # nothing was reached


FETCHING = """#!/usr/bin/python3
import urllib.error, urllib.request
try:
    urllib.request.urlopen({url!r}, timeout=3)
except urllib.error.HTTPError as answer:
    print("refused:", answer.read().decode())
except OSError as error:
    print("failed:", error)
"""
RULED_OUT = {
    "the page": ("http://there.example/admin", "http://there.example/admin*"),
    "another spelling": ("http://there.example//x/../%61dmin", "http://there.example/admin*"),
    "a host over TLS": ("https://there.example/admin", "https://there.example*"),
    "a page over TLS, which is not seen": ("https://there.example/", "https://there.example/admin*"),
    "a word over TLS": ("https://there.example/", "*secret*"),
}


@pytest.mark.parametrize("verdict", ["deny", "ask"])
@pytest.mark.parametrize("way", RULED_OUT)
async def test_T147_a_program_of_a_skill_does_not_reach_an_address_that_a_rule_denies_or_asks_about(
    call: Call, skills: Path, way: str, verdict: str
) -> None:
    url, pattern = RULED_OUT[way]
    one_tool(skills / "asks", "", 'permissions = ["network"]')
    program(skills / "asks" / "run", FETCHING.format(url=url))

    rule = Rule.parse(f"{verdict} webfetch where url is {pattern}")
    result = await call("try-it", network=("http://there.example", "https://there.example"), rules=(rule,))

    # Of what is refused in front of a tunnel a program is told the status alone.
    assert "a rule" in result.text if url.startswith("http:") else "403" in result.text


@pytest.mark.parametrize(
    ("url", "pattern"),
    [
        ("http://there.example/docs", "http://there.example/admin*"),
        ("https://there.example/", "https://elsewhere.example/*"),
        ("https://there.example/", "http://there.example:8080/*"),
    ],
)
async def test_T147_control_other_addresses_are_tried(call: Call, skills: Path, url: str, pattern: str) -> None:
    one_tool(skills / "asks", "", 'permissions = ["network"]')
    program(skills / "asks" / "run", FETCHING.format(url=url))

    rule = Rule.parse(f"deny webfetch where url is {pattern}")
    result = await call("try-it", network=("http://there.example", "https://there.example"), rules=(rule,))

    assert "a rule" not in result.text
    assert "403" not in result.text


async def test_a_skill_cannot_ask_for_less_than_the_policy(call: Call, skills: Path) -> None:
    """T70: sandboxing = "none" changes nothing."""
    one_tool(skills / "loose", "exit 3", 'sandboxing = "none"')
    error = (await call("try-it")).error
    assert error is not None
    assert error.detail["engine"] == "bubblewrap"


async def test_what_was_planted_in_the_workspace_is_not_run_with_a_program(
    call: Call, skills: Path, workspace: Path
) -> None:
    """T73: programs are started there, and take nothing of their own from there."""
    for name in ("json.py", "sitecustomize.py", "usercustomize.py", ".pythonrc", ".bashrc", "ls"):
        program(workspace / name, "#!/bin/sh\nraise SystemExit('planted')\necho planted\n")
    one_tool(skills / "python", "", 'permissions = ["file_read"]', name="python")
    program(skills / "python" / "run", "#!/usr/bin/env python3\nimport json, os\nprint(json.dumps(os.listdir()))\n")
    one_tool(skills / "bash", "", 'permissions = ["file_read"]', name="bash-it")
    program(skills / "bash" / "run", "#!/bin/bash\nls json.py\n")

    assert "sitecustomize.py" in (await call("python")).structured
    assert (await call("bash-it")).text == "json.py"


async def test_what_was_trusted_goes_on_running_when_its_folder_changes(shelf: SkillCopies, skills: Path) -> None:
    """T54: a program that is swapped afterwards does not run."""
    greeter(skills / "greeter")
    tools = runnable_tools(choose(all_trusted(skills)), local_sandbox(), shelf)
    agent = Agent(ScriptedModel([]), tools)
    assert (await agent.call("greet", {"name": "Ada"})).ok

    program(skills / "greeter" / "bin" / "greet", GREET.replace("Hello", "Die"))

    assert (await agent.call("greet", {"name": "Ada"})).structured == {"greeting": "Hello, Ada!"}


def test_a_folder_that_changed_since_it_was_trusted_is_not_copied(shelf: SkillCopies, skills: Path) -> None:
    found = trusted(greeter(skills / "greeter"))
    program(skills / "greeter" / "bin" / "greet", GREET.replace("Hello", "Die"))

    with pytest.raises(ToolFailure, match="has changed since it was trusted"):
        shelf.place(found.folder.path, found.folder.digest)


def test_a_copy_that_was_tampered_with_is_made_anew(shelf: SkillCopies, skills: Path) -> None:
    found = trusted(greeter(skills / "greeter"))
    kept = shelf.place(found.folder.path, found.folder.digest)
    (kept / "bin" / "greet").write_text("#!/bin/sh\necho evil\n")

    again = shelf.place(found.folder.path, found.folder.digest)

    assert (again / "bin" / "greet").read_text() == GREET


def test_many_can_ask_for_a_copy_at_once(shelf: SkillCopies, skills: Path) -> None:
    found = trusted(greeter(skills / "greeter"))
    with ThreadPoolExecutor(8) as pool:
        places = list(pool.map(lambda _: shelf.place(found.folder.path, found.folder.digest), range(32)))
    [place] = set(places)
    assert (place / "bin" / "greet").read_text() == GREET


def test_a_copy_outlives_the_folder(shelf: SkillCopies, skills: Path) -> None:
    found = trusted(greeter(skills / "greeter"))
    kept = shelf.place(found.folder.path, found.folder.digest)
    (skills / "greeter" / "bin" / "greet").unlink()
    assert shelf.place(found.folder.path, found.folder.digest) == kept
