"""Who may import whom, said once, in code."""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import toolwire.toolbox

SOURCE = Path(__file__).parent.parent / "src" / "toolwire"

NOUNS = {"protocol", "errors", "lazy"}
SHAPES = {"define", "wire", "plan", "breadcrumbs.rules"}
JUDGEMENTS = {"disclose", "decide", "deliver"}
WHEEL = {"loop.step", "loop.limits", "loop.compaction"}
ADAPTERS = {"execute", "record", "models", "bus"}
HUB = {"hub", "agent", "settings", "toolbox", "testing", "breadcrumbs", "task_groups"}
FLEET = {"fleet"}
EDGE = {"edge"}
TELEMETRY = {"telemetry"}
ASSEMBLY = {"assemble"}

MAY_IMPORT = {
    "protocol": {"protocol"},
    "errors": {"protocol"},
    "lazy": set(),
    "event_loop": set(),
    "lazy_attributes": set(),
    "tls": set(),
    **{one: NOUNS | {one} for one in SHAPES},
    "disclose": NOUNS | {"define", "disclose"},
    "decide": NOUNS | {"define", "disclose", "decide"},
    "deliver": NOUNS | {"define", "deliver"},
    **dict.fromkeys(WHEEL, NOUNS | WHEEL),
    **{
        one: NOUNS | {"wire", "plan", "breadcrumbs.rules", "event_loop", "tls", "lazy_attributes", one}
        for one in ADAPTERS
    },
    **dict.fromkeys(HUB, NOUNS | SHAPES | JUDGEMENTS | WHEEL | ADAPTERS | HUB | {"tls", "lazy_attributes"}),
    "telemetry": NOUNS | SHAPES | ADAPTERS | TELEMETRY,
    "fleet": NOUNS | SHAPES | JUDGEMENTS | WHEEL | ADAPTERS | HUB | FLEET,
    "edge": NOUNS | SHAPES | JUDGEMENTS | WHEEL | ADAPTERS | HUB | FLEET | EDGE,
    "assemble": NOUNS | SHAPES | JUDGEMENTS | WHEEL | ADAPTERS | HUB | FLEET | EDGE | TELEMETRY | ASSEMBLY,
    "gateway": NOUNS
    | SHAPES
    | JUDGEMENTS
    | WHEEL
    | ADAPTERS
    | HUB
    | FLEET
    | EDGE
    | TELEMETRY
    | ASSEMBLY
    | {"gateway", "event_loop", "tls"},
    "conformance": NOUNS | SHAPES | {"bus", "conformance"},
    "te": NOUNS | JUDGEMENTS | ADAPTERS | {"te"},
    "cli": NOUNS
    | SHAPES
    | JUDGEMENTS
    | WHEEL
    | ADAPTERS
    | HUB
    | FLEET
    | EDGE
    | TELEMETRY
    | ASSEMBLY
    | {"cli", "gateway", "conformance", "event_loop"},
}

# What the core must not touch: the system, the clock, chance, the network, other processes and threads.
PURE = NOUNS | SHAPES | JUDGEMENTS | {"loop.step", "loop.limits"}
IMPURE = frozenset(
    "asyncio concurrent fcntl glob http io logging mmap multiprocessing os pty random sched secrets select selectors "
    "shutil signal socket sqlite3 ssl subprocess sys tempfile termios threading time uuid "
    "anyio httpx2 uuid_utils urllib.request urllib.error pathlib.Path".split()
)
BUILTINS_OF_IO = frozenset(["open", "input", "print", "breakpoint"])
CLOCKS = frozenset(["now", "utcnow", "today"])
ALLOWED = {
    "protocol.checked": {"os"},  # what a caller gives as a folder may be any PathLike; none is opened
    "define.conversion": {"sys"},  # which Python this is
    "define.signatures": {"sys"},  # the frame of the caller, where annotations name local classes
}

_A_MODULE = re.compile(r"toolwire\.([\w.]+?)(?::\w+)?")


@cache
def _parsed() -> Mapping[str, ast.Module]:
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


@cache
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """All nodes of a tree, found once: most tests here look at those of every module."""
    return tuple(ast.walk(tree))


def modules() -> Iterator[tuple[str, ast.Module]]:
    yield from _parsed().items()


def layer(module: str) -> str:
    """`loop` is three layers, `breadcrumbs` is two; every other package is one."""
    head, _, rest = module.partition(".")
    part = f"{head}.{rest.split('.')[0]}"
    return part if part in WHEEL | SHAPES else head


def imported(tree: ast.AST) -> Iterator[str]:
    """The modules of ours that a module imports, or names in a text so as to import them later."""
    for node in nodes(tree):
        match node:
            case ast.ImportFrom(module=str(name)):
                yield from _ours(name)
            case ast.Import(names=names):
                for alias in names:
                    yield from _ours(alias.name)
            case ast.Constant(value=str(text)) if (named := _A_MODULE.fullmatch(text)) and named[1] in _parsed():
                yield named[1]
            case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]) if text.startswith("toolwire."):
                yield text.removeprefix("toolwire.").rpartition(".")[0]


def _ours(name: str) -> Iterator[str]:
    if name.startswith("toolwire."):
        yield name.removeprefix("toolwire.")


