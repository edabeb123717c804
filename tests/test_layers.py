"""Who may import whom, said once, in code."""

import ast
from collections.abc import Iterator
from pathlib import Path

import toolwire.toolbox

SOURCE = Path(__file__).parent.parent / "src" / "toolwire"

NOUNS = {"protocol", "errors"}
SHAPES = {"define", "wire", "plan"}
JUDGEMENTS = {"disclose", "decide", "deliver"}
WHEEL = {"loop.step", "loop.limits", "loop.compaction"}
ADAPTERS = {"execute", "record", "models"}
HUB = {"hub", "agent", "settings", "toolbox", "testing"}

MAY_IMPORT = {
    "protocol": {"protocol"},
    "errors": {"protocol"},
    **{one: NOUNS | {one} for one in SHAPES},
    "disclose": NOUNS | {"define", "disclose"},
    "decide": NOUNS | {"define", "disclose", "decide"},
    "deliver": NOUNS | {"define", "deliver"},
    **dict.fromkeys(WHEEL, NOUNS | WHEEL),
    **{one: NOUNS | {"wire", "plan", one} for one in ADAPTERS},
    **dict.fromkeys(HUB, NOUNS | SHAPES | JUDGEMENTS | WHEEL | ADAPTERS | HUB),
    "gateway": NOUNS | SHAPES | JUDGEMENTS | WHEEL | ADAPTERS | HUB | {"gateway"},
    "te": NOUNS | JUDGEMENTS | ADAPTERS | {"te"},
    "cli": NOUNS | SHAPES | JUDGEMENTS | WHEEL | ADAPTERS | HUB | {"cli"},
}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        yield ".".join(part for part in parts if part != "__init__"), ast.parse(path.read_text(encoding="utf-8"))


def layer(module: str) -> str:
    """`loop` is three layers; every other package is one."""
    head, _, rest = module.partition(".")
    return f"{head}.{rest.split('.')[0]}" if head == "loop" and rest else head


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("toolwire."):
            yield node.module.removeprefix("toolwire.")
        elif isinstance(node, ast.Import):
            yield from (name.name.removeprefix("toolwire.") for name in node.names if name.name.startswith("toolwire."))


def test_imports_point_up_the_table() -> None:
    wrong = [
        f"{module} imports {other}"
        for module, tree in modules()
        if module and layer(module) in MAY_IMPORT
        for other in imported(tree)
        if layer(other) not in MAY_IMPORT[layer(module)]
    ]
    assert wrong == []


def test_every_module_has_a_place_in_the_table() -> None:
    assert {layer(module) for module, _ in modules() if module} - MAY_IMPORT.keys() <= {"loop", "__main__"}


def test_no_import_hides_in_a_function() -> None:
    hidden = [
        f"{module}:{inner.lineno}"
        for module, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for inner in ast.walk(node)
        if isinstance(inner, (ast.Import, ast.ImportFrom))
    ]
    assert hidden == []


def test_the_nouns_need_only_the_standard_library() -> None:
    foreign = {"pydantic", "orjson", "httpx2", "jsonschema_rs", "rich", "typer", "uuid_utils", "anyio"}
    for module, tree in modules():
        if layer(module) in NOUNS:
            names = {
                alias.name.split(".")[0]
                for node in ast.walk(tree)
                if isinstance(node, ast.Import)
                for alias in node.names
            }
            names |= {
                node.module.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module
            }
            assert not names & foreign, module


def test_names_that_are_loaded_late_are_seen_here_and_are_no_modules() -> None:
    """A package that resolves names when they are used imports all of them for type checkers, and so for this file."""
    late = {"": toolwire, "toolbox": toolwire.toolbox}
    for package, tree in ((name, dict(modules())[name]) for name in late):
        homes = vars(late[package])["_HOMES"]
        seen = {
            alias.name: node.module
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
            if alias.asname == alias.name
        }
        assert seen == homes
        taken = {path.stem for path in (SOURCE / package).iterdir()}
        assert taken.isdisjoint(homes), "loading the module would put it in the place of the name"
