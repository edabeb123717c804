"""A key as a server may quote it when it refuses it."""

import base64
import json
import quopri
from collections.abc import Callable
from urllib.parse import quote

SPELLINGS: dict[str, Callable[[str], str]] = {
    "in upper case": str.upper,
    "in a URL": lambda key: quote(key, safe=""),
    "in a URL, every letter": lambda key: "".join(f"%{byte:02X}" for byte in key.encode()),
    "quoted-printable": lambda key: quopri.encodestring(key.encode(), quotetabs=True).decode(),
    "quoted-printable, every letter": lambda key: "".join(f"={byte:02X}" for byte in key.encode()),
    "in base64": lambda key: base64.b64encode(key.encode()).decode(),
    "in base64 of a header": lambda key: base64.b64encode(f"Bearer {key}".encode()).decode(),
    "in hexadecimal": lambda key: key.encode().hex(" "),
    "in JSON": lambda key: json.dumps(json.dumps(key)),
    "with spaces": " ".join,
    "backwards": lambda key: key[::-1],
}
