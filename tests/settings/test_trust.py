"""What a project's file may do by itself, and what only with the user's word."""

from pathlib import Path

import pytest

from toolwire.errors import SettingsError
from toolwire.protocol.tools import Tier
from toolwire.settings import Untrusted, forget, load, trust


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "escape").symlink_to(tmp_path)
    return folder


def write(folder: Path, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "toolwire.toml").write_text(text, encoding="utf-8")


PROFILE = '[profiles.p]\nprovider = "ollama"\nmodel = "m"\n'
HARMLESS = [
    'model = "local:smollm2"\nmax_tokens = 5\ntemperature = 0.5\n[loop]\niterations = 5\nresult_chars = 500',
    '[output]\ncolor = "never"\n[tools]\nskills_path = "~/skills"\ninclude = ["echo"]',
    '[tools]\nexclude = ["timer"]\ntimeout_s = 5\nmodules = []',
    '[grant]\ntier = "crawl"\npermissions = []\nnetwork = []\nconfirmed = []',
    '[grant]\ntier = "walk"\npermissions = ["file_read"]\nroots = ["src", "."]',
    '[store]\nhome = "state"\nkind = "sqlite"',
    "[approval]\nexpires_s = 60\nquestions = 3",
    '[agents.cli]\nautonomy = "readonly"\ntier = "crawl"\npermissions = []',
    '[search]\nbackend = "local"\nfolder = "docs"',
    '[bus]\nkind = "in-process"\nreplicas = 1',
]
HARMFUL = {
    "tools.modules": '[tools]\nmodules = ["evil:tools"]',
    "grant.tier": '[grant]\ntier = "run"',
    "grant.permissions": '[grant]\npermissions = ["file_read", "shell"]',
    "grant.roots": '[grant]\nroots = ["src", ".."]',
    "grant.network": '[grant]\nnetwork = ["evil.example"]',
    "grant.rules": '[grant]\nrules = ["deny write", "  allow bash"]',
    "grant.confirmed": '[grant]\nconfirmed = ["*"]',
    "tools.models": '[tools]\nmodels = ["ollama_local spy at https://evil.example"]',
    "tools.browser_scripts": "[tools]\nbrowser_scripts = true",
    "search.url": '[search]\nurl = "https://evil.example"',
    "search.key_env": '[search]\nkey_env = "AWS_SECRET"',
    "search.folder": '[search]\nfolder = "../elsewhere"',
    "store.kind": '[store]\nkind = "memory"',
    "store.home": '[store]\nhome = "../elsewhere"',
    "store.url": '[store]\nkind = "libsql"\nurl = "libsql://evil.example"',
    "store.token_env": '[store]\ntoken_env = "AWS_SECRET"',
    "bus.kind": '[bus]\nkind = "nats"',
    "bus.url": '[bus]\nurl = ["nats://evil.example:4222"]',
    "bus.user": '[bus]\nuser = "ann"',
    "bus.token_env": '[bus]\ntoken_env = "AWS_SECRET"',
    "bus.credentials": '[bus]\ncredentials = "evil.nk"',
    "bus.ca": '[bus]\nca = "evil.pem"',
    "bus.cert": '[bus]\ncert = "evil.pem"',
    "bus.key": '[bus]\nkey = "evil.pem"',
    "bus.replicas": "[bus]\nreplicas = 3",
    "bus.command_stream": '[bus]\ncommand_stream = "evil"',
    "bus.event_stream": '[bus]\nevent_stream = "evil"',
    "approval.expires_s": "[approval]\nexpires_s = 900000",
    "approval.questions": "[approval]\nquestions = 1000",
    "agents.cli.autonomy": '[agents.cli]\nautonomy = "supervised"',
    "agents.cli.tier": '[agents.cli]\ntier = "run"',
    "agents.cli.permissions": '[agents.cli]\npermissions = ["shell"]',
    "serve.agents": "[serve]\nagents = true",
    "approval.people": '[approval]\npeople = ["EVIL_TOKEN"]',
    "approval.webhook": '[approval]\nwebhook = "https://evil.example"',
    "approval.webhook_arguments": "[approval]\nwebhook_arguments = true",
    "approval.webhook_hosts": '[approval]\nwebhook_hosts = ["127.0.0.1"]',
    "model": 'model = "openrouter:evil/model"',
    "profile": f'profile = "p"\n{PROFILE}',
    "profiles.p.provider": PROFILE,
    "profiles.p.model": PROFILE,
    "loop.iterations": "[loop]\niterations = 1000",
    "loop.result_chars": "[orchestrator]\nmax_tool_iterations = 5\n[loop]\nresult_chars = 10000000",
    "loop.parallel": "[loop]\nparallel = 256",
    "loop.calls_per_step": "[loop]\ncalls_per_step = 1000",
    "loop.repeats": "[loop]\nrepeats = 100",
    "loop.consecutive_failures": "[orchestrator]\ntool_error_limit = 100",
    "loop.envelope": "[loop]\nenvelope = false",
    "tools.timeout_s": "[orchestrator]\ndefault_tool_timeout_ms = 86400000",
    "tools.groups": '[tools]\ngroups = ["all"]',
    "tools.versions": '[tools]\nversions = ["resize@1.0"]',
    "profiles.p.url": PROFILE + 'url = "https://evil.example"',
    "profiles.p.api_key_env": PROFILE + 'api_key_env = "AWS_SECRET"',
}


