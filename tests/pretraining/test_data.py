"""Batches of text for the language models: what each row reads and predicts, and where they go on after a stop."""

import gzip
import itertools
import json
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

from hf_elmo import ElmoTokenizer
from hf_elmo.pretraining import text as text_module
from hf_elmo.pretraining.data import PackedWindows, PaddedTexts, WordEncoder, carried_windows
from hf_elmo.pretraining.text import DatasetTexts, TextFiles
from hf_elmo.pretraining.vocabulary import build_vocabulary

TEXTS = [
    "the cat sat on the mat",
    "a dog",
    "rain fell all day and nobody went out to see it fall",
    "yes",
    "the dog sat in the rain",
    "who saw a cat that sat on a dog in all that rain",
    "nobody",
    "day and day it fell",
    "out",
]


@pytest.fixture
def tokenizer(tmp_path: Path) -> ElmoTokenizer:
    build_vocabulary(text.split() for text in TEXTS[:6]).save(tmp_path / "vocab.txt")
    return ElmoTokenizer(word_splitting="whitespace", vocab_file=str(tmp_path / "vocab.txt"))


def read_back(tokenizer: ElmoTokenizer, batch: dict[str, torch.Tensor], row: int) -> list[list[str]]:
    """What the row reads and predicts forward, and backward, as words."""
    words = tokenizer.vocabulary
    inputs = [tokenizer.convert_ids_to_tokens(batch[name][row]) for name in ("input_ids", "backward_input_ids")]
    labels = [[words[label] for label in batch["labels"][row, :, way].tolist() if label >= 0] for way in (0, 1)]
    return [inputs[0], labels[0], inputs[1], labels[1]]


def same(batches: list, others: list) -> bool:
    return len(batches) == len(others) and all(
        batch.keys() == other.keys() and all(torch.equal(batch[key], other[key]) for key in batch)
        for batch, other in zip(batches, others, strict=True)
    )


def make(kind: type, tokenizer: ElmoTokenizer, **arguments) -> PackedWindows | PaddedTexts:
    defaults = {"seed": 3, "shuffle_block": 4, "batch_size": 2}
    defaults |= {"window": 5} if kind is PackedWindows else {"max_words": 8, "sort_batches": 3}
    return kind(DatasetTexts(TEXTS), tokenizer, **{**defaults, **arguments})


KINDS = pytest.mark.parametrize("kind", [PackedWindows, PaddedTexts], ids=["windows", "padded"])


# -- windows -----------------------------------------------------------------------------------------------------------


def test_windows_read_packed_sentences_as_bilm_tf_does(tokenizer):
    windows = make(PackedWindows, tokenizer, shuffle_block=0, batch_size=1, window=6)
    first, second = itertools.islice(windows.one_pass(), 2)
    # "the cat sat on the mat" takes 7 steps, one more than the window; then "a dog", 3 steps, and so on.
    assert read_back(tokenizer, first, 0) == [
        ["<S>", "the", "cat", "sat", "on", "the"],
        ["the", "cat", "sat", "on", "the", "mat"],
        ["</S>", "mat", "the", "on", "sat", "cat"],
        ["mat", "the", "on", "sat", "cat", "the"],
    ]
    assert read_back(tokenizer, second, 0) == [
        ["mat", "<S>", "a", "dog", "<S>", "rain"],
        ["</S>", "a", "dog", "</S>", "rain", "fell"],
        ["the", "</S>", "dog", "a", "</S>", "fall"],
        ["<S>", "dog", "a", "<S>", "fall", "it"],
    ]


def test_a_row_takes_the_next_sentence_when_it_needs_one(tokenizer):
    batch = next(make(PackedWindows, tokenizer, shuffle_block=0, batch_size=3, window=4).one_pass())
    assert [read_back(tokenizer, batch, row)[0] for row in range(3)] == [
        ["<S>", "the", "cat", "sat"],
        ["<S>", "a", "dog", "<S>"],
        ["<S>", "yes", "<S>", "the"],
    ]


