"""The engine protocol on vLLM, driven in this process so that every step can be seen and timed.

One load serves every (batch size, draft tokens): the launch has a schedule that names each K once, so that all their
graphs are captured, and `set_draft_tokens` then overwrites the scheduler's lookup between measurements.

Read in and run on vLLM 0.32.0. What this file relies on inside vLLM is named in `tests/engine`.
"""

import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workers.probe.engine import EngineDescription, EngineError, LaunchSpec, RequestOutput, Step
from workers.probe.reasons import reason, shortened
from workers.probe.refusals import check_launch
from workers.probe.shipped import resolve_model
from workers.probe.vllm_checks import check_known_to_vllm, check_launched, why_no_vllm

SMALLEST_DEFAULT_MAX_NUM_SEQS = 256
"""vLLM lets at least so many requests decode together unless it is told otherwise."""

CPU_KV_CACHE_BYTES = 2**30
"""Of a CPU engine that is not told otherwise; vLLM's own default is nearly all the memory that there is."""

CPU_KV_CACHE_VARIABLE = "VLLM_CPU_KVCACHE_SPACE"

# Before vLLM is imported: one process, so that the scheduler can be reached and nothing outlives the child.
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")


def engine_arguments(spec: LaunchSpec, *, on_cpu: bool) -> dict[str, Any]:
    """The keyword arguments of `vllm.LLM` for a launch. `engine_args` of the target override all but speculation."""
    target = spec.target
    arguments: dict[str, Any] = {
        "model": resolve_model(target["model"]),
        "revision": target.get("revision"),
        "dtype": target.get("dtype", "auto"),
        "quantization": target.get("quantization"),
        "tensor_parallel_size": target.get("tensor_parallel", 1),
        "seed": spec.seed,
        # Graphs are captured and kept on GPUs; compiling for a CPU takes minutes and is not vLLM's default use there.
        "enforce_eager": on_cpu,
    }
    if on_cpu and "gpu_memory_utilization" not in (target.get("engine_args") or {}):
        arguments["kv_cache_memory_bytes"] = CPU_KV_CACHE_BYTES
    if spec.max_batch_size > SMALLEST_DEFAULT_MAX_NUM_SEQS:
        arguments["max_num_seqs"] = spec.max_batch_size
    arguments |= target.get("engine_args") or {}
    arguments |= {
        "disable_log_stats": False,
        "enable_logging_iteration_details": True,
        "speculative_config": speculative_config(spec),
        # vLLM refuses to count the drafts of a launch without any.
        "per_request_spec_decode_metrics": "detailed" if spec.drafter else "none",
    }
    return arguments


def speculative_config(spec: LaunchSpec) -> dict[str, Any] | None:
    """vLLM's `speculative_config` for a launch: K_max, and a schedule that names each of its K once.

    With a single K the schedule is one range, which holds for every batch size.
    """
    if spec.drafter is None:
        return None
    config = {"method": spec.drafter["method"], **(spec.drafter.get("options") or {})}
    if spec.drafter.get("model"):
        config["model"] = resolve_model(spec.drafter["model"])
    config["num_speculative_tokens"] = max(1, spec.max_draft_tokens)
    config["num_speculative_tokens_per_batch_size"] = [[i, i, k] for i, k in enumerate(spec.draft_tokens, start=1)]
    return config