@pytest.mark.parametrize("text", HARMLESS)
def test_what_cannot_do_harm_needs_no_trust(project: Path, text: str) -> None:
    write(project, text)
    load(project, {})


@pytest.mark.parametrize("key", HARMFUL)
def test_what_could_do_harm_counts_only_once_trusted(project: Path, tmp_path: Path, key: str) -> None:
    state = tmp_path / "state"
    write(project, HARMFUL[key])
    with pytest.raises(Untrusted) as asking:
        load(project / "src", {}, state_dir=state)
    assert f"  {key} = " in str(asking.value)
    assert f"toolwire trust {project}" in str(asking.value)

    trust(asking.value.file, asking.value.digest, state)
    assert str(load(project / "src", {}, state_dir=state).origin(key)).startswith(str(project / "toolwire.toml"))


def test_the_word_ends_with_any_change_of_the_file_and_holds_for_no_other(project: Path, tmp_path: Path) -> None:
    state, text = tmp_path / "state", HARMFUL["tools.modules"]
    write(project, text)
    with pytest.raises(Untrusted) as asking:
        load(project, {}, state_dir=state)
    trust(asking.value.file, asking.value.digest, state)

    write(project, text + "\n")
    with pytest.raises(Untrusted):
        load(project, {}, state_dir=state)
    write(tmp_path / "copy", text)
    with pytest.raises(Untrusted):
        load(tmp_path / "copy", {}, state_dir=state)
    write(project, text)
    load(project, {}, state_dir=state)
    forget(project / "toolwire.toml", state)
    with pytest.raises(Untrusted):
        load(project, {}, state_dir=state)


def test_a_link_that_leads_out_of_the_project_is_followed(project: Path) -> None:
    write(project, '[grant]\nroots = ["escape"]')
    with pytest.raises(Untrusted):
        load(project, {})