def test_carried_windows_are_packed_windows_to_the_last_word(tokenizer):
    sentences = [text.split() for text in TEXTS]
    one_by_one = make(PackedWindows, tokenizer, shuffle_block=0, batch_size=3, window=1).one_pass()
    packed = {key: torch.cat(steps, dim=1) for key, steps in _by_key(one_by_one).items()}
    for window in (1, 4, 100):
        batches = list(carried_windows(WordEncoder(tokenizer), sentences, 3, window))
        carried = {key: torch.cat(steps, dim=1) for key, steps in _by_key(batches).items()}
        assert {batch["labels"].shape[1] for batch in batches[:-1]} <= {window}
        for key, steps in packed.items():
            assert torch.equal(carried[key][:, : steps.shape[1]], steps)
        mask = carried["attention_mask"].bool()
        assert mask.sum() == sum(len(words) + 1 for words in sentences) > packed["labels"][..., 0].numel()
        assert torch.equal(mask.cummin(dim=1).values, mask)  # a row that has ended does not begin again
        assert torch.equal(mask, carried["labels"][..., 1] >= 0)
        assert torch.equal(mask, (carried["backward_input_ids"] != 0).any(2))


def _by_key(batches: Iterable[dict[str, torch.Tensor]]) -> dict[str, list[torch.Tensor]]:
    batches = list(batches)
    return {key: [batch[key] for batch in batches] for key in batches[0]}


def test_shapes(tokenizer):
    batch = next(iter(make(PackedWindows, tokenizer)))
    assert {name: list(tensor.shape) for name, tensor in batch.items()} == {
        "input_ids": [2, 5, 50],
        "backward_input_ids": [2, 5, 50],
        "labels": [2, 5, 2],
    }


def test_length_is_the_epoch_and_iterating_goes_on_into_the_next(tokenizer):
    windows = make(PackedWindows, tokenizer)
    steps = sum(len(text.split()) + 1 for text in TEXTS)
    assert len(windows) == steps // 10
    twice = list(windows) + list(windows)
    assert len(twice) == 2 * len(windows)
    predicted = torch.cat([batch["labels"][..., 0].flatten() for batch in twice])
    assert (predicted == windows.encoder.vocabulary.eos_id).sum() > len(TEXTS)  # second pass


def test_one_pass_ends_with_the_text(tokenizer):
    batches = list(make(PackedWindows, tokenizer, shuffle_block=0, batch_size=1, window=1).one_pass())
    assert len(batches) == sum(len(text.split()) + 1 for text in TEXTS)


def test_words_that_read_like_boundaries_are_ordinary_unknown_words(tokenizer):
    windows = PackedWindows(DatasetTexts(["x <S> y"]), tokenizer, batch_size=1, window=4, shuffle_block=0)
    batch = next(windows.one_pass())
    unknown = windows.encoder.vocabulary.unk_id
    assert batch["labels"][0, :, 0].tolist() == [unknown, unknown, unknown, 1]
    assert batch["input_ids"][0, 2, 1] == ord("<") + 1
    assert batch["input_ids"][0, 0, 1] == tokenizer.bos_token_id


def test_the_vocabulary_has_no_influence_on_the_characters(tokenizer):
    batch = next(PackedWindows(DatasetTexts(["zebra"]), tokenizer, batch_size=1, window=2).one_pass())
    assert tokenizer.convert_ids_to_tokens(batch["input_ids"][0]) == ["<S>", "zebra"]


# -- padded ------------------------------------------------------------------------------------------------------------


def test_padded_rows_start_at_their_text(tokenizer):
    batch = next(make(PaddedTexts, tokenizer, shuffle_block=0, batch_size=2, sort_batches=1).one_pass())
    # The two texts come sorted by length.
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 0, 0, 0, 0], [1] * 7]
    assert read_back(tokenizer, batch, 0) == [
        ["<S>", "a", "dog", *["<pad>"] * 4],
        ["a", "dog", "</S>"],
        ["</S>", "dog", "a", *["<pad>"] * 4],
        ["dog", "a", "<S>"],
    ]
    assert (batch["labels"][0, 3:] == -100).all()
    assert (batch["input_ids"][0, 3:] == 0).all()


def test_a_document_is_read_from_its_end_by_the_backward_language_model(tokenizer):
    document = DatasetTexts([{"text": [["a", "dog"], ["yes"]]}])
    batch = next(PaddedTexts(document, tokenizer, batch_size=1, sort_batches=1).one_pass())
    assert read_back(tokenizer, batch, 0) == [
        ["<S>", "a", "dog", "<S>", "yes"],
        ["a", "dog", "</S>", "yes", "</S>"],
        ["</S>", "yes", "</S>", "dog", "a"],
        ["yes", "<S>", "dog", "a", "<S>"],
    ]


