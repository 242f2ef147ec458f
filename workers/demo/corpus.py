"""What the demo models learn from: the source of the Python standard library on this machine, split by file.

Knows which modules count, which of them are held out, and how their text becomes one stream of token ids. Knows
nothing of models.
"""

import hashlib
import random
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

END_OF_TEXT = "<|endoftext|>"
VOCABULARY_SIZE = 2048
CONTEXT_LENGTH = 1024
HELD_OUT_ONE_IN = 20

# Not prose of programmers: tests repeat themselves, tables are data, and installed packages are not CPython's.
EXCLUDED_FOLDERS = frozenset(
    {"__pycache__", "dist-packages", "encodings", "idle_test", "pydoc_data", "site-packages", "test", "tests"}
)
EXCLUDED_MODULES = frozenset({"html/entities.py", "locale.py", "stringprep.py"})
# Written when the interpreter is built, with the paths of the machine that built it.
EXCLUDED_PREFIX = "_sysconfigdata"
SHORTEST_MODULE_CHARACTERS = 400


@dataclass(frozen=True)
class Module:
    """One source file; ``name`` is its path below the standard library, with forward slashes."""

    name: str
    text: str

    @property
    def held_out(self) -> bool:
        return is_held_out(self.name)


def is_held_out(name: str) -> bool:
    """Whether the module belongs to the held-out split; it depends on the name alone, so it outlives versions."""
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:4], "big") % HELD_OUT_ONE_IN == 0


def read_modules(library: Path | None = None) -> list[Module]:
    """Return the modules of the standard library, sorted by name, each text once."""
    root = library or Path(sysconfig.get_path("stdlib"))
    modules: list[Module] = []
    seen: set[str] = set()
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        name = relative.as_posix()
        if EXCLUDED_FOLDERS.intersection(relative.parts) or name in EXCLUDED_MODULES:
            continue
        if path.name.startswith(EXCLUDED_PREFIX):
            continue
        text = path.read_text(encoding="utf-8", errors="ignore")
        if len(text) < SHORTEST_MODULE_CHARACTERS or text in seen:
            continue
        seen.add(text)
        modules.append(Module(name, text))
    return modules


def train_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Learn a byte-level BPE: every text round-trips, and no token is unknown."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return wrapped(tokenizer)


def load_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """Read the tokenizer of a saved model so that saving it again writes the same bytes."""
    return wrapped(Tokenizer.from_file(str(folder / "tokenizer.json")))


def wrapped(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """Give a bare tokenizer what engines ask for: the end of a text, and a length."""
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END_OF_TEXT,
        model_max_length=CONTEXT_LENGTH,
        clean_up_tokenization_spaces=False,
    )


def token_stream(modules: Sequence[Module], tokenizer: PreTrainedTokenizerFast, seed: int = 0) -> list[int]:
    """Return the ids of all modules in a shuffled order; an end-of-text token precedes and follows each."""
    order = list(modules)
    random.Random(seed).shuffle(order)
    end = tokenizer.convert_tokens_to_ids(END_OF_TEXT)
    stream = [end]
    for ids in tokenizer([module.text for module in order], verbose=False)["input_ids"]:
        stream.extend(ids)
        stream.append(end)
    return stream