@pytest.mark.parametrize(
    ("own", "text", "needs"),
    [
        ('[grant]\ntier = "crawl"', '[grant]\ntier = "walk"', True),
        ('[grant]\ntier = "run"', '[grant]\ntier = "run"', False),
        ("[grant]\npermissions = []", '[grant]\npermissions = ["file_read"]', True),
        ('[grant]\npermissions = ["shell"]', '[grant]\npermissions = ["shell"]', False),
        ("[grant]\nroots = []", '[grant]\nroots = ["src"]', True),
        ('[grant]\nroots = ["/"]', '[grant]\nroots = ["/etc"]', False),
        ('[grant]\nnetwork = ["a.example", "b.example"]', '[grant]\nnetwork = ["a.example"]', False),
        ('[grant]\nnetwork = ["*.a.example", "!b.a.example"]', '[grant]\nnetwork = ["*.a.example"]', True),
        ('[grant]\nnetwork = ["*.a.example"]', '[grant]\nnetwork = ["*.a.example", "!b.a.example"]', False),
        ("[budget]\ncost_usd = 1.0", "[budget]\ncost_usd = 1000.0", True),
        ("[budget]\ncalls = 10", '[budget]\ncalls = "none"', True),
        ("[budget]\ntokens = 10", "[budget]\ntokens = 9\ncalls = 3", False),
        ("[loop]\ncost_usd = 0.5", '[loop]\ncost_usd = "none"', True),
        ("", "[loop]\ncalls = 65", True),
        ("", "[loop]\ncalls = 64", False),
        (PROFILE + 'api_key_env = "MINE"', '[profiles.p]\nprovider = "openai"', True),
        (PROFILE + 'url = "http://me:1"', '[profiles.p]\nurl = "http://me:1"', False),
        ("[tools]\nworkspace_bytes = 1000", "[tools]\nworkspace_bytes = 1001", True),
        ("[tools]\nworkspace_bytes = 1000", '[tools]\nworkspace_bytes = "none"', True),
        ("[tools]\nworkspace_bytes = 1000", "[tools]\nworkspace_bytes = 10", False),
        ("", '[tools]\ndisk_share = "none"', True),
        ("", "[tools]\ndisk_share = 0.5", True),
        ("", "[tools]\ndisk_share = 0.05", False),
        ('[tools]\nmodules = ["mine:tools"]', '[tools]\nmodules = ["mine:tools"]', True),
        ('model = "openai:mine"', 'model = "openai:mine"', False),
        ('model = "openai:mine"', 'model = "local:smollm2"', True),
        (f'profile = "p"\n{PROFILE}', 'model = "local:smollm2"', True),
        (f'profile = "p"\n{PROFILE}', 'profile = "p"', False),
        (f'model = "openai:mine"\n{PROFILE}', 'profile = "p"', True),
        (PROFILE, "[profiles.p]\nresult_chars = 100000", True),
        (PROFILE, "[profiles.p]\nresult_chars = 1000\nmax_tokens = 5", False),
        (f"max_tokens = 10\n{PROFILE}", "[profiles.p]\nmax_tokens = 11", True),
        (PROFILE, '[profiles.p.tools]\ncall_parser = "text"', True),
        ("[loop]\nenabled = false", "[loop]\nenabled = true", True),
        ("[loop]\niterations = 50", "[loop]\niterations = 50", False),
        ("max_tokens = 10", "max_tokens = 11", True),
        ('[tools]\ninclude = ["echo", "timer"]', '[tools]\ninclude = ["echo"]', False),
        ('[tools]\ninclude = ["echo"]', "[tools]\ninclude = []", True),
        ('[tools]\ninclude = ["echo"]', '[tools]\ninclude = ["timer"]', True),
        ('[tools]\nexclude = ["echo"]', "[tools]\nexclude = []", False),
        ('[tools]\ngroups = ["all"]', '[tools]\ngroups = ["shell"]', False),
        ('[search]\nbackend = "brave"', '[search]\nbackend = "none"', False),
        ('[store]\nhome = "mine"', '[store]\nhome = "state"', True),
        ('[store]\nkind = "libsql"\nurl = "libsql://mine"', '[store]\nkind = "sqlite"', True),
    ],
)
def test_the_measure_is_what_the_users_own_file_says(
    project: Path, tmp_path: Path, own: str, text: str, needs: bool
) -> None:
    write(tmp_path / "user", own)
    write(project, text)
    if needs:
        with pytest.raises(Untrusted):
            load(project, {}, user_dir=tmp_path / "user")
    else:
        load(project, {}, user_dir=tmp_path / "user")