def test_long_texts_make_several_rows(tokenizer):
    source = DatasetTexts([TEXTS[2]])  # 13 steps
    batches = list(PaddedTexts(source, tokenizer, batch_size=1, max_words=5, sort_batches=3).one_pass())
    assert sorted(batch["labels"].shape[1] for batch in batches) == [3, 5, 5]


# -- both --------------------------------------------------------------------------------------------------------------


@KINDS
def test_the_seed_fixes_the_order(tokenizer, kind):
    batches = [list(make(kind, tokenizer, seed=seed)) for seed in (3, 3, 4)]
    assert same(batches[0], batches[1])
    assert not same(batches[0], batches[2])


@KINDS
@pytest.mark.parametrize("process", [(0, 1), (0, 2), (2, 3)], ids="{0[0]} of {0[1]}".format)
@pytest.mark.parametrize("stop", [0, 1, 3, 4, 7])
def test_a_saved_position_goes_on_with_the_same_batches(tokenizer, kind, stop, process):
    def endless(data):
        while True:
            yield from (batch for batch in data if batch is not None)

    rank, world_size = process
    data = make(kind, tokenizer, rank=rank, world_size=world_size)
    batches = endless(data)
    for _ in range(stop):
        next(batches)
    state = json.loads(json.dumps(data.state_dict()))
    expected = list(itertools.islice(batches, 9))
    resumed = make(kind, tokenizer, rank=rank, world_size=world_size)
    resumed.load_state_dict(state)
    assert same(list(itertools.islice(endless(resumed), 9)), expected)


@KINDS
def test_a_run_that_counted_nothing_goes_on_in_epochs(tokenizer, kind):
    """`--steps` needs no length, `--epochs` does: the steps of its pass that are done are the same."""
    counted, endless = make(kind, tokenizer), make(kind, tokenizer)
    endless.endless = True
    with pytest.raises(TypeError, match="no length"):
        len(endless)
    expected = [batch for _ in range(3) for batch in counted]
    steps = len(counted) + 2
    assert same(list(itertools.islice(endless, steps)), expected[:steps])
    resumed = make(kind, tokenizer)
    resumed.load_state_dict(endless.state_dict())
    epoch = list(resumed)
    assert epoch[:2] == [None, None]
    assert same(epoch[2:], expected[steps : 2 * len(counted)])


@KINDS
def test_a_resumed_epoch_begins_with_nothing_for_each_batch_done(tokenizer, kind):
    data = make(kind, tokenizer)
    batches = iter(data)
    for _ in range(2):
        next(batches)
    resumed = make(kind, tokenizer)
    resumed.load_state_dict(data.state_dict())
    epoch = list(resumed)
    assert len(epoch) == len(data)
    assert epoch[:2] == [None, None]
    assert same(epoch[2:], list(batches))


@pytest.mark.parametrize("world_size", [2, 3])
def test_each_process_makes_the_batches_of_its_part(tokenizer, world_size):
    for rank in range(world_size):
        data = make(PackedWindows, tokenizer, rank=rank, world_size=world_size)
        part = DatasetTexts(TEXTS).part(rank, world_size)
        alone = PackedWindows(part, tokenizer, batch_size=2, window=5, seed=3, shuffle_block=4)
        assert same(list(data.one_pass()), list(alone.one_pass()))


@KINDS
def test_processes_have_equally_many_steps_and_a_short_part_begins_again(tokenizer, kind):
    """The first three texts have 23 words with their ends, the others 6."""
    texts = ["the cat sat on the mat yes yes yes", "the dog sat in the rain and saw it", "a dog", "yes", "yes", "out"]
    how = {"batch_size": 1, **({"window": 3} if kind is PackedWindows else {"max_words": 3, "sort_batches": 1})}
    parts = [kind(DatasetTexts(texts), tokenizer, **how, rank=rank, world_size=2) for rank in (0, 1)]
    assert len(parts[0]) == len(parts[1]) > 3
    read = [[], []]
    for data, passes in zip(parts, read, strict=True):
        for _ in itertools.chain(data, data):
            passes.append(data._epoch)
    assert len(read[0]) == len(read[1]) == 2 * len(parts[0])
    assert max(read[0]) <= 1
    assert max(read[1]) >= 3


