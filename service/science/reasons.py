"""One sentence for each verdict, with the figures in it and what a person can do about them."""

from service.science.candidates import Candidate, Spread


def enabled(candidate: Candidate, best: Candidate) -> str:
    """Why the candidate is worth enabling; `best` is the one that looks fastest, often the same."""
    sentence = f"{_gain(candidate)}: {_times(candidate.speedup)} faster ({_range(candidate)})"
    if (best.speedup or 0.0) > (candidate.speedup or 0.0) and best.draft_tokens > candidate.draft_tokens:
        return f"{sentence}; {_name(best)} gives {_times(best.speedup)} ({_range(best)}), no proven gain over fewer"
    if (best.speedup or 0.0) > (candidate.speedup or 0.0):
        return f"{sentence}; {_name(best)} may give {_times(best.speedup)} but is not proven ({_range(best)})"
    return sentence


def disabled(best: Candidate, margin: float) -> str:
    """Which term loses, for the best of the candidates."""
    outcome = f"no drafter pays; the best, {_gain(best)}, is {_times(best.speedup)} as fast ({_range(best)})"
    return f"{outcome}: {_loss(best, margin)}"


def undecided(candidate: Candidate, margin: float, has_control: bool) -> str:
    """What to measure next for a candidate whose interval, or lack of one, leaves the question open."""
    if candidate.acceptance_length is None:
        return f"the acceptance of {_name(candidate)} is not measured yet: measure it over the whole workload"
    if candidate.speedup is None:
        return f"{_name(candidate)} cannot be compared yet: the decode step of the baseline is not measured"
    if candidate.spread is None:
        return (
            f"{_name(candidate)} is {_times(candidate.speedup)} as fast, but how sure that is cannot be told from a "
            "single prompt or repeat: measure at least 5 prompts and 3 repeats"
        )
    return (
        f"{_name(candidate)} is {_times(candidate.speedup)} as fast, somewhere in {_range(candidate)}, and more than "
        f"{1 + margin:.2f}x is asked for: {_next_measurement(candidate.spread, has_control)}"
    )


def without_decode_step(batch_size: int) -> str:
    return f"the decode step at batch size {batch_size} is not measured yet: run the baseline arm there"


def without_candidates(batch_size: int) -> str:
    return f"no drafter has been timed at batch size {batch_size} yet: run a drafter arm there"


def _name(candidate: Candidate) -> str:
    return f"{candidate.drafter} with {candidate.draft_tokens} draft token{'s' if candidate.draft_tokens > 1 else ''}"


def _gain(candidate: Candidate) -> str:
    return (
        f"{_name(candidate)} emits {candidate.acceptance_length:.2f} tokens per step "
        f"at {_times(candidate.break_even_acceptance_length)} the step time"
    )


def _times(ratio: float | None) -> str:
    return f"{ratio:.2f}x" if ratio is not None else "unknown"


def _range(candidate: Candidate) -> str:
    if candidate.speedup_low is None:
        return "interval unknown"
    return f"{candidate.speedup_low:.2f}-{candidate.speedup_high:.2f}"


def _loss(best: Candidate, margin: float) -> str:
    length, needed = best.acceptance_length or 1.0, best.break_even_acceptance_length or 1.0
    if length > needed:
        return f"the gain stays within the margin of {margin:.1%}"
    balance = f"{needed:.2f} would break even"
    if needed >= best.draft_tokens + 1:
        return f"{balance}, more than it could emit if every draft were accepted; the steps are too long"
    if (best.draft_coverage or 0.0) < 0.5:
        return f"{balance}, and it drafts in only {best.draft_coverage or 0.0:.0%} of the steps"
    if needed < 1 + best.draft_tokens / 2:
        return f"{balance}, and too few drafts are accepted"
    return f"{balance}; the steps grow too long for what is accepted"


def _next_measurement(spread: Spread, has_control: bool) -> str:
    largest = max(spread.prompts, spread.repeats, spread.launches)
    part = f"the largest part of that interval (±{largest:.1%})"
    if largest == spread.prompts:
        return f"measure more prompts, whose differences in acceptance are {part}"
    if largest == spread.repeats:
        return f"measure more repeats or longer ones, whose scatter in step time is {part}"
    if not has_control:
        return f"run the control, since the drift between launches is unknown and {part}"
    return f"measure on a quieter machine or with fixed clocks, since the drift between launches is {part}"
