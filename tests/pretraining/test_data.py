"""Batches of text for the language models: what each row reads and predicts, and where they go on after a stop."""

import itertools
from collections.abc import Iterator

import pytest
import torch

from hf_elmo import ElmoTokenizer
from hf_elmo.pretraining.data import PackedWindows, PaddedTexts
from hf_elmo.pretraining.texts import Texts
from tests.factories import TEXTS, sentence_ids

STOPS = [(0, 1, 0, 0), (0, 1, 7, 0), (0, 1, 7, 4), (2, 3, 3, 1)]
KINDS = pytest.mark.parametrize("kind", [PackedWindows, PaddedTexts], ids=["windows", "padded"])


def read_back(tokenizer: ElmoTokenizer, batch: dict[str, torch.Tensor]) -> list[tuple[str, str]]:
    """What the first row reads and predicts, forward and backward."""
    inputs = [tokenizer.convert_ids_to_tokens(batch[name][0]) for name in ("input_ids", "backward_input_ids")]
    labels = [[tokenizer.vocabulary[label] for label in own.tolist() if label >= 0] for own in batch["labels"][0].T]
    return list(zip(map(" ".join, inputs), map(" ".join, labels), strict=True))


def make(kind: type, tokenizer: ElmoTokenizer, sort_batches: int = 3, **arguments) -> PackedWindows | PaddedTexts:
    settings = {"seed": 3, "shuffle_block": 4, "batch_size": 2, **arguments}
    data = kind(Texts(TEXTS), tokenizer, **({"window": 5} if kind is PackedWindows else {}) | settings)
    data.max_words, data.sort_batches = 8, sort_batches
    return data


def one_pass(batches: PackedWindows | PaddedTexts) -> Iterator[dict[str, torch.Tensor]]:
    """The batches until the text starts over (`sort_batches=1`); an incomplete last one is dropped."""
    while (batch := batches._next_batch()) and not batches._epoch:
        yield batch


def test_windows_read_packed_sentences_as_bilm_tf_does(tokenizer):
    windows = make(PackedWindows, tokenizer, shuffle_block=0, batch_size=1, window=6)
    first, second = itertools.islice(one_pass(windows), 2)
    # "the cat sat on the mat" takes 7 steps, one more than the window; then "a dog", 3 steps, and so on.
    forward = "<S> the cat sat on the", "the cat sat on the mat"
    assert read_back(tokenizer, first) == [forward, ("</S> mat the on sat cat", "mat the on sat cat the")]
    forward = "mat <S> a dog <S> rain", "</S> a dog </S> rain fell"
    assert read_back(tokenizer, second) == [forward, ("the </S> dog a </S> fall", "<S> dog a <S> fall it")]


def test_padded_rows_start_at_their_text(tokenizer):
    texts = Texts([TEXTS[0], [["a", "dog"], ["yes"]]])
    data = PaddedTexts(texts, tokenizer, shuffle_block=0, batch_size=2)
    data.sort_batches = 1
    batch = next(iter(data))
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1, 1, 0, 0], [1] * 7]
    forward = "<S> a dog <S> yes <pad> <pad>", "a dog </S> yes </S>"
    assert read_back(tokenizer, batch) == [forward, ("</S> yes </S> dog a <pad> <pad>", "yes <S> dog a <S>")]
    assert (batch["labels"][0, 5:] == -100).all()
    assert (batch["input_ids"][0, 5:] == 0).all()


@KINDS
@pytest.mark.parametrize(("rank", "world_size", "stop", "ahead"), STOPS)
def test_a_saved_position_goes_on_with_the_same_batches(tokenizer, kind, rank, world_size, stop, ahead):
    def take(data, number):
        endless = itertools.chain.from_iterable(itertools.repeat(data))
        return list(itertools.islice((batch for batch in endless if batch is not None), number))

    data, resumed = (make(kind, tokenizer, rank=rank, world_size=world_size) for _ in range(2))
    data.ahead, data.endless, resumed.endless = ahead, world_size > 1, world_size > 1
    take(data, stop)
    resumed.load_state_dict(data.state_dict())
    torch.testing.assert_close(take(resumed, 9), take(data, 9), rtol=0, atol=0)


@KINDS
def test_texts_without_words_are_no_text(tokenizer, kind):
    data = kind(Texts(["", " "]), tokenizer, batch_size=2)
    data.endless = True
    with pytest.raises(ValueError, match="no text"):
        next(iter(data))