def test_processes_take_rows_of_one_length_at_the_same_steps(tokenizer):
    """Both parts have the same lengths; unlike the first batch of a pass, batches would not be alike by chance."""
    texts = [" ".join(["yes"] * length) for length in range(1, 13)] * 2
    how = {"batch_size": 1, "max_words": 40, "sort_batches": 12, "shuffle_block": 5}
    parts = [PaddedTexts(DatasetTexts(texts), tokenizer, **how, rank=rank, world_size=2) for rank in (0, 1)]
    widths = [[batch["labels"].shape[1] for batch in data.one_pass()] for data in parts]
    assert widths[0] == widths[1]
    assert sorted(widths[0]) == list(range(2, 14)) != widths[0]


@KINDS
@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("way", [0, 1], ids=["forward", "backward"])
def test_every_word_is_predicted_once_in_a_pass(tokenizer, kind, way, world_size):
    how = {"batch_size": 1, "world_size": world_size, **({"window": 1} if kind is PackedWindows else {})}
    parts = [make(kind, tokenizer, rank=rank, **how) for rank in range(world_size)]
    counted = torch.cat([batch["labels"][..., way].flatten() for data in parts for batch in data.one_pass()])
    vocabulary = parts[0].encoder.vocabulary
    ends = slice(1, None) if way == 0 else slice(None, -1)
    expected = torch.cat([torch.from_numpy(vocabulary.sentence_ids(text.split())[ends]) for text in TEXTS])
    assert counted[counted >= 0].sort().values.tolist() == expected.sort().values.tolist()


@KINDS
def test_a_different_run_is_refused(tokenizer, kind):
    state = make(kind, tokenizer).state_dict()
    with pytest.raises(ValueError, match="batch_size 2, but this run has 3"):
        make(kind, tokenizer, batch_size=3).load_state_dict(state)
    with pytest.raises(ValueError, match="world_size 1, but this run has 2"):
        make(kind, tokenizer, batch_size=1, world_size=2).load_state_dict(state)
    del state["world_size"], state["rank"]  # as earlier versions wrote it
    make(kind, tokenizer).load_state_dict(state)
    with pytest.raises(ValueError, match="world_size 1, but this run has 2"):
        make(kind, tokenizer, batch_size=1, world_size=2).load_state_dict(state)
    state = make(kind, tokenizer, rank=1, world_size=2).state_dict()
    with pytest.raises(ValueError, match="rank 1, but this run has 0"):
        make(kind, tokenizer, rank=0, world_size=2).load_state_dict(state)


def test_a_text_too_short_for_a_batch_is_refused(tokenizer):
    with pytest.raises(ValueError, match="does not fill one batch"):
        len(make(PackedWindows, tokenizer, batch_size=500))


def test_no_text_is_refused(tokenizer):
    with pytest.raises(ValueError, match="no text to train on"):
        next(PackedWindows(DatasetTexts([]), tokenizer, batch_size=1).one_pass())


# -- sources -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "b.txt").write_text("three four\n\n  \nfive\n", encoding="utf-8")
    with gzip.open(folder / "c.txt.gz", "wt", encoding="utf-8") as file:
        file.write("sechs süß\n\nsieben\nacht\n")
    (folder / "a.txt").write_text("one\ntwo", encoding="utf-8")
    return folder


SENTENCES = [[["one"]], [["two"]], [["three", "four"]], [["five"]], [["sechs", "süß"]], [["sieben"]], [["acht"]]]


def test_files_are_read_in_order_and_blank_lines_left_out(files):
    assert list(TextFiles(f"{files}/*").read()) == SENTENCES
    assert list(TextFiles([files / "a.txt", files / "c.txt.gz"]).read()) == SENTENCES[:2] + SENTENCES[4:]


@pytest.mark.parametrize("start", [0, 1, 3, 7, 8])
def test_files_are_read_from_any_sentence(files, start):
    assert list(TextFiles(f"{files}/*").read(start)) == SENTENCES[start:]


def test_blank_lines_and_files_part_documents(files):
    documents = list(TextFiles(f"{files}/*", documents=True).read())
    assert documents == [
        [["one"], ["two"]],
        [["three", "four"]],
        [["five"]],
        [["sechs", "süß"]],
        [["sieben"], ["acht"]],
    ]


