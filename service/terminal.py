"""Advice as a person reads it in a terminal of 100 columns. Every colour repeats what a word says already."""

from collections.abc import Iterator
from itertools import groupby

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from service.documents import AdviceDocument, BatchSizeAdvice, CandidateDocument, OutputsDocument, ScheduleDocument

VERDICT_STYLES = {"enable": "bold green", "disable": "red", "inconclusive": "yellow"}
NOT_MEASURED = "-"
SMALLEST_WIDTH = 100


def render_advice(advice: AdviceDocument) -> RenderableType:
    """The whole advice: a table per context length, then what it means and what it rests on."""
    rows = sorted(advice.batch_sizes, key=lambda row: (row.context_length or 0, row.batch_size))
    parts: list[RenderableType] = [_heading(advice)]
    for context_length, group in groupby(rows, key=lambda row: row.context_length):
        parts.append(_table(context_length, list(group)))
    if any(row.drafter is None and row.candidates for row in rows):
        parts.append(Text("(in brackets: the best candidate, which is not advised)\n", style="dim"))
    parts.append(_notes(advice, rows))
    return Group(*parts)


def printable(text: str) -> str:
    """The text without control characters, which a terminal would obey."""
    return "".join(each if each.isprintable() else " " for each in text)


def _heading(advice: AdviceDocument) -> Text:
    engine = f"{advice.engine.name} {advice.engine.version}" if advice.engine else "no engine yet"
    workload = advice.workload
    given = f"prompts {workload.prompts}, {workload.output_tokens} output tokens, temperature {workload.temperature:g}"
    cost = f"{advice.engine_loads} engine loads, {advice.measured_seconds:.0f} s of timed steps"
    lines = [f"{advice.model} on {advice.hardware}: {advice.evidence} with {engine}", f"{given}; {cost}"]
    if not advice.complete:
        lines.append("NOT COMPLETE: from what is measured so far")
    return Text("\n".join(printable(line) for line in lines), overflow="fold")


def _table(context_length: int | None, rows: list[BatchSizeAdvice]) -> Table:
    title = f"context of {context_length} tokens" if context_length else None
    table = Table(
        box=box.SIMPLE, title=title, title_justify="left", title_style="", pad_edge=False, collapse_padding=True
    )
    table.add_column("batch\nsize", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("drafter", overflow="fold", min_width=13)
    table.add_column("draft\ntokens", justify="right", no_wrap=True)
    table.add_column("speed-up\n(interval)", justify="right", no_wrap=True)
    table.add_column("acceptance\nlength vs\nbreak-even", justify="right", no_wrap=True)
    table.add_column("decode\nstep ms", justify="right", no_wrap=True)
    table.add_column("step\nms", justify="right", no_wrap=True)
    for row in rows:
        verdict = Text(row.verdict, style=VERDICT_STYLES[row.verdict])
        table.add_row(str(row.batch_size), verdict, *_figures(row))
    return table


def _figures(row: BatchSizeAdvice) -> Iterator[Text]:
    """From the drafter's name on; of a drafter that is not advised dim and in brackets."""
    shown: BatchSizeAdvice | CandidateDocument = row
    advised = row.drafter is not None
    if not advised and row.candidates:
        shown = row.candidates[0]
    cells = [
        printable(shown.drafter or NOT_MEASURED),
        str(shown.draft_tokens),
        _speedup(shown),
        f"{_number(shown.acceptance_length)} vs {_number(shown.break_even_acceptance_length)}",
        _number(row.decode_step_ms),
        _number(shown.step_ms),
    ]
    if advised:
        yield from (Text(cell) for cell in cells)
    elif row.candidates:
        # The decode step is the baseline's own, whoever drafts.
        yield from (Text(cell) if i == 4 else Text(f"({cell})", style="dim") for i, cell in enumerate(cells))
    else:
        yield from (Text(cell) if i == 4 else Text(NOT_MEASURED, style="dim") for i, cell in enumerate(cells))


def _speedup(shown: BatchSizeAdvice | CandidateDocument) -> str:
    if shown.speedup is None:
        return NOT_MEASURED
    if shown.speedup_low is None or shown.speedup_high is None:
        return f"{shown.speedup:.2f}x"
    return f"{shown.speedup:.2f}x {shown.speedup_low:.2f}-{shown.speedup_high:.2f}"


def _notes(advice: AdviceDocument, rows: list[BatchSizeAdvice]) -> Table:
    """What follows from the table, as a name and a text that wraps beside it."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")

    def note(name: str, text: str, style: str = "") -> None:
        table.add_row(Text(name, style="bold"), Text(printable(text), style=style))

    note("launch", _launch(advice))
    for schedule in advice.schedule:
        note("schedule", _schedule(schedule, several=len(advice.schedule) > 1))
    for row in rows:
        note("why" if row is rows[0] else "", f"{_place(row, rows)}: {row.reason}")
    if advice.outputs:
        note("outputs", _outputs(advice.outputs), style="bold red" if advice.outputs.failed else "")
    floor = f"{advice.noise_floor:.1%}" if advice.noise_floor is not None else "not measured"
    note("noise", f"noise floor {floor}, so a gain counts above a margin of {advice.margin:.1%}")
    for warning in advice.warnings:
        note("warning", warning, style="yellow")
    note("probe", advice.probe_id)
    return table


def _launch(advice: AdviceDocument) -> str:
    launch = advice.launch
    if not launch.speculation:
        return "without speculation"
    value = f", worth {launch.value:.2f}x over the measured batch sizes" if launch.value is not None else ""
    return f"with {launch.drafter}, at most {_draft_tokens(launch.max_draft_tokens)}{value}"


def _schedule(schedule: ScheduleDocument, *, several: bool) -> str:
    ranges = [
        f"batch size {low if low == high else f'{low}-{high}'}: {_draft_tokens(number) if number else 'off'}"
        for low, high, number in schedule.ranges
    ]
    prefix = f"context {schedule.context_length}: " if several and schedule.context_length else ""
    return prefix + "; ".join(ranges)


def _draft_tokens(number: int) -> str:
    return f"{number} draft token{'' if number == 1 else 's'}"


def _place(row: BatchSizeAdvice, rows: list[BatchSizeAdvice]) -> str:
    several = len({each.context_length for each in rows}) > 1
    return f"batch size {row.batch_size}" + (f", context {row.context_length}" if several else "")


def _outputs(outputs: OutputsDocument) -> str:
    own = "an unknown number" if outputs.diverged_baseline is None else outputs.diverged_baseline
    told = (
        f"{outputs.diverged} of {outputs.compared} differ from the baseline's; of the baseline's own, "
        f"{own} differ between two batch sizes"
    )
    if not outputs.failed:
        return told
    first = min(outputs.divergences, key=lambda each: each.position, default=None)
    where = f"; first at token {first.position} of prompt {first.prompt}, {first.drafter}" if first else ""
    return f"FAILED: {told}{where}"


def _number(value: float | None) -> str:
    return f"{value:.2f}" if value is not None else NOT_MEASURED
