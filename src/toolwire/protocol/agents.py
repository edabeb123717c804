"""What an agent is made of, as a value that a turn carries: any process can build the agent again from it.

Settings and flags become an `AgentSpec`, and that becomes a store, tools and an agent. It holds names and digests,
never a secret: a key is named by the variable that has it. What a turn may do (`Turn.grant`, `Turn.limits`,
`Turn.system`) stands in the turn itself; resuming takes the lesser of that and what policy allows by then.
"""

from msgspec import Struct

from toolwire.protocol.budgets import Budget

AUTO = "auto"


class FormatSpec(Struct, frozen=True):
    """In which formats a model is told of tools, read, and given results; `auto` leaves it to toolwire."""

    definition_format: str = AUTO
    call_parser: str = AUTO
    result_format: str = AUTO
    coach: bool = True


class ModelSpec(Struct, frozen=True):
    """Which model answers and how it is reached. `key_env` names the variable with its key.

    `replay` is the file of a recording that answers in place of the model. `had_login` says of a spec on record that
    its address had a user name or password in it, which is not kept.
    """

    name: str = ""
    profile: str = ""
    base_url: str = ""
    key_env: str = ""
    replay: str = ""
    temperature: float | None = None
    max_tokens: int | None = None
    formats: FormatSpec = FormatSpec()
    had_login: bool = False


class SkillSpec(Struct, frozen=True):
    """A skill as it was when the agent was made; its tools count as the same while the digest does."""

    name: str
    version: str = ""
    digest: str = ""


class ToolsSpec(Struct, frozen=True):
    """Where the tools come from (groups, modules, skills), and the names of all that there were in the end."""

    groups: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    skills: tuple[SkillSpec, ...] = ()
    names: tuple[str, ...] = ()


class GrantedByUser(Struct, frozen=True):
    """What was granted beyond the settings when the turn began: by flags, or in a request.

    `tier` is the name of one; empty, the settings' own applies, as it does without `roots` and tool `groups`. With
    `confirms_all` no call asks for approval.
    """

    tier: str = ""
    permissions: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    confirms_all: bool = False


class AgentSpec(Struct, frozen=True):
    """How to build the agent of a turn again, wherever the turn is taken up.

    `request` is the digest of what a client asked for, where one began the turn: asking again can be told from asking
    for something else. `result_schema` is the JSON Schema of the result that its turns end with, as JSON.
    """

    name: str = "agent"
    model: ModelSpec = ModelSpec()
    tools: ToolsSpec = ToolsSpec()
    granted: GrantedByUser = GrantedByUser()
    budget: Budget | None = None
    request: str = ""
    result_schema: str = ""