def test_a_byte_order_mark_is_no_part_of_the_first_word(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone two\r\nthree")
    assert list(TextFiles(tmp_path / "a.txt").read()) == [[["one", "two"]], [["three"]]]


def test_bytes_that_are_no_utf8_are_named_by_their_line(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"fine\nna\xefve\n")
    with pytest.raises(ValueError, match=r"a\.txt, line 2: not utf-8"):
        list(TextFiles(tmp_path / "a.txt").read())


def test_the_line_of_a_bad_byte_is_counted_from_the_beginning_of_its_file(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"fine\n" * 9 + b"na\xefve\n")
    assert len(list(TextFiles(tmp_path / "a.txt").part(0, 2).read())) == 5
    with pytest.raises(ValueError, match=r"a\.txt, line 10: not utf-8"):
        list(TextFiles(tmp_path / "a.txt").part(1, 2).read())


def test_a_pattern_without_files_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing"):
        TextFiles(tmp_path / "nothing*.txt")


def test_a_file_that_is_given_twice_is_refused(files, monkeypatch):
    (files / "link.txt").symlink_to(files / "a.txt")
    monkeypatch.chdir(files)
    for given in (["a.txt", "./a.txt"], ["a.txt", "a.t*"], ["a.txt", "link.txt"]):
        with pytest.raises(ValueError, match="are one file: name it once, or its text counts twice"):
            TextFiles(given)


def test_a_link_to_nothing_is_named(files):
    (files / "lost.txt").symlink_to(files / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"lost\.txt is a link to nothing"):
        TextFiles(f"{files}/*.txt")


@pytest.mark.parametrize("name", ["a.jsonl", "a.CSV", "a.tsv.gz", "a.tar.gz", "a.zip"])
def test_files_whose_lines_are_no_sentences_are_refused(tmp_path, name):
    (tmp_path / name).write_bytes(b"{}")
    with pytest.raises(ValueError, match=r"is no plain text, by its ending.*datasets\.load_dataset"):
        TextFiles(tmp_path / name)


@pytest.mark.parametrize("name", ["a.txt.zst", "a.xz", "a.BZ2"])
def test_files_of_other_compressions_are_to_be_decompressed(tmp_path, name):
    (tmp_path / name).write_bytes(b"\xfd7zXZ")
    with pytest.raises(ValueError, match=r"is compressed, by its ending \.\w+: decompress it first"):
        TextFiles(tmp_path / name)


def test_a_null_is_a_blank_row_and_what_is_no_text_is_named():
    rows = [{"text": "a b"}, {"text": None}, {"text": "c"}]
    assert [words for text in DatasetTexts(rows).read() for words in text if words] == [["a", "b"], ["c"]]
    with pytest.raises(ValueError, match=r"row 3, column 'text': a text must be .* not 7: choose another column"):
        list(DatasetTexts([*rows, {"text": 7}]).read(2))


def test_the_tokenizer_splits_raw_text(files):
    (files / "a.txt").write_text("Don't!\n", encoding="utf-8")
    assert list(TextFiles(files / "a.txt", ElmoTokenizer()).read()) == [[["Don", "'t", "!"]]]


def test_datasets_and_streamed_datasets_give_the_same(tokenizer):
    datasets = pytest.importorskip("datasets")
    dataset = datasets.Dataset.from_dict({"text": TEXTS})
    streamed = dataset.to_iterable_dataset()
    expected = list(DatasetTexts(TEXTS).read(2))
    assert list(DatasetTexts(dataset).read(2)) == expected
    assert list(DatasetTexts(streamed).read(2)) == expected
    windows = PackedWindows(DatasetTexts(streamed), tokenizer, batch_size=2, window=5)
    with pytest.raises(TypeError, match="set max_steps"):
        len(windows)
    assert next(iter(windows))["labels"].shape == (2, 5, 2)


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"text": "a b"}, [["a", "b"]]),
        ({"text": ["a", "b c"]}, [["a", "b c"]]),
        ({"text": [["a"], ["b"]]}, [["a"], ["b"]]),
        ("a b", [["a", "b"]]),
    ],
    ids=["string", "words", "document", "bare"],
)
def test_rows_of_a_data_set(row, text):
    assert list(DatasetTexts([row]).read()) == [text]


