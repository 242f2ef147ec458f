"""What a JSON document may hold that no database, engine or other program could take from us. Knows no schema."""

import math
from dataclasses import dataclass
from typing import Any

DEEPEST_NESTING = 64


@dataclass(frozen=True)
class JsonFault:
    """The first thing in a document that cannot be kept: where, as an RFC 6901 pointer, and what to do about it."""

    pointer: str
    reason: str
    value: Any = None


def first_fault(document: Any) -> JsonFault | None:
    """The first fault of a document as `json.loads` gives it; None if all of it can be kept.

    Walks without recursion: a document may be nested deeper than Python calls may be.
    """
    waiting: list[tuple[str, Any, int]] = [("", document, 1)]
    while waiting:
        pointer, value, depth = waiting.pop()
        match value:
            case str():
                if reason := _text_fault("the text", value):
                    return JsonFault(pointer, reason, value)
            case float() if not math.isfinite(value):
                return JsonFault(pointer, f"the number is {value}, which JSON cannot say: give a finite one", value)
            case dict() | list() if depth > DEEPEST_NESTING:
                reason = f"it is nested more than {DEEPEST_NESTING} deep: send fewer brackets within brackets"
                return JsonFault(pointer[:200], reason)
            case dict():
                for key in value:
                    if reason := _text_fault(f"the name {ascii(key)[:80]}", str(key)):
                        return JsonFault(pointer, reason, value)
                inner = [(f"{pointer}/{escaped(str(key))}", each, depth + 1) for key, each in value.items()]
                waiting.extend(reversed(inner))
            case list():
                waiting.extend(reversed([(f"{pointer}/{i}", each, depth + 1) for i, each in enumerate(value)]))
    return None


def escaped(step: str) -> str:
    """A name as one step of an RFC 6901 pointer."""
    return step.replace("~", "~0").replace("/", "~1")


def _text_fault(what: str, text: str) -> str | None:
    if "\0" in text:
        return f"{what} holds a NUL (the character U+0000), which PostgreSQL cannot store: remove it"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(text[error.start]):04x}"
        return f"{what} holds half a character ({half}, a surrogate without its pair): write the whole or remove it"
    return None
