"""The vocabulary of the language models' softmax: bilm-tf's file, one word a line."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import repeat
from pathlib import Path

import numpy as np
import torch
from torch import nn
from transformers.utils.logging import tqdm

from ..configuration_elmo import IGNORE_INDEX
from ..modeling_pretraining_elmo import ElmoForPreTraining
from ..reading.files import local_path
from ..text_elmo import as_list, read_vocabulary
from ..tokenization_elmo import embedded_ids
from ..utils.spelling import BEGIN, END, PADDING, Token

SPECIAL_WORDS = ("<S>", "</S>", "<UNK>")


class Vocabulary:
    """The words that the language models predict, in the order of the softmax's rows: `<S>`, `</S>`, `<UNK>`, then
    words by decreasing frequency, as in bilm-tf (the sampled softmax draws earlier rows more often as negatives).

    Args:
        words: every word once, `<S>`, `</S>` and `<UNK>` among them.

    Raises:
        ValueError: one of these three is missing, or a word occurs twice, one of whose rows would never be predicted.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)
        if duplicates := [word for word, count in Counter(self.words).items() if count > 1]:
            raise ValueError(f"the vocabulary has {duplicates[0]!r} twice, but must have each word once.")
        if missing := [word for word in SPECIAL_WORDS if word not in self.words]:
            raise ValueError(f"the vocabulary lacks {', '.join(missing)}: add it, as bilm-tf's vocabularies have it.")
        self.bos_id, self.eos_id, self.unk_id = (self.words.index(word) for word in SPECIAL_WORDS)
        # A word "<S>" of a text is not a boundary: like any word outside the vocabulary it is unknown.
        self._ids: dict[Token, int] = {word: row for row, word in enumerate(self.words) if word not in SPECIAL_WORDS}
        self._ids |= {BEGIN: self.bos_id, END: self.eos_id, PADDING: IGNORE_INDEX}

    def __len__(self) -> int:
        return len(self.words)

    def ids(self, words: Iterable[Token]) -> np.ndarray:
        """The ids of words, `[words]` int64; words outside the vocabulary get the id of `<UNK>`."""
        return np.fromiter(map(self._ids.get, words, repeat(self.unk_id)), np.int64)

    @classmethod
    def load(cls, path: str | Path) -> "Vocabulary":
        """Reads a UTF-8 file with one word a line."""
        return cls(read_vocabulary(path))

    @classmethod
    def of(cls, tokenizer) -> "Vocabulary":
        """The vocabulary saved with a tokenizer; ValueError if there is none."""
        if tokenizer.vocabulary is None:
            raise ValueError("the tokenizer has no vocab_file: it needs one, with the words of the model's softmax.")
        return cls(tokenizer.vocabulary)

    def require_rows(self, rows: int | None) -> None:
        """Raises ValueError if a softmax over `rows` words has more or fewer words than this vocabulary."""
        if len(self) != rows:
            raise ValueError(f"vocab_file has {len(self)} words, but vocab_size is {rows}: give the model's tokenizer.")

    def save(self, path: str | Path) -> None:
        """Writes the file that `load` and bilm-tf read, and its folder if there is none."""
        path = local_path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{word}\n" for word in self.words), encoding="utf-8", newline="\n")


def require_vocabulary(path: str | Path) -> None:
    """Raises ValueError if a file exists that is no vocabulary, such as a text, and would be replaced by one."""
    if Path(path).exists() and not set(SPECIAL_WORDS) <= set(read_vocabulary(path)):
        raise ValueError(f"{path} is no vocabulary (which has {', '.join(SPECIAL_WORDS)}): choose another name")


def build_vocabulary(sentences: Iterable[Sequence[str]], size: int | None = None, min_count: int = 1) -> Vocabulary:
    """Counts words and keeps the most frequent ones, ties in alphabetical order. Words with a line break or with
    whitespace around them, which a file with one word a line cannot hold, are left out.

    Args:
        sentences: each a list of words; read once, not kept in memory.
        size, min_count: the most words, the three special ones included (by default all), and fewest occurrences.

    Raises:
        ValueError: no word is left.
    """
    counts: Counter[str] = Counter()
    for words in tqdm(sentences, "Counting words", unit=" sentences"):
        counts.update(as_list(words, "a sentence"))
    ranked = sorted((-count, word) for word, count in counts.items() if count >= min_count)
    words = [word for _, word in ranked if word.strip(" \t") == word != "" and word not in SPECIAL_WORDS]
    words = [word for word in words if not {"\n", "\r"} & set(word)]
    if not words:
        raise ValueError(f"no word occurs at least {min_count} times: lower min_count, or give more text.")
    return Vocabulary([*SPECIAL_WORDS, *words][:size])


@torch.no_grad()
def change_vocabulary(model: ElmoForPreTraining, old: Vocabulary, new: Vocabulary) -> None:
    """Gives the softmax of a model another vocabulary, and its embedding, if it embeds the words of this vocabulary.

    A word of both vocabularies keeps its weights. A new word was `<UNK>` before: it gets the weights of `<UNK>`, and a
    bias with which `<UNK>` and the new words together are as probable as `<UNK>` was.

    Args:
        model: its `lm_head` is replaced, and if it embeds the words of its vocabulary also `word_embedding`.
        old, new: the vocabulary of the model, and the one that it gets.
    """
    head = model.lm_head
    row_of = {word: row for row, word in enumerate(old.words)}
    source = torch.tensor([row_of.get(word, old.unk_id) for word in new.words], device=head.weight.device)
    bias = head.bias[source]
    shared = source == old.unk_id
    bias[shared] -= torch.log(shared.sum().to(bias.dtype))
    model.lm_head = nn.Linear(head.in_features, len(new)).to(head.weight)
    model.lm_head.weight.copy_(head.weight[source])
    model.lm_head.bias.copy_(bias)
    model.config.vocab_size = len(new)
    encoder = model.base_model.char_encoder
    if encoder.word_embedding is not None and model.config.char_units == "bytes":
        of_new = embedded_ids(new.words)
        table = head.weight.new_zeros(max(of_new) + 1, model.config.word_embedding_size)
        table[of_new] = encoder.word_embedding.weight[embedded_ids(old.words)][source]
        encoder.word_embedding = nn.Embedding.from_pretrained(table, freeze=False, padding_idx=0)
        model.config.word_vocab_size = len(table)