@pytest.mark.parametrize(("column", "documents", "warned"), [("body", False, 1), ("page", True, 0)])
def test_lines_of_a_text_that_are_read_as_one_sentence_are_warned_of_once(caplog, column, documents, warned):
    rows = [{column: f"a cat sat {number}\na dog ran"} for number in range(3)] + [{column: "one line\n"}]
    texts = list(DatasetTexts(rows, column, documents=documents).read())
    assert [len(text) for text in texts] == [2, 2, 2, 1] if documents else [1, 1, 1, 1]
    messages = [record.message for record in caplog.records]
    assert len(messages) == warned
    assert all(f"column '{column}' has line breaks, but is read as one sentence" in message for message in messages)


@pytest.mark.parametrize(("row", "message"), [({"words": "a"}, "column is 'text'"), ({"text": 3}, "not 3")])
def test_rows_that_are_no_text_are_refused(row, message):
    with pytest.raises(ValueError, match=message):
        list(DatasetTexts([row]).read())


# -- parts, one for each process ---------------------------------------------------------------------------------------

LINES = [f"{number} {'word ' * (number * 7 % 11)}süß" for number in range(40)]


def corpus(folder: Path, kind: str) -> Path:
    """Files of very different sizes with `LINES`, some with blank lines between them; a pattern for them."""
    endings = {"crlf": "\r\n", "cr": "\r", "blank lines": "\n\n \n"}
    for number, lines in enumerate((LINES[:1], [], LINES[1:4], LINES[4:33], LINES[33:])):
        text = endings.get(kind, "\n").join(lines)  # no end after the last line
        file = folder / f"{number}.txt"
        if kind == "gzipped" or (kind == "some gzipped" and number % 2):
            file = folder / f"{number}.txt.gz"
            file.write_bytes(gzip.compress(text.encode()))
        else:
            file.write_bytes(text.encode())
    return folder / "*.txt*"


def in_parts(source: TextFiles | DatasetTexts, world_size: int) -> list[list]:
    return [list(source.part(rank, world_size).read()) for rank in range(world_size)]


@pytest.mark.parametrize("world_size", [2, 3, 7])
@pytest.mark.parametrize("kind", ["plain", "crlf", "cr", "blank lines", "gzipped", "some gzipped"])
def test_each_sentence_of_files_is_in_exactly_one_part(tmp_path, kind, world_size):
    source = TextFiles(corpus(tmp_path, kind))
    parts = in_parts(source, world_size)
    assert sorted(itertools.chain(*parts)) == sorted(source.read())
    if "gzipped" not in kind:
        assert list(itertools.chain(*parts)) == list(source.read())
    sizes = [sum(len(" ".join(words)) for text in part for words in text) for part in parts]
    assert max(sizes) - min(sizes) <= 2 * max(map(len, LINES)) * (3 if "gzipped" in kind else 1)


@pytest.mark.parametrize("world_size", [2, 3, 7])
@pytest.mark.parametrize("start", [1, 3])
def test_a_part_is_read_from_any_text(tmp_path, start, world_size):
    source = TextFiles(corpus(tmp_path, "some gzipped"))
    for rank, whole in enumerate(in_parts(source, world_size)):
        assert list(source.part(rank, world_size).read(start)) == whole[start:]


@pytest.mark.parametrize("world_size", range(2, 9))
def test_no_document_is_cut(tmp_path, world_size):
    file = tmp_path / "a.txt"
    documents = ["\n".join(LINES[start : start + length]) for start, length in ((0, 2), (2, 9), (11, 1), (12, 20))]
    file.write_text("\n\u3000\n\n".join(documents), encoding="utf-8")  # a blank line of another kind, too
    source = TextFiles(file, documents=True)
    assert [len(document) for document in source.read()] == [2, 9, 1, 20]
    assert list(itertools.chain(*in_parts(source, world_size))) == list(source.read())