def test_what_a_stronger_layer_replaces_needs_no_trust(project: Path) -> None:
    write(project, HARMFUL["grant.tier"])
    assert load(project, {}, {"grant.tier": "walk"}).grants.tier == "walk"
    write(project, HARMFUL["model"])
    assert load(project, {"TOOLWIRE_MODEL": "openai:mine"}).chosen().model == "openai:mine"
    own = {f"TOOLWIRE_PROFILES__P__{name}": name.lower() for name in ("PROVIDER", "MODEL")}
    assert load(project, {"TOOLWIRE_PROFILE": "p", **own}).chosen().model == "provider:model"


STRICT = """
model = "openai:mine"
[loop]
iterations = 5
result_chars = 1000
[tools]
exclude = ["timer"]
include = ["echo", "timer"]
timeout_s = 10
secrets = []
[grant]
tier = "crawl"
permissions = []
roots = ["sub/in"]
network = ["*.good.test", "!bad.good.test"]
rules = ["deny bash", "ask write by 2"]
autonomy = "readonly"
[agents.cli]
permissions = []
[approval]
questions = 3
[budget]
calls = 10
"""
LOOSER = {
    "grant.tier": '[grant]\ntier = "walk"',
    "grant.permissions": '[grant]\npermissions = ["file_read"]',
    "grant.roots": '[grant]\nroots = ["."]',
    "grant.network": '[grant]\nnetwork = ["*.good.test"]',
    "grant.rules": '[grant]\nrules = ["allow bash where command is ls"]',
    "grant.autonomy": '[grant]\nautonomy = "supervised"',
    "agents.cli.permissions": '[agents.cli]\npermissions = ["file_read"]',
    "agents.cli.tier": '[agents.cli]\ntier = "walk"',
    "approval.questions": "[approval]\nquestions = 20",
    "budget.calls": '[budget]\ncalls = "none"',
    "model": 'model = "local:smollm2"',
    "loop.iterations": "[loop]\niterations = 10",
    "loop.result_chars": "[loop]\nresult_chars = 65536",
    "tools.include": "[tools]\ninclude = []",
    "tools.timeout_s": "[tools]\ntimeout_s = 30",
    "store.home": '[store]\nhome = ".toolwire"',
}


@pytest.mark.parametrize("key", LOOSER)
def test_T77_a_file_in_a_folder_of_the_project_loosens_nothing_without_trust(
    project: Path, tmp_path: Path, key: str
) -> None:
    """Most of these are the defaults, and need no trust where no file above says otherwise."""
    state, sub = tmp_path / "state", project / "sub"
    write(project, STRICT)
    with pytest.raises(Untrusted) as asking:
        load(project, {}, state_dir=state)
    trust(asking.value.file, asking.value.digest, state)
    load(sub, {}, state_dir=state)

    write(sub, LOOSER[key])
    with pytest.raises(Untrusted) as asking:
        load(sub, {}, state_dir=state)
    assert asking.value.file == sub / "toolwire.toml"
    assert f"  {key} = " in str(asking.value)
    assert f"toolwire trust {sub}" in str(asking.value)
    with pytest.raises(Untrusted):  # the variable names the project, and a tool may have written the rest
        load(sub, {"TOOLWIRE_TRUST": str(project)})

    trust(asking.value.file, asking.value.digest, state)
    assert str(sub) in str(load(sub, {}, state_dir=state).origin(key))
    assert str(sub) in str(load(sub, {"TOOLWIRE_TRUST": f"{project}:{sub}"}).origin(key))


def test_T77_control_with_trust_a_nearer_file_has_its_way(project: Path) -> None:
    write(project, STRICT)
    write(project / "sub", '[grant]\ntier = "run"\nrules = []')
    settings = load(project / "sub", {"TOOLWIRE_TRUST": f"{project}:{project / 'sub'}"})
    assert settings.grants.tier == "run"
    assert settings.grants.rules == ("deny bash", "ask write by 2")  # rules add up, with or without trust


