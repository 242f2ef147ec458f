"""The files of a model, before any engine is asked: whether this worker can reach them, and what config.json says.

A model is a folder of this worker or an id of the Hugging Face hub. Nothing is loaded, nothing is known of engines.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workers.probe.engine import EngineError

HUB_ANSWERS_WITHIN_SECONDS = 10.0
"""The engine's own tries take minutes where there is no network."""

CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
OTHER_CONFIGS = ("params.json",)
"""Files that tell what a folder's model is where it has no config.json, as some of Mistral's."""

SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "vocab_size")
"""Fields of a configuration by which engines divide without a look."""

LARGEST_HEADER_BYTES = 100_000_000
"""Of a safetensors file: its format's own limit (https://huggingface.co/docs/safetensors)."""


def read_config(model: str, revision: str | None, noun: str) -> dict[str, Any] | None:
    """What config.json of a model says; None if only the engine can tell, as for one that is yet to be downloaded.

    `noun` is what errors call the model. Raises EngineError for a model that this worker cannot reach, for a
    config.json that says nothing, and for damaged files.
    """
    if "://" in model or Path(model).is_file():
        return None
    if Path(model).is_dir():
        return _checked(_config_of_folder(Path(model), noun))
    check_folder(model, noun)
    if os.environ.get("VLLM_USE_MODELSCOPE", "0").lower() in ("1", "true"):
        return None
    return _checked(_config_from_hub(model, revision, noun))


def check_folder(model: str, noun: str) -> None:
    """Raise EngineError for what can only be meant as a path, and leads to nothing on this worker."""
    if _is_path(model) and not Path(model).exists():
        raise EngineError(
            f"{noun} {model!r} is not on this worker: there is no folder {str(Path(model).absolute())!r}. Put it "
            "there, or give a path that the worker sees, or an id of the Hugging Face hub."
        )


def inner_value(config: Mapping[str, Any], name: str) -> Any:
    """A field of a configuration or, where a model is wrapped into another, of its text model's; None without one."""
    for inner in (config, *(config.get(key) for key in ("text_config", "transformer_layer_config"))):
        if isinstance(inner, Mapping) and inner.get(name) is not None:
            return inner[name]
    return None


def _is_path(model: str) -> bool:
    """Whether this can only be meant as a path: ids have at most one slash, and no dots or slashes at their ends."""
    return model.startswith(("/", ".", "~")) or model.endswith("/") or model.count("/") > 1


def _config_of_folder(folder: Path, noun: str) -> Path | None:
    if (folder / CONFIG).is_file():
        return folder / CONFIG
    if any((folder / name).is_file() for name in OTHER_CONFIGS):
        return None
    raise EngineError(
        f"{noun} {str(folder)!r} has no {CONFIG} on this worker: give the folder that holds {CONFIG}, the weights and "
        "the tokenizer."
    )


def _config_from_hub(model: str, revision: str | None, noun: str) -> Path | None:
    """The file in this worker's cache; None if the hub has it. Imports of the hub's client are slow, and only here."""
    try:
        from huggingface_hub import constants, errors, get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
    except ImportError:
        return None
    try:
        cached = try_to_load_from_cache(model, CONFIG, revision=revision)
    except errors.HFValidationError as error:
        raise EngineError(
            f"{noun} {model!r} is neither a folder of this worker nor an id of the Hugging Face hub: {error}"
        ) from None
    if isinstance(cached, str):
        return Path(cached)
    which = f"{noun} {model!r}" + (f" (revision {revision!r})" if revision else "")
    download = f"`hf download {model}" + (f" --revision {revision}`" if revision else "`")
    absent = f"{which} is neither a folder nor in the Hugging Face cache of this worker, and "
    if constants.HF_HUB_OFFLINE:
        raise EngineError(
            f"{absent}HF_HUB_OFFLINE forbids to look further: download it on the worker with {download}, or unset "
            "HF_HUB_OFFLINE."
        )
    url = hf_hub_url(model, CONFIG, revision=revision)
    try:
        get_hf_file_metadata(url, timeout=HUB_ANSWERS_WITHIN_SECONDS)
    except errors.GatedRepoError:
        raise EngineError(
            f"{which} is gated: accept its terms on {constants.ENDPOINT}/{model}, and set HF_TOKEN on the worker."
        ) from None
    except errors.RevisionNotFoundError:
        raise EngineError(f"{which}: the Hugging Face hub has the model, but not this revision.") from None
    except errors.RepositoryNotFoundError:
        raise EngineError(
            f"{absent}the Hugging Face hub does not know it: correct the id or, if it is private, set HF_TOKEN on the "
            "worker."
        ) from None
    except errors.EntryNotFoundError:
        return None  # It may have another file in its place; the engine knows which.
    except Exception as error:
        raise EngineError(
            f"{absent}{constants.ENDPOINT} cannot be reached ({_first_line(error)}): download it on the worker with "
            f"{download}, or give the path of a folder. Where there is never a network, set HF_HUB_OFFLINE=1."
        ) from error
    return None


def _checked(file: Path | None) -> dict[str, Any] | None:
    """What the file says, if that and the weights beside it can be a model's."""
    if file is None:
        return None
    config = _parsed(file)
    for name in SIZES:
        if isinstance(size := inner_value(config, name), int) and size < 1:
            raise EngineError(
                f"{str(file)!r} says {name}={size}, and no model has less than one: correct it or download the model "
                "again."
            )
    if (tokenizer := file.parent / TOKENIZER).is_file():
        _parsed(tokenizer)
    for weights in sorted(file.parent.glob("*.safetensors")):
        _check_weights(weights)
    return config


def _check_weights(file: Path) -> None:
    """Raise EngineError for a safetensors file that is cut short, or none: engines find out late, and say little.

    It begins with the length of its header in 8 bytes, little-endian; the header is JSON that says for each tensor
    where in the rest its data begin and end.
    """
    try:
        with file.open("rb") as content:
            header_bytes = int.from_bytes(content.read(8), "little")
            header = json.loads(content.read(header_bytes if header_bytes <= LARGEST_HEADER_BYTES else 0))
        ends = [tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"]
        expected = 8 + header_bytes + max(ends, default=0)
    except OSError as error:
        raise EngineError(f"{str(file)!r} cannot be read: {_first_line(error)}") from None
    except (ValueError, RecursionError, AttributeError, KeyError, IndexError, TypeError):
        raise EngineError(
            f"{str(file)!r} is damaged: it does not begin as a safetensors file does. Download it again."
        ) from None
    if (size := file.stat().st_size) < expected:
        raise EngineError(
            f"{str(file)!r} is cut short: it has {size} bytes, and {expected} by what it says at its beginning. "
            "Download it again."
        )


def _parsed(file: Path) -> dict[str, Any]:
    try:
        config = json.loads(file.read_bytes())
    except json.JSONDecodeError as error:
        raise EngineError(
            f"{str(file)!r} is not JSON, from line {error.lineno}, column {error.colno} on ({error.msg}): correct it "
            "or download the model again."
        ) from None
    except RecursionError:
        raise EngineError(
            f"{str(file)!r} is nested too deep for a file of a model: download the model again."
        ) from None
    except (OSError, ValueError) as error:
        raise EngineError(f"{str(file)!r} cannot be read: {_first_line(error)}") from None
    if not isinstance(config, dict):
        raise EngineError(f"{str(file)!r} holds {_short(config)}, and should hold an object with the model's fields.")
    return config


def _short(value: Any, limit: int = 40) -> str:
    text = json.dumps(value)
    return text if len(text) <= limit else text[:limit] + "…"


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
