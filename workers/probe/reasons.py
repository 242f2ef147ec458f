"""Why an engine refuses, in a sentence or two: from an exception to its reason and what to do about it.

vLLM's errors are long, wrapped, or speak of its command line. What was seen is told in our words by `_SAID`; anything
else is the engine's own text, shortened. Each pattern is held against the real text in the tests.
"""

import errno
import re
import traceback
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from pathlib import Path

from pydantic import ValidationError

LIMIT = 500
"""Characters of an engine's own text that are kept."""


def reason(error: BaseException) -> str:
    """The reason of an engine's exception, and what to do."""
    if any(_is_out_of_memory(each) for each in _chain(error)):
        return _out_of_memory(error)
    text = _text(error)
    for pattern, say in _SAID:
        if found := re.search(pattern, text):
            return say(found)
    if _was_loading_weights(error):
        return (
            f"the weights do not fit the model's config.json ({shortened(text)}): take both from the same model, and "
            "all of its files."
        )
    return f"the engine says: {shortened(text)}"


def shortened(text: str, limit: int = LIMIT) -> str:
    """On one line and no longer than `limit`, ending with a whole sentence if there is one."""
    text = " ".join(text.split())
    if len(text) <= limit:
        return text
    end = text.rfind(". ", 0, limit)
    return text[: end + 1] if end > limit // 2 else text[: limit - 1] + "…"


def _text(error: BaseException) -> str:
    if isinstance(error, ValidationError):
        return _first_fault(error)
    if text := " ".join(str(error).split()):
        return text
    frames = traceback.extract_tb(error.__traceback__)
    where = f" in {Path(frames[-1].filename).name}, line {frames[-1].lineno}: {frames[-1].line}" if frames else ""
    return type(error).__name__ + where


def _first_fault(error: ValidationError) -> str:
    """The first thing that pydantic found wrong; the text of an exception that it wrapped."""
    fault = error.errors(include_url=False)[0]
    inner = fault.get("ctx", {}).get("error")
    if isinstance(inner, BaseException):
        return _text(inner)
    if not fault["loc"]:
        return fault["msg"]
    of = "the drafter's option " if error.title == "SpeculativeConfig" else ""
    return f"{of}{fault['loc'][0]} is {fault['input']!r}: {fault['msg'][0].lower()}{fault['msg'][1:]}"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    # PyTorch's CPU allocator, its CUDA allocator, and threads for which the system has no room.
    texts = ("annot allocate memory", "can't allocate memory", "out of memory", "Resource temporarily unavailable")
    return isinstance(error, RuntimeError) and any(text in str(error) for text in texts)


def _out_of_memory(error: BaseException) -> str:
    wanted = re.search(r"[Tt]ried to allocate ([\d.]+ ?\w+)", " ".join(str(each) for each in _chain(error)))
    asked = f" when it asked for {_amount(wanted[1])}" if wanted else ""
    return (
        f"too little memory: the system gave the engine no more{asked}. Give the worker more memory, or lower "
        "kv_cache_memory_bytes, max_model_len or gpu_memory_utilization in engine_args, or take a smaller model, dtype "
        "or quantization."
    )


def _amount(text: str) -> str:
    found = re.fullmatch(r"(\d+) bytes", text)
    return f"{int(found[1]) / 2**30:.2f} GiB" if found else text


def _was_loading_weights(error: BaseException) -> bool:
    return any(frame.name in ("load_weights", "weight_loader") for frame in traceback.extract_tb(error.__traceback__))


def _unknown_architecture(found: re.Match[str]) -> str:
    asked, known = re.findall(r"'(\w+)'", found[1]), re.findall(r"'(\w+)'", found[2])
    near = list(dict.fromkeys(each for name in asked for each in get_close_matches(name, known, n=3)))
    return (
        f"the engine does not know the architecture {', '.join(map(repr, asked))} that config.json names"
        + (f": did you mean {' or '.join(near)}?" if near else ".")
        + " All that it knows: https://docs.vllm.ai/en/latest/models/supported_models/. A newer vLLM may know more."
    )


def _unknown_quantization(found: re.Match[str]) -> str:
    known = re.findall(r"'([^']+)'", found[2])
    return f"the engine has no quantization {found[1]!r}: it has {', '.join(known)}."


