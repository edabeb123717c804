"""Puts the pages of docs/ into the wheel, for `toolwire docs`. In an editable installation they are read in place."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

OF_THE_PROJECT = {"benchmarks.md", "features.md", "local-model-figures.md", "plan.md", "threats.md"}
"""Pages about how toolwire is made rather than used."""


class DocsHook(BuildHookInterface):  # type: ignore[type-arg,unused-ignore]
    """Adds the pages to a wheel that is built to be installed."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        for page in sorted((Path(self.root) / "docs").glob("*.md")):
            if page.name not in OF_THE_PROJECT:
                build_data["force_include"][str(page)] = f"toolwire/docs/{page.name}"
