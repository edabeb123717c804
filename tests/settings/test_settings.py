"""Settings: layers, origins, and the sentences people read when something is wrong."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from msgspec.structs import asdict

from toolwire.errors import SettingsError
from toolwire.protocol.policy import Autonomy
from toolwire.protocol.tools import Grant, Tier
from toolwire.protocol.turns import Limits
from toolwire.settings import Layer, Settings, describe, load
from toolwire.settings.schema import BudgetSettings, GrantSettings, LoopSettings
from toolwire.settings.sections import SettingField


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def write(folder: Path, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / "toolwire.toml"
    file.write_text(text, encoding="utf-8")
    return file


def trusted(*folders: Path) -> dict[str, str]:
    return {"TOOLWIRE_TRUST": ":".join(map(str, folders))}


def complaint(folder: Path, text: str = "", environ: dict[str, str] | None = None) -> str:
    if text:
        write(folder, text)
    with pytest.raises(SettingsError) as raised:
        load(folder, environ or {})
    return str(raised.value)


def test_without_any_layer_the_defaults_are_those_of_the_nouns(project: Path) -> None:
    settings = load(project, {})

    assert settings == Settings()
    assert settings.limits() == Limits()
    assert settings.chosen().model == "local:smollm2"
    assert settings.grant(project) == Grant(permissions=frozenset({"file_read"}), roots=(str(project),))
    assert settings.home(project) == project / ".toolwire"
    assert settings.origin("loop.iterations").layer is Layer.BUILT_IN


@pytest.mark.parametrize("edge", [min, max])
def test_what_a_setting_takes_its_value_takes_too(project: Path, edge: Callable[[list[Any]], Any]) -> None:
    """Settings are not checked again when they become a grant, limits or a budget; the constructors of these check."""
    flags = {
        f"{section}.{name}": edge(values)
        for section, kind in (("loop", LoopSettings), ("budget", BudgetSettings), ("grant", GrantSettings))
        for name, field in kind.fields.items()
        if (values := _bounds(field))
    }
    settings = load(project, {}, flags)

    for value in (settings.limits(), settings.day(), settings.grant(project)):
        assert value is not None
        assert type(value)(**asdict(value)) == value


def _bounds(field: SettingField) -> list[Any]:
    """The least and the most that a numeric setting takes; nothing for any other."""
    least = field.ge if field.gt is None else field.gt + 1e-9
    return [] if least is None else [least, least if field.le is None else field.le]


def test_each_layer_is_stronger_than_the_one_before_it(project: Path, tmp_path: Path) -> None:
    user = tmp_path / "user"
    write(user, "[loop]\niterations = 1\nparallel = 1\nrepeats = 1\ncalls_per_step = 1")
    file = write(project, "[loop]\niterations = 2\nparallel = 2\nrepeats = 2")
    environ = {"TOOLWIRE_LOOP__ITERATIONS": "3", "TOOLWIRE_LOOP__PARALLEL": "3", **trusted(project)}

    settings = load(project, environ, {"loop.iterations": 4}, user)

    loop = settings.loop
    assert (loop.iterations, loop.parallel, loop.repeats, loop.calls_per_step) == (4, 3, 2, 1)
    assert str(settings.origin("loop.iterations")) == "--iterations"
    assert str(settings.origin("loop.parallel")) == "TOOLWIRE_LOOP__PARALLEL"
    assert str(settings.origin("loop.repeats")) == f"{file}, line 4"
    assert settings.origin("loop.calls_per_step").layer is Layer.USER_FILE


def test_every_file_upward_counts_and_the_nearest_is_the_strongest(project: Path) -> None:
    outer = write(project, 'model = "ollama:far"\n[loop]\nrepeats = 2')
    inner = project / "a" / "b"
    inner.mkdir(parents=True)
    assert load(inner, trusted(project)).model == "ollama:far"

    write(project / "a", 'model = "ollama:near"')
    settings = load(inner, trusted(project, project / "a"))
    assert (settings.model, settings.loop.repeats) == ("ollama:near", 2)
    assert str(settings.origin("loop.repeats")) == f"{outer}, line 3"
    assert settings.home(inner) == project / ".toolwire"  # one record, however many files


def test_the_users_own_file_is_no_projects_file_too(tmp_path: Path) -> None:
    user = tmp_path / "user"
    write(user, 'model = "ollama:mine"\n[grant]\nrules = ["deny write"]')
    settings = load(user, {}, user_dir=user)
    assert settings.origin("model").layer is Layer.USER_FILE
    assert settings.grants.rules == ("deny write",)


def test_a_nearer_files_profile_is_stronger_than_an_outer_files_model(project: Path) -> None:
    write(project, 'model = "ollama:far"\n[profiles.p]\nprovider = "ollama"\nmodel = "m"')
    write(project / "a", 'profile = "p"')
    assert load(project / "a", trusted(project, project / "a")).chosen().profile == "p"
    write(project, 'profile = "p"\n[profiles.p]\nprovider = "ollama"\nmodel = "m"')
    write(project / "a", 'model = "ollama:near"')
    assert load(project / "a", trusted(project, project / "a")).chosen().model == "ollama:near"


def test_lists_of_restrictions_add_up_over_files_and_say_all_their_places(project: Path, tmp_path: Path) -> None:
    user = write(tmp_path / "user", '[grant]\nrules = ["deny bash"]')
    outer = write(project, '[grant]\nrules = ["ask write"]\n[tools]\nexclude = ["timer"]')
    near = write(project / "a", '[grant]\nrules = ["deny edit", "deny bash"]\n[tools]\nexclude = ["echo"]')
    settings = load(project / "a", {}, user_dir=tmp_path / "user")
    assert settings.grants.rules == ("deny bash", "ask write", "deny edit")
    assert settings.tools.exclude == ("timer", "echo")
    assert str(settings.origin("grant.rules")) == f"{user}, line 2 and {outer}, line 2 and {near}, line 2"
    said = load(project / "a", {"TOOLWIRE_GRANT__RULES": "deny timer"}, user_dir=tmp_path / "user")
    assert said.grants.rules == ("deny timer",)


def test_a_wrong_value_that_a_nearer_file_replaces_is_told(project: Path) -> None:
    write(project, '[grant]\ntier = "fly"')
    write(project / "a", '[grant]\ntier = "crawl"')
    with pytest.raises(SettingsError, match="one of crawl, walk, run"):
        load(project / "a", {})


@pytest.mark.feature("F232")
def test_the_orchestrator_switches_are_other_names_of_ours(project: Path) -> None:
    write(
        project,
        "[orchestrator]\ntool_loop_enabled = false\nmax_tool_iterations = 7\n"
        "tool_error_limit = 2\ndefault_tool_timeout_ms = 1500",
    )
    settings = load(project, {})

    limits = settings.limits()
    assert (limits.tools_enabled, limits.iterations, limits.consecutive_failures) == (False, 7, 2)
    assert settings.tools.timeout_s == 1.5
    assert load(project, {"TOOLWIRE_ORCHESTRATOR__DEFAULT_TOOL_TIMEOUT_MS": "2000"}).tools.timeout_s == 2.0


@pytest.mark.feature("F232")
def test_both_names_of_a_switch_may_agree_but_not_differ(project: Path) -> None:
    write(project, "[loop]\niterations = 7\n[orchestrator]\nmax_tool_iterations = 7")
    assert load(project, {}).loop.iterations == 7

    said = complaint(project, "[loop]\niterations = 7\n[orchestrator]\nmax_tool_iterations = 8")
    assert "orchestrator.max_tool_iterations" in said
    assert "line 2" in said
    assert "line 4" in said


@pytest.mark.feature("F235")
def test_a_profile_names_provider_model_and_address(project: Path) -> None:
    write(
        project,
        """
