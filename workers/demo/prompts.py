"""The prompts that ship with the demo models: code of held-out modules, broken off where a programmer would go on.

Half of them break off inside a line. Every fourth is the head of a file; the others end in the middle of a function.
"""

import ast
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from workers.demo.corpus import Module

NUM_PROMPTS = 16
SHORTEST_TOKENS = 60
LONGEST_TOKENS = 160
SHORTEST_FUNCTION_LINES = 12
# Token budgets that the prompts take in turn, so that a batch of them is ragged like real traffic.
BUDGETS = (70, 90, 110, 130, 150)


def middle_of_a_function(module: Module) -> int | None:
    """Return how many lines lead up to the middle of the module's longest function, or None if all are short."""
    functions = [
        node for node in ast.walk(ast.parse(module.text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    spans = [(node.end_lineno - node.lineno, node.lineno) for node in functions if node.end_lineno is not None]
    length, first = max(spans, default=(0, 0))
    return first + length // 2 if length >= SHORTEST_FUNCTION_LINES else None


def head_within_budget(lines: list[str], tokenizer: PreTrainedTokenizerFast, budget: int) -> list[str]:
    """Return as many of the first ``lines`` as fit into ``budget`` tokens."""
    for end in range(1, len(lines)):
        if len(tokenizer.encode("\n".join(lines[: end + 1]))) > budget:
            return lines[:end]
    return lines


def tail_within_budget(lines: Sequence[str], tokenizer: PreTrainedTokenizerFast, budget: int) -> str:
    """Join as many of the last ``lines`` as fit into ``budget`` tokens.

    The text ends without white space: the tokenizer joins a line's end with the next line's indentation, and a prompt
    must not end inside a token.
    """
    text = ""
    for start in range(len(lines) - 1, -1, -1):
        longer = "\n".join(lines[start:]).strip("\n").rstrip()
        if len(tokenizer.encode(longer)) > budget:
            break
        text = longer
    return text


def prompt_of(module: Module, index: int, tokenizer: PreTrainedTokenizerFast) -> str | None:
    """Return the prompt that ``module`` gives at place ``index`` of the file, or None if it is too short for one."""
    budget = BUDGETS[index % len(BUDGETS)]
    lines = module.text.splitlines()
    if index % 4 == 3:
        # Files that open with a docstring: the others open with a licence, which the model knows by heart.
        lines = head_within_budget(lines, tokenizer, budget) if lines[0].startswith('"""') else []
    else:
        lines = lines[: middle_of_a_function(module) or 0]
    text = tail_within_budget(lines, tokenizer, budget)
    if index % 2 and " " in text.rpartition("\n")[2].strip():
        text = text.rpartition(" ")[0].rstrip()
    return text if SHORTEST_TOKENS <= len(tokenizer.encode(text)) <= LONGEST_TOKENS else None


def choose_prompts(modules: Sequence[Module], tokenizer: PreTrainedTokenizerFast) -> list[str]:
    """Return one prompt from each of ``NUM_PROMPTS`` held-out modules, in an order that only their names decide."""
    held_out = [module for module in modules if module.held_out]
    prompts: list[str] = []
    for module in sorted(held_out, key=lambda module: hashlib.sha256(b"prompt " + module.name.encode()).digest()):
        prompt = prompt_of(module, len(prompts), tokenizer)
        if prompt is not None:
            prompts.append(prompt)
        if len(prompts) == NUM_PROMPTS:
            return prompts
    raise ValueError(
        f"the held-out split of this standard library yields {len(prompts)} prompts, {NUM_PROMPTS} are needed: "
        "use the Python version that the model card names"
    )


def write_prompts(prompts: Sequence[str], path: Path) -> None:
    """Write one JSON object a line: ``{"prompt": ...}``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts), encoding="utf-8")