def from_outside(tree: ast.AST) -> Iterator[str]:
    """What a module imports from elsewhere: modules, and `module.name` for what it takes out of one."""
    for node in nodes(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield module
                yield from (f"{module}.{alias.name}" for alias in names)


def touches(tree: ast.AST) -> Iterator[str]:
    """What a module does with the world: forbidden imports, files that it opens, clocks that it reads."""
    for name in from_outside(tree):
        yield from {name, name.partition(".")[0]} & IMPURE
    for node in nodes(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in BUILTINS_OF_IO:
                yield name
            case ast.Call(func=ast.Attribute(attr=name)) if name in CLOCKS:
                yield name


def test_imports_point_up_the_table() -> None:
    wrong = [
        f"{module} imports {other}"
        for module, tree in modules()
        if module and layer(module) in MAY_IMPORT
        for other in imported(tree)
        if layer(other) not in MAY_IMPORT[layer(module)]
    ]
    assert wrong == []


def test_packages_do_not_import_each_other_in_circles() -> None:
    needs: dict[str, set[str]] = {}
    for module, tree in modules():
        if module:
            needs.setdefault(layer(module), set()).update(layer(other) for other in imported(tree))
    assert sorted(in_circles(needs)) == []


def in_circles(needs: Mapping[str, set[str]]) -> set[str]:
    """Those that need themselves by way of others."""
    rest = {name: others - {name} for name, others in needs.items()}
    while free := {name for name, others in rest.items() if not others & rest.keys()}:
        rest = {name: others for name, others in rest.items() if name not in free}
    while unneeded := rest.keys() - set().union(*rest.values()):
        rest = {name: others for name, others in rest.items() if name not in unneeded}
    return set(rest)


def test_a_circle_is_found_however_it_is_spelled() -> None:
    assert in_circles({"a": {"b"}, "b": {"c", "x"}, "c": {"a", "c"}, "x": set(), "y": {"a"}}) == {"a", "b", "c"}
    for text in (
        "import toolwire.cli.commands.ask",
        "from toolwire.cli.commands import ask",
        "load('toolwire.cli:main')",
    ):
        assert "cli" in {layer(module) for module in imported(ast.parse(text))}
    assert list(imported(ast.parse("load(f'toolwire.gateway.{name}')"))) == ["gateway"]


def test_the_core_touches_nothing_outside_itself() -> None:
    """Judgements can be tried in a test, and repeated, only where nothing but their arguments decides them."""
    wrong = [
        f"{module}: {name}"
        for module, tree in modules()
        if layer(module) in PURE
        for name in touches(tree)
        if name not in ALLOWED.get(module, ())
    ]
    assert wrong == []


def test_what_the_core_may_touch_is_no_longer_than_what_it_touches() -> None:
    found = {module: set(touches(tree)) for module, tree in modules() if module in ALLOWED}
    assert found == ALLOWED


def test_touching_the_world_is_noticed_in_any_of_the_usual_spellings() -> None:
    text = """
import os.path
from time import monotonic
from urllib import request
from pathlib import Path
text = open("x").read()
now = datetime.now(UTC)
"""
    assert set(touches(ast.parse(text))) == {"os", "time", "urllib.request", "pathlib.Path", "open", "now"}


def test_every_module_has_a_place_in_the_table() -> None:
    assert {layer(module) for module, _ in modules() if module} - MAY_IMPORT.keys() <= {"loop", "__main__"}


def test_no_import_hides_in_a_function() -> None:
    hidden = [
        f"{module}:{inner.lineno}"
        for module, tree in modules()
        for node in nodes(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for inner in ast.walk(node)
        if isinstance(inner, (ast.Import, ast.ImportFrom))
    ]
    assert hidden == []


def test_the_nouns_need_only_the_standard_library_and_msgspec() -> None:
    foreign = {"pydantic", "orjson", "httpx2", "jsonschema_rs", "rich", "typer", "uuid_utils", "anyio"}
    for module, tree in modules():
        if layer(module) in NOUNS:
            names = {
                alias.name.split(".")[0] for node in nodes(tree) if isinstance(node, ast.Import) for alias in node.names
            }
            names |= {
                node.module.split(".")[0] for node in nodes(tree) if isinstance(node, ast.ImportFrom) and node.module
            }
            assert not names & foreign, module


def test_a_module_that_is_loaded_late_is_imported_for_type_checkers() -> None:
    """So its types are known, and this file sees the import. The promise and the import name the same module."""
    for module, tree in modules():
        promised = {
            node.targets[0].id: node.value.args[0].value
            for node in nodes(tree)
            if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Name)
            and node.value.func.id == "lazy_module"
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value.args[0], ast.Constant)
        }
        imported_modules = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in nodes(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        imported_modules |= {
            alias.asname or alias.name: alias.name
            for node in nodes(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        assert promised.items() <= imported_modules.items(), module


def test_only_the_table_of_commands_and_lazy_modules_import_ours_by_name() -> None:
    """`import_module` is for what others wrote: extras, and the modules that settings name."""
    by_name = {
        module
        for module, tree in modules()
        for node in nodes(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith("import_module")
        and any(text.startswith("toolwire") for text in texts(node))
    }
    assert by_name == set()


def texts(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            yield inner.value


def test_names_that_are_loaded_late_are_seen_here_and_are_no_modules() -> None:
    """A package that resolves names when they are used imports all of them for type checkers, and so for this file."""
    late = {"": toolwire, "toolbox": toolwire.toolbox}
    for package, tree in ((name, dict(modules())[name]) for name in late):
        homes = vars(late[package])["_HOMES"]
        seen = {
            alias.name: node.module
            for node in nodes(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
            if alias.asname == alias.name
        }
        assert seen == homes
        taken = {path.stem for path in (SOURCE / package).iterdir()}
        assert taken.isdisjoint(homes), "loading the module would put it in the place of the name"