def test_each_byte_is_cut_right(tmp_path):
    """Whatever the lines' lengths, no line is lost or read twice where a part ends in it, at its end or beside it."""
    for end in ("\n", "\r\n", "\r"):
        for length in range(1, 8):
            (tmp_path / "a.txt").write_bytes((f"{'x' * length}{end}" * 3 + "ü").encode())
            source = TextFiles(tmp_path / "a.txt")
            for world_size in range(2, 30):
                assert list(itertools.chain(*in_parts(source, world_size))) == list(source.read())


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("documents", [False, True])
def test_lines_longer_than_what_is_read_at_once_are_cut_right(tmp_path, monkeypatch, end, documents):
    monkeypatch.setattr(text_module, "LINE_BYTES", 3)
    (tmp_path / "a.txt").write_bytes(end.join(["one two", "three", "", "four five six", "", "", "seven"]).encode())
    source = TextFiles(tmp_path / "a.txt", documents=documents)
    assert [len(text) for text in source.read()] == ([2, 1, 1] if documents else [1] * 4)
    for world_size in range(2, 40):
        assert list(itertools.chain(*in_parts(source, world_size))) == list(source.read())


def test_a_mark_of_the_byte_order_is_left_in_the_middle_of_a_file(tmp_path):
    (tmp_path / "a.txt").write_bytes("\ufeffone\n\ufefftwo\n".encode())
    source = TextFiles(tmp_path / "a.txt")
    assert in_parts(source, 2) == [[[["one"]]], [[["\ufefftwo"]]]]
    assert list(source.read()) == [[["one"]], [["\ufefftwo"]]]


@pytest.fixture
def opened(monkeypatch) -> list[str]:
    """The names of the files whose lines are read, in their order."""
    names, read = [], text_module.read_lines
    monkeypatch.setattr(
        text_module, "read_lines", lambda file, **how: names.append(Path(file).name) or read(file, **how)
    )
    return names


def test_files_are_opened_by_the_process_that_reads_them(tmp_path, opened):
    for number in range(6):
        (tmp_path / f"{number}.txt").write_text("one two\nthree\n" * 5)
    found = []
    for rank in range(3):
        opened.clear()
        list(TextFiles(tmp_path / "*.txt").part(rank, 3).read())
        found.append(list(opened))
    assert found == [["0.txt", "1.txt"], ["2.txt", "3.txt"], ["4.txt", "5.txt"]]


@pytest.mark.parametrize(("files", "each"), [(39, 39), (41, (21, 20))])
def test_enough_gzipped_files_are_read_by_one_process_each(tmp_path, opened, files, each):
    for number in range(files):
        (tmp_path / f"{number:02}.txt.gz").write_bytes(gzip.compress(f"first {number}\nsecond {number}".encode()))
    source, found = TextFiles(tmp_path / "*"), []
    for rank in range(2):
        opened.clear()
        found.append(list(source.part(rank, 2).read()))
        assert len(opened) == (each if isinstance(each, int) else each[rank])
    assert sorted(itertools.chain(*found)) == sorted(source.read())
    assert abs(len(found[0]) - len(found[1])) <= 2


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("kind", ["list", "dataset", "stream of 1", "stream of 6", "shuffled stream of 6"])
def test_each_row_is_in_exactly_one_part(kind, world_size):
    datasets = pytest.importorskip("datasets")
    dataset = datasets.Dataset.from_dict({"text": LINES})
    if "stream" in kind:
        dataset = dataset.to_iterable_dataset(num_shards=int(kind[-1]))
        dataset = dataset.shuffle(seed=3, buffer_size=7) if "shuffled" in kind else dataset
    source = DatasetTexts(LINES if kind == "list" else dataset)
    parts = in_parts(source, world_size)
    assert sorted(itertools.chain(*parts)) == sorted(source.read())
    assert max(map(len, parts)) - min(map(len, parts)) <= 2
    for rank, whole in enumerate(parts):
        assert list(source.part(rank, world_size).read(5)) == whole[5:]


def test_a_stream_with_shards_for_each_process_is_not_read_by_all(monkeypatch, caplog):
    datasets = pytest.importorskip("datasets")
    read = []

    def rows(shards):
        for shard in shards:
            read.append(shard)
            yield from ({"text": f"{shard} {number}"} for number in range(4))

    stream = datasets.IterableDataset.from_generator(rows, gen_kwargs={"shards": list(range(4))})
    assert [len(text) for text in DatasetTexts(stream).part(1, 2).read()] == [1] * 8
    assert len(read) == 2
    monkeypatch.setattr(text_module.logger, "handlers", [caplog.handler])
    DatasetTexts(stream).part(0, 2)
    assert not caplog.records
    DatasetTexts(stream).part(0, 3)
    assert "The stream has 4 shards (files), which is no multiple of the 3 processes" in caplog.text