profile = "boxxie"
temperature = 0.5

[profiles.boxxie]
provider = "ollama"
model = "qwen3-next-80b-tools"
url = "http://athena:11434"
max_tokens = 900

[profiles.boxxie.tools]
definition_format = "openai"
call_parser = "auto"
result_format = "openai"

[profiles.claude-agent]
provider = "anthropic"
model = "claude-sonnet"
api_key_env = "WORK_KEY"

[profiles.claude-agent.tools]
definition_format = "anthropic"
call_parser = "anthropic_xml"
result_format = "anthropic"
""",
    )
    chosen = load(project, {"TOOLWIRE_TRUST": str(project)}).chosen()
    assert (chosen.model, chosen.url) == ("ollama:qwen3-next-80b-tools", "http://athena:11434")
    assert (chosen.temperature, chosen.max_tokens) == (0.5, 900)
    assert chosen.tools.definition_format == "openai"

    other = load(project, {"TOOLWIRE_PROFILE": "claude-agent", "TOOLWIRE_TRUST": str(project)}).chosen()
    assert (other.model, other.url, other.api_key_env) == ("anthropic:claude-sonnet", None, "WORK_KEY")
    assert other.tools.call_parser == "anthropic_xml"


@pytest.mark.feature("F235")
def test_a_variable_reaches_a_profile_whose_name_it_cannot_spell(project: Path) -> None:
    write(project, '[profiles.Claude-Agent]\nprovider = "anthropic"\nmodel = "old"')
    settings = load(project, {"TOOLWIRE_PROFILES__CLAUDE_AGENT__MODEL": "new", **trusted(project)})
    assert list(settings.profiles) == ["Claude-Agent"]
    assert settings.profiles["Claude-Agent"].model == "new"


def test_a_model_from_a_stronger_layer_takes_the_place_of_a_profile(project: Path) -> None:
    write(project, 'profile = "p"\n[profiles.p]\nprovider = "ollama"\nmodel = "m"')
    assert load(project, trusted(project)).chosen().profile == "p"
    assert load(project, trusted(project), {"model": "openai:x"}).chosen().model == "openai:x"


def test_model_and_profile_in_one_layer_are_refused_as_ambiguous(project: Path) -> None:
    write(project, '[profiles.p]\nprovider = "ollama"\nmodel = "m"')
    with pytest.raises(SettingsError, match=r"--model and --profile are both set; keep one"):
        load(project, trusted(project), {"model": "openai:x", "profile": "p"}).chosen()


@pytest.mark.requirement("settings.checked")
@pytest.mark.parametrize(
    ("text", "line", "advice"),
    [
        ("[loop]\n\niteration = 3", 3, "loop.iterations"),
        ("iterations = 3", 1, "loop.iterations"),
        ("[lop]\niterations = 3", 1, "loop"),
        ('modle = "a:b"', 1, "model"),
        ('[profiles.x]\nprovider = "a"\nmodle = "b"', 3, "profiles.NAME.model"),
        ("[output]\nloop.color = 1", 2, "output.color"),
        ("[orchestrator]\nmax_iterations = 3", 2, "orchestrator.max_tool_iterations"),
    ],
)
def test_an_unknown_key_is_refused_with_its_line_and_the_nearest_key(
    project: Path, text: str, line: int, advice: str
) -> None:
    said = complaint(project, text)
    assert f"toolwire.toml, line {line})" in said
    assert advice in said.partition("did you mean")[2]


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("[loop]\niteration = 3", "did you mean loop.iterations?"),
        ('[profiles.x]\nprovder = "a"', "did you mean profiles.NAME.provider?"),
    ],
)
def test_keys_that_only_share_a_section_with_an_unknown_one_are_not_offered(
    project: Path, text: str, advice: str
) -> None:
    assert complaint(project, text).endswith(advice)


def test_an_unknown_variable_is_refused_in_the_spelling_of_variables(project: Path) -> None:
    said = complaint(project, environ={"TOOLWIRE_LOOP_ITERATIONS": "3"})
    assert "(TOOLWIRE_LOOP_ITERATIONS)" in said
    assert "did you mean TOOLWIRE_LOOP__ITERATIONS" in said


@pytest.mark.requirement("settings.checked")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[loop]\niterations = 0", ["loop.iterations = 0", "line 2", "a whole number, at least 1, at most 1000"]),
        ('[loop]\niterations = "5"', ["loop.iterations = '5'", "whole number"]),
        ("[loop]\niterations = true", ["loop.iterations = True", "whole number"]),
        ("[loop]\nenabled = 1", ["true or false"]),
        ("[loop]\ndeadline_s = inf", ["loop.deadline_s", "number"]),
        ('[store]\nkind = "redis"', ["one of sqlite, memory"]),
        ('[grant]\nroots = "here"', ["grant.roots", "list of words"]),
        ("[grant]\nroots = [1]", ["grant.roots", "list of words"]),
        ("loop = 5", ["loop", "is a section", "[loop]"]),
        ('model = "gpt"', ["provider:model"]),
        ("model = 2024-01-01", ["provider:model"]),
        ('[tools]\nmodules = ["os; evil"]', ["package.module:object"]),
        ('[profiles.x]\nprovider = "ollama"', ["profiles.x.model is missing", "line 2"]),
        ('[bus_services.x]\ntools = ["a"]', ["bus_services.x.token_env is missing", "line 2)"]),
        ('[telemetry]\nendpoint = "http://u:p@h"', ["telemetry.endpoint", "OTEL_EXPORTER_OTLP_HEADERS"]),
        ('profile = "x"', ["no such profile", "none is defined"]),
        ('[profiles.x]\nprovider = "a"\nmodel = "b"\nurl = "ftp://x"', ["profiles.x.url", "line 4", "http://"]),
        ('[profiles.x.tools]\ncall_parser = "magic"', ["profiles.x.tools.call_parser", "auto, openai"]),
        ('[profiles.x]\nprovider = "a"\nmodel = "b"\napi_key_env = "TOOLWIRE_KEY"', ["TOOLWIRE_"]),
    ],
)
def test_a_wrong_value_names_its_key_its_place_and_what_is_allowed(project: Path, text: str, words: list[str]) -> None:
    said = complaint(project, text)
    assert [word for word in words if word not in said] == []


def test_all_wrong_values_are_told_at_once(project: Path) -> None:
    said = complaint(project, "[loop]\niterations = 0\nparallel = 0", {"TOOLWIRE_STORE__KIND": "x"})
    assert len(said.splitlines()) == 3


@pytest.mark.parametrize(
    "text",
    [
        '[profiles.x]\napi_key = "sk-live-0123456789"',
        '[profiles.x]\napi-key = "sk-live-0123456789"',
        '[profiles.x]\napi_key_env = "sk-live-0123456789"',
        'password = "sk-live-0123456789"',
        '[tools]\ninclude = ["sk-live-0123456789"]',
        '[profiles.x]\nprovider = "a"\nmodel = "b"\nurl = "https://me:sk-live-0123456789@host/"',
    ],
)
def test_a_secret_in_a_file_is_refused_with_advice(project: Path, text: str) -> None:
    said = complaint(project, text)
    assert "api_key_env" in said


def test_a_secret_is_not_repeated_in_the_complaint(project: Path) -> None:
    said = complaint(project, '[profiles.x]\nprovider = "a"\nmodel = "b"\napi_key = "sk-live-0123456789"')
    assert "0123456789" not in said
    said = complaint(project, '[profiles.x]\nprovider = "a"\nmodel = "b"\nurl = "https://me:hunter2@host/"')
    assert "hunter2" not in said


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[loop\niterations = 3", ["not valid TOML", "line 1, column 6"]),
        (b"[loop]\niterations = ", ["not valid TOML", "line 2"]),
        (b"a = 1\na = 2", ["not valid TOML"]),
        (b"[loop]\n# caf\xe9\n", ["line 2", "UTF-8"]),
        (b"a = " + b"[\n" * 20_000, ["too deeply"]),
        (b"a = 1e" + b"9" * 1_000, ["unknown setting"]),
        (b"a." * 30_000 + b"a = 1", ["more than 2000 characters"]),
        (b"#\n" * 50_000, ["64 KiB"]),
    ],
)
def test_a_broken_file_is_told_with_its_place(project: Path, content: bytes, words: list[str]) -> None:
    (project / "toolwire.toml").write_bytes(content)
    said = complaint(project)
    assert str(project / "toolwire.toml") in said
    assert [word for word in words if word not in said] == []


@pytest.mark.parametrize(
    ("variable", "text", "key", "value"),
    [
        ("TOOLWIRE_LOOP__ENABLED", "off", "enabled", False),
        ("TOOLWIRE_LOOP__ENABLED", "True", "enabled", True),
        ("TOOLWIRE_LOOP__TOKENS", "none", "tokens", None),
        ("TOOLWIRE_LOOP__TOKENS", " 5000 ", "tokens", 5000),
        ("TOOLWIRE_LOOP__DEADLINE_S", "2.5", "deadline_s", 2.5),
        ("TOOLWIRE_LOOP__ITERATIONS", "", "iterations", 10),
    ],
)
def test_text_in_a_variable_is_read_as_the_type_of_its_key(
    project: Path, variable: str, text: str, key: str, value: object
) -> None:
    assert getattr(load(project, {variable: text}).loop, key) == value


@pytest.mark.parametrize("text", ["a, b", '["a", "b"]', "a,b,"])
def test_a_list_in_a_variable_is_separated_by_commas_or_written_as_json(project: Path, text: str) -> None:
    assert load(project, {"TOOLWIRE_TOOLS__INCLUDE": text}).tools.include == ("a", "b")


def test_flags_that_were_not_given_change_nothing(project: Path) -> None:
    settings = load(project, {}, {"model": None, "loop.tokens": "77"})
    assert settings.model == "local:smollm2"
    assert settings.loop.tokens == 77


def test_paths_start_at_the_file_that_says_them_and_know_the_home_folder(project: Path) -> None:
    write(project, '[grant]\ntier = "run"\nroots = ["src", "~/notes", "/data"]\n[store]\nhome = "state"')
    inner = project / "inner"
    inner.mkdir()
    settings = load(inner, {"HOME": "/home/me", "TOOLWIRE_TRUST": str(project)})

    grant = settings.grant(inner)
    assert grant.tier is Tier.RUN
    assert grant.roots == (str(project / "src"), "/home/me/notes", "/data")
    assert settings.home(inner) == project / "state"
    moved = load(inner, {"TOOLWIRE_STORE__HOME": "x", "TOOLWIRE_TRUST": str(project)})
    assert moved.home(inner) == inner / "x"


def test_an_empty_list_of_roots_grants_nothing_to_read(project: Path) -> None:
    write(project, "[grant]\nroots = []\npermissions = []")
    assert load(project, {}).grant(project) == Grant()


@given(st.text(max_size=200))
@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
def test_any_text_as_a_file_loads_or_is_refused_with_a_sentence(project: Path, text: str) -> None:
    write(project, text)
    with contextlib.suppress(SettingsError):
        assert load(project, {}).limits() == Limits()


def test_the_written_reference_lists_exactly_the_settings() -> None:
    page = (Path(__file__).parents[2] / "docs" / "settings.md").read_text(encoding="utf-8")
    rows = [f"| `{key}` | {allowed} | `{default}` | {meaning} |" for key, allowed, default, meaning in describe()]
    table = page.partition("| key | allowed | default | meaning |\n|---|---|---|---|\n")[2]
    assert table.strip().splitlines() == rows
    assert all(meaning for _, _, _, meaning in describe())


def test_a_profile_has_its_own_measure_for_results_unless_another_model_is_named(project: Path) -> None:
    profile = '[profiles.small]\nprovider = "ollama"\nmodel = "tiny"\nresult_chars = 4000\n'
    write(project, f'profile = "small"\n{profile}')
    assert load(project, trusted(project)).limits() == Limits(result_chars=4000)
    assert load(project, trusted(project), {"model": "ollama:large"}).limits() == Limits()
    assert Limits().result_chars == 64 * 1024


def test_an_agent_can_have_a_grant_of_its_own(project: Path, tmp_path: Path) -> None:
    write(
        tmp_path / "user",
        '[grant]\ntier = "run"\n[agents.builder]\nautonomy = "full"\npermissions = ["shell"]\n'
        '[agents.reader]\nautonomy = "readonly"\ntier = "crawl"',
    )
    environ = {"TOOLWIRE_AGENTS__READER__PERMISSIONS": "git"}
    settings = load(project, environ, user_dir=tmp_path / "user")
    usual = settings.grant(project)

    builder, reader = settings.granted_to("builder", usual), settings.granted_to("reader", usual)

    assert (builder.autonomy, builder.tier, builder.permissions) == (Autonomy.FULL, Tier.RUN, frozenset({"shell"}))
    assert (reader.autonomy, reader.tier, reader.permissions) == (Autonomy.READONLY, Tier.CRAWL, frozenset({"git"}))
    assert settings.granted_to("somebody", usual) is usual


def test_a_flag_wins_over_what_is_set_for_an_agent(project: Path, tmp_path: Path) -> None:
    write(tmp_path / "user", '[agents.cli]\ntier = "crawl"\nautonomy = "full"')
    settings = load(project, {}, {"grant.tier": "run"}, tmp_path / "user")

    granted = settings.granted_to("cli", settings.grant(project))

    assert (granted.tier, granted.autonomy) == (Tier.RUN, Autonomy.FULL)


@pytest.mark.parametrize("key", ["grant.permissions", "grant.confirmed", "agents.reader.permissions"])
@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_name_among_permissions_or_tools_is_told_when_settings_are_loaded(
    project: Path, tmp_path: Path, key: str, name: str
) -> None:
    section, _, last = key.rpartition(".")
    file = write(tmp_path / "user", f'[{section}]\n{last} = ["file_read", "{name}"]')

    with pytest.raises(SettingsError, match=rf"^{key} .* has an empty name; leave it out") as raised:
        load(project, {}, user_dir=tmp_path / "user")

    assert str(file) in str(raised.value)


@pytest.mark.parametrize(
    "rule", ["*", "*.com", "exa mple.org", "http://[::1", "example.org:99999", "GET,FETCH example.org", ""]
)
def test_a_network_rule_that_cannot_be_read_is_told_when_settings_are_loaded(
    project: Path, tmp_path: Path, rule: str
) -> None:
    file = write(tmp_path / "user", f'[grant]\nnetwork = ["example.org", "{rule}"]')

    with pytest.raises(SettingsError, match=r"^grant.network .*has a rule that cannot be read: ") as raised:
        load(project, {}, user_dir=tmp_path / "user")

    assert str(file) in str(raised.value)
