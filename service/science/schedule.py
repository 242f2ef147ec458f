"""From the draft tokens advised at the measured batch sizes to ranges that cover every batch size."""

from collections.abc import Mapping
from dataclasses import dataclass

LARGEST_BATCH_SIZE = 512


@dataclass(frozen=True)
class Schedule:
    """Inclusive ranges (low, high, K) from batch size 1 on, without gaps; K = 0 is off. Need not be monotone."""

    ranges: tuple[tuple[int, int, int], ...]
    warnings: tuple[str, ...] = ()


def covering_schedule(draft_tokens: Mapping[int, int]) -> Schedule:
    """Spread the draft tokens K by measured batch size over all batch sizes up to 512, or the largest if greater.

    Measured sizes keep their own K. Between two of them their K holds if they agree; otherwise speculation is off
    there, with a warning, since a curve that need not be monotone says nothing of what lies between. Above the
    largest measured size it is off, below the smallest likewise, with a warning if it is on at the smallest.

    Raises ValueError for a batch size below 1 or draft tokens below 0.
    """
    for size, tokens in draft_tokens.items():
        if size < 1 or tokens < 0:
            raise ValueError(f"no such cell: batch size {size} with {tokens} draft tokens")
    sizes = sorted(draft_tokens)
    pieces: list[tuple[int, int, int]] = []
    warnings: list[str] = []
    if sizes and sizes[0] > 1:
        pieces.append((1, sizes[0] - 1, 0))
        if draft_tokens[sizes[0]]:
            warnings.append(
                f"speculation is off below batch size {sizes[0]}, the smallest that was measured; "
                f"measure batch size 1 to learn whether it pays there"
            )
    for index, size in enumerate(sizes):
        pieces.append((size, size, draft_tokens[size]))
        following = sizes[index + 1] if index + 1 < len(sizes) else size + 1
        if following == size + 1:
            continue
        agree = draft_tokens[size] == draft_tokens[following]
        pieces.append((size + 1, following - 1, draft_tokens[size] if agree else 0))
        if not agree:
            between = f"{size + 1}" if following == size + 2 else f"{size + 1} to {following - 1}"
            warnings.append(
                f"speculation is off at batch size {between}: not measured, and the neighbours disagree "
                f"({draft_tokens[size]} draft tokens at {size}, {draft_tokens[following]} at {following})"
            )
    last = sizes[-1] if sizes else 0
    if last < LARGEST_BATCH_SIZE:
        pieces.append((last + 1, LARGEST_BATCH_SIZE, 0))
    return Schedule(tuple(_merged(pieces)), tuple(warnings))


def _merged(pieces: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    merged: list[tuple[int, int, int]] = []
    for low, high, tokens in pieces:
        if merged and merged[-1][2] == tokens:
            merged[-1] = (merged[-1][0], high, tokens)
        else:
            merged.append((low, high, tokens))
    return merged
