from toolwire import Grant, Tier, Toolbox, ToolCall, tool
from toolwire.decide.ladder import Case, decide, explain, preflight
from toolwire.protocol.calls import Denied


@tool(tier=Tier.RUN, needs={"shell"})
def bash(command: str) -> str:
    """Run a shell command."""
    return command


case = Case(ToolCall("bash", {"cmd": "ls"}), Toolbox(bash), Grant(tier=Tier.WALK))

verdict = decide(case)
assert isinstance(verdict, Denied)
assert verdict.rule == "tier"
assert verdict.message.startswith("'bash' needs tier RUN; this turn has tier WALK.")

assert len(preflight(case)) == 4  # tier, permissions, arguments, and a person would have to agree
for rung in explain(case):
    print(f"{rung.rule:<13} {rung.verdict:<10} {rung.sentence}")
