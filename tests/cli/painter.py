"""A project with one tool that needs approval: it paints, in the file `painted`, and so shows whether it has run."""

from collections.abc import Callable

from tests.cli.stage import Ran

TOOLS = '''
from toolwire import Tier, tool

@tool(tier=Tier.RUN, needs=["brushes"])
def paint(colour: str) -> str:
    """Paint the door."""
    with open("painted", "a") as file:
        file.write(colour + "\\n")
    return f"it is {colour}"
'''
MODULE = '[tools]\nmodules = ["brushwork:paint"]\n'
GRANTED = f'{MODULE}[grant]\ntier = "run"\npermissions = ["file_read", "brushes"]\n'
LESS = {
    "tier": f'{MODULE}[grant]\npermissions = ["file_read", "brushes"]\n',
    "permission": f'{MODULE}[grant]\ntier = "run"\n',
    "agent": f'{GRANTED}[agents.cli]\npermissions = ["file_read"]\n',
}
"""The same settings with less in them."""


def waiting(painter: Callable[..., Ran]) -> tuple[str, str]:
    """The turn and the approval of the one call that waits."""
    [asked] = painter("approvals", "--json").json
    return asked["turn_id"], asked["id"]