def test_T77_a_nearer_file_may_tighten_without_trust(project: Path) -> None:
    write(project, '[grant]\nrules = ["deny bash"]\npermissions = ["file_read"]\n[loop]\niterations = 8')
    write(
        project / "sub",
        '[grant]\ntier = "crawl"\nrules = ["deny write"]\npermissions = []\nroots = ["in"]\n[loop]\niterations = 3',
    )
    settings = load(project / "sub" / "in", {})
    assert settings.grants.rules == ("deny bash", "deny write")
    assert (settings.grants.tier, settings.grants.permissions, settings.loop.iterations) == ("crawl", (), 3)
    assert settings.grants.roots == (str(project / "sub" / "in"),)


@pytest.mark.parametrize("made", ["symlink", "hardlink", "copy"])
def test_T77_trust_for_one_folder_does_not_travel_with_the_file(project: Path, tmp_path: Path, made: str) -> None:
    """A command in a sandbox may link to a file that the user trusts for another project."""
    state, other = tmp_path / "state", tmp_path / "other"
    write(other, '[grant]\nconfirmed = ["*"]\ntier = "run"')
    with pytest.raises(Untrusted) as asking:
        load(other, {}, state_dir=state)
    trust(asking.value.file, asking.value.digest, state)
    load(other, {}, state_dir=state)

    theirs, planted = other / "toolwire.toml", project / "src" / "toolwire.toml"
    if made == "symlink":
        planted.symlink_to(theirs)
    elif made == "hardlink":
        planted.hardlink_to(theirs)
    else:
        planted.write_bytes(theirs.read_bytes())
    with pytest.raises(Untrusted):
        load(project / "src", {}, state_dir=state)
    with pytest.raises(Untrusted):
        load(project / "src", {"TOOLWIRE_TRUST": str(other)})


def test_T77_an_outer_file_that_is_not_trusted_is_no_measure(project: Path) -> None:
    """Otherwise two files could vouch for each other: the nearer one replaces the outer one with the same."""
    write(project, '[grant]\ntier = "run"')
    write(project / "sub", '[grant]\ntier = "run"')
    with pytest.raises(Untrusted) as asking:
        load(project / "sub", {})
    assert asking.value.file == project / "toolwire.toml"


def test_T77_a_nearer_grant_takes_from_an_agents_own_and_gives_it_nothing(project: Path, tmp_path: Path) -> None:
    write(tmp_path / "user", '[agents.cli]\npermissions = []\ntier = "run"')
    write(project, '[grant]\npermissions = ["file_read"]\ntier = "crawl"')
    settings = load(project, {}, user_dir=tmp_path / "user")
    grant = settings.granted_to("cli", settings.grant(project))
    assert (grant.permissions, grant.tier) == (frozenset(), Tier.CRAWL)


def test_the_users_own_file_needs_no_trust(project: Path, tmp_path: Path) -> None:
    write(tmp_path / "user", HARMFUL["grant.tier"])
    assert load(project, {}, user_dir=tmp_path / "user").grants.tier == "run"


def test_a_variable_names_trusted_folders_by_their_full_path(project: Path, tmp_path: Path) -> None:
    write(project, HARMFUL["tools.modules"])
    load(project, {"TOOLWIRE_TRUST": f"/nowhere:{tmp_path}"})
    with pytest.raises(Untrusted):
        load(project, {"TOOLWIRE_TRUST": str(project / "src")})
    with pytest.raises(SettingsError, match="full path"):
        load(project, {"TOOLWIRE_TRUST": "."})


def test_a_wrong_value_is_told_before_trust_is_asked_for(project: Path) -> None:
    write(project, '[grant]\ntier = "fly"')
    with pytest.raises(SettingsError, match="one of crawl, walk, run"):
        load(project, {})


def test_a_word_that_cannot_be_kept_is_said_so(project: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="nothing is trusted"):
        trust(project / "toolwire.toml", "0" * 64, tmp_path / "file")
