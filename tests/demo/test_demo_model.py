"""The demo models that ship: small, loadable, honest about what they have not seen."""

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from workers.demo.continuation import greedy_continuation  # noqa: E402
from workers.demo.corpus import END_OF_TEXT, VOCABULARY_SIZE, is_held_out, read_modules  # noqa: E402
from workers.demo.prompts import LONGEST_TOKENS, NUM_PROMPTS, SHORTEST_TOKENS  # noqa: E402

ROOT = Path(__file__).parents[2]
MODEL, DRAFT = ROOT / "workers" / "demo" / "model", ROOT / "workers" / "demo" / "draft"
PROMPTS = ROOT / "service" / "prompts" / "demo.jsonl"
MEGABYTE = 1_000_000


@pytest.fixture(scope="module")
def prompts() -> list[str]:
    return [json.loads(line)["prompt"] for line in PROMPTS.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return transformers.AutoTokenizer.from_pretrained(MODEL)


@pytest.fixture(scope="module")
def target() -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(MODEL).eval()


@pytest.fixture(scope="module")
def draft() -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(DRAFT).eval()


def test_model_and_draft_together_stay_under_twelve_megabytes() -> None:
    assert sum(file.stat().st_size for folder in (MODEL, DRAFT) for file in folder.iterdir()) < 12 * MEGABYTE


@pytest.mark.parametrize("folder", [MODEL, DRAFT])
def test_configurations_ask_for_float32_and_name_the_end_of_text(folder: Path, tokenizer: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    generation = json.loads((folder / "generation_config.json").read_text())
    end = tokenizer.convert_tokens_to_ids(END_OF_TEXT)
    assert config["dtype"] == "float32"
    assert config["eos_token_id"] == generation["eos_token_id"] == end
    assert config["max_position_embeddings"] >= 1024
    assert config["vocab_size"] == VOCABULARY_SIZE == len(tokenizer)


def test_the_target_is_a_finely_divided_mixture_of_experts() -> None:
    config = json.loads((MODEL / "config.json").read_text())
    assert config["architectures"] == ["Qwen3MoeForCausalLM"]
    assert config["num_experts"] >= 8 * config["num_experts_per_tok"]


def test_the_draft_model_is_much_smaller_than_the_target(target: Any, draft: Any) -> None:
    assert draft.num_parameters() * 8 < target.num_parameters()


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_both_models_share_one_tokenizer(name: str) -> None:
    assert (MODEL / name).read_bytes() == (DRAFT / name).read_bytes()


@pytest.mark.parametrize("text", ["def f(x):\n\treturn x  # naïve ✓ 漢字\r\n", "    \n\n  x = {'a': [1, 2]}\n", " "])
def test_the_tokenizer_gives_every_text_back(text: str, tokenizer: Any) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_prompts_keep_their_bounds(prompts: list[str], tokenizer: Any) -> None:
    assert len(set(prompts)) == NUM_PROMPTS
    assert all(SHORTEST_TOKENS <= len(tokenizer.encode(prompt)) <= LONGEST_TOKENS for prompt in prompts)


def test_prompts_do_not_occur_in_the_training_split(prompts: list[str]) -> None:
    training = [module.text for module in read_modules() if not module.held_out]
    assert not [prompt for prompt in prompts if any(prompt in text for text in training)]


def test_the_split_depends_on_the_name_alone() -> None:
    assert is_held_out("http/client.py")
    assert not is_held_out("http/server.py")


def test_about_a_twentieth_of_the_modules_is_held_out() -> None:
    modules = read_modules()
    share = sum(module.held_out for module in modules) / len(modules)
    assert 0.03 < share < 0.08


def test_the_target_has_learned_held_out_code(prompts: list[str], tokenizer: Any, target: Any, draft: Any) -> None:
    losses = {"target": 0.0, "draft": 0.0}
    with torch.inference_mode():
        for prompt in prompts:
            ids = torch.tensor([tokenizer.encode(prompt)])
            losses["target"] += target(input_ids=ids, labels=ids).loss.item() / len(prompts)
            losses["draft"] += draft(input_ids=ids, labels=ids).loss.item() / len(prompts)
    # Knowing nothing costs log(2048) = 7.6 nats; a prompt's first tokens cost about that, so short texts cost more
    # than the model card's windows.
    assert losses["target"] < 3.5
    assert losses["target"] < losses["draft"] < 5.0


def test_greedy_text_is_varied_and_the_draft_model_foresees_some_of_it(
    prompts: list[str], tokenizer: Any, target: Any, draft: Any
) -> None:
    varied, foreseen, emitted = 0, 0, 0
    for prompt in prompts[:4]:
        ids = torch.tensor([tokenizer.encode(prompt)])
        text = greedy_continuation(target, ids, 48)
        continuation = text[0, ids.shape[1] :]
        varied += len(continuation.unique()) >= 8
        with torch.inference_mode():
            guesses = draft(input_ids=text).logits[0, ids.shape[1] - 1 : -1].argmax(-1)
        foreseen += int((guesses == continuation).sum())
        emitted += len(continuation)
    assert varied >= 3
    assert foreseen > 0.4 * emitted
