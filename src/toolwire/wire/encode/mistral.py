"""Mistral's chat API, outbound: OpenAI's messages, ids of nine characters, a word between results and a user."""

from toolwire.wire.encode.openai_chat import encode_message, encode_tools, frame, system_message, wire_name
from toolwire.wire.encode.request import Dialect

# The API refuses a user's message straight after a result; the model is expected to have said something.
READ = "I have read the results."


def nine_alphanumerics(text: str) -> bool:
    return len(text) == 9 and text.isascii() and text.isalnum()


DIALECT = Dialect(
    "mistral",
    encode_tools,
    encode_message,
    system=system_message,
    id_fits=nine_alphanumerics,
    wire_name=wire_name,
    frame=frame,
    bridge=READ,
)
