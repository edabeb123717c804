"""Families made from things and what one does with them: create, show, change, delete, list, count, search.

Tools of one thing differ by the verb alone, tools of one verb by the thing alone: telling them apart is reading.
"""

from collections.abc import Iterator

from training.families import Family, Role, frame_of
from training.values import DATA

HELD_THINGS = 16

_VERBS = {
    "create": ("create", "add", "new", "make", "register"),
    "get": ("get", "show", "read", "fetch", "lookup"),
    "update": ("update", "change", "set", "edit", "modify"),
    "delete": ("delete", "remove", "drop", "destroy"),
    "list": ("list", "all", "browse"),
    "count": ("count", "number of"),
    "search": ("search", "find", "query"),
}
_PURPOSES = {
    "create": ("Create a {one}", "Add a new {one}", "Register a {one} in the system"),
    "get": ("Get a {one} by its id", "Show the details of one {one}", "Fetch a single {one}"),
    "update": ("Change a field of a {one}", "Update an existing {one}", "Modify the data of a {one}"),
    "delete": ("Delete a {one}", "Remove a {one} for good", "Deletes a {one} by id"),
    "list": ("List the {many}", "Show all {many}, filtered if wanted", "Lists {many}"),
    "count": ("Count the {many}", "Tell how many {many} there are"),
    "search": ("Search {many} by text", "Full-text search over {many}", "Find {many} that match a query"),
}
_PLAIN = {
    "get": (
        "show [me |]{one} {id}",
        "look up {one} {id}",
        "what do we know about {one} {id}?",
        "give me the details of {one} {id}",
        "I need the data of {one} {id}",
        "pull up {one} {id}",
        "open {one} {id}",
        "details for {one} {id} please",
        "what's {one} {id}?",
    ),
    "delete": (
        "delete {one} {id}",
        "remove {one} {id}",
        "get rid of {one} {id}",
        "{one} {id} can go, delete it",
        "drop the {one} {id}",
        "We no longer need {one} {id}",
        "erase {one} {id} from the system",
        "throw out {one} {id}",
    ),
    "list": (
        "list [all |the |]{many}",
        "show [me |]all {many}",
        "which {many} do we have?",
        "what {many} are there?",
        "give me the {many}",
        "I want to see every {one}",
        "overview of the {many}",
        "show {limit} {many}",
        "list the first {limit} {many}",
    ),
    "count": (
        "how many {many} are there?",
        "how many {many} do we have?",
        "count the {many}",
        "number of {many}?",
        "what's the total number of {many}?",
        "tell me the {one} count",
    ),
    "search": (
        'search the {many} for "{query}"',
        'find {many} about "{query}"',
        'look for {many} matching "{query}"',
        'search "{query}" in the {many}',
        'which {many} mention "{query}"?',
        'find up to {limit} {many} for "{query}"',
    ),
}


def load() -> list[Family]:
    """Seven families for each thing; some things are held out with all their tools."""
    lines = (DATA / "entities.txt").read_text(encoding="utf-8").splitlines()
    return [family for number, line in enumerate(lines) for family in _families(number, line)]


def _families(number: int, line: str) -> Iterator[Family]:
    one, many, prefix, listed = line.split("|")
    fields = [_field(text) for text in listed.split("; ")]
    for verb, others in _VERBS.items():
        family = Family(f"{one}.{verb}", group=f"{one}.{verb}")
        family.names = [f"{word} {many if verb in ('list', 'count', 'search') else one}" for word in others]
        family.names.append(f"{many if verb == 'list' else one} {verb}")
        family.purposes = [purpose.format(one=one, many=many) for purpose in _PURPOSES[verb]]
        family.tags = frozenset({"outside", "held"} if number % HELD_THINGS == 5 else {"outside"})
        family.roles = {role.name: role for role in _roles(verb, fields, prefix)}
        family.frames = [frame_of(text, family.name) for text in _frames(verb, one, many, fields)]
        family.results = _results(verb, fields, prefix)
        yield family


def _field(text: str) -> tuple[str, str]:
    name, _, kind = text.partition(" ")
    if "=" in kind:
        kind = kind.replace(",", ";")
    return name, kind


def _roles(verb: str, fields: list[tuple[str, str]], prefix: str) -> Iterator[Role]:
    if verb in ("get", "update", "delete"):
        yield Role(("id", "ref", "number"), f"id {prefix}", True)
    if verb == "create":
        for place, (name, kind) in enumerate(fields):
            yield Role((name,), kind, place == 0)
    elif verb in ("update", "list"):
        for name, kind in fields:
            yield Role((name,), kind, False)
    if verb == "search":
        yield Role(("query", "text", "q"), "topic", True)
    if verb in ("list", "search"):
        yield Role(("limit", "max", "count"), "int 2 50", False)


def _frames(verb: str, one: str, many: str, fields: list[tuple[str, str]]) -> Iterator[str]:
    for text in _PLAIN.get(verb, ()):
        yield text.replace("{one}", one).replace("{many}", many)
    said = [(name, name.replace("_", " ")) for name, kind in fields if kind != "bool"]
    if verb == "create":
        yield from _creations(one, said)
    for name, label in said:
        slot = f"{{{name}}}"
        if verb == "update":
            yield f"set the {label} of {one} {{id}} to {slot}"
            yield f"change {one} {{id}}: {label} {slot}"
            yield f"the {label} of {one} {{id}} is {slot} now, update it"
            yield f"update {one} {{id}} with {label} {slot}"
            yield f"{one} {{id}} should have {label} {slot}"
        elif verb == "get":
            yield f"what's the {label} of {one} {{id}}?"
            yield f"tell me the {label} of {one} {{id}}"
        elif verb == "list":
            yield f"which {many} have {label} {slot}?"
            yield f"list the {many} with {label} {slot}"
            yield f"show {many} whose {label} is {slot}"
            yield f"all {many} with {label} {slot}, at most {{limit}}"


def _creations(one: str, said: list[tuple[str, str]]) -> Iterator[str]:
    (first, label), *rest = said
    article = "an" if one[0] in "aeiou" else "a"
    head = "{" + first + "}"
    yield f"create {article} {one} with {label} {head}"
    yield f"add {article} {one}, {label} {head}"
    yield f"make a new {one} with {label} {head}"
    yield f"new {one}: {label} {head}"
    yield f"register {article} {one} whose {label} is {head}"
    yield f"I need {article} {one} with the {label} {head}"
    for name, other in rest:
        slot = "{" + name + "}"
        yield f"create {article} {one} with {label} {head} and {other} {slot}"
        yield f"add a new {one}: {label} {head}, {other} {slot}"
        yield f"set up {article} {one} ({label} {head}, {other} {slot})"
        yield f"put in {article} {one} with {other} {slot} and {label} {head}"
    if len(rest) > 1:
        tail = ", ".join(f"{other} {{{name}}}" for name, other in rest)
        yield f"create {article} {one}: {label} {head}, {tail}"
        yield f"we got a new {one}, {label} {head}, {tail}"


def _results(verb: str, fields: list[tuple[str, str]], prefix: str) -> list[str]:
    shown = "; ".join(f"{name} {kind.replace(';', '/')}" for name, kind in fields if kind != "bool" and "=" not in kind)
    match verb:
        case "create":
            return [f"id id {prefix}", f"created =true; id id {prefix}"]
        case "get":
            return [shown]
        case "count":
            return ["count int 0 900", "total int 0 900"]
        case "list" | "search":
            return ["count int 1 40; first madeup", "found int 1 20"]
    return ["ok =true", "status =done"]
