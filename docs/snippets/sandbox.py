import asyncio
from pathlib import Path

from toolwire.errors import SandboxUnavailable
from toolwire.execute.sandbox.engines import local_sandbox
from toolwire.protocol.operations import Command, ExecLimits, shell


async def main() -> None:
    sandbox = local_sandbox()  # bubblewrap, or nothing: never something weaker
    command = Command(
        shell("id -u; ls /root; echo made > file; cat file"), str(Path.cwd()), limits=ExecLimits(wall_s=10)
    )
    try:
        ran = await sandbox.run(command)
    except SandboxUnavailable as why:
        print(f"nothing was run: {why}")
        return

    print(ran.stdout.text, ran.stderr.text, ran.exit_code, ran.engine, ran.profile)
    assert ran.stdout.text.splitlines()[0] != "0"  # no process is root in a box
    assert ran.stdout.text.endswith("made\n")


asyncio.run(main())
