"""The tool that takes a picture, where the machine has a camera and a program that reads it."""

import asyncio
import base64
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypedDict

from toolwire.define.fields import Field
from toolwire.define.functions import tool
from toolwire.define.plain_types import plain_result
from toolwire.errors import ToolFailure
from toolwire.protocol.calls import Image, Text, ToolOutput
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Effect, Tier, Tool
from toolwire.toolbox.device.host import HostTree
from toolwire.toolbox.device.kinds import unavailable

LARGEST_PICTURE = 5 * 1024 * 1024
LARGEST_SIDE = 4096
NO_CAMERA = "no camera was found: there is no dev/video* in {root}; connect one, and enable it on a Raspberry Pi"
NO_PROGRAM = "a camera is there, but no program that reads it; install one of: {names}"
_SHOWN_ERROR = 400

PROGRAMS: dict[str, Callable[[str, int, int], tuple[str, ...]]] = {
    "rpicam-still": lambda file, width, height: (
        "--nopreview", "--immediate", "--width", f"{width}", "--height", f"{height}", "--output", file,
    ),
    "libcamera-still": lambda file, width, height: (
        "--nopreview", "--immediate", "--width", f"{width}", "--height", f"{height}", "--output", file,
    ),
    "fswebcam": lambda file, width, height: ("--no-banner", "--resolution", f"{width}x{height}", "--jpeg", "90", file),
    "ffmpeg": lambda file, width, height: (
        "-loglevel", "error", "-f", "v4l2", "-video_size", f"{width}x{height}", "-i", "/dev/video0",
        "-frames:v", "1", "-y", file,
    ),
}  # fmt: skip
"""The programs that take pictures, best first, each with its arguments."""


class CameraOutput(TypedDict):
    width: Annotated[int, Field(description="Pixels across, as asked for.")]
    height: Annotated[int, Field(description="Pixels down, as asked for.")]
    bytes: Annotated[int, Field(description="The size of the picture.")]
    program: Annotated[str, Field(description="The program that took it.")]


def camera_capture_tool(host: HostTree, find: Callable[[str], str | None] = shutil.which) -> Tool:
    """The tool that takes a picture with the first program that `find(name)` knows."""

    @tool(
        name="camera_capture",
        tier=Tier.RUN,
        effect=Effect.IDEMPOTENT,
        category="device",
        needs={"device"},
        writes=("camera",),
        requires_confirmation=True,
        polling=True,
        untrusted=True,
        platforms={"linux"},
        timeout_s=30.0,
        output_schema=plain_result(CameraOutput) or {},
        examples=({}, {"width": 1280, "height": 720}),
    )
    async def camera_capture(
        width: Annotated[int, Field(ge=16, le=LARGEST_SIDE)] = 640,
        height: Annotated[int, Field(ge=16, le=LARGEST_SIDE)] = 480,
    ) -> ToolOutput:
        """Take a picture with this machine's camera.

        Args:
            width: Pixels across.
            height: Pixels down.
        """
        if not any(host.folders("dev", "video*")):
            raise unavailable(NO_CAMERA.format(root=host.root))
        program, path = _program(find)
        picture = await _taken(path, PROGRAMS[program], width, height)
        facts: CameraOutput = {"width": width, "height": height, "bytes": len(picture), "program": program}
        said = Text(f"A picture of {width}x{height} pixels, taken with {program}.")
        return ToolOutput((said, Image(base64.b64encode(picture).decode(), "image/jpeg")), facts)

    return camera_capture


def _program(find: Callable[[str], str | None]) -> tuple[str, str]:
    """The first program that is there, with its path. Raises ToolFailure."""
    for name in PROGRAMS:
        if path := find(name):
            return name, path
    raise unavailable(NO_PROGRAM.format(names=", ".join(PROGRAMS)))


async def _taken(path: str, words: Callable[[str, int, int], tuple[str, ...]], width: int, height: int) -> bytes:
    with tempfile.TemporaryDirectory(prefix="toolwire-camera-") as folder:
        file = Path(folder) / "picture.jpg"
        running = await asyncio.create_subprocess_exec(
            path, *words(str(file), width, height), stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            _, complaint = await running.communicate()
        except BaseException:
            running.kill()
            await running.wait()
            raise
        shown = complaint.decode("utf-8", "replace").strip()[-_SHOWN_ERROR:]
        if running.returncode or not file.is_file():
            raise ToolFailure(
                f"the camera gave no picture: {shown or 'no reason was given'}",
                exit_code=running.returncode,
                stderr=shown,
            )
        if file.stat().st_size > LARGEST_PICTURE:
            raise ToolFailure(
                f"the picture has more than {LARGEST_PICTURE:,} bytes; ask for fewer pixels", code=Code.INVALID_PARAMS
            )
        return file.read_bytes()
