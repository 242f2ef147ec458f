"""Shapes of the two demo models, and how a trained one becomes a folder that engines load.

All sizes are multiples of 32: vLLM's kernels for CPUs without matrix instructions are known to load these.
"""

import copy
import json
import shutil
from pathlib import Path

import torch
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from workers.demo.corpus import CONTEXT_LENGTH, VOCABULARY_SIZE

NUM_EXPERTS = 32
EXPERTS_PER_TOKEN = 4


def new_target(end_of_text_id: int) -> Qwen3MoeForCausalLM:
    """A finely divided mixture of experts: 4 layers of 32 experts, 4 of them per token, 3.6 M parameters."""
    config = Qwen3MoeConfig(
        vocab_size=VOCABULARY_SIZE,
        hidden_size=128,
        intermediate_size=256,
        moe_intermediate_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        num_experts=NUM_EXPERTS,
        num_experts_per_tok=EXPERTS_PER_TOKEN,
        norm_topk_prob=True,
        tie_word_embeddings=True,
        max_position_embeddings=CONTEXT_LENGTH,
        eos_token_id=end_of_text_id,
        initializer_range=0.05,
    )
    # A step of 8 x 256 tokens on two cores takes two thirds of the time that the loop over experts takes.
    model = Qwen3MoeForCausalLM._from_config(config, attn_implementation="sdpa", experts_implementation="grouped_mm")
    assert isinstance(model, Qwen3MoeForCausalLM)
    return model


def new_draft(target: Qwen3MoeForCausalLM) -> Qwen3ForCausalLM:
    """A dense model of one layer, a ninth of the target's size: on a CPU its cost is mostly its number of layers.

    It starts from the target's token embeddings, first attention and last norm, and only the rest from noise: most
    of its parameters are embeddings, and learning those again would take most of a short training.
    """
    wide = target.config
    config = Qwen3Config(
        vocab_size=wide.vocab_size,
        hidden_size=wide.hidden_size,
        intermediate_size=2 * wide.hidden_size,
        num_hidden_layers=1,
        num_attention_heads=wide.num_attention_heads,
        num_key_value_heads=wide.num_key_value_heads,
        head_dim=wide.head_dim,
        tie_word_embeddings=True,
        max_position_embeddings=wide.max_position_embeddings,
        eos_token_id=wide.eos_token_id,
        initializer_range=wide.initializer_range,
    )
    model = Qwen3ForCausalLM._from_config(config, attn_implementation="sdpa")
    assert isinstance(model, Qwen3ForCausalLM)
    given = target.state_dict()
    shared = {name: given[name] for name in model.state_dict() if name in given}
    model.load_state_dict(shared, strict=False)
    return model


def load_target(folder: Path) -> Qwen3MoeForCausalLM:
    """Read a saved target back in float32, to train it further or to distil it."""
    model = Qwen3MoeForCausalLM.from_pretrained(folder, experts_implementation="grouped_mm")
    assert isinstance(model, Qwen3MoeForCausalLM)
    return model


def save(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write weights, configuration and tokenizer; a reader of ``folder`` finds the old model or the new one.

    Weights are stored in bfloat16 to halve the download. The configuration names float32: that is what the models
    were trained in, and greedy outputs with and without speculation agree to the token in it.
    """
    staging = folder.with_name(folder.name + ".staging")
    shutil.rmtree(staging, ignore_errors=True)
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(staging)
    tokenizer.save_pretrained(staging)
    path = staging / "config.json"
    config = json.loads(path.read_text())
    config["dtype"] = "float32"
    if "num_local_experts" in config:  # published Qwen3-MoE configurations call it num_experts
        config["num_experts"] = config.pop("num_local_experts")
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    for file in staging.iterdir():
        file.chmod(0o644)
    shutil.rmtree(folder, ignore_errors=True)
    staging.rename(folder)