def test_each_block_of_each_pass_has_an_order_of_its_own(tokenizer):
    source = DatasetTexts([[[str(number)]] for number in range(40)])
    windows = PackedWindows(source, tokenizer, batch_size=1, window=2, seed=3, shuffle_block=20)
    read = [int(tokenizer.convert_ids_to_tokens(batch["input_ids"][0])[1]) for batch in (*windows, *windows)]
    blocks = [tuple(number % 20 for number in read[start : start + 20]) for start in range(0, 80, 20)]
    assert all(sorted(block) == list(range(20)) for block in blocks)
    assert len(set(blocks)) == 4


def test_sentences_without_words_are_no_steps_of_windows(tokenizer):
    with_blanks = DatasetTexts([[[], ["the", "cat"], []], [[]], [["a", "dog"], [], ["yes"]]])
    without = DatasetTexts([[["the", "cat"]], [["a", "dog"], ["yes"]]])
    how = {"batch_size": 1, "window": 2, "shuffle_block": 0}
    found, expected = (list(PackedWindows(source, tokenizer, **how).one_pass()) for source in (with_blanks, without))
    assert same(found, expected)


def test_batches_of_each_pool_have_an_order_of_their_own(tokenizer):
    texts = [" ".join(["yes"] * (1 + number % 12)) for number in range(48)]
    how = {"batch_size": 1, "max_words": 40, "sort_batches": 12, "shuffle_block": 0}
    widths = [batch["labels"].shape[1] for batch in PaddedTexts(DatasetTexts(texts), tokenizer, **how).one_pass()]
    pools = [tuple(widths[start : start + 12]) for start in range(0, 48, 12)]
    assert all(sorted(pool) == list(range(2, 14)) for pool in pools)
    assert len(set(pools)) == 4


@KINDS
def test_text_for_just_one_batch_is_enough(tokenizer, kind):
    how = {"batch_size": 2, **({"window": 3} if kind is PackedWindows else {"max_words": 3})}
    for texts, enough in ((["a dog"] * 2, True), (["a dog"], False)):
        data = kind(DatasetTexts(texts), tokenizer, **how)
        assert data.fills_a_batch() is enough


def test_processes_whose_passes_end_at_other_steps_take_rows_of_one_length_too(tokenizer):
    parts = [[" ".join(["yes"] * (1 + n % 12)) for n in range(rows)] for rows in (24, 36)]
    how = {"batch_size": 1, "max_words": 40, "sort_batches": 12, "shuffle_block": 0}
    widths = []
    for rank, texts in enumerate(parts):
        data = PaddedTexts(DatasetTexts(texts), tokenizer, **how, rank=rank, world_size=2)
        data.own = DatasetTexts(texts)
        data.endless = True
        widths.append([batch["labels"].shape[1] for batch in itertools.islice(data, 72)])
    assert widths[0] == widths[1]


def test_gzipped_files_of_one_text_each_are_shared_out(tmp_path):
    for number in range(6):
        (tmp_path / f"{number}.txt.gz").write_bytes(gzip.compress(f"text {number}".encode()))
    source = TextFiles(f"{tmp_path}/*")
    assert [len(list(source.part(rank, 3).read())) for rank in range(3)] == [2, 2, 2]


@pytest.mark.parametrize("place", [0, -1])
def test_a_sampled_fingerprint_knows_the_ends_of_a_long_file(tmp_path, place):
    text = bytearray(b"one two three four\n" * 300_000)  # more than all samples
    assert len(text) > text_module.SAMPLES * text_module.SAMPLE_BYTES
    (tmp_path / "text.txt").write_bytes(text)
    before = TextFiles(tmp_path / "text.txt").sampled_fingerprint
    text[place] = ord("x")
    (tmp_path / "text.txt").write_bytes(text)
    assert TextFiles(tmp_path / "text.txt").sampled_fingerprint != before


@pytest.mark.parametrize("place", [0, -1])
def test_the_fingerprint_of_a_dataset_knows_its_ends(place):
    rows = [f"text {number}" for number in range(1000)]
    before = DatasetTexts(rows).fingerprint
    changed = list(rows)
    changed[place] = "another text"
    assert DatasetTexts(changed).fingerprint != before
