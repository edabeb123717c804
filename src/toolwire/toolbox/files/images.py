"""The tool that looks at images: what they are, and the image itself for a model that can see."""

import base64
import importlib
import io
import struct
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from toolwire.errors import ToolFailure
from toolwire.protocol.calls import Image, Text, ToolOutput
from toolwire.protocol.context import Context
from toolwire.protocol.files import FileOps
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Tool
from toolwire.toolbox.files.granted_paths import load, wrong
from toolwire.toolbox.files.reading import PathArgument
from toolwire.toolbox.files.ruled_files import LOOKS, files_within_rules
from toolwire.toolbox.kinds import looking

LARGEST_IMAGE = 20 * 1024 * 1024
LARGEST_SHOWN = 5 * 1024 * 1024
MOST_PIXELS = 64_000_000
LONGEST_SIDE = 8192

SideArgument = Annotated[int, Field(ge=1, le=LONGEST_SIDE)]


class ImageOutput(TypedDict):
    path: Annotated[str, Field(description="The image that was looked at.")]
    format: Annotated[str, Field(description="png, jpeg, gif or webp.")]
    width: Annotated[int, Field(description="Pixels across, as the image is in the file.")]
    height: Annotated[int, Field(description="Pixels down, as the image is in the file.")]
    bytes: Annotated[int, Field(description="The size of the file.")]
    shown_width: Annotated[int | None, Field(description="Pixels across of the image shown; null if none is shown.")]
    shown_height: Annotated[int | None, Field(description="Pixels down of the image shown; null if none is shown.")]


class PictureKind(NamedTuple):
    """What the head of an image file says."""

    format: str
    width: int
    height: int


def image_tool(files: FileOps) -> Tool:
    """The tool that shows images of `files`. Making them smaller needs Pillow (the extra `images`)."""

    @looking(
        name="image",
        timeout_s=20,
        examples=({"path": "logo.png"}, {"path": "photo.jpg", "action": "resize", "width": 800}),
        output_schema=TypeAdapter(ImageOutput).json_schema(),
    )
    def image(
        context: Context,
        path: PathArgument,
        action: Literal["describe", "metadata", "resize"] = "describe",
        width: SideArgument | None = None,
        height: SideArgument | None = None,
    ) -> ToolOutput:
        """Look at or resize an image: PNG, JPEG, GIF or WebP.

        Args:
            path: The image, relative to the workspace.
            action: describe shows it, metadata tells format and size only, resize shows it in another size.
            width: For resize, the most pixels across; the image keeps its proportions.
            height: For resize, the most pixels down; the image keeps its proportions.
        """
        body = load(files_within_rules(files, context, LOOKS, path), path, context, LARGEST_IMAGE).body
        kind = read_kind(body)
        if kind is None:
            raise wrong(f"{path!r} is not a PNG, JPEG, GIF or WebP image")
        shown = _shown(path, action, body, kind, (width, height))
        return _output(path, body, kind, shown)

    return image


def read_kind(body: bytes) -> PictureKind | None:
    """Format and size from the first bytes of an image; None if it is none that we know."""
    try:
        if body.startswith(b"\x89PNG\r\n\x1a\n") and body[12:16] == b"IHDR":
            return PictureKind("png", *struct.unpack_from(">II", body, 16))
        if body.startswith((b"GIF87a", b"GIF89a")):
            return PictureKind("gif", *struct.unpack_from("<HH", body, 6))
        if body.startswith(b"RIFF") and body[8:12] == b"WEBP":
            return _webp(body)
        return _jpeg(body) if body.startswith(b"\xff\xd8") else None
    except struct.error:
        return None


def _webp(body: bytes) -> PictureKind | None:
    match body[12:16]:
        case b"VP8X":
            return PictureKind(
                "webp", int.from_bytes(body[24:27], "little") + 1, int.from_bytes(body[27:30], "little") + 1
            )
        case b"VP8L":
            bits = int.from_bytes(body[21:25], "little")
            return PictureKind("webp", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", body, 26)
            return PictureKind("webp", width & 0x3FFF, height & 0x3FFF)
        case _:
            return None


def _jpeg(body: bytes) -> PictureKind | None:
    at = 2
    while at + 9 < len(body) and body[at] == 0xFF:
        mark = body[at + 1]
        if 0xC0 <= mark <= 0xCF and mark not in {0xC4, 0xC8, 0xCC}:
            height, width = struct.unpack_from(">HH", body, at + 5)
            return PictureKind("jpeg", width, height)
        at += 2 + max(struct.unpack_from(">H", body, at + 2)[0], 2)
    return None


class _Picture(NamedTuple):
    body: bytes
    kind: PictureKind


def _shown(
    path: str, action: str, body: bytes, kind: PictureKind, sides: tuple[int | None, int | None]
) -> _Picture | None:
    if action == "metadata":
        return None
    if action == "resize":
        if sides == (None, None):
            raise wrong("resize needs width, height, or both")
        return _resized(path, body, kind, (sides[0] or LONGEST_SIDE, sides[1] or LONGEST_SIDE))
    if len(body) > LARGEST_SHOWN:
        raise wrong(f"{path!r} has {len(body):,} bytes, too many to show; use resize with a width such as 1024")
    return _Picture(body, kind)


def _resized(path: str, body: bytes, kind: PictureKind, most: tuple[int, int]) -> _Picture:
    pillow = _pillow()
    if pillow is None:
        raise ToolFailure(
            "images can be resized only where Pillow is installed (pip install 'toolwire[images]')",
            code=Code.UNAVAILABLE,
        )
    if kind.width * kind.height > MOST_PIXELS:  # a small file may promise a picture that fills the memory
        raise wrong(f"{path!r} has {kind.width} x {kind.height} pixels; {MOST_PIXELS:,} are the most that are resized")
    try:
        with pillow.open(io.BytesIO(body), formats=[kind.format.upper()]) as picture:
            if picture.width * picture.height > MOST_PIXELS:
                raise wrong(f"{path!r} has too many pixels to be resized")
            picture.thumbnail(most)
            out = io.BytesIO()
            picture.convert("RGBA" if "A" in picture.getbands() or kind.format == "gif" else "RGB").save(out, "PNG")
            return _Picture(out.getvalue(), PictureKind("png", picture.width, picture.height))
    except (OSError, ValueError, SyntaxError, EOFError, struct.error, pillow.DecompressionBombError) as error:
        raise wrong(f"{path!r} is broken: {error}") from None


@cache
def _pillow() -> Any:
    try:
        return importlib.import_module("PIL.Image")
    except ImportError:
        return None


def _output(path: str, body: bytes, kind: PictureKind, shown: _Picture | None) -> ToolOutput:
    facts: ImageOutput = {
        "path": path,
        "format": kind.format,
        "width": kind.width,
        "height": kind.height,
        "bytes": len(body),
        "shown_width": shown.kind.width if shown else None,
        "shown_height": shown.kind.height if shown else None,
    }
    words = Text(f"{path}: {kind.format}, {kind.width} x {kind.height} pixels, {len(body):,} bytes")
    if shown is None:
        return ToolOutput((words,), facts)
    data = base64.b64encode(shown.body).decode()
    return ToolOutput((words, Image(data, f"image/{shown.kind.format}")), facts)
