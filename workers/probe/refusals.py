"""What of a launch is refused without loading anything: models that are not there, and what would not measure.

The checks take the names that an engine knows as arguments; they import none.
"""

from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from workers.probe.engine import EngineError, LaunchSpec
from workers.probe.model_files import check_folder, inner_value, read_config
from workers.probe.shipped import resolve_model

NEEDS_MODEL = {"draft_model", "eagle", "eagle3", "medusa", "dflash", "mlp_speculator", "custom_class"}
TAKES_NO_MODEL = {"ngram", "ngram_gpu", "suffix"}

SHARES_TOKENS = {"draft_model", "eagle", "eagle3", "dflash", "mtp"}
"""Methods whose draft model reads the target's token ids: another vocabulary means other words by the same number."""

PADDING = 0.01
"""Vocabularies of one family differ by less than this share: they are padded to different sizes."""

_TARGET_FIELDS = {
    "model": "model",
    "revision": "revision",
    "dtype": "dtype",
    "quantization": "quantization",
    "tensor_parallel_size": "tensor_parallel",
}
_SPECULATION = {"speculative_config", "spec_method", "spec_model", "spec_tokens"}
_MEASURING = {"disable_log_stats", "enable_logging_iteration_details", "per_request_spec_decode_metrics"}
_SCHEDULE = {"num_speculative_tokens", "num_speculative_tokens_per_batch_size"}


def check_launch(spec: LaunchSpec) -> None:
    """All that can be told from the request and from the models' files. Raises EngineError."""
    engine_args = spec.target.get("engine_args") or {}
    _check_engine_args(engine_args, spec.max_batch_size)
    config = None
    if not {"hf_config_path", "config_format"} & set(engine_args):
        overrides = engine_args.get("hf_overrides")
        config = read_config(resolve_model(spec.target["model"]), spec.target.get("revision"), "the target")
        if config is not None and isinstance(overrides, Mapping):
            config |= overrides
        _check_says_what_it_is(config, "the target", spec.target["model"])
    if spec.drafter is not None:
        _check_drafter(spec.drafter, spec.draft_tokens, config)


def check_names(
    spec: LaunchSpec, *, arguments: Collection[str], methods: Sequence[str], aliases: Collection[str], options: set[str]
) -> None:
    """All that can be told from the names that the engine knows. Raises EngineError.

    `methods` are those that run on this worker, `aliases` other names for one of them, `options` those of a drafter.
    """
    for key in spec.target.get("engine_args") or {}:
        if key not in arguments:
            raise EngineError(
                f"engine_args: the engine has no argument {key!r}. {_near(key, arguments) or 'Remove it.'}"
            )
    if spec.drafter is None:
        return
    method = spec.drafter["method"]
    if method not in methods and method not in aliases:
        raise EngineError(
            f"this worker's engine cannot draft with the method {method!r}: it has {', '.join(sorted(methods))}."
        )
    for key in spec.drafter.get("options") or {}:
        if key not in options:
            raise EngineError(f"the drafter {method!r} has no option {key!r}. {_near(key, options) or _all(options)}")


def _check_engine_args(engine_args: Mapping[str, Any], max_batch_size: int) -> None:
    for key, value in engine_args.items():
        if key in _TARGET_FIELDS:
            raise EngineError(
                f"engine_args: {key!r} is a field of the target: send it as {_TARGET_FIELDS[key]!r} there."
            )
        if key in _SPECULATION:
            raise EngineError(f"engine_args: {key!r} would speculate in every launch: send it as a drafter.")
        if key in _MEASURING:
            raise EngineError(f"engine_args: the probe sets {key!r} itself, for what it reads of each step: remove it.")
        if key == "skip_tokenizer_init" and value:
            raise EngineError("engine_args: 'skip_tokenizer_init' leaves no tokenizer to encode prompts: remove it.")
        if key == "load_format" and value == "dummy":
            raise EngineError(
                "engine_args: load_format='dummy' fills the model with random weights, whose text and routing are "
                "nobody's: remove it."
            )
        if key == "max_model_len" and value in (0, 1):
            raise EngineError(
                f"engine_args: max_model_len is {value}, and a prompt token and an output token need 2: raise it to "
                "what your longest request needs."
            )
        if key == "tokenizer" and isinstance(value, str):
            check_folder(value, "engine_args: the tokenizer")
        if key == "data_parallel_size" and value != 1:
            raise EngineError(
                f"engine_args: data_parallel_size is {value!r}, and speculation per batch size works within one "
                "replica only: remove it, and read the advice for the batch size of one replica."
            )
        if key == "max_num_seqs" and (not isinstance(value, int) or isinstance(value, bool)):
            raise EngineError(f"engine_args: max_num_seqs is {value!r}, and must be a whole number.")
        if key == "max_num_seqs" and value < max_batch_size:
            raise EngineError(
                f"engine_args: max_num_seqs is {value}, so that no batch of {max_batch_size} could decode together: "
                f"raise it to {max_batch_size}, or ask for smaller batch sizes."
            )


