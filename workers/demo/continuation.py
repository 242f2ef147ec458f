"""Greedy continuations of a model, many at a time: what its draft model has to foresee."""

import torch
from transformers import DynamicCache, PreTrainedModel


def greedy_continuation(model: PreTrainedModel, prompts: torch.Tensor, num_new_tokens: int) -> torch.Tensor:
    """Continue [batch, length] token ids to [batch, length + num_new_tokens].

    An end-of-text token does not stop a row: the stream that the models learn from goes on after one.
    """
    cache = DynamicCache(config=model.config)
    tokens = prompts
    fresh = prompts
    with torch.no_grad():
        for _ in range(num_new_tokens):
            logits = model(input_ids=fresh, past_key_values=cache, use_cache=True, logits_to_keep=1).logits
            fresh = logits[:, -1].argmax(-1, keepdim=True)
            tokens = torch.cat([tokens, fresh], dim=1)
    return tokens
