"""`toolwire serve` at the terminal: one line to start, one line for each request, a sentence for each mistake."""

import json
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import anthropic
import httpx2
import openai
import pytest

from tests.cli.stage import LIMIT_S, Stage, scripted
from tests.no_tls import NO_TLS
from toolwire.cli.entry.exits import Exit


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.close()


def first_line(process: "subprocess.Popen[bytes]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode()


def address(line: str) -> str:
    return line.split()[1].removesuffix("/v1")


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_it_prints_the_address_serves_logs_and_ends_cleanly(stage: Stage, stop: signal.Signals) -> None:
    process = stage.start("serve", "--model", "local:smollm2", "--port", "0", "--json-logs")
    line = first_line(process)
    url = address(line)

    assert line == f"Put {url}/v1 into your client ({url} for Anthropic's); it asks local:smollm2. Ctrl-C ends it.\n"
    question = [{"role": "user", "content": "Hello!"}]
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any", timeout=LIMIT_S) as chat:
        said = chat.chat.completions.create(model="any", messages=question, max_tokens=5)  # type: ignore[arg-type]
    with anthropic.Anthropic(base_url=url, api_key="any", timeout=LIMIT_S) as messages:
        also = messages.messages.create(model="any", messages=question, max_tokens=5)  # type: ignore[arg-type]
    process.send_signal(stop)
    out, err = process.communicate(timeout=LIMIT_S)

    assert said.choices[0].message.content
    assert also.content
    assert process.returncode == Exit.DONE
    assert out == b""
    logged = [json.loads(row) for row in err.decode().splitlines()]
    assert [(row["path"], row["status"]) for row in logged] == [("/v1/chat/completions", 200), ("/v1/messages", 200)]


def test_a_gateway_with_a_token_and_a_key_says_who_may_ask(stage: Stage) -> None:
    process = stage.start(
        "serve", "--upstream", "http://127.0.0.1:9/v1", "--port", "0", "--token-env", "GATE", "--key-env", "KEY",
        GATE="a-long-token", KEY="sk-secret-key",
    )  # fmt: skip
    url = address(first_line(process))

    body = {"model": "m", "messages": []}
    refused = httpx2.post(f"{url}/v1/chat/completions", json=body, trust_env=False, verify=NO_TLS)
    passed = httpx2.post(
        f"{url}/v1/chat/completions", json=body, headers={"authorization": "Bearer a-long-token"}, trust_env=False
    )
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT_S)

    assert (refused.status_code, passed.status_code) == (401, 502)
    assert err.decode().splitlines()[0].startswith("POST /v1/chat/completions - 401 (invalid_token)")
    assert not any(secret in out + err for secret in (b"a-long-token", b"sk-secret-key"))


def test_a_model_is_asked_as_its_profile_says(stage: Stage) -> None:
    with scripted("Warm.") as model:
        stage.settings(
            f'[profiles.exact]\nprovider = "openai-compatible"\nmodel = "scripted"\nurl = "{model.url}"\n'
            '[profiles.exact.tools]\ndefinition_format = "openai_strict"\n'
        )
        process = stage.start("serve", "--model", "openai-compatible:scripted", "--port", "0")
        url = address(first_line(process))
        tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
        with openai.OpenAI(base_url=f"{url}/v1", api_key="any", timeout=LIMIT_S) as client:
            said = client.chat.completions.create(
                model="any",
                messages=[{"role": "user", "content": "?"}],
                tools=[tool],  # type: ignore[list-item]
            )
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT_S)

    assert said.choices[0].message.content == "Warm."
    assert [tool["function"]["strict"] for tool in model.requests[0]["tools"]] == [True]


def test_what_the_settings_say_about_serving_needs_no_flag(stage: Stage) -> None:
    stage.settings("""
[serve]
model = "local:smollm2"
port = 0
token_env = ["GATE"]
json_logs = true
""")
    process = stage.start("serve", GATE="a-long-token")
    url = address(first_line(process))
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{url}/v1/models", timeout=LIMIT_S)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LIMIT_S)

    assert [json.loads(row)["status"] for row in err.decode().splitlines()] == [401]


def test_a_flag_wins_over_what_the_settings_say_about_serving(stage: Stage) -> None:
    stage.settings('[serve]\nmodel = "local:smollm2"\nport = 1\n')
    process = stage.start("serve", "--upstream", "http://127.0.0.1:9/v1", "--port", "0")
    line = first_line(process)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=LIMIT_S)

    assert "it asks http://127.0.0.1:9." in line


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[serve]\nupsteam = 'http://h'", "did you mean serve.upstream"),
        ("[serve]\nport = 'many'", "serve.port"),
        ("[serve]\nupstream = 'http://h'\nmodel = 'local:smollm2'", "either --upstream URL or --model"),
        ("[serve]\nupstream = 'http://h'\ntoken_env = ['not a name']", "must be the name of an environment variable"),
        ("[serve]\nupstream = 'http://h'\ntoken_env = ['NOT_SET']", "NOT_SET is not set"),
    ],
)
def test_wrong_settings_about_serving_are_answered_with_a_sentence(stage: Stage, text: str, said: str) -> None:
    stage.settings(text)
    ran = stage.run("serve")
    assert (ran.code, said in ran.err) == (Exit.USAGE, True), ran.err


MISTAKES = [
    (["serve"], "either --upstream URL or --model"),
    (["serve", "--upstream", "http://h", "--model", "local:smollm2"], "either --upstream URL or --model"),
    (["serve", "--upstream", "nonsense"], "must look like"),
    (["serve", "--upstream", "http://h", "--upstream-dialect", "latin"], "auto, openai, anthropic, ollama"),
    (["serve", "--upstream", "http://h", "--host", "0.0.0.0"], "give a token with --token-env"),
    (["serve", "--upstream", "http://h", "--token-env", "NOT_SET"], "NOT_SET is not set"),
    (["serve", "--upstream", "http://h", "--host", "203.0.113.7", "--token-env", "PATH"], "no address 203.0.113.7"),
    (["serve", "--upstream", "http://h", "--port", "70000"], "at most 65535"),
    (["serve", "--model", "nonsense"], "provider:model"),
]


@pytest.mark.parametrize(("words", "said"), MISTAKES, ids=[" ".join(words[1:]) or "nothing" for words, _ in MISTAKES])
def test_a_mistake_is_answered_with_a_sentence(stage: Stage, words: list[str], said: str) -> None:
    ran = stage.run(*words)

    assert ran.code == Exit.USAGE
    assert said in ran.err
    assert ran.err.count("\n") == 1


def test_a_port_in_use_is_named(stage: Stage) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        ran = stage.run("serve", "--upstream", "http://127.0.0.1:9", "--port", port)

    assert ran.code == Exit.USAGE
    assert f"port {port} on 127.0.0.1 is in use" in ran.err
    assert "--port" in ran.err


def test_a_missing_extra_is_named(stage: Stage) -> None:
    missing = stage.folder / "starlette"
    missing.mkdir()
    (missing / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'starlette'\", name='starlette')")

    ran = stage.run("serve", "--upstream", "http://127.0.0.1:9", PYTHONPATH=str(stage.folder))

    assert ran.code == Exit.USAGE
    assert "pip install 'toolwire[serve]'" in ran.err
