"""A dense model is measured as any other, through the process that measures every arm."""

import asyncio
import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.engine.bad_launches import DRAFT
from workers.child import EngineProcess
from workers.probe.engine import LaunchSpec
from workers.probe.spec import ArmSpec

pytestmark = pytest.mark.engine

LAYERS, HIDDEN, INNER, HEADS, KEY_VALUE_HEADS, HEAD, VOCABULARY = 2, 32, 64, 2, 1, 32, 2048


def dense_model(place: Path) -> Path:
    """A Qwen3 of two layers with weights by chance, and the demo model's tokenizer."""
    sizes = {
        "num_hidden_layers": LAYERS,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEY_VALUE_HEADS,
        "head_dim": HEAD,
        "layer_types": ["full_attention"] * LAYERS,
    }
    config = json.loads((DRAFT / "config.json").read_text()) | sizes
    (place / "config.json").write_text(json.dumps(config))
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (place / file).write_bytes((DRAFT / file).read_bytes())
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCABULARY, HIDDEN),
        "model.norm.weight": (HIDDEN,),
    }
    for layer in (f"model.layers.{i}" for i in range(LAYERS)):
        shapes |= {
            f"{layer}.input_layernorm.weight": (HIDDEN,),
            f"{layer}.post_attention_layernorm.weight": (HIDDEN,),
            f"{layer}.self_attn.q_proj.weight": (HEADS * HEAD, HIDDEN),
            f"{layer}.self_attn.k_proj.weight": (KEY_VALUE_HEADS * HEAD, HIDDEN),
            f"{layer}.self_attn.v_proj.weight": (KEY_VALUE_HEADS * HEAD, HIDDEN),
            f"{layer}.self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD),
            f"{layer}.self_attn.q_norm.weight": (HEAD,),
            f"{layer}.self_attn.k_norm.weight": (HEAD,),
            f"{layer}.mlp.gate_proj.weight": (INNER, HIDDEN),
            f"{layer}.mlp.up_proj.weight": (INNER, HIDDEN),
            f"{layer}.mlp.down_proj.weight": (HIDDEN, INNER),
        }
    chance = np.random.default_rng(0)
    weights = {name: chance.normal(size=shape, scale=0.1).astype(np.float32) for name, shape in shapes.items()}
    save_file(weights, place / "model.safetensors", metadata={"format": "pt"})
    return place


def test_a_dense_model_is_measured_as_any_other_and_says_that_it_has_no_experts(tmp_path: Path) -> None:
    spec = ArmSpec(
        arm="drafter:ngram",
        engine="vllm",
        launch=LaunchSpec(
            {"model": str(dense_model(tmp_path)), "dtype": "float32"},
            {"method": "ngram", "model": None, "options": {"prompt_lookup_min": 1, "prompt_lookup_max": 2}},
            (0, 1),
            2,
        ),
        prompts=[{"prompt": "def f(x):\n    return x"}, {"prompt": "a b a b a b a b"}],
        output_tokens=16,
        temperature=0.0,
        cells=[(0, 2, 0), (0, 2, 1)],
        repeats=1,
        steps=5,
        seconds=300,
        watch_pace=False,
        continuations=[(0, 2, 1)],
    )

    async def measure() -> list[dict[str, Any]]:
        async with aclosing(EngineProcess("cpu")) as engines:
            return [message async for message in engines.run(spec)]

    messages = asyncio.run(measure())
    kinds = [message["kind"] for message in messages]
    assert (kinds[0], kinds[-1], kinds.count("generation"), kinds.count("repeat")) == ("loaded", "finished", 2, 2)
    resolved = messages[0]["resolved"]
    assert resolved["architecture"] == "Qwen3ForCausalLM"
    assert resolved["experts"] is None