def _cache_too_small(found: re.Match[str]) -> str:
    most = re.search(r"estimated maximum model length is (\d+)", found[0])
    fits = f" (at most {most[1]} fit)" if most else ""
    return (
        f"the KV cache is too small for one request of max_model_len={found[1]} tokens: lower max_model_len{fits} or "
        "raise kv_cache_memory_bytes in engine_args."
    )


_SAID: tuple[tuple[str, Callable[[re.Match[str]], str]], ...] = (
    (r"Model architectures (\[.*?\]) are not supported.*?dict_keys\((\[.*)", _unknown_architecture),
    (
        r"has model type `(.+?)` but Transformers does not recognize",
        lambda found: (
            f"the engine's Transformers does not know the model_type {found[1]!r} that config.json names: correct it, "
            "or install a newer vLLM and Transformers on the worker."
        ),
    ),
    (
        r"Unrecognized model in (\S+?)\. Should have a `model_type`",
        lambda found: (
            f"config.json of {found[1]!r} has no 'model_type', so that the engine cannot tell what it is: add it."
        ),
    ),
    (
        r"Unsupported speculative method: '(\w+)'",
        lambda found: (
            f"the drafter {found[1]!r} does not fit: the model that it is to draft with is none of its kind. Choose "
            "another method or draft model."
        ),
    ),
    (
        r"Cannot find any model weights with `(.+?)`",
        lambda found: f"{found[1]!r} has no weights: put its *.safetensors files there.",
    ),
    (r"Unknown quantization method: (\S+?)\. Must be one of (\[.*?\])", _unknown_quantization),
    (
        r"max_model_len \((\d+)\) is greater than the derived max_model_len \((\w+)=(\d+)",
        lambda found: (
            f"engine_args: max_model_len is {found[1]} and the model has room for {found[3]} ({found[2]}): lower it."
        ),
    ),
    (r"at least one request with the model's max seq len \((\d+)\).*", _cache_too_small),
    (
        r"No available memory for the cache blocks",
        lambda _: (
            "no memory is left for the KV cache: raise kv_cache_memory_bytes or gpu_memory_utilization in engine_args, "
            "or take a smaller model, dtype or quantization."
        ),
    ),
    (
        r"\(([\d.]+)/[\d.]+ GiB\) on kv cache allocation is less than requested memory for kv \(([\d.]+)[/ ]",
        lambda found: (
            f"the KV cache is to have {found[2]} GiB, and {found[1]} GiB are free: lower kv_cache_memory_bytes in "
            "engine_args, or free memory on the worker."
        ),
    ),
    (
        r"memory on (?:node|device) .*?\(([\d.]+)/[\d.]+ GiB\) on startup is less than .*?\(([\d.]+), ([\d.]+) GiB",
        lambda found: (
            f"gpu_memory_utilization={found[2]} asks for {found[3]} GiB, and {found[1]} GiB are free: lower it in "
            "engine_args, or free memory on the worker."
        ),
    ),
    (
        r"same vocabulary size\. Target model vocab_size=(\d+)\. Draft model vocab_size=(\d+)",
        lambda found: (
            f"the draft model has a vocabulary of {found[2]} tokens and the target one of {found[1]}: take a draft "
            "model that was made for this target, or set the option use_heterogeneous_vocab."
        ),
    ),
    (
        r"num_speculative_tokens:(\d+) must be divisible by n_predict=(\d+)",
        lambda found: (
            f"K={found[1]} is not for this drafter, which predicts {found[2]} tokens at a time: set max_draft_tokens "
            f"to at most {found[2]}, or to a multiple of it."
        ),
    ),
    (
        r"Not enough allowed NUMA nodes to bind threads of (\d+) local CPUWorkers\. Allowed NUMA nodes are \[(.*?)\]",
        lambda found: (
            f"the model is to be split over {found[1]} parts, and a CPU worker needs a NUMA node for each: this one "
            f"has {len(found[2].split(','))}. Lower tensor_parallel, or pipeline_parallel_size in engine_args."
        ),
    ),
    (
        r"attention heads \((\d+)\) must be divisible by tensor parallel size \((\d+)\)",
        lambda found: (
            f"the model's {found[1]} attention heads cannot be split over tensor_parallel={found[2]}: take a "
            f"divisor of {found[1]}."
        ),
    ),
    (
        r"World size \((\d+)\) is larger than the number of available GPUs \((\d+)\)",
        lambda found: (
            f"the model is to be split over {found[1]} GPUs, and this worker has {found[2]}: lower tensor_parallel."
        ),
    ),
)
