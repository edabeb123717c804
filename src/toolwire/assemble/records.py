"""The records of a project, as its settings say: what is checked, and where the key of secrets lies."""

from pathlib import Path

from toolwire.assemble.project import ProjectFolder
from toolwire.breadcrumbs.rules.callers import Role
from toolwire.breadcrumbs.sealing import KeyFile, Sealer
from toolwire.breadcrumbs.service import RecordKeeper, RecordRules, RecordService


def record_service(project: ProjectFolder, store: RecordKeeper) -> RecordService:
    """The one way to a project's records."""
    chosen = project.settings.records
    keys = KeyFile(Path(chosen.key_file) if chosen.key_file else None)
    rules = RecordRules(strict=chosen.strict, sealer=Sealer(keys, project.name))
    return RecordService(store, project.name, rules=rules)


def record_roles(project: ProjectFolder) -> dict[str, Role]:
    """The roles of those tokens of the gateway that the settings name. One that is named twice has the greater role."""
    chosen = project.settings.records
    named = ((chosen.readers, Role.READER), (chosen.writers, Role.WRITER), (chosen.admins, Role.ADMIN))
    return {name: role for names, role in named for name in names}
