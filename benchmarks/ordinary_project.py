"""A small project as people have it: code, tests, docs, data, notes, and a few commits."""

import subprocess
from pathlib import Path

FILES = {
    "README.md": "# Shop\n\nA small Shop in Python.\n\n- `src`: the code\n- `data`: orders\n",
    "pyproject.toml": '[project]\nname = "shop"\nversion = "1.0"\n',
    "Makefile": "all:\n\t@echo hello\n\ncheck:\n\tpython3 -m compileall -q src\n\nclean:\n\trm -rf build\n",
    ".gitignore": "*.pyc\n__pycache__/\n",
    "src/shop/__init__.py": '"""A shop."""\n',
    "src/shop/cart.py": (
        "from dataclasses import dataclass, field\n\n\n@dataclass\nclass Cart:\n"
        '    """What somebody wants to buy."""\n\n    items: list[tuple[str, float]] = field(default_factory=list)\n\n'
        "    def add(self, name: str, price: float) -> None:\n        self.items.append((name, price))\n\n"
        "    def total(self) -> float:\n        return sum(price for _, price in self.items)\n"
    ),
    "src/shop/prices.py": "TAX = 0.19\n\n\ndef with_tax(price: float) -> float:\n    return price * (1 + TAX)\n",
    "src/shop/text.py": 'def slug(title: str) -> str:\n    return "-".join(title.lower().split())\n',
    "tests/test_cart.py": (
        "import pathlib\nimport sys\nimport unittest\n\n"
        'sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "src"))\n\nfrom shop.cart import Cart\n\n\n'
        "class TestCart(unittest.TestCase):\n    def test_total(self) -> None:\n        cart = Cart()\n"
        '        cart.add("pen", 2.5)\n        assert cart.total() == 2.5\n'
    ),
    "docs/guide.md": "# Guide\n\n- Fill a cart.\n- Ask for the total.\n\nPrices are without tax.\n",
    "docs/faq.md": "# FAQ\n\nWhy a shop? Because.\n",
    "data/orders.csv": "id,customer,item,price\n1,Ann,pen,2.5\n2,Ben,lamp,48\n3,Ann,book,12\n4,Cleo,desk,120\n"
    "5,Ann,cup,8\n6,Ben,chair,25\n",
    "data/people.json": '[{"name": "Ann", "mail": "ann@example.org"}, {"name": "Ben", "mail": "ben@example.org"},\n'
    ' {"name": "Cleo", "mail": "cleo@example.org"}, {"name": "Dan", "mail": "dan@example.org"}]\n',
    "data/log.txt": "".join(
        f"2026-03-0{day} {level} {text}\n"
        for day, level, text in (
            (1, "INFO", "started"), (1, "INFO", "order 1"), (2, "WARNING", "slow"), (2, "ERROR", "lost order 2"),
            (3, "INFO", "order 3"), (3, "ERROR", "no paper"), (4, "INFO", "order 4"), (5, "INFO", "stopped"),
        )
    ),
    "scripts/report.sh": '#!/bin/sh\necho "$(($(wc -l < data/orders.csv) - 1)) orders"\n',
    "scripts/report.py": 'import csv\n\nwith open("data/orders.csv") as file:\n'
    '    print(len(list(csv.DictReader(file))), "orders")\n',
    "notes/todo.txt": "buy milk\nTODO call Ben\n",
}  # fmt: skip
_COMMITS = (
    ("Add the shop", ["README.md", "pyproject.toml", "Makefile", ".gitignore", "src"]),
    ("Add tests and docs", ["tests", "docs"]),
    ("Add data and scripts", ["data", "scripts", "notes"]),
)


def make_project(folder: Path) -> None:
    """Make it, with three commits, a second branch, one change and one new file."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    _git(folder, "init", "-q", "-b", "main")
    _git(folder, "config", "user.name", "Ann")
    _git(folder, "config", "user.email", "ann@example.org")
    for message, paths in _COMMITS:
        _git(folder, "add", *paths)
        _git(folder, "commit", "-q", "-m", message)
    _git(folder, "branch", "feature")
    (folder / "README.md").write_text(FILES["README.md"] + "\nThe Shop is open.\n", encoding="utf-8")
    (folder / "notes" / "new.txt").write_text("new\n", encoding="utf-8")


def _git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True, timeout=30)
