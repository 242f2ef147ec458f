"""The examples of the OpenAPI document. A test holds each against the schema that it illustrates."""

from typing import Any

ID = "0b8e2f6e-5a0f-4c39-9d5c-1d9d4f1f8a11"
SHA256 = "5f2d1c0e9b8a79685746352413029f8e7d6c5b4a39281706f5e4d3c2b1a09f8e"

PROBE_REQUEST: dict[str, Any] = {
    "target": {
        "model": "Qwen/Qwen3-30B-A3B",
        "revision": None,
        "dtype": "auto",
        "quantization": None,
        "tensor_parallel": 1,
        "engine_args": {},
    },
    "hardware": "1xH100-SXM",
    "drafters": [
        {"method": "ngram", "options": {"prompt_lookup_max": 4}},
        {"method": "eagle3", "model": "AngelSlim/Qwen3-a3B_eagle3"},
    ],
    "batch_sizes": [1, 2, 4, 8],
    "max_draft_tokens": 5,
    "workload": {"prompts": "demo", "context_lengths": [1024], "output_tokens": 128, "temperature": 0.0},
    "arms": ["baseline", "drafters"],
    "budget_seconds": 1200,
    "fresh": False,
    "wait_for_worker": False,
}

SMALLEST_REQUEST: dict[str, Any] = {
    "target": {"model": "Qwen/Qwen3-30B-A3B"},
    "hardware": "1xH100-SXM",
    "drafters": [{"method": "ngram"}],
    "batch_sizes": [1],
    "workload": {"prompts": [{"prompt": "def fibonacci(n):"}, {"messages": [{"role": "user", "content": "Hello"}]}]},
}

PLAN: dict[str, Any] = {
    **{key: value for key, value in PROBE_REQUEST.items() if key not in ("fresh", "wait_for_worker")},
    "drafters": [
        {"method": "ngram", "model": None, "options": {"prompt_lookup_max": 4}, "name": "ngram"},
        {"method": "eagle3", "model": "AngelSlim/Qwen3-a3B_eagle3", "options": {}, "name": "eagle3"},
    ],
    "repeats": 5,
    "engine": "vllm",
    "workload": {
        "prompts": "demo",
        "prompts_sha256": SHA256,
        "context_lengths": [1024],
        "output_tokens": 128,
        "temperature": 0.0,
    },
}

PROBE: dict[str, Any] = {
    "id": ID,
    "status": "running",
    "model": "Qwen/Qwen3-30B-A3B",
    "hardware": "1xH100-SXM",
    "request": PLAN,
    "resolved": {
        "engine": {"name": "vllm", "version": "0.32.0"},
        "revision": "ad44e777bcd18fa416d9da3bd8f70d33ebb85d39",
        "dtype": "bfloat16",
    },
    "error": None,
    "created_at": "2026-12-01T09:00:00Z",
    "started_at": "2026-12-01T09:00:02Z",
    "finished_at": None,
    "progress": {"arm": "drafter:ngram", "repeats_done": 35, "repeats_total": 272},
}

CELL: dict[str, Any] = {
    "arm": "drafter:ngram",
    "context_length": 1024,
    "batch_size": 1,
    "draft_tokens": 3,
    "repeats": 5,
    "seconds": 4.456,
    "steps": 160,
    "step_ms": 27.85,
    "step_ms_low": 27.61,
    "step_ms_high": 28.02,
    "emitted_tokens": 369,
    "request_steps": 160,
    "drafted_steps": 128,
    "drafted_tokens": 384,
    "tokens_per_second": 82.8,
}

HARDWARE: dict[str, Any] = {
    "label": "1xH100-SXM",
    "live_workers": 1,
    "engines": ["vllm 0.32.0"],
    "queued": 2,
    "running": [ID],
}

PROBLEM: dict[str, Any] = {
    "type": "urn:breakeven:problem:invalid-request",
    "title": "The request cannot be used",
    "status": 422,
    "detail": "/batch_sizes/0: 0 is less than 1: give at least 1, such as 1",
    "instance": "/v1/probes",
    "errors": [
        {"pointer": "/batch_sizes/0", "detail": "0 is less than 1: give at least 1, such as 1", "value": 0},
    ],
}

_CANDIDATE: dict[str, Any] = {
    "drafter": "ngram",
    "draft_tokens": 3,
    "speedup": 1.41,
    "speedup_low": 1.36,
    "speedup_high": 1.46,
    "acceptance_length": 2.31,
    "acceptance_length_per_draft": 2.64,
    "draft_coverage": 0.80,
    "break_even_acceptance_length": 1.638,
    "step_ms": 27.85,
    "noisy": False,
}

ADVICE: dict[str, Any] = {
    "probe_id": ID,
    "complete": True,
    "model": "Qwen/Qwen3-30B-A3B",
    "revision": "ad44e777bcd18fa416d9da3bd8f70d33ebb85d39",
    "hardware": "1xH100-SXM",
    "evidence": "measured",
    "engine": {"name": "vllm", "version": "0.32.0"},
    "created_at": "2026-12-01T09:00:00Z",
    "workload": {"prompts": "demo", "prompts_sha256": SHA256, "temperature": 0.0, "output_tokens": 128},
    "engine_loads": 4,
    "measured_seconds": 412.0,
    "noise_floor": 0.012,
    "margin": 0.02,
    "outputs": {"compared": 16, "diverged": 0, "diverged_baseline": 0},
    "launch": {"speculation": True, "drafter": "ngram", "max_draft_tokens": 3},
    "batch_sizes": [
        {
            "batch_size": 1,
            "context_length": 1024,
            "verdict": "enable",
            "drafter": "ngram",
            "draft_tokens": 3,
            "speedup": 1.41,
            "speedup_low": 1.36,
            "speedup_high": 1.46,
            "acceptance_length": 2.31,
            "acceptance_length_per_draft": 2.64,
            "draft_coverage": 0.80,
            "break_even_acceptance_length": 1.638,
            "break_even_floor": None,
            "decode_step_ms": 17.00,
            "step_ms": 27.85,
            "verify_step_ms": None,
            "draft_step_ms": None,
            "unexplained_ms": None,
            "target_efficiency": None,
            "bytes_model_target_efficiency": None,
            "unique_experts": None,
            "reason": "ngram with 3 draft tokens emits 2.31 tokens per step and needs 1.64 to break even: 1.41x faster "
            "(1.36 to 1.46).",
            "candidates": [_CANDIDATE],
        }
    ],
    "schedule": [{"context_length": 1024, "ranges": [[1, 1, 3], [2, 512, 0]]}],
    "warnings": [],
}

REQUESTS: dict[str, tuple[dict[str, Any], ...]] = {"/v1/probes": (PROBE_REQUEST, SMALLEST_REQUEST)}
"""By the address that each is sent to: what a message about a wrong value takes its example from."""

EXAMPLES: dict[str, list[dict[str, Any]]] = {
    "ProbeRequest": list(REQUESTS["/v1/probes"]),
    "ProbeDocument": [PROBE],
    "ProbeList": [{"probes": [PROBE], "next_cursor": None}],
    "CellList": [{"probe_id": ID, "cells": [CELL]}],
    "AdviceDocument": [ADVICE],
    "HardwareList": [{"hardware": [HARDWARE]}],
    "Health": [{"status": "ok", "version": "0.1.0"}],
    "Problem": [PROBLEM],
}
"""By the name of the model that each illustrates."""
