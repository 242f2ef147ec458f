"""What vLLM is asked about a launch beside running it: the names that it knows, and what it silently made of them.

Read in vLLM 0.32.0; `tests.engine` holds it against the real one.
"""

import inspect
from dataclasses import fields
from typing import Any, get_args

from workers.probe.engine import EngineError, LaunchSpec
from workers.probe.reasons import shortened
from workers.probe.refusals import check_names

NOT_ON_CPU = {"ngram_gpu", "dspark"}
NOWHERE = {"mlp_speculator", "extract_hidden_states"}
"""Methods that vLLM names, and that no runner of it drafts with."""

NO_OPTIONS = {
    *("method", "model", "num_speculative_tokens", "num_speculative_tokens_per_batch_size", "tensor_parallel_size"),
    *("target_model_config", "target_parallel_config", "draft_model_config", "draft_parallel_config"),
}
"""Fields of vLLM's `SpeculativeConfig` that are not for users, or that the launch decides."""


def why_no_vllm(error: ImportError) -> str:
    """What to do where `import vllm` failed."""
    if isinstance(error, ModuleNotFoundError) and error.name == "vllm":
        return (
            "this worker has no vLLM: install breakeven[cpu] or breakeven[gpu] in the worker's environment, or send "
            "the probe to hardware whose workers have it."
        )
    return f"vLLM cannot be imported on this worker ({shortened(str(error))}): install breakeven[cpu] or [gpu] anew."


def check_known_to_vllm(spec: LaunchSpec, *, on_cpu: bool) -> None:
    """Raises EngineError for a method, an option or an argument that vLLM does not have on this worker."""
    from vllm import LLM
    from vllm.config.speculative import SpeculativeConfig, SpeculativeMethod
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.import_utils import has_arctic_inference

    cannot = NOWHERE | (NOT_ON_CPU if on_cpu else set())
    if not has_arctic_inference():
        cannot |= {"suffix"}
        if spec.drafter and spec.drafter["method"] == "suffix":
            raise EngineError("the drafter 'suffix' needs a package: install arctic-inference==0.1.1 on the worker.")
    check_names(
        spec,
        arguments={field.name for field in fields(EngineArgs)} | set(inspect.signature(LLM).parameters) - {"kwargs"},
        methods=sorted((set(get_args(SpeculativeMethod)) - _names_of_mtp() - cannot) | {"mtp"}),
        aliases=_names_of_mtp(),
        options={field.name for field in fields(SpeculativeConfig)} - NO_OPTIONS,
    )
    if spec.drafter and spec.drafter["method"] == "medusa" and (len(spec.draft_tokens) > 1 or 0 in spec.draft_tokens):
        asked = ", ".join(map(str, spec.draft_tokens))
        raise EngineError(
            "vLLM's medusa always drafts the K that it was launched with, and cannot stop: it cannot be measured at "
            f"K={asked} in one load. Remove the drafter 'medusa' from the probe."
        )


def check_launched(spec: LaunchSpec, config: Any, scheduler: Any, tokenizer: Any) -> None:
    """Raises EngineError if vLLM loaded something else than what was asked for, and did not say so.

    `config` is its `VllmConfig`.
    """
    name, runner = spec.target["model"], config.model_config.runner_type
    if runner != "generate":
        raise EngineError(
            f"the target {name!r} generates no text: vLLM runs {config.model_config.architecture} as a {runner} model. "
            "Give a model that generates."
        )
    if not tokenizer.encode("text"):
        raise EngineError(
            f"the target {name!r} has no tokenizer that knows a word: put tokenizer.json and tokenizer_config.json "
            "into its folder."
        )
    room, needed = scheduler.max_num_scheduled_tokens, spec.max_batch_size * (1 + spec.max_draft_tokens)
    if needed > room:
        raise EngineError(
            f"batch size {spec.max_batch_size} with {spec.max_draft_tokens} draft tokens needs {needed} tokens in a "
            f"step, and vLLM has {room}: raise max_num_batched_tokens in engine_args, or ask for smaller batch sizes."
        )
    if spec.drafter is None:
        return
    method, speculation = spec.drafter["method"], config.speculative_config
    if speculation.num_speculative_tokens != max(1, spec.max_draft_tokens):
        raise EngineError(
            f"the drafter {method!r} was asked for K={spec.max_draft_tokens}, and vLLM launched it with "
            f"K={speculation.num_speculative_tokens}: set max_draft_tokens to that, or less."
        )
    if speculation.method != method and method not in _names_of_mtp():
        raise EngineError(
            f"the drafter {method!r} was launched as {speculation.method!r}, which vLLM reads from the name of "
            f"{spec.drafter['model']!r}: ask for that method, or rename the folder."
        )
    if not isinstance(scheduler.dynamic_sd_lookup, list):
        raise EngineError(
            "vLLM dropped the schedule of draft tokens, so that one load cannot serve every K: remove what engine_args "
            "says of data parallelism."
        )


def _names_of_mtp() -> set[str]:
    """One per model family, all of which vLLM takes for `mtp`."""
    from vllm.config.speculative import MTPModelTypes

    return set(get_args(MTPModelTypes))
