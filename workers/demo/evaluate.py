"""Measures what the model card states: held-out loss, routing overlap, and acceptance lengths of both drafters.

Acceptance is simulated along the target's own greedy text, which is what an engine would emit: no engine is needed.
Prints one JSON document.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch.nn import functional
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from workers.demo.architecture import EXPERTS_PER_TOKEN, NUM_EXPERTS
from workers.demo.continuation import greedy_continuation
from workers.demo.corpus import read_modules, token_stream

WINDOW_LENGTH = 512
NUM_NEW_TOKENS = 128
DRAFT_TOKENS = (1, 2, 3, 4, 5)
NGRAM_LONGEST, NGRAM_SHORTEST = 2, 1

Proposer = Callable[[list[int], int], list[int]]


def loss_of(model: PreTrainedModel, stream: torch.Tensor) -> float:
    """Mean cross-entropy in nats per token over the whole windows of ``stream``."""
    length = WINDOW_LENGTH
    rows = torch.stack([stream[i : i + length + 1] for i in range(0, len(stream) - length - 1, length)])
    total = 0.0
    for batch in rows.split(8):
        with torch.no_grad():
            logits = model(input_ids=batch[:, :-1], use_cache=False).logits
        total += functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), reduction="sum").item()
    return total / (len(rows) * length)


def routing_of(target: PreTrainedModel, sequences: Sequence[Sequence[int]]) -> dict[str, list[float]]:
    """Overlap at lag 1 per layer, beside what independent and uniform routing would give, and each layer's use.

    Independent: two tokens that each draw experts at the layer's own frequencies p_e overlap by sum_e p_e^2 / k,
    where the p_e sum to k. Uniform: k / E.
    """
    overlaps: list[list[torch.Tensor]] = [[] for _ in range(target.config.num_hidden_layers)]
    counts = torch.zeros(target.config.num_hidden_layers, NUM_EXPERTS)
    for sequence in sequences:
        with torch.no_grad():
            output = target(input_ids=torch.tensor([sequence]), output_router_logits=True, use_cache=False)
        for layer, logits in enumerate(output.router_logits):
            chosen = functional.one_hot(logits.topk(EXPERTS_PER_TOKEN).indices, NUM_EXPERTS).sum(1).float()
            overlaps[layer].append((chosen[1:] * chosen[:-1]).sum(-1) / EXPERTS_PER_TOKEN)
            counts[layer] += chosen.sum(0)
    frequencies = EXPERTS_PER_TOKEN * counts / counts.sum(-1, keepdim=True)
    return {
        "overlap": [round(torch.cat(layer).mean().item(), 3) for layer in overlaps],
        "overlap_if_independent": [round(x, 3) for x in (frequencies.square().sum(-1) / EXPERTS_PER_TOKEN).tolist()],
        "overlap_if_uniform": [EXPERTS_PER_TOKEN / NUM_EXPERTS] * len(overlaps),
        "rarest_expert_share": [round(x, 4) for x in (frequencies.min(-1).values / EXPERTS_PER_TOKEN).tolist()],
        "commonest_expert_share": [round(x, 4) for x in (frequencies.max(-1).values / EXPERTS_PER_TOKEN).tolist()],
    }


def ngram_proposal(context: list[int], num_draft_tokens: int) -> list[int]:
    """Propose what followed the earliest occurrence of the longest n-gram that ends the context, as vLLM does."""
    for length in range(NGRAM_LONGEST, NGRAM_SHORTEST - 1, -1):
        suffix = context[-length:]
        for start in range(len(context) - length):
            if context[start : start + length] == suffix:
                return context[start + length : start + length + num_draft_tokens]
    return []


def draft_proposer(draft: PreTrainedModel) -> Proposer:
    """Propose the draft model's greedy continuation."""

    def propose(context: list[int], num_draft_tokens: int) -> list[int]:
        tokens = greedy_continuation(draft, torch.tensor([context]), num_draft_tokens)
        return [int(token) for token in tokens[0, len(context) :]]

    return propose


def acceptance_length(
    texts: Sequence[tuple[list[int], list[int]]], propose: Proposer, num_draft_tokens: int
) -> tuple[float, float]:
    """Return emitted tokens per request-step, and the share of steps that carried a draft.

    ``texts`` holds (prompt, greedy continuation) pairs of token ids. As in an engine, the first token of a
    continuation comes from the prefill and is no step's.
    """
    emitted = steps = drafted = 0
    for prompt, continuation in texts:
        done = 1
        while done < len(continuation):
            proposal = propose(prompt + continuation[:done], num_draft_tokens)
            accepted = 0
            for proposed, actual in zip(proposal, continuation[done:], strict=False):
                if proposed != actual:
                    break
                accepted += 1
            advance = min(accepted + 1, len(continuation) - done)
            emitted += advance
            done += advance
            steps += 1
            drafted += bool(proposal)
    return emitted / steps, drafted / steps


def continuations(target: PreTrainedModel, prompts: Sequence[list[int]]) -> list[tuple[list[int], list[int]]]:
    """Return (prompt, continuation) per prompt, the continuation up to and with the first end-of-text token."""
    texts = []
    for prompt in prompts:
        tokens = greedy_continuation(target, torch.tensor([prompt]), NUM_NEW_TOKENS)[0, len(prompt) :].tolist()
        end = target.config.eos_token_id
        texts.append((prompt, tokens[: tokens.index(end) + 1] if end in tokens else tokens))
    return texts


def main() -> None:
    here = Path(__file__).parent
    parser = argparse.ArgumentParser(prog="python -m workers.demo.evaluate", description=__doc__)
    parser.add_argument("--folder", type=Path, default=here, help="holds model/ and draft/")
    parser.add_argument("--prompts", type=Path, default=here.parents[1] / "service" / "prompts" / "demo.jsonl")
    arguments = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(arguments.folder / "model")
    target = AutoModelForCausalLM.from_pretrained(arguments.folder / "model")
    draft = AutoModelForCausalLM.from_pretrained(arguments.folder / "draft")
    modules = read_modules()
    held_out = torch.tensor(token_stream([module for module in modules if module.held_out], tokenizer))
    training = torch.tensor(token_stream([module for module in modules if not module.held_out], tokenizer))
    lines = arguments.prompts.read_text(encoding="utf-8").splitlines()
    texts = continuations(target, [tokenizer.encode(json.loads(line)["prompt"]) for line in lines])
    report: dict[str, object] = {
        "held_out_tokens": len(held_out),
        "held_out_loss": {"target": loss_of(target, held_out), "draft": loss_of(draft, held_out)},
        # As many tokens as are held out: the whole would take the time of a short training.
        "training_loss": {
            "target": loss_of(target, training[: len(held_out)]),
            "draft": loss_of(draft, training[: len(held_out)]),
        },
        "emitted_tokens": [len(continuation) for _, continuation in texts],
        "routing": routing_of(target, [prompt + continuation for prompt, continuation in texts]),
    }
    for name, propose in (("ngram", ngram_proposal), ("draft_model", draft_proposer(draft))):
        for num_draft_tokens in DRAFT_TOKENS:
            length, coverage = acceptance_length(texts, propose, num_draft_tokens)
            report[f"{name} K={num_draft_tokens}"] = {
                "acceptance_length": round(length, 3),
                "coverage": round(coverage, 3),
            }
    sys.stdout.write(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
