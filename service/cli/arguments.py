"""What a person types, turned into what a probe request holds. A wrong value is a usage error that names it."""

import json
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer

SECONDS = {"s": 1, "m": 60, "h": 3600}


def drafter(text: str) -> dict[str, Any]:
    """METHOD[:DRAFT_MODEL][,KEY=VALUE...] as a drafter of a request."""
    head, *options = text.split(",")
    method, colon, model = head.partition(":")
    if not method or (colon and not model):
        raise _wrong(text, "write METHOD[:DRAFT_MODEL][,KEY=VALUE...], such as ngram,prompt_lookup_max=4")
    return {"method": method, **({"model": model} if model else {}), "options": key_values(options)}


def key_values(texts: Iterable[str]) -> dict[str, Any]:
    """KEY=VALUE each, no key twice."""
    result: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise _wrong(text, "write KEY=VALUE, with a key of the engine's own")
        if key in result:
            raise _wrong(text, f"{key} is given more than once")
        result[key] = scalar(value)
    return result


def scalar(text: str) -> Any:
    """The bool, int or finite float that the text is in JSON, else the text as it is."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return text


def whole_numbers(text: str) -> list[int]:
    """Numbers between commas."""
    try:
        return [int(each) for each in text.split(",")]
    except ValueError:
        raise _wrong(text, "write whole numbers with commas between them, such as 1,2,4") from None


def seconds(text: str) -> float:
    """A time such as 90s, 20m or 1h in seconds."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smh])", text.strip())
    if not match:
        raise _wrong(text, "write a number and one of s, m, h, such as 20m")
    return float(match[1]) * SECONDS[match[2]]


def prompts(text: str) -> str | list[dict[str, Any]]:
    """The name of a built-in set as it is, or the prompts of a file: what ends in .jsonl or has a folder in it."""
    if not text.endswith(".jsonl") and "/" not in text:
        return text
    from service.prompt_sets import parse_jsonl

    try:
        parsed = parse_jsonl(Path(text).read_text("utf-8"))
    except OSError as error:
        raise _wrong(text, f"the file cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise _wrong(text, f"the file is not UTF-8: {error}") from None
    except ValueError as error:
        raise _wrong(text, str(error)) from None
    return [prompt.model_dump(mode="json", exclude_unset=True) for prompt in parsed]


def server_url(text: str | None) -> str | None:
    """An address with its scheme."""
    if text and not re.match(r"https?://[^/]", text):
        raise _wrong(text, "write an address such as http://127.0.0.1:8421")
    return text or None


def _wrong(text: str, advice: str) -> typer.BadParameter:
    return typer.BadParameter(f"{text!r}: {advice}")