class VllmEngine:
    """One loaded vLLM engine. A process can load one only."""

    description: EngineDescription

    def __init__(self, spec: LaunchSpec, launches_to_come: Sequence[LaunchSpec] = ()) -> None:
        """Load the engine.

        Raises EngineError, with vLLM's own reason where it has one, if it cannot, or if it does not know a name in one
        of the launches that are to come.
        """
        check_launch(spec)
        started = time.perf_counter()
        try:
            import vllm
            from vllm.platforms import current_platform
        except ImportError as error:
            raise EngineError(why_no_vllm(error)) from error
        imported = time.perf_counter()
        for launch in (spec, *launches_to_come):
            check_known_to_vllm(launch, on_cpu=current_platform.is_cpu())
        if {"kv_cache_memory_bytes", "gpu_memory_utilization"} & set(spec.target.get("engine_args") or {}):
            # It would override both, and say nothing.
            os.environ.pop(CPU_KV_CACHE_VARIABLE, None)
        try:
            self._llm = vllm.LLM(**engine_arguments(spec, on_cpu=current_platform.is_cpu()))
        except Exception as error:
            raise EngineError(reason(error)) from error
        loaded = time.perf_counter()

        self._sampling_params = vllm.SamplingParams
        self._engine = self._llm.llm_engine
        self._scheduler = self._engine.engine_core.engine_core.scheduler
        self._tokenizer = self._llm.get_tokenizer()
        self._draft_tokens = spec.draft_tokens
        self._requests: dict[str, str] = {}  # vLLM's id of a request -> ours
        check_launched(spec, self._engine.vllm_config, self._scheduler, self._tokenizer)
        self.description = EngineDescription(
            name="vllm",
            version=vllm.__version__,
            import_seconds=imported - started,
            load_seconds=loaded - imported,
            max_context_tokens=self._engine.vllm_config.model_config.max_model_len,
            resolved=self._resolved(spec),
            details=self._details(),
        )

    def encode(self, prompt: Mapping[str, Any]) -> list[int]:
        if "messages" not in prompt:
            return [int(i) for i in self._tokenizer.encode(prompt["prompt"])]
        if getattr(self._tokenizer, "chat_template", None) is None:
            raise EngineError("has `messages`, but the model's tokenizer has no chat template: send `prompt` instead")
        try:
            ids = self._tokenizer.apply_chat_template(
                prompt["messages"], add_generation_prompt=True, tokenize=True, return_dict=False
            )
        except Exception as error:
            raise EngineError(
                f"has `messages` that the model's chat template refuses ({shortened(str(error) or repr(error))}): "
                "change them, or send `prompt` instead"
            ) from error
        return [int(i) for i in ids]

    def set_draft_tokens(self, draft_tokens: int) -> None:
        if draft_tokens not in self._draft_tokens:
            raise ValueError(f"draft_tokens is {draft_tokens}, this launch has {self._draft_tokens}")
        if len(self._draft_tokens) > 1:
            lookup = self._scheduler.dynamic_sd_lookup
            lookup[:] = [draft_tokens] * len(lookup)

    def add_request(
        self, request_id: str, prompt_token_ids: Sequence[int], *, max_tokens: int, ignore_end: bool, temperature: float
    ) -> None:
        sampling = self._sampling_params(
            max_tokens=max_tokens, ignore_eos=ignore_end, temperature=temperature, detokenize=False, seed=0
        )
        internal_id = self._engine.add_request(request_id, {"prompt_token_ids": list(prompt_token_ids)}, sampling)
        self._requests[internal_id] = request_id

    def abort_all(self) -> None:
        self._engine.abort_request(list(self._requests.values()))
        self._requests.clear()
        # With asynchronous scheduling a step may still be under way.
        while self._engine.has_unfinished_requests():
            self.step()

    def step(self) -> Step:
        started = time.perf_counter()
        try:
            core_outputs = self._engine.engine_core.get_output()
        except Exception as error:
            raise EngineError(f"a step failed: {reason(error)}") from error
        self._engine.output_processor.process_outputs(
            core_outputs.outputs, engine_core_timestamp=core_outputs.timestamp
        )
        seconds = time.perf_counter() - started

        stats = core_outputs.scheduler_stats
        if stats is not None:
            # Keeps vLLM's own counters, against which ours are checked.
            self._engine.logger_manager.record(scheduler_stats=stats, iteration_stats=None)
        iteration = stats.iteration_details if stats else None
        drafts = stats.spec_decoding_stats if stats else None
        return Step(
            seconds=seconds,
            prefilling=iteration.num_ctx_requests if iteration else 0,
            decoding=iteration.num_generation_requests if iteration else 0,
            drafted_steps=drafts.num_drafts if drafts else 0,
            drafted_tokens=drafts.num_draft_tokens if drafts else 0,
            accepted_per_position=tuple(drafts.num_accepted_tokens_per_pos) if drafts else (),
            outputs=tuple(self._request_output(x) for x in core_outputs.outputs if x.request_id in self._requests),
        )

    def _request_output(self, output: Any) -> RequestOutput:
        finished = output.finish_reason is not None
        metrics = output.spec_decode_metrics
        return RequestOutput(
            request_id=self._requests.pop(output.request_id) if finished else self._requests[output.request_id],
            token_ids=tuple(output.new_token_ids),
            finish_reason=output.finish_reason.name.lower() if finished else None,
            accepted_per_step=tuple(metrics.per_step_accepted) if metrics else (),
            drafted_per_step=tuple(metrics.per_step_drafted) if metrics else (),
        )

    def _resolved(self, spec: LaunchSpec) -> dict[str, Any]:
        model = self._engine.vllm_config.model_config
        commit = getattr(model.hf_config, "_commit_hash", None)
        return {
            "revision": commit or _folder_revision(Path(model.model)),
            "dtype": str(model.dtype).removeprefix("torch."),
            "quantization": model.quantization,
            "tensor_parallel": spec.target.get("tensor_parallel", 1),
            "architecture": (model.hf_config.architectures or [None])[0],
            "experts": {"num": model.get_num_experts(), "per_token": model.get_num_experts_per_tok()}
            if model.is_moe
            else None,
        }

    def _details(self) -> dict[str, Any]:
        """What could explain a difference between two launches; names as vLLM has them."""
        import torch
        from vllm.platforms import current_platform

        config = self._engine.vllm_config
        layers = config.compilation_config.static_forward_context.values()
        return {
            "device": current_platform.get_device_name(),
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "model_runner": "v2" if config.use_v2_model_runner else "v1",
            "async_scheduling": bool(config.scheduler_config.async_scheduling),
            "graph_mode": config.compilation_config.cudagraph_mode.name,
            "compilation_mode": str(config.compilation_config.mode),
            "attention_backends": sorted({x.attn_backend.get_name() for x in layers if hasattr(x, "attn_backend")}),
            "max_num_seqs": config.scheduler_config.max_num_seqs,
            "prefix_caching": bool(config.cache_config.enable_prefix_caching),
            "kv_cache_blocks": config.cache_config.num_gpu_blocks,
            "kv_cache_block_size": config.cache_config.block_size,
        }


def _folder_revision(folder: Path) -> str | None:
    """A stand-in for a revision where a model is a folder: a hash of its configuration and its files' sizes."""
    if not (folder / "config.json").is_file():
        return None
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for file in sorted(folder.glob("*.safetensors")):
        digest.update(f"{file.name} {file.stat().st_size}".encode())
    return f"folder-{digest.hexdigest()[:12]}"
