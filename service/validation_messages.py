"""What pydantic found wrong, told to a person: the value, what is wrong with it, and what to do."""

import json
from collections.abc import Mapping
from typing import Any

from service.examples import REQUESTS
from service.json_faults import escaped
from service.schemas import DRAFTER_NAME_PATTERN, HARDWARE_LABEL_PATTERN, TEXT_PATTERN

LONGEST_ECHO = 200
LONGEST_IN_A_SENTENCE = 60
LONGEST_EXAMPLE = 110

NAME_RULE = "write letters and digits, after the first one also"
PATTERNS = {
    TEXT_PATTERN: "holds a line break or another control character: remove it",
    HARDWARE_LABEL_PATTERN: f"is no hardware label: {NAME_RULE} . _ + and -",
    DRAFTER_NAME_PATTERN: f"is no drafter's method or name: {NAME_RULE} . _ and -",
}


def described(error: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """One of pydantic's errors as a member of a problem document's `errors`, with an example of a request to this path.

    Its place is a JSON pointer (body) or a parameter's name (everything else).
    """
    where, *steps = error["loc"]
    limits: Mapping[str, Any] = error.get("ctx", {})
    if error["type"] == "json_invalid":
        at = f" at character {steps[0]}" if steps else ""
        return {"pointer": "", "detail": f"this is not JSON: {limits['error']}{at}"}
    if error["type"] == "json_fault":
        fault = limits["fault"]
        value = {} if fault.value is None else {"value": echo(fault.value)}
        return {"pointer": fault.pointer, "detail": fault.reason, **value}
    example = ""
    if where == "body":
        # The names of a union's branches are pydantic's, not the body's: they are written in angle brackets here.
        names = [str(step) for step in steps if not str(step).startswith("<")]
        place = {"pointer": "".join("/" + escaped(name) for name in names)}
        example = _example(path, names)
    else:
        place = {"parameter": str(steps[0])}
    # The input of a field that is missing is all that is there instead.
    value = {} if error["type"] == "missing" else {"value": echo(error["input"])}
    return {**place, "detail": _sentence(error, limits, where, example), **value}


def echo(value: Any, longest: int = LONGEST_ECHO) -> Any:
    """The value as it came if it is short and JSON can say it, else the beginning of how Python writes it."""
    try:
        if len(json.dumps(value, allow_nan=False)) <= longest:
            return value
    except (TypeError, ValueError, RecursionError):
        pass
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= longest else text[:longest] + "…"


def _sentence(error: Mapping[str, Any], limits: Mapping[str, Any], where: str, example: str) -> str:
    value = error["input"]
    short = echo(value, LONGEST_IN_A_SENTENCE)
    shown = json.dumps(short, ensure_ascii=False) if short is value or isinstance(value, str) else short
    noun = "field" if where == "body" else "parameter"
    match error["type"]:
        case "missing" if value is None:
            return "there is no body: send a JSON object, /docs shows one"
        case "missing":
            return f"it is missing: add it{example}"
        case "extra_forbidden":
            return f"there is no such {noun}: remove it, /docs lists those that exist"
        case "greater_than_equal":
            return f"{shown} is less than {_plain(limits['ge'])}: give at least {_plain(limits['ge'])}{example}"
        case "greater_than":
            return f"{shown} is not above {_plain(limits['gt'])}: give more{example}"
        case "less_than_equal":
            return f"{shown} is more than {_plain(limits['le'])}: give at most {_plain(limits['le'])}{example}"
        case "too_short":
            return f"the list is empty: name at least {limits['min_length']}{example}"
        case "too_long":
            return f"{limits['actual_length']} are too many: name at most {limits['max_length']}"
        case "string_too_short":
            return f"the text is empty: give at least {limits['min_length']} character{example}"
        case "string_too_long":
            return f"the text has {len(value)} characters: shorten it to at most {limits['max_length']}"
        case "string_pattern_mismatch" if limits["pattern"] in PATTERNS:
            return f"{shown} {PATTERNS[limits['pattern']]}{example}"
        case "string_type":
            return f"{shown} is no text: give one, in quotes{example}"
        case "int_type" | "int_parsing" | "int_from_float" | "int_parsing_size":
            return f"{shown} is no whole number: give one, without quotes{example}"
        case "float_type" | "float_parsing" | "finite_number":
            return f"{shown} is no number: give one, without quotes{example}"
        case "bool_type" | "bool_parsing":
            return f"{shown} is neither true nor false: give one of them"
        case "list_type":
            return f"{shown} is no list: give one, in brackets{example}"
        case "dict_type" | "model_type" | "model_attributes_type":
            return f"{shown} is no JSON object: give one{example or ', /docs shows it'}"
        case "literal_error" | "enum":
            return f"{shown} is not possible: use {limits['expected']}"
        case "value_error":
            return str(limits["error"])
        case kind if kind.startswith("datetime"):
            return f"{shown} is no time: write one such as 2026-12-01T09:00:00Z"
    return f"{shown} cannot be used: {error['msg']}"


def _plain(limit: float) -> str:
    return str(int(limit)) if limit == int(limit) else str(limit)


def _example(path: str, names: list[str]) -> str:
    """The value at this place in an example of the request, in words; the longest that a sentence can hold."""
    found = []
    for example in REQUESTS.get(path, ()):
        value: Any = example
        for name in names:
            match value:
                case list():
                    value = value[0]
                case dict() if name in value:
                    value = value[name]
                case _:
                    break
        else:
            found.append(json.dumps(value))
    fitting = [text for text in found if names and text != "null" and len(text) <= LONGEST_EXAMPLE]
    return f", such as {max(fitting, key=len)}" if fitting else ""
