import io
from copy import deepcopy
from typing import Any

import pytest
from rich.console import Console

from service import examples
from service.documents import AdviceDocument
from service.terminal import render_advice

ADVICE_SHOWN = """\
Qwen/Qwen3-30B-A3B on 1xH100-SXM: measured with vllm 0.32.0
prompts demo, 128 output tokens, temperature 0; 4 engine loads, 412 s of timed steps
context of 1024 tokens

                                                                    acceptance
 batch                                draft           speed-up       length vs   decode     step
  size  verdict       drafter        tokens         (interval)      break-even  step ms       ms
 ───────────────────────────────────────────────────────────────────────────────────────────────
     1  enable        ngram               3    1.41x 1.36-1.46    2.31 vs 1.64    17.00    27.85
     2  inconclusive  (ngram)           (3)  (1.41x 1.36-1.46)  (2.31 vs 1.64)    17.00  (27.85)
     8  disable       (ngram)           (3)  (1.41x 1.36-1.46)  (2.31 vs 1.64)    17.00  (27.85)

(in brackets: the best candidate, which is not advised)

launch    with ngram, at most 3 draft tokens, worth 1.21x over the measured batch sizes
schedule  batch size 1: 3 draft tokens; batch size 2-512: off
why       batch size 1: ngram with 3 draft tokens emits 2.31 tokens per step and needs 1.64 to break
          even: 1.41x faster (1.36 to 1.46).
          batch size 2: measure more prompts
          batch size 8: no drafter pays
outputs   0 of 16 differ from the baseline's; of the baseline's own, 0 differ between two batch
          sizes
noise     noise floor 1.2%, so a gain counts above a margin of 2.0%
warning   between batch sizes 2 and 8 the verdicts differ
probe     0b8e2f6e-5a0f-4c39-9d5c-1d9d4f1f8a11"""


def rendered(document: dict[str, Any], **options: Any) -> str:
    """What a terminal of 100 columns shows, without the spaces at the ends of lines."""
    console = Console(file=io.StringIO(), width=100, color_system=None, **options)
    console.print(render_advice(AdviceDocument.model_validate(document)))
    output = console.file
    assert isinstance(output, io.StringIO)
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines())


def advice(**changes: Any) -> dict[str, Any]:
    """The example of the OpenAPI document with other values."""
    return {**deepcopy(examples.ADVICE), **changes}


def row(batch_size: int, verdict: str, **changes: Any) -> dict[str, Any]:
    """The example's row with another verdict: without a drafter of its own unless it enables one."""
    own = deepcopy(examples.ADVICE["batch_sizes"][0])
    figures = ("speedup", "speedup_low", "speedup_high", "acceptance_length", "break_even_acceptance_length", "step_ms")
    if verdict != "enable":
        own |= {"drafter": None, "draft_tokens": 0, **dict.fromkeys(figures)}
    return {**own, "batch_size": batch_size, "verdict": verdict, **changes}


def test_advice_reads_like_this() -> None:
    shown = rendered(
        advice(
            launch={"speculation": True, "drafter": "ngram", "max_draft_tokens": 3, "value": 1.21},
            batch_sizes=[
                row(1, "enable"),
                row(2, "inconclusive", reason="measure more prompts"),
                row(8, "disable", reason="no drafter pays"),
            ],
            warnings=["between batch sizes 2 and 8 the verdicts differ"],
        )
    )
    assert shown == ADVICE_SHOWN


def test_the_best_candidate_is_shown_in_brackets_where_nothing_is_advised() -> None:
    shown = rendered(advice(batch_sizes=[row(1, "disable")]))
    assert "(ngram)" in shown
    assert "(1.41x 1.36-1.46)" in shown
    assert "in brackets" in shown
    assert "in brackets" not in rendered(advice(batch_sizes=[row(1, "enable")]))


def test_what_was_not_measured_is_a_dash() -> None:
    shown = rendered(
        advice(batch_sizes=[row(1, "inconclusive", candidates=[], decode_step_ms=None)], noise_floor=None, outputs=None)
    )
    assert "inconclusive  -" in shown
    assert "noise floor not measured" in shown
    assert "outputs" not in shown
    assert "None" not in shown


def test_advice_that_is_not_complete_says_so() -> None:
    assert "NOT COMPLETE" in rendered(advice(complete=False))


def test_each_context_length_has_its_table() -> None:
    rows = [row(1, "enable"), row(1, "enable", context_length=8192)]
    shown = rendered(
        advice(
            batch_sizes=rows,
            schedule=[
                {"context_length": 1024, "ranges": [[1, 1, 3]]},
                {"context_length": 8192, "ranges": [[1, 1, 0]]},
            ],
        )
    )
    assert "context of 8192 tokens" in shown
    assert "batch size 1, context 8192:" in shown
    assert "context 8192: batch size 1: off" in shown


def test_outputs_that_differ_are_a_failure_in_words() -> None:
    divergence = {"drafter": "ngram", "draft_tokens": 3, "prompt": 4, "position": 17}
    outputs = {"compared": 16, "diverged": 9, "diverged_baseline": 0, "failed": True, "divergences": [divergence]}
    assert "FAILED: 9 of 16 differ" in rendered(advice(outputs=outputs))
    assert "first at token 17 of prompt 4" in rendered(advice(outputs=outputs))


@pytest.mark.parametrize("name", ["x" * 300, "organisation/" + "long-name-" * 30, "模型" * 60])
def test_no_line_is_wider_than_the_terminal(name: str) -> None:
    rows = [row(1024, "inconclusive", reason=name), row(512, "enable", drafter=name, draft_tokens=32)]
    rows[0]["candidates"][0] |= {
        "drafter": name,
        "speedup": 12345.678,
        "speedup_high": 99999.5,
        "acceptance_length": 33.0,
    }
    shown = rendered(advice(model=name, hardware=name, batch_sizes=rows, warnings=[name]))
    console = Console()
    assert max(console.measure(line).maximum for line in shown.splitlines()) <= 100


def test_a_terminal_obeys_nothing_that_a_name_holds() -> None:
    hostile = "model \x1b[2J\x07[bold]x[/bold]"
    shown = rendered(advice(model=hostile, warnings=[hostile]))
    assert "\x1b" not in shown
    assert "[bold]x[/bold]" in shown


def test_colour_only_repeats_what_a_word_says() -> None:
    document = AdviceDocument.model_validate(advice(batch_sizes=[row(1, "enable"), row(2, "disable")]))
    coloured = Console(file=io.StringIO(), width=100, force_terminal=True, color_system="standard")
    coloured.print(render_advice(document))
    assert isinstance(coloured.file, io.StringIO)
    assert "\x1b[1;32menable" in coloured.file.getvalue()
    assert "\x1b[31mdisable" in coloured.file.getvalue()
