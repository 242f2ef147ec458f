"""Trains the demo target on the standard library's source, then its draft model by distillation; writes the prompts.

Both trainings are given minutes, not steps: the learning rate follows the share of the time that is spent, so a busy
machine gets a shorter training and never an unfinished schedule.
"""

import argparse
import logging
from collections.abc import Iterator
from pathlib import Path

import torch
from torch.nn import functional
from transformers import PreTrainedModel

from workers.demo.architecture import EXPERTS_PER_TOKEN, NUM_EXPERTS, load_target, new_draft, new_target, save
from workers.demo.continuation import greedy_continuation
from workers.demo.corpus import END_OF_TEXT, load_tokenizer, read_modules, token_stream, train_tokenizer
from workers.demo.optimization import Schedule, optimize
from workers.demo.prompts import choose_prompts, write_prompts

SEQUENCE_LENGTH = 384
BATCH_SIZE = 5
TARGET_LEARNING_RATE = 2e-3
# Keeps every expert in use and leaves the choice to the router: neighbouring tokens still share experts.
BALANCE_WEIGHT = 0.01

DRAFT_LEARNING_RATE = 2e-3
DRAFT_SEQUENCE_LENGTH = 320
DRAFT_BATCH_SIZE = 8
CONTEXT_TOKENS = 128
CONTINUATIONS_AT_ONCE = 128
# Share of the draft's time that goes into writing down what the target itself says.
CONTINUATION_SHARE = 0.25

logger = logging.getLogger("workers.demo")


def windows(stream: torch.Tensor, length: int, batch_size: int, seed: int) -> Iterator[torch.Tensor]:
    """Yield [batch_size, length] token ids for ever; each pass cuts the stream at another offset."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        offset = int(torch.randint(length, (1,), generator=generator))
        starts = torch.arange(offset, len(stream) - length, length)
        starts = starts[torch.randperm(len(starts), generator=generator)]
        for batch in starts[: len(starts) // batch_size * batch_size].split(batch_size):
            yield torch.stack([stream[start : start + length] for start in batch.tolist()])


def balance_loss(router_logits: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Mean over layers of E * sum_e(share of tokens sent to e * mean probability of e); 1 when balanced.

    Layer by layer: pooled over layers, two lopsided layers would pass as one balanced model.
    """
    losses = []
    for logits in router_logits:
        probabilities = logits.softmax(-1)
        chosen = functional.one_hot(probabilities.topk(EXPERTS_PER_TOKEN).indices, NUM_EXPERTS).sum(1).float()
        losses.append(NUM_EXPERTS * (chosen.mean(0) / EXPERTS_PER_TOKEN * probabilities.mean(0)).sum())
    return torch.stack(losses).mean()


def target_losses(target: PreTrainedModel, batches: Iterator[torch.Tensor]) -> Iterator[tuple[torch.Tensor, float]]:
    """Cross-entropy of the next token plus the balance loss; the figure is the cross-entropy."""
    for batch in batches:
        output = target(input_ids=batch[:, :-1], output_router_logits=True, use_cache=False)
        cross_entropy = functional.cross_entropy(output.logits.flatten(0, 1), batch[:, 1:].flatten())
        yield cross_entropy + BALANCE_WEIGHT * balance_loss(output.router_logits), cross_entropy.item()


def train_target(folder: Path, minutes: float, checkpoint_minutes: float, seed: int, resume: bool) -> None:
    """Train tokenizer and target on the training split, and write both to ``folder``; or go on with those there."""
    modules = [module for module in read_modules() if not module.held_out]
    torch.manual_seed(seed)
    if resume:
        tokenizer = load_tokenizer(folder)
        target = load_target(folder)
    else:
        tokenizer = train_tokenizer(module.text for module in modules)
        target = new_target(tokenizer.convert_tokens_to_ids(END_OF_TEXT))
    stream = torch.tensor(token_stream(modules, tokenizer))
    logger.info("%d modules, %d tokens, %d parameters", len(modules), len(stream), target.num_parameters())
    losses = target_losses(target, windows(stream, SEQUENCE_LENGTH + 1, BATCH_SIZE, seed))
    schedule = Schedule(TARGET_LEARNING_RATE, minutes)
    optimize(target, losses, schedule, lambda: save(target, tokenizer, folder), checkpoint_minutes)