@KINDS
def test_batches_that_were_read_are_read_in_another_process(tokenizer, kind):
    data, other = make(kind, tokenizer), make(kind, tokenizer)
    first = next(iter(data)), next(iter(other))
    torch.testing.assert_close(*first, rtol=0, atol=0)
    how = {"num_workers": 1, "multiprocessing_context": "fork", "timeout": 20}
    loader = torch.utils.data.DataLoader(data, batch_size=None, **how)
    torch.testing.assert_close(next(iter(loader)), next(iter(other)), rtol=0, atol=0)


@KINDS
def test_a_run_that_counted_nothing_goes_on_in_epochs(tokenizer, kind):
    """`--steps` needs no length, `--epochs` does: it goes on after the steps that were made of the current pass."""
    counted, endless = make(kind, tokenizer), make(kind, tokenizer)
    assert len(counted) == 5  # of 10 of the 54 time steps, or of 2 of the 11 rows
    endless.endless = True
    with pytest.raises(TypeError, match="max_steps"):
        len(endless)
    expected = [batch for _ in range(3) for batch in counted]
    steps = len(counted) + 2
    torch.testing.assert_close(list(itertools.islice(endless, steps)), expected[:steps], rtol=0, atol=0)
    resumed = make(kind, tokenizer)
    resumed.load_state_dict(endless.state_dict())
    epoch = list(resumed)
    assert epoch[:2] == [None, None]
    torch.testing.assert_close(epoch[2:], expected[steps : 2 * len(counted)], rtol=0, atol=0)


@KINDS
@pytest.mark.parametrize("world_size", [1, 3])
@pytest.mark.parametrize("way", [0, 1], ids=["forward", "backward"])
def test_every_word_is_predicted_once_in_a_pass(tokenizer, kind, way, world_size):
    how = {"batch_size": 1, "world_size": world_size}
    how |= {"window": 1} if kind is PackedWindows else {"sort_batches": 1}  # the longest text makes two rows
    parts = [make(kind, tokenizer, rank=rank, **how) for rank in range(world_size)]
    counted = torch.cat([batch["labels"][..., way].flatten() for data in parts for batch in one_pass(data)])
    vocabulary = parts[0].encoder.vocabulary
    ends = slice(1, None) if way == 0 else slice(None, -1)
    expected = torch.cat([torch.from_numpy(sentence_ids(vocabulary, text)[ends]) for text in TEXTS])
    assert counted[counted >= 0].sort().values.tolist() == expected.sort().values.tolist()


def test_each_block_of_each_pass_has_an_order_of_its_own(tokenizer):
    source = Texts([[[str(number)]] for number in range(40)])
    windows = PackedWindows(source, tokenizer, batch_size=1, window=2, seed=3, shuffle_block=20)
    read = [int(tokenizer.convert_ids_to_tokens(batch["input_ids"][0])[1]) for batch in (*windows, *windows)]
    blocks = [tuple(number % 20 for number in read[start : start + 20]) for start in range(0, 80, 20)]
    assert all(sorted(block) == list(range(20)) for block in blocks)
    assert len(set(blocks)) == 4


def test_sentences_without_words_are_no_steps_of_windows(tokenizer):
    with_blanks = Texts([[[], ["the", "cat"], []], [[]], [["a", "dog"], [], ["yes"]]])
    without = Texts([[["the", "cat"]], [["a", "dog"], ["yes"]]])
    how = {"batch_size": 1, "window": 2, "shuffle_block": 0}
    found, expected = (list(one_pass(PackedWindows(source, tokenizer, **how))) for source in (with_blanks, without))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_processes_take_rows_of_one_length_at_the_same_steps(tokenizer):
    parts = [[" ".join(["yes"] * (1 + n % 12)) for n in range(rows)] for rows in (24, 36)]
    how = {"batch_size": 1, "shuffle_block": 0, "world_size": 2}
    widths = []
    for rank, texts in enumerate(parts):
        data = PaddedTexts(Texts(texts), tokenizer, **how, rank=rank)
        data.part, data.endless, data.sort_batches = Texts(texts), True, 12
        widths.append([batch["labels"].shape[1] for batch in itertools.islice(data, 72)])
    assert widths[0] == widths[1] != sorted(widths[0])
