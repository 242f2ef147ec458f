"""Prompts as token ids: encoded by the engine's tokenizer, brought to a context length, checked against the model."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from workers.probe.engine import Engine, EngineError


def encode_prompts(engine: Engine, prompts: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """Token ids of each prompt. Raises EngineError for one that cannot be encoded, or is empty once it is."""
    encoded = []
    for index, prompt in enumerate(prompts):
        try:
            tokens = engine.encode(prompt)
        except EngineError as error:
            raise EngineError(f"prompt {index} {error}") from error
        if not tokens:
            raise EngineError(f"prompt {index} has no tokens: remove it or give it text")
        encoded.append(tokens)
    return encoded


def at_context_length(encoded: Sequence[Sequence[int]], context_length: int) -> list[list[int]]:
    """Each prompt with exactly `context_length` tokens; 0 leaves them as they are.

    A short prompt is preceded by the text of the prompts before it, as often as needed: real text of the same set,
    since padding with noise changes what a drafter finds and where tokens route. Of a long one the end is kept.
    """
    if context_length == 0:
        return [list(tokens) for tokens in encoded]
    padded = []
    for index, tokens in enumerate(encoded):
        others = [*encoded[index + 1 :], *encoded[:index]] or [tokens]
        once = list(chain.from_iterable(others))
        times = -(-max(0, context_length - len(tokens)) // len(once))
        padded.append([*(once * times), *tokens][-context_length:])
    return padded


def check_room(prompts: Sequence[Sequence[int]], *, output_tokens: int, draft_tokens: int, max_context: int) -> None:
    """Raises EngineError for a prompt that does not fit the model together with its output and a last draft."""
    longest = max(range(len(prompts)), key=lambda i: len(prompts[i]))
    needed = len(prompts[longest]) + output_tokens + draft_tokens
    if needed > max_context:
        raise EngineError(
            f"prompt {longest} has {len(prompts[longest])} tokens: with {output_tokens} output tokens and "
            f"{draft_tokens} draft tokens it needs {needed}, the model has room for {max_context}. "
            "Shorten it or lower output_tokens."
        )