def own_texts(target: PreTrainedModel, contexts: Iterator[torch.Tensor], minutes: float) -> torch.Tensor:
    """Return [n, DRAFT_SEQUENCE_LENGTH] token ids: contexts of the training split and the target's greedy text.

    In use the draft model only ever reads the target's own text, which repeats itself more than people's.
    """
    budget = Schedule(0, minutes)
    batches = [greedy_continuation(target, next(contexts), DRAFT_SEQUENCE_LENGTH - CONTEXT_TOKENS)]
    while not budget.is_over:
        batches.append(greedy_continuation(target, next(contexts), DRAFT_SEQUENCE_LENGTH - CONTEXT_TOKENS))
    return torch.cat(batches)


def draft_losses(
    draft: PreTrainedModel, target: PreTrainedModel, people: Iterator[torch.Tensor], own: Iterator[torch.Tensor]
) -> Iterator[tuple[torch.Tensor, float]]:
    """KL divergence of the draft model from the target, on people's and the target's own text in equal parts."""
    while True:
        batch = torch.cat([next(people), next(own)])
        with torch.no_grad():
            wanted = target(input_ids=batch, use_cache=False).logits.log_softmax(-1).flatten(0, 1)
        given = draft(input_ids=batch, use_cache=False).logits.log_softmax(-1).flatten(0, 1)
        divergence = functional.kl_div(given, wanted, reduction="batchmean", log_target=True)
        yield divergence, divergence.item()


def train_draft(target_folder: Path, folder: Path, minutes: float, checkpoint_minutes: float, seed: int) -> None:
    """Distil the target in ``target_folder`` into a draft model, and write it to ``folder``."""
    tokenizer = load_tokenizer(target_folder)
    target = load_target(target_folder)
    stream = torch.tensor(token_stream([module for module in read_modules() if not module.held_out], tokenizer))
    contexts = windows(stream, CONTEXT_TOKENS, CONTINUATIONS_AT_ONCE, seed)
    texts = own_texts(target, contexts, minutes * CONTINUATION_SHARE)
    torch.manual_seed(seed)
    draft = new_draft(target)
    logger.info("%d own texts, %d parameters", len(texts), draft.num_parameters())
    people = windows(stream, DRAFT_SEQUENCE_LENGTH, DRAFT_BATCH_SIZE // 2, seed)
    own = shuffled(texts, DRAFT_BATCH_SIZE // 2, seed)
    schedule = Schedule(DRAFT_LEARNING_RATE, minutes * (1 - CONTINUATION_SHARE))
    losses = draft_losses(draft, target, people, own)
    optimize(draft, losses, schedule, lambda: save(draft, tokenizer, folder), checkpoint_minutes)


def shuffled(rows: torch.Tensor, batch_size: int, seed: int) -> Iterator[torch.Tensor]:
    """Yield batches of rows for ever, each pass in another order."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        for batch in torch.randperm(len(rows), generator=generator).split(batch_size):
            yield rows[batch]


def main() -> None:
    here = Path(__file__).parent
    parser = argparse.ArgumentParser(prog="python -m workers.demo.train", description=__doc__)
    parser.add_argument("stages", nargs="+", choices=["target", "draft", "prompts"])
    parser.add_argument("--target-minutes", type=float, default=40)
    parser.add_argument("--draft-minutes", type=float, default=10)
    parser.add_argument("--checkpoint-minutes", type=float, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", action="store_true", help="train the target in --folder further")
    parser.add_argument("--folder", type=Path, default=here, help="receives model/ and draft/")
    parser.add_argument("--prompts", type=Path, default=here.parents[1] / "service" / "prompts" / "demo.jsonl")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    model, draft = arguments.folder / "model", arguments.folder / "draft"
    if "target" in arguments.stages:
        train_target(model, arguments.target_minutes, arguments.checkpoint_minutes, arguments.seed, arguments.resume)
    if "draft" in arguments.stages:
        train_draft(
            model,
            draft,
            arguments.draft_minutes,
            arguments.checkpoint_minutes,
            arguments.seed,
        )
    if "prompts" in arguments.stages:
        tokenizer = load_tokenizer(model)
        write_prompts(choose_prompts(read_modules(), tokenizer), arguments.prompts)


if __name__ == "__main__":
    main()
