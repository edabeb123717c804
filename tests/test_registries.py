"""Providers, formats, engines and groups of tools are one table each: a new row is known wherever the others are."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests import forked
from tests.pages import DOCS, with_providers
from toolwire.errors import SettingsError
from toolwire.execute.sandbox.engines import engines
from toolwire.gateway.apis import WRITTEN
from toolwire.gateway.settings import Upstream
from toolwire.protocol.engines import ENGINES
from toolwire.protocol.providers import CHAT_APIS, PROVIDERS, Provider
from toolwire.settings.keys import known_keys
from toolwire.toolbox.registry import BUILT_IN, GROUPS, TOOLS, tool_names
from toolwire.wire.formats.coach import possible_formats
from toolwire.wire.formats.costs import format_costs
from toolwire.wire.formats.negotiation import negotiate
from toolwire.wire.formats.preference import FormatChoice
from toolwire.wire.formats.registry import DIALECTS
from toolwire.wire.formats.tally import EXPECTED
from toolwire.wire.native.detect import READERS

PROVIDER = """
from toolwire.protocol.providers import PROVIDERS, Provider
PROVIDERS["acme"] = Provider(
    "acme", base_url="https://acme.invalid/v1", key_variable="ACME_API_KEY", needs_key=True, tool="acme_models"
)
"""
FORMAT = """
from msgspec.structs import replace
from toolwire.wire.formats.registry import DIALECTS
DIALECTS["acme_form"] = replace(DIALECTS["hermes"], name="acme_form")
"""
GROUP = """
from toolwire.toolbox.registry import GROUPS
GROUPS["acme_group"] = ("calculator", "json-transform")
"""


def typed(folder: Path, row: str, *words: str, settings: str = "", anew: bool = False, **environ: str) -> str:
    """What a command says, both streams, where a table has one row more; `anew` where it is read at an import."""
    (folder / "toolwire.toml").write_text(settings, encoding="utf-8")
    program = f"{row}\nimport sys\nfrom toolwire.cli import main\nsys.argv = ['toolwire', *sys.argv[1:]]\nmain()"
    given = {"PATH": os.environ["PATH"], "HOME": str(folder), "TOOLWIRE_TRUST": str(folder), **environ}
    if anew:
        ran = subprocess.run(
            [sys.executable, "-c", program, *words], cwd=folder, env=given, capture_output=True, text=True
        )
    else:
        ran = forked.run_python("-c", program, *words, cwd=folder, env=given)
    return ran.stdout + ran.stderr


def test_a_row_makes_a_provider_known_to_every_command(tmp_path: Path) -> None:
    assert "acme" in typed(tmp_path, PROVIDER, "ask", "hi", "--model", "nowhere:m")
    assert "did you mean acme?" in typed(tmp_path, PROVIDER, "ask", "hi", "--model", "acne:m")
    assert "set ACME_API_KEY" in typed(tmp_path, PROVIDER, "ask", "hi", "--model", "acme:m")

    checks = json.loads(typed(tmp_path, PROVIDER, "doctor", "--json", ACME_API_KEY="x"))
    assert "ACME_API_KEY set" in json.dumps(checks)


def test_a_row_makes_the_tool_of_a_provider_known_to_settings_and_groups(tmp_path: Path) -> None:
    listed = typed(
        tmp_path,
        PROVIDER,
        "tools",
        "list",
        "--tools",
        "models",
        anew=True,
        settings='[tools]\nmodels = ["acme_models m"]\n',
    )
    assert "acme_models" in listed
    refused = typed(tmp_path, PROVIDER, "tools", "list", anew=True, settings='[tools]\nmodels = ["acne_models m"]\n')
    assert "openrouter, venice, acme_models" in refused.replace("ollama_local, ", "")


def test_a_row_makes_a_provider_appear_in_the_docs(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Provider("acme", base_url="https://acme.invalid/v1", key_variable="ACME_API_KEY")
    assert "acme.invalid" not in with_providers(DOCS / "settings.md")
    monkeypatch.setitem(PROVIDERS, row.name, row)
    assert "| `acme` | https://acme.invalid/v1 | `ACME_API_KEY` |" in with_providers(DOCS / "settings.md")


def test_a_row_makes_a_format_known_to_settings_and_commands(tmp_path: Path) -> None:
    profile = '[profiles.p]\nprovider = "vllm"\nmodel = "m"\n[profiles.p.tools]\ndefinition_format = "{}"\n'

    refused = typed(tmp_path, FORMAT, "tools", "list", settings=profile.format("acne_form"))
    assert "must be one of auto, openai" in refused
    assert "acme_form" in refused
    assert "must be" not in typed(tmp_path, FORMAT, "tools", "list", settings=profile.format("acme_form"))


def test_a_row_makes_a_format_one_that_can_be_chosen_and_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DIALECTS, "acme_form", replace(DIALECTS["hermes"], name="acme_form"))

    assert "acme_form" in possible_formats("vllm", "m")
    assert "acme_form" not in possible_formats("anthropic", "m")
    assert "acme_form" in {cost.format for cost in format_costs()}
    with pytest.raises(SettingsError, match="acme_form"):
        negotiate("vllm", "m", FormatChoice("acne_form"))


def test_a_row_makes_a_group_known_to_commands(tmp_path: Path) -> None:
    assert "acme_group" in typed(tmp_path, GROUP, "tools", "list")
    assert "did you mean acme_group?" in typed(tmp_path, GROUP, "tools", "list", "--tools", "acme_grup")
    assert "json-transform" in typed(tmp_path, GROUP, "tools", "list", "--tools", "acme_group", "--json")


def test_what_is_named_in_a_table_is_implemented() -> None:
    assert engines().keys() == set(ENGINES)
    assert WRITTEN.keys() == set(CHAT_APIS)
    assert {name for name, dialect in DIALECTS.items() if not dialect.prompted} <= READERS.keys()
    assert {name for names in GROUPS.values() for name in names} <= BUILT_IN


def test_every_format_that_settings_allow_is_in_the_table() -> None:
    for key in ("definition_format", "call_parser", "result_format"):
        allowed = known_keys()[f"profiles.NAME.tools.{key}"].allowed
        assert all(name in allowed for name in DIALECTS)


def test_every_chat_api_can_stand_behind_the_gateway() -> None:
    assert [Upstream.at("http://127.0.0.1:9", api).dialect for api in CHAT_APIS] == list(CHAT_APIS)
    with pytest.raises(SettingsError, match="one of auto, openai, anthropic, ollama"):
        Upstream.at("http://127.0.0.1:9", "acme")


@pytest.mark.parametrize(
    ("page", "names"),
    [("formats.md", DIALECTS), ("tools.md", GROUPS), ("sandbox.md", ENGINES)],
    ids=["formats", "groups", "engines"],
)
def test_every_row_is_explained_in_the_docs(page: str, names: list[str]) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    assert [name for name in names if f"`{name}`" not in text] == []


def test_all_is_every_tool_of_a_group() -> None:
    assert set(tool_names(["all"])) == {name for names in GROUPS.values() for name in names} & TOOLS.keys()


def test_each_format_that_is_asked_for_says_in_which_forms_its_calls_may_come() -> None:
    """Without a row all its own calls would count as mismatched, and the formats would be chosen by that."""
    assert set(EXPECTED) == set(DIALECTS) - set(READERS)
