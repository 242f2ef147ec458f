"""Sets of prompts: those that ship, and the identity of any."""

import json
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import UnknownPromptSetError
from service.prompt_sets import built_in, names, parse_jsonl, prompt_set
from service.schemas import Prompt


def test_every_set_that_ships_is_valid_and_not_empty() -> None:
    assert "demo" in names()
    for name in names():
        assert built_in(name).prompts


def test_a_built_in_set_is_stored_as_its_file_says() -> None:
    lines = (files("service") / "prompts" / "demo.jsonl").read_text("utf-8").splitlines()
    assert built_in("demo").prompts == [json.loads(line) for line in lines if line.strip()]


@pytest.mark.parametrize("name", ["agents", "", "../prompts/demo", "demo.jsonl", "/etc/passwd"])
def test_an_unknown_name_is_answered_with_those_that_exist(name: str) -> None:
    with pytest.raises(UnknownPromptSetError, match=r"use one of .*demo"):
        built_in(name)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("\n \n", "empty"),
        ('{"prompt": "a"}\nplain text', "line 2"),
        ('{"prompt": "a", "messages": []}', "line 1"),
        ("[]", "line 1"),
        ('{"prompt": ""}', "line 1"),
        ('{"messages": [{"content": "no role"}]}', "line 1"),
    ],
)
def test_a_file_that_is_not_prompts_is_refused_with_its_line(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_jsonl(text)


def test_line_separators_inside_a_prompt_do_not_end_its_line() -> None:
    prompt = {"prompt": "one\u2028two\x85three"}
    (parsed,) = parse_jsonl(json.dumps(prompt, ensure_ascii=False) + "\r\n")
    assert parsed.prompt == prompt["prompt"]


@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1), min_size=2, max_size=4, unique=True
    )
)
def test_the_hash_is_of_the_prompts_in_their_order_and_of_nothing_else(texts: list[str]) -> None:
    prompts = [Prompt(prompt=text) for text in texts]
    assert prompt_set("a", prompts).sha256 == prompt_set("b", prompts).sha256
    assert prompt_set("a", prompts).sha256 != prompt_set("a", prompts[::-1]).sha256


def test_what_a_chat_template_may_read_is_kept() -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function"}]}
    (parsed,) = parse_jsonl(json.dumps({"messages": [{"role": "user", "content": "hi"}, message]}))
    assert prompt_set("a", [parsed]).prompts[0]["messages"][1] == message
