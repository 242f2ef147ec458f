"""What of a launch is refused without an engine."""

import json
from pathlib import Path
from typing import Any

import pytest

from workers.probe.engine import EngineError, LaunchSpec
from workers.probe.refusals import check_launch, check_names

DEMO, DEMO_DRAFT = "breakeven/demo-moe", "breakeven/demo-draft"


def launch(drafter: dict[str, Any] | None = None, *, batch: int = 8, most: int = 3, **target: Any) -> LaunchSpec:
    draft_tokens = tuple(range(most + 1)) if drafter else (0,)
    return LaunchSpec({"model": DEMO, **target}, drafter, draft_tokens, batch)


def refusal(spec: LaunchSpec) -> str:
    with pytest.raises(EngineError) as refused:
        check_launch(spec)
    return str(refused.value)


def with_arguments(**engine_args: Any) -> LaunchSpec:
    return launch(engine_args=engine_args)


def model(place: Path, **config: Any) -> str:
    (place / "config.json").write_text(json.dumps(config))
    return str(place)


def test_good_launches_pass() -> None:
    check_launch(launch(engine_args={"max_num_seqs": 8, "seed": 3, "enforce_eager": True, "data_parallel_size": 1}))
    check_launch(with_arguments(max_model_len=2, tokenizer="org/model"))
    check_launch(launch({"method": "ngram", "model": None, "options": {"prompt_lookup_max": 3}}))
    check_launch(launch({"method": "draft_model", "model": DEMO_DRAFT, "options": {}}))
    check_launch(launch({"method": "mtp"}))
    check_launch(launch({"method": "custom_class", "model": "package.module.Class"}))


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("model", "x", "'model' is a field of the target: send it as 'model' there"),
        ("tensor_parallel_size", 2, "send it as 'tensor_parallel' there"),
        ("speculative_config", {}, "would speculate in every launch: send it as a drafter"),
        (
            "disable_log_stats",
            True,
            "the probe sets 'disable_log_stats' itself, for what it reads of each step: remove it",
        ),
        ("skip_tokenizer_init", True, "leaves no tokenizer to encode prompts: remove it"),
        ("load_format", "dummy", "random weights, whose text and routing are nobody's: remove it"),
        ("data_parallel_size", 2, "data_parallel_size is 2, .* within one replica only: remove it"),
        ("max_num_seqs", 7, "max_num_seqs is 7, so that no batch of 8 could decode together: raise it to 8"),
        ("max_num_seqs", "x", "max_num_seqs is 'x', and must be a whole number"),
        ("max_num_seqs", True, "max_num_seqs is True, and must be a whole number"),
        ("max_model_len", 1, "max_model_len is 1, and a prompt token and an output token need 2: raise it"),
        ("tokenizer", "/nope", "the tokenizer '/nope' is not on this worker: there is no folder '/nope'"),
    ],
)
def test_an_argument_that_would_make_the_measurement_wrong_is_refused(key: str, value: Any, said: str) -> None:
    with pytest.raises(EngineError, match=said):
        check_launch(with_arguments(**{key: value}))


@pytest.mark.parametrize(
    ("drafter", "said"),
    [
        ({"method": "draft_model"}, "^the drafter 'draft_model' needs a model and has none: send its id or path"),
        ({"method": "eagle3", "model": None}, "'eagle3' needs a model"),
        (
            {"method": "ngram", "model": "org/draft"},
            "^the drafter 'ngram' takes no model, and has 'org/draft': remove it",
        ),
        (
            {"method": "eagle", "model": "/nowhere/head"},
            "^the draft model of 'eagle' '/nowhere/head' is not on this worker",
        ),
        ({"method": "ngram", "options": {"num_speculative_tokens": 9}}, "from max_draft_tokens: remove it"),
        ({"method": "ngram", "options": {"model": "x"}}, "'model' is a field of the drafter and no option"),
        ({"method": "ngram", "options": {"rejection_sample_method": "synthetic"}}, "makes acceptance up, and a probe"),
    ],
)
def test_a_drafter_that_cannot_work_is_refused(drafter: dict[str, Any], said: str) -> None:
    with pytest.raises(EngineError, match=said):
        check_launch(launch(drafter))


def test_a_config_must_say_what_model_it_is(tmp_path: Path) -> None:
    nameless = model(tmp_path, hidden_size=8)
    assert "has neither 'model_type' nor 'architectures'" in refusal(launch(model=nameless))
    check_launch(launch(model=nameless, engine_args={"hf_overrides": {"model_type": "llama"}}))


def test_medusa_cannot_draft_more_tokens_than_it_has_heads(tmp_path: Path) -> None:
    drafter = {"method": "medusa", "model": model(tmp_path, medusa_num_heads=3)}
    check_launch(launch(drafter, most=3))
    assert refusal(launch(drafter, most=4)) == (
        "the medusa draft model has 3 heads, one per draft token: K=4 is too many. Set max_draft_tokens to 3 or less."
    )


def test_a_draft_model_must_share_the_targets_vocabulary(tmp_path: Path) -> None:
    other = model(tmp_path, model_type="qwen3", vocab_size=2050)
    said = refusal(launch({"method": "draft_model", "model": other}))
    assert said.startswith(
        "the draft model of 'draft_model' has a vocabulary of 2050 tokens and the target one of 2048"
    )
    assert said.endswith("or set the option use_heterogeneous_vocab.")
    check_launch(launch({"method": "draft_model", "model": other, "options": {"use_heterogeneous_vocab": True}}))


def test_a_heads_vocabulary_may_be_padded_otherwise_but_not_be_another(tmp_path: Path) -> None:
    check_launch(launch({"method": "eagle3", "model": model(tmp_path, model_type="llama", vocab_size=2050)}))
    other = model(tmp_path, model_type="llama", vocab_size=32000)
    assert "vocabulary of 32000 tokens and the target one of 2048" in refusal(
        launch({"method": "eagle3", "model": other})
    )


def test_names_that_the_engine_does_not_know_are_told_with_those_it_does() -> None:
    def refused(spec: LaunchSpec) -> str:
        with pytest.raises(EngineError) as refusal:
            check_names(
                spec, arguments=["max_model_len"], methods=["ngram", "mtp"], aliases=["glm_mtp"], options={"window"}
            )
        return str(refusal.value)

    assert refused(with_arguments(max_model_length=1)) == (
        "engine_args: the engine has no argument 'max_model_length'. Did you mean max_model_len?"
    )
    assert refused(with_arguments(zzz=1)) == "engine_args: the engine has no argument 'zzz'. Remove it."
    assert refused(launch({"method": "telepathy"})) == (
        "this worker's engine cannot draft with the method 'telepathy': it has mtp, ngram."
    )
    assert refused(launch({"method": "glm_mtp", "options": {"zzz": 1}})) == (
        "the drafter 'glm_mtp' has no option 'zzz'. The engine's are window."
    )
