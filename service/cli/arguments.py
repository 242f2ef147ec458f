"""What a person types, turned into what a probe request holds. A wrong value is a usage error that names it."""

import json
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer

LONGEST_ECHO = 200
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
    except (ValueError, RecursionError):
        return text
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return text


def whole_numbers(text: str, option: str | None = None) -> list[int]:
    """Numbers between commas."""
    try:
        return [int(each) for each in text.split(",")]
    except ValueError:
        raise _wrong(text, "write whole numbers with commas between them, such as 1,2,4", option) from None


def whole_number(text: str | int) -> int:
    """One number; an option's default comes as it is."""
    try:
        return int(text)
    except ValueError:
        raise _wrong(str(text), "write a whole number, such as 4") from None


def number(text: str | float) -> float:
    """One number that JSON can say."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise _wrong(str(text), "write a number, such as 0.7")
    return value


def port(text: str | int) -> int:
    """A port of this machine."""
    if not 0 <= (value := whole_number(text)) <= 65535:
        raise _wrong(str(text), "write a port from 1 to 65535, or 0 to take a free one")
    return value


def seconds(text: str, option: str | None = None) -> float:
    """A time such as 90s, 20m or 1h in seconds."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smh])", text.strip())
    if not match or not math.isfinite(float(match[1])):
        raise _wrong(text, "write a number and one of s, m, h, such as 20m", option)
    return float(match[1]) * SECONDS[match[2]]


def prompts(text: str) -> str | list[dict[str, Any]]:
    """The name of a built-in set as it is, or the prompts of a file: what ends in .jsonl or has a folder in it."""
    if not text.endswith(".jsonl") and "/" not in text:
        return text
    from service.prompt_sets import parse_jsonl
    from service.schemas import LARGEST_BODY_BYTES

    try:
        with Path(text).open("rb") as file:
            content = file.read(LARGEST_BODY_BYTES + 1)
        if len(content) > LARGEST_BODY_BYTES:
            raise _wrong(
                text,
                f"the file has more than the {LARGEST_BODY_BYTES:,} bytes that a request can hold: keep fewer or "
                "shorter prompts, some dozens of those that you will serve are enough",
            )
        # Some editors begin a file with a mark of its encoding.
        parsed = parse_jsonl(content.decode("utf-8-sig"))
    except OSError as error:
        raise _wrong(text, f"the file cannot be read ({error.strerror}): name a file of prompts") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise _wrong(text, f"line {line} of the file is not UTF-8: save it in that encoding") from None
    except ValueError as error:
        raise _wrong(text, str(error)) from None
    return [prompt.model_dump(mode="json", exclude_unset=True) for prompt in parsed]


def hardware_label(text: str | None) -> str | None:
    """A hardware label, by the rule of the service."""
    if text is not None:
        from pydantic import TypeAdapter, ValidationError

        from service.schemas import HardwareLabel
        from service.validation_messages import described

        try:
            TypeAdapter(HardwareLabel).validate_python(text)
        except ValidationError as error:
            raise typer.BadParameter(described({**error.errors()[0], "loc": ("option", "")})["detail"]) from None
    return text


def server_url(text: str | None) -> str | None:
    """An address with its scheme."""
    if text and not re.match(r"https?://[^/]", text):
        raise _wrong(text, "write an address such as http://127.0.0.1:8421")
    return text or None


def _wrong(text: str, advice: str, option: str | None = None) -> typer.BadParameter:
    shown = text if len(text) <= LONGEST_ECHO else text[:LONGEST_ECHO] + "…"
    return typer.BadParameter(f"{shown!r}: {advice}", param_hint=option and f"'{option}'")
