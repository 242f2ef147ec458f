"""The arguments that vLLM is launched with, exactly."""

import sys
from pathlib import Path
from typing import Any

import pytest

from workers.probe.engine import EngineError, LaunchSpec
from workers.probe.shipped import resolve_model
from workers.probe.vllm_engine import VllmEngine, engine_arguments, speculative_config


def launch(
    drafter: dict[str, Any] | None = None,
    *,
    draft_tokens: tuple[int, ...] = (0, 1, 2, 3),
    max_batch_size: int = 8,
    **target: Any,
) -> LaunchSpec:
    return LaunchSpec({"model": "org/model", **target}, drafter, draft_tokens if drafter else (0,), max_batch_size)


def test_a_launch_without_speculation_has_no_trace_of_it() -> None:
    assert engine_arguments(launch(revision="main", tensor_parallel=2), on_cpu=False) == {
        "model": "org/model",
        "revision": "main",
        "dtype": "auto",
        "quantization": None,
        "tensor_parallel_size": 2,
        "seed": 0,
        "enforce_eager": False,
        "disable_log_stats": False,
        "enable_logging_iteration_details": True,
        "speculative_config": None,
        "per_request_spec_decode_metrics": "none",
    }


def test_a_drafters_launch_names_every_k_once_so_that_all_their_graphs_are_captured() -> None:
    drafter = {"method": "eagle3", "model": "org/head", "options": {"draft_tensor_parallel_size": 1}}
    assert speculative_config(launch(drafter)) == {
        "method": "eagle3",
        "model": "org/head",
        "draft_tensor_parallel_size": 1,
        "num_speculative_tokens": 3,
        "num_speculative_tokens_per_batch_size": [[1, 1, 0], [2, 2, 1], [3, 3, 2], [4, 4, 3]],
    }
    assert engine_arguments(launch(drafter), on_cpu=False)["per_request_spec_decode_metrics"] == "detailed"


def test_a_drafter_without_a_model_names_none() -> None:
    config = speculative_config(launch({"method": "ngram", "model": None, "options": {"prompt_lookup_max": 4}}))
    assert config is not None
    assert "model" not in config
    assert config["prompt_lookup_max"] == 4


def test_the_users_engine_arguments_override_what_is_set_for_a_cpu() -> None:
    assert engine_arguments(launch(), on_cpu=True)["kv_cache_memory_bytes"] == 2**30
    given = {"enforce_eager": False, "kv_cache_memory_bytes": 2**20}
    arguments = engine_arguments(launch(engine_args=given), on_cpu=True)
    assert (arguments["enforce_eager"], arguments["kv_cache_memory_bytes"]) == (False, 2**20)
    by_share = engine_arguments(launch(engine_args={"gpu_memory_utilization": 0.5}), on_cpu=True)
    assert "kv_cache_memory_bytes" not in by_share


def test_a_worker_without_vllm_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    spec = LaunchSpec({"model": "breakeven/demo-moe"}, None, (0,), 1)
    with pytest.raises(EngineError, match=r"this worker has no vLLM: install breakeven\[cpu\] or breakeven\[gpu\]"):
        VllmEngine(spec)


def test_a_batch_larger_than_the_engines_default_raises_its_limit() -> None:
    assert "max_num_seqs" not in engine_arguments(launch(max_batch_size=256), on_cpu=False)
    assert engine_arguments(launch(max_batch_size=512), on_cpu=False)["max_num_seqs"] == 512


def test_shipped_models_are_folders_of_this_installation_and_other_ids_stay_as_they_are() -> None:
    assert (Path(resolve_model("breakeven/demo-moe")) / "config.json").is_file()
    assert (Path(resolve_model("breakeven/demo-draft")) / "config.json").is_file()
    assert resolve_model("org/model") == "org/model"


def test_a_launch_for_one_k_has_it_at_every_batch_size() -> None:
    off, three = (speculative_config(launch({"method": "ngram"}, draft_tokens=(k,))) for k in (0, 3))
    assert off == {
        "method": "ngram",
        "num_speculative_tokens": 1,
        "num_speculative_tokens_per_batch_size": [[1, 1, 0]],
    }
    assert three is not None
    assert (three["num_speculative_tokens"], three["num_speculative_tokens_per_batch_size"]) == (3, [[1, 1, 3]])
