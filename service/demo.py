"""The demo's request, in one place: `breakeven demo`, README and the benchmarks send this one."""

from typing import Any

DEMO_MODEL = "breakeven/demo-moe"
DEMO_DRAFT_MODEL = "breakeven/demo-draft"
"""Names that a worker resolves to the models that ship with it, wherever it is installed."""

DEMO_REQUEST: dict[str, Any] = {
    "target": {"model": DEMO_MODEL, "dtype": "float32"},
    "hardware": "cpu",
    "drafters": [
        {"method": "ngram", "options": {"prompt_lookup_min": 1, "prompt_lookup_max": 4}},
        {"method": "draft_model", "model": DEMO_DRAFT_MODEL},
    ],
    "batch_sizes": [1, 2, 4, 8],
    "max_draft_tokens": 5,
    "workload": {"prompts": "demo", "output_tokens": 64},
    "budget_seconds": 200,
    "arms": ["baseline", "drafters"],
    "fresh": True,
}
