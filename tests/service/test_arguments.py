import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from service.cli import arguments
from service.schemas import Drafter


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ngram", {"method": "ngram", "options": {}}),
        (
            "ngram,prompt_lookup_min=2,prompt_lookup_max=4",
            {"method": "ngram", "options": {"prompt_lookup_min": 2, "prompt_lookup_max": 4}},
        ),
        ("eagle3:org/model-eagle3", {"method": "eagle3", "model": "org/model-eagle3", "options": {}}),
        ("draft_model:./a:b,x=y=z", {"method": "draft_model", "model": "./a:b", "options": {"x": "y=z"}}),
        (
            "suffix,a=true,b=False,c=0.5,d=1e3,e=,f=null,g=NaN,h=1e999,i=[1]",
            {
                "method": "suffix",
                "options": {
                    "a": True,
                    "b": "False",
                    "c": 0.5,
                    "d": 1000.0,
                    "e": "",
                    "f": "null",
                    "g": "NaN",
                    "h": "1e999",
                    "i": "[1]",
                },
            },
        ),
    ],
)
def test_a_drafter_is_read_as_method_model_and_the_engines_own_keys(text: str, expected: dict[str, Any]) -> None:
    assert arguments.drafter(text) == expected


@pytest.mark.parametrize("text", ["", ":model", "eagle3:", "ngram,", "ngram,key", "ngram,=1", "ngram,k=1,k=2"])
def test_a_drafter_that_is_none_is_a_usage_error_that_names_it(text: str) -> None:
    with pytest.raises(typer.BadParameter) as error:
        arguments.drafter(text)
    assert error.value.exit_code == 2
    assert repr(text.split(",")[-1] if text.startswith("ngram,") else text) in str(error.value)


names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,9}", fullmatch=True)
scalars = st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)


@given(names, st.none() | names, st.dictionaries(names, scalars, max_size=4))
def test_a_drafter_survives_being_written_and_read(method: str, model: str | None, options: dict[str, Any]) -> None:
    written = [f"{key}={str(value).lower()}" for key, value in options.items()]
    read = Drafter(**arguments.drafter(",".join([f"{method}:{model}" if model else method, *written])))
    assert (read.method, read.model, read.options) == (method, model, options)


@given(st.text())
def test_any_text_becomes_a_bool_a_finite_number_or_itself(text: str) -> None:
    value = arguments.scalar(text)
    assert value == text if isinstance(value, str) else math.isfinite(value)


@given(st.text())
def test_a_drafter_is_either_read_or_refused(text: str) -> None:
    with suppress(typer.BadParameter):
        assert arguments.drafter(text)["method"] == text.split(",")[0].split(":")[0]


@pytest.mark.parametrize(("text", "expected"), [("90s", 90), ("20m", 1200), ("1h", 3600), (" 0.5h ", 1800)])
def test_a_budget_is_in_seconds_minutes_or_hours(text: str, expected: float) -> None:
    assert arguments.seconds(text) == expected


@pytest.mark.parametrize("text", ["20", "m", "-1m", "1d", "1h30m", "1e3s"])
def test_another_budget_is_a_usage_error(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="20m"):
        arguments.seconds(text)


def test_whole_numbers_stand_between_commas() -> None:
    assert arguments.whole_numbers("1, 2,4") == [1, 2, 4]
    with pytest.raises(typer.BadParameter, match=r"'1,x'"):
        arguments.whole_numbers("1,x")


def test_prompts_are_a_name_or_the_content_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text('{"prompt": "a"}\n\n{"messages": [{"role": "user", "content": "b", "name": "n"}]}\n')
    assert arguments.prompts("agent") == "agent"
    assert arguments.prompts(str(file)) == [
        {"prompt": "a"},
        {"messages": [{"role": "user", "content": "b", "name": "n"}]},
    ]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b'{"prompt": "a"}\n{"promt": "b"}\n', "line 2"),
        (b'{"prompt": "a"}\nnot json\n', "line 2"),
        (b"", "empty"),
        (b"\xff\n", "UTF-8"),
    ],
)
def test_a_wrong_prompts_file_is_a_usage_error_with_its_name_and_line(
    tmp_path: Path, content: bytes, told: str
) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_bytes(content)
    with pytest.raises(typer.BadParameter) as error:
        arguments.prompts(str(file))
    assert "mine.jsonl" in str(error.value)
    assert told in str(error.value)


def test_a_missing_prompts_file_is_a_usage_error_with_its_name() -> None:
    with pytest.raises(typer.BadParameter, match=r"nowhere\.jsonl.*No such file"):
        arguments.prompts("nowhere.jsonl")


@pytest.mark.parametrize("text", ["localhost:8421", "ftp://x", "http://"])
def test_an_address_needs_its_scheme(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="http://127"):
        arguments.server_url(text)


def test_a_value_nested_without_end_stays_the_text_that_it_is() -> None:
    text = "[" * 200_000
    assert arguments.scalar(text) == text
