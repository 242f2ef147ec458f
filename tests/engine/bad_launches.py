"""Launches that the real engine refuses, each with what its error must say, and the tiny models that they name."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workers.probe.shipped import resolve_model

TARGET, DRAFT = (Path(resolve_model(f"breakeven/demo-{name}")) for name in ("moe", "draft"))

MODELS = "MODELS"
"""Stands for the folder of the models below, wherever a test makes them."""

CHANGES: Mapping[str, tuple[Path, Mapping[str, Any]]] = {
    "architecture": (TARGET, {"architectures": ["Qwen3MoeForCausalLLM"]}),
    "type": (TARGET, {"model_type": "qwen33"}),
    "no-type": (TARGET, {"model_type": None}),
    "no-weights": (TARGET, {}),
    "half-weights": (TARGET, {}),
    "experts": (TARGET, {"num_experts": 16}),
    "vocabulary": (TARGET, {"vocab_size": 4096}),
    "mute": (TARGET, {}),
    "empty-tokenizer": (TARGET, {}),
    "pooling": (TARGET, {"architectures": ["Qwen3MoeModel"]}),
    "chat": (TARGET, {}),
    "medusa": (DRAFT, {"model_type": "medusa", "architectures": ["MedusaModel"], "num_heads": 3}),
    "another-vocabulary": (DRAFT, {"vocab_size": 999}),
    "head-of-two": (DRAFT, {"n_predict": 2}),
}
"""Models by name: like which other, and how their config.json differs; None stands for a field that is left out."""

CHAT_TEMPLATE = (
    "{% if messages|length > 1 %}{{ raise_exception('one message only') }}{% endif %}{{ messages[0].content }}"
)
TWO_MESSAGES = {"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]}

BAD_PROMPTS: list[tuple[str, list[dict[str, Any]], str]] = [
    (
        "too long for the model",
        [{"prompt": "short"}, {"prompt": "x = y\n" * 300}],
        r"^prompt 1 has 1200 tokens: with 8 output tokens and 3 draft tokens it needs 1211, the model has room",
    ),
    (
        "no chat template",
        [{"prompt": "short"}, {"prompt": "short"}, TWO_MESSAGES],
        r"^prompt 2 has `messages`, but the model's tokenizer has no chat template: send `prompt` instead$",
    ),
]
"""What is wrong with prompts for the demo model, the prompts, and what is found in the error."""

REFUSED_BY_TEMPLATE = [{"messages": TWO_MESSAGES["messages"][:1]}, TWO_MESSAGES]
"""Prompts for the model `chat`, of which its template refuses the second."""


def make_models(place: Path) -> None:
    """The models in folders of their own."""
    for name, (like, changes) in CHANGES.items():
        shutil.copytree(like, place / name)
        config = {**json.loads((like / "config.json").read_text()), **changes}
        config = {key: value for key, value in config.items() if value is not None}
        (place / name / "config.json").write_text(json.dumps(config))
    (place / "no-weights" / "model.safetensors").unlink()
    half = place / "half-weights" / "model.safetensors"
    half.write_bytes(half.read_bytes()[: half.stat().st_size // 2])
    (place / "empty-tokenizer" / "tokenizer.json").write_text("")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (place / "mute" / file).unlink()
    tokenizer = place / "chat" / "tokenizer_config.json"
    tokenizer.write_text(json.dumps({**json.loads(tokenizer.read_text()), "chat_template": CHAT_TEMPLATE}))


def of(name: str) -> dict[str, Any]:
    """A launch of one of these models."""
    return {"target": {"model": f"{MODELS}/{name}"}}


def drafter(method: str, model: str | None = None, **options: Any) -> dict[str, Any]:
    """A launch with this drafter."""
    return {"drafter": {"method": method, "model": model, "options": options}}


def arguments(**engine_args: Any) -> dict[str, Any]:
    """A launch with these arguments of the engine."""
    return {"target": {"engine_args": engine_args}}


BAD_LAUNCHES: list[tuple[str, dict[str, Any], str]] = [
    (
        "a target that is not there",
        {"target": {"model": "/nowhere/model"}},
        r"the target '/nowhere/model' is not on this worker",
    ),
    (
        "an architecture that vLLM does not know",
        of("architecture"),
        r"architecture 'Qwen3MoeForCausalLLM' that config.json names: did you mean Qwen3MoeForCausalLM .*https://docs",
    ),
    (
        "a model type that Transformers does not know",
        of("type"),
        r"does not know the model_type 'qwen33' that config.json names: correct it, or install",
    ),
    ("no model type", of("no-type"), r"config.json of '.*no-type' has no 'model_type'.*: add it"),
    ("no weights", of("no-weights"), r"'.*no-weights' has no weights: put its \*.safetensors files there"),
    ("half of the weights", of("half-weights"), r"model.safetensors' is cut short: it has \d+ bytes, and \d+ by what"),
    (
        "weights of another model",
        of("experts"),
        r"weights do not fit the model's config.json \(Tried to load weights of size torch.Size\(\[32, 128\]\)",
    ),
    (
        "weights of another model, and vLLM says nothing",
        of("vocabulary"),
        r"weights do not fit the model's config.json \(AssertionError in .*\.py, line \d+: .*\)",
    ),
    (
        "no tokenizer",
        of("mute"),
        r"the target '.*mute' has no tokenizer that knows a word",
    ),
    (
        "a model that does not generate",
        of("pooling"),
        r"generates no text: vLLM runs Qwen3MoeModel as a pooling model",
    ),
    (
        "a method that vLLM does not have",
        drafter("telepathy"),
        r"cannot draft with the method 'telepathy': it has custom_class, dflash, draft_model, .*, mtp, ngram\.$",
    ),
    ("a method that a CPU does not have", drafter("ngram_gpu"), r"cannot draft with the method 'ngram_gpu'"),
    ("a method whose package is missing", drafter("suffix"), r"'suffix' needs a package: install arctic-inference"),
    (
        "a method that this target has no head for",
        drafter("mtp"),
        r"the drafter 'mtp' does not fit: .* none of its kind",
    ),
    (
        "medusa, which cannot change its K",
        drafter("medusa", f"{MODELS}/medusa"),
        r"medusa always drafts the K .* cannot be measured at K=0, 1, 2, 3",
    ),
    (
        "an option that vLLM does not have",
        drafter("ngram", prompt_lookup_maximum=3),
        r"'ngram' has no option 'prompt_lookup_maximum'. Did you mean prompt_lookup_max or prompt_lookup_min\?$",
    ),
    (
        "an option of the wrong type",
        drafter("ngram", prompt_lookup_max="many"),
        r"^the engine says: the drafter's option prompt_lookup_max is 'many': input should be a valid integer",
    ),
    (
        "options that contradict each other",
        drafter("ngram", prompt_lookup_min=2, prompt_lookup_max=1),
        r"^the engine says: prompt_lookup_min=2 must be <= prompt_lookup_max=1$",
    ),
    (
        "more draft tokens than a head can predict",
        drafter("draft_model", f"{MODELS}/head-of-two"),
        r"K=3 is not for this drafter, which predicts 2 tokens at a time: set max_draft_tokens to at most 2",
    ),
    (
        "a draft model of another vocabulary",
        drafter("draft_model", f"{MODELS}/another-vocabulary"),
        r"vocabulary of 999 tokens and the target one of 2048.*made for this target, or set the option use_hetero",
    ),
    (
        "an argument that vLLM does not have",
        arguments(max_model_length=512),
        r"engine_args: the engine has no argument 'max_model_length'. Did you mean max_model_len or",
    ),
    (
        "an argument of the wrong type",
        arguments(max_model_len="long"),
        r"^the engine says: max_model_len is 'long': input should be a valid integer",
    ),
    (
        "more context than the model has",
        arguments(max_model_len=4096),
        r"max_model_len is 4096 and the model has room for 1024 \(max_position_embeddings\): lower it",
    ),
    (
        "no room for an output token",
        arguments(max_model_len=1),
        r"max_model_len is 1, and a prompt token and an output",
    ),
    (
        "a tokenizer that is not there",
        arguments(tokenizer="/nowhere/tokenizer"),
        r"engine_args: the tokenizer '/nowhere/tokenizer' is not on this worker: there is no folder",
    ),
    (
        "an empty tokenizer",
        of("empty-tokenizer"),
        r"tokenizer.json' is not JSON, from line 1.*: correct it or download",
    ),
    (
        "a step too small for the largest batch",
        arguments(max_num_batched_tokens=8, max_num_seqs=4)
        | {"drafter": {"method": "ngram"}, "draft_tokens": [0, 1, 2, 3]},
        r"batch size 4 with 3 draft tokens needs 16 tokens in a step, and vLLM has 8: raise max_num_batched_tokens",
    ),
    (
        "a data type that vLLM does not have",
        {"target": {"dtype": "float33"}},
        r"^the engine says: dtype is 'float33': input should be 'auto', 'half', 'float16'",
    ),
    (
        "a quantization that vLLM does not have",
        {"target": {"quantization": "fp3"}},
        r"the engine has no quantization 'fp3': it has awq, ",
    ),
    (
        "more parts than the machine has",
        {"target": {"tensor_parallel": 64}},
        r"the model's 4 attention heads cannot be split over tensor_parallel=64",
    ),
    (
        "two parts on one node",
        {"target": {"tensor_parallel": 2}},
        r"split over 2 parts, and a CPU worker needs a NUMA node for each: this one has 1\. Lower tensor_parallel",
    ),
    (
        "a cache too small for one request",
        arguments(kv_cache_memory_bytes=700_000),
        r"KV cache is too small for one request of max_model_len=1024 tokens: lower max_model_len \(at most 128 fit\)",
    ),
    ("a cache too small for a block", arguments(kv_cache_memory_bytes=1), r"no memory is left for the KV cache: raise"),
    (
        "a cache larger than the machine",
        arguments(kv_cache_memory_bytes=10**14),
        r"the KV cache is to have 93132.* GiB, and .* GiB are free: lower kv_cache_memory_bytes",
    ),
    (
        "a process that gets no more memory",
        {"memory_bytes": 1000 * 2**20},
        r"too little memory: the system gave the engine no more when it asked for 1.00 GiB\. Give the worker more",
    ),
]
"""What is wrong, the launch, and what is found in the error."""
