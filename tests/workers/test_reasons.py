"""Reasons out of errors as vLLM 0.32 raises them, word for word."""

import errno

import pytest
from pydantic import Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from workers.probe.reasons import reason, shortened

SEEN = [
    (
        """Model architectures ['Qwen3MoeForCausalLLM'] are not supported for now. Supported architectures:
dict_keys(['AfmoeForCausalLM', 'LlamaForCausalLM', 'Qwen2MoeForCausalLM', 'Qwen3MoeForCausalLM'])""",
        "does not know the architecture 'Qwen3MoeForCausalLLM' that config.json names: did you mean Qwen3",
    ),
    (
        """The checkpoint you are trying to load has model type `qwen33` but Transformers does not recognize
this architecture. This could be because of an issue with the checkpoint, or because your version of
Transformers is out of date. You can update Transformers with the command `pip install --upgrade
transformers`.""",
        "does not know the model_type 'qwen33' that config.json names: correct it",
    ),
    (
        "Unrecognized model in /m/notype. Should have a `model_type` key in its config.json.",
        "config.json of '/m/notype' has no 'model_type'",
    ),
    (
        "Cannot find any model weights with `/m/empty`",
        "'/m/empty' has no weights: put its *.safetensors files there.",
    ),
    (
        "Unsupported speculative method: 'mtp'",
        "the drafter 'mtp' does not fit: ",
    ),
    (
        "Unknown quantization method: fp3. Must be one of ['awq', 'compressed-tensors'].",
        "the engine has no quantization 'fp3': it has awq, compressed-tensors.",
    ),
    (
        """User-specified max_model_len (4096) is greater than the derived max_model_len
(max_position_embeddings=1024.0 or model_max_length=None in model's config.json). To allow
overriding this maximum, set the env var ...""",
        "engine_args: max_model_len is 4096 and the model has room for 1024 (max_position_embeddings): lower it.",
    ),
    (
        """To serve at least one request with the model's max seq len (1024), (0.0 GiB KV cache is needed,
which is larger than the available KV cache memory (0.0 GiB). Based on the available memory, the
estimated maximum model length is 128. Try increasing `gpu_memory_utilization` (which also controls
CPU memory on the CPU backend) or ...""",
        "too small for one request of max_model_len=1024 tokens: lower max_model_len (at most 128 fit) or",
    ),
    (
        "No available memory for the cache blocks. Try increasing ...",
        "no memory is left for the KV cache: raise",
    ),
    (
        """Available memory on node 0 (7.45/8.84 GiB) on kv cache allocation is less than requested memory for
kv (9313.23 GiB). Decrease --kv-cache-memory-bytes, VLLM_CPU_KVCACHE_SPACE, or reduce CPU memory
used by other processes.""",
        "the KV cache is to have 9313.23 GiB, and 7.45 GiB are free: lower kv_cache_memory_bytes",
    ),
    (
        """Available memory on node 0 (7.84/8.84 GiB) on startup is less than desired CPU memory utilization
(0.92, 8.13 GiB). On the CPU backend, the `--gpu-memory-utilization` flag controls ...""",
        "gpu_memory_utilization=0.92 asks for 8.13 GiB, and 7.84 GiB are free: lower it",
    ),
    (
        """Target and draft model should have the same vocabulary size. Target model vocab_size=2048. Draft
model vocab_size=999. Using models with different tokenizers can cause out-of-bounds errors.""",
        "the draft model has a vocabulary of 999 tokens and the target one of 2048: take a draft model",
    ),
    (
        "num_speculative_tokens:3 must be divisible by n_predict=2",
        "K=3 is not for this drafter, which predicts 2 tokens at a time: set max_draft_tokens to at most 2, or to a",
    ),
    (
        """Not enough allowed NUMA nodes to bind threads of 2 local CPUWorkers. Allowed NUMA nodes are [0].
Please try to ...""",
        "split over 2 parts, and a CPU worker needs a NUMA node for each: this one has 1. Lower tensor_parallel, or",
    ),
    (
        "Total number of attention heads (4) must be divisible by tensor parallel size (3).",
        "the model's 4 attention heads cannot be split over tensor_parallel=3: take a divisor of 4.",
    ),
    (
        """World size (8) is larger than the number of available GPUs (1) in this node. If this is intentional
...""",
        "the model is to be split over 8 GPUs, and this worker has 1: lower tensor_parallel.",
    ),
]
"""Texts, broken into lines, and what is told of them."""


@dataclass
class SpeculativeConfig:
    prompt_lookup_max: int = Field(default=3, ge=1)

    def __post_init__(self) -> None:
        if self.prompt_lookup_max == 7:
            raise ValueError("prompt_lookup_min=8 must be <= prompt_lookup_max=7")


def fault(value: object) -> ValidationError:
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(SpeculativeConfig).validate_python({"prompt_lookup_max": value})
    return refused.value


@pytest.mark.parametrize(("text", "said"), SEEN)
def test_what_was_seen_of_vllm_is_told_in_our_words(text: str, said: str) -> None:
    assert said in reason(ValueError(text))


def test_a_wrong_value_is_told_with_the_field_and_without_pydantics_frame() -> None:
    assert reason(fault("many")) == (
        "the engine says: the drafter's option prompt_lookup_max is 'many': input should be a valid integer, unable to "
        "parse string as an integer"
    )
    assert reason(fault(0)).endswith("prompt_lookup_max is 0: input should be greater than or equal to 1")


def test_an_error_that_pydantic_wrapped_is_told_as_it_was_raised() -> None:
    assert reason(fault(7)) == "the engine says: prompt_lookup_min=8 must be <= prompt_lookup_max=7"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "the system gave the engine no more. Give"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "no more. Give"),
        (
            RuntimeError(
                "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried "
                "to allocate 1073741824 bytes. Error code 12 (Cannot allocate memory)"
            ),
            "no more when it asked for 1.00 GiB. Give",
        ),
        (
            RuntimeError(
                "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 139 GiB of ..."
            ),
            "no more when it asked for 20.00 MiB. Give",
        ),
        (RuntimeError("Resource temporarily unavailable"), "no more. Give"),
    ],
)
def test_too_little_memory_is_told_as_such(error: BaseException, said: str) -> None:
    assert reason(error).startswith("too little memory: ")
    assert said in reason(error)
    wrapper = ValueError("Engine core initialization failed.")
    wrapper.__cause__ = error
    assert said in reason(wrapper)


def test_an_error_without_text_is_told_by_where_it_was_raised() -> None:
    def load_weights() -> None:
        assert [] == [1]

    with pytest.raises(AssertionError) as bare:
        load_weights()
    bare.value.args = ()
    assert reason(bare.value).startswith(
        "the weights do not fit the model's config.json (AssertionError in test_reasons.py, line "
    )
    assert reason(ValueError()) == "the engine says: ValueError"


def test_a_long_text_ends_with_a_sentence_or_else_is_cut() -> None:
    assert shortened("One  line.\nAnother one. " + "x" * 50, limit=30) == "One line. Another one."
    assert shortened("x" * 50, limit=10) == "x" * 9 + "…"