def _check_drafter(drafter: Mapping[str, Any], draft_tokens: Sequence[int], target: Mapping[str, Any] | None) -> None:
    method, model, options = drafter["method"], drafter.get("model"), drafter.get("options") or {}
    for key in options:
        if key in ("method", "model"):
            raise EngineError(
                f"the drafter {method!r}: {key!r} is a field of the drafter and no option: send it there."
            )
        if key in _SCHEDULE:
            raise EngineError(
                f"the drafter {method!r}: the probe sets the option {key!r} itself, from max_draft_tokens: remove it."
            )
    if options.get("rejection_sample_method") == "synthetic":
        raise EngineError(
            f"the drafter {method!r}: rejection_sample_method='synthetic' makes acceptance up, and a probe measures "
            "it: remove it."
        )
    if method in NEEDS_MODEL and not model:
        raise EngineError(f"the drafter {method!r} needs a model and has none: send its id or path as 'model'.")
    if method in TAKES_NO_MODEL and model:
        raise EngineError(
            f"the drafter {method!r} takes no model, and has {model!r}: remove it or choose another method."
        )
    if not model or method == "custom_class":
        return
    noun = f"the draft model of {method!r}"
    draft = read_config(resolve_model(model), options.get("revision"), noun)
    if draft is None:
        return
    if method == "medusa":
        _check_heads(draft, draft_tokens)
    else:
        _check_says_what_it_is(draft, noun, model)
    if method in SHARES_TOKENS and not options.get("use_heterogeneous_vocab") and target is not None:
        _check_vocabularies(method, draft, target, noun)


def _check_says_what_it_is(config: Mapping[str, Any] | None, noun: str, model: str) -> None:
    if config is None or config.keys() & {"model_type", "architectures", "speculators_model_type"}:
        return
    raise EngineError(
        f"config.json of {noun} {model!r} has neither 'model_type' nor 'architectures', so that no engine can tell "
        "what it is: is it the model's own config.json?"
    )


def _check_heads(draft: Mapping[str, Any], draft_tokens: Sequence[int]) -> None:
    heads = draft.get("num_heads", draft.get("medusa_num_heads"))
    if isinstance(heads, int) and draft_tokens[-1] > heads:
        raise EngineError(
            f"the medusa draft model has {heads} heads, one per draft token: K={draft_tokens[-1]} is too many. Set "
            f"max_draft_tokens to {heads} or less."
        )


def _check_vocabularies(method: str, draft: Mapping[str, Any], target: Mapping[str, Any], noun: str) -> None:
    ours, theirs = inner_value(draft, "vocab_size"), inner_value(target, "vocab_size")
    if ours is None or theirs is None or ours == theirs:
        return
    # Heads of one family differ in how their vocabulary is padded; the engine itself wants equal ones of draft models.
    if method == "draft_model" or abs(ours - theirs) > PADDING * theirs:
        raise EngineError(
            f"{noun} has a vocabulary of {ours} tokens and the target one of {theirs}: the same token would have "
            "another number. Take a draft model that was made for this target"
            + (", or set the option use_heterogeneous_vocab." if method == "draft_model" else ".")
        )


def _near(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name, sorted(known), n=3)
    return f"Did you mean {' or '.join(near)}?" if near else ""


def _all(options: Collection[str]) -> str:
    return f"The engine's are {', '.join(sorted(options))}."
