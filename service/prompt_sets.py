"""The prompts that ship with the service, and the identity of any set: the SHA-256 of its canonical JSON."""

import hashlib
import json
from collections.abc import Iterable
from importlib.resources import files
from typing import Any

from pydantic import ValidationError

from service.errors import UnknownPromptSetError
from service.models import PromptSet
from service.schemas import Prompt
from service.validation_messages import described

INLINE = "inline"


def canonical_json(value: Any) -> str:
    """One spelling per value: sorted keys, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def sha256_of(value: Any) -> str:
    """The SHA-256 of the value's canonical JSON, in hexadecimal."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def names() -> list[str]:
    """The names of the built-in sets."""
    folder = files("service") / "prompts"
    return sorted(entry.name.removesuffix(".jsonl") for entry in folder.iterdir() if entry.name.endswith(".jsonl"))


def built_in(name: str) -> PromptSet:
    """The built-in set of this name; UnknownPromptSetError names those that exist."""
    if name not in names():
        raise UnknownPromptSetError(name, names())
    return prompt_set(name, parse_jsonl((files("service") / "prompts" / f"{name}.jsonl").read_text("utf-8")))


def prompt_set(name: str, prompts: Iterable[Prompt]) -> PromptSet:
    """The row that keeps these prompts."""
    sent = [prompt.model_dump(mode="json", exclude_unset=True) for prompt in prompts]
    return PromptSet(sha256=sha256_of(sent), name=name, prompts=sent)


def parse_jsonl(text: str) -> list[Prompt]:
    """Prompts from one JSON object a line; blank lines are skipped. ValueError names the line that is wrong."""
    prompts = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            prompts.append(Prompt.model_validate_json(line))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            wrong = described({**first, "loc": ("body", *first["loc"])})
            raise ValueError(
                f'line {number} of the prompts is not {{"prompt": ...}} or {{"messages": ...}}: '
                f"{wrong['pointer']} {wrong['detail']}, in {line[:80]!r}".replace(":  ", ": ")
            ) from None
    if not prompts:
        raise ValueError('the prompts are empty: write one {"prompt": ...} or {"messages": ...} object a line')
    return prompts
