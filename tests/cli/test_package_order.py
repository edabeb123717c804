"""The packages of the command line have an order, and imports follow it."""

from tests.test_layers import imported, modules

MAY_IMPORT = {
    "terminal": {"terminal"},
    "help": {"terminal", "help"},
    "entry": {"terminal", "help", "entry"},
    "views": {"terminal", "views"},
    "resolve": {"terminal", "views", "resolve"},
    "commands": {"terminal", "help", "entry", "views", "resolve", "commands"},
}
TABLE = "cli.entry.program"  # knows every command, by name: its module is loaded when it is invoked


def test_imports_in_the_command_line_follow_the_order_of_its_packages() -> None:
    wrong = [
        f"{module} imports {other}"
        for module, tree in modules()
        if module.startswith("cli.")
        for other in imported(tree)
        if other.startswith("cli.")
        if _package(other) not in MAY_IMPORT[_package(module)]
        if not (module == TABLE and _package(other) == "commands")
    ]
    assert wrong == []


def test_every_module_of_the_command_line_is_in_one_of_its_packages() -> None:
    assert {_package(module) for module, _ in modules() if module.startswith("cli.")} == MAY_IMPORT.keys()


def _package(module: str) -> str:
    return module.split(".")[1]
