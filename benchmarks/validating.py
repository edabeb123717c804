"""Checking 1 kB of arguments: ours, the validator under it, and pydantic on the same shape."""

from typing import Annotated, Any, Literal

import jsonschema_rs
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from benchmarks.cpu import cpu_us
from benchmarks.validation import SCHEMA, TWO_WRONG, VALID
from toolwire.define.arguments import Checker
from toolwire.protocol.tools import Tool

Text = Annotated[str, Field(min_length=1, max_length=2000)]
Count = Annotated[int, Field(ge=0, le=10_000)]


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Address(Closed):
    street: Text = "-"
    city: Text = "-"
    zip: Text = "-"


class Author(Closed):
    name: Text
    age: Count = 0
    address: Address | None = None


class File(Closed):
    kind: Literal["file"]
    path: Text
    line: Count = 0


class Web(Closed):
    kind: Literal["web"]
    url: Text


class Post(Closed):
    """What the schema says, as pydantic would have it."""

    title: Text
    body: Text
    author: Author
    target: File | Web
    priority: Literal["low", "normal", "high"] = "normal"
    draft: bool = False
    weight: Annotated[float, Field(ge=0)] = 0
    retries: Count = 0
    labels: Annotated[list[Text], Field(max_length=20)] = []
    slug: Annotated[str, Field(pattern="^[a-z0-9-]{1,64}$")] = "-"


def figures(seconds: float) -> dict[str, float]:
    checker = Checker(Tool("bench", "Measures a check.", SCHEMA))
    raw = jsonschema_rs.Draft202012Validator(SCHEMA)
    adapter = TypeAdapter(Post)
    assert checker.check(VALID).ok
    assert len(checker.check(TWO_WRONG).faults) == len(_complaints(adapter, TWO_WRONG)) == 2
    works = {
        "valid": lambda: checker.check(VALID),
        "wrong": lambda: checker.check(TWO_WRONG).faults,
        "floor_valid": lambda: raw.is_valid(VALID),
        "floor_wrong": lambda: [error.message for error in raw.iter_errors(TWO_WRONG)],
        "pydantic_valid": lambda: adapter.validate_python(VALID),
        "pydantic_wrong": lambda: _complaints(adapter, TWO_WRONG),
    }
    return {name: cpu_us(work, seconds) for name, work in works.items()}


def _complaints(adapter: TypeAdapter[Post], arguments: dict[str, Any]) -> list[str]:
    try:
        adapter.validate_python(arguments)
    except ValidationError as wrong:
        return [error["msg"] for error in wrong.errors(include_url=False, include_context=False)]
    return []
