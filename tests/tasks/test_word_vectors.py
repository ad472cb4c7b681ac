"""Word vectors from files, and those of the words of texts."""

import gzip
import re

import numpy as np
import pytest
import torch

from hf_elmo import ElmoForSequenceClassification, ElmoTokenizer, add_word_vectors, count_words, read_word_vectors
from tests.factories import save_checkpoint, small_model

WORDS = ["the", "naïve", "a\u2028b", "Rain"]
VECTORS = np.array([[1, 2.5, -3e-2], [0, 0, 1], [4, 5, 6], [7, 8, 9]], dtype=np.float32)


def text(header: bool, ending: str = "\n") -> bytes:
    rows = [f"{word} {' '.join(map(str, vector))}{ending}" for word, vector in zip(WORDS, VECTORS, strict=True)]
    return ("4 3\n" * header + "".join(rows)).encode()


def binary(separator: bytes) -> bytes:
    rows = [word.encode() + b" " + vector.tobytes() for word, vector in zip(WORDS, VECTORS, strict=True)]
    return b"4 3\n" + separator.join(rows) + separator


FILES = {
    "glove.txt": text(header=False),
    "word2vec.txt": text(header=True),
    "fasttext.vec": text(header=True, ending=" \n"),
    "tabs.txt": text(header=False).replace(b" ", b"\t"),
    "as embed writes it.txt": re.sub(rb"(?m)^(\S+) ", rb"\1\t", text(header=False)),
    "windows.txt": text(header=False, ending="\r\n"),
    "blank lines.txt": text(header=True) + b"\n\n",
    "word2vec.bin": binary(b"\n"),
    "google.bin.gz": gzip.compress(binary(b""), mtime=0),
}


@pytest.mark.parametrize("name", FILES)
def test_every_format_is_read(tmp_path, name: str) -> None:
    (tmp_path / name).write_bytes(FILES[name])
    words, vectors = read_word_vectors(tmp_path / name)
    assert (words, vectors.dtype) == (WORDS, np.float32)
    np.testing.assert_array_equal(vectors, VECTORS)
    words, vectors = read_word_vectors(tmp_path / name, words=["Rain", "THE", "rain"])
    assert words == ["the", "Rain"]
    np.testing.assert_array_equal(vectors, VECTORS[[0, 3]])
    assert read_word_vectors(tmp_path / name, words=["the", "Rain"], limit=3)[0] == ["the"]  # 3 vectors of the file
    with pytest.raises(ValueError, match=f"{name} has no vector"):
        read_word_vectors(tmp_path / name, words=["fog"])


def test_words_with_spaces_and_words_that_occur_twice(tmp_path) -> None:
    (tmp_path / "a.txt").write_text("\ufeffthe 1 2\n. . 3 4\nthe 5 6\n 7 8\n\xa0 9 1\na\rb 0 1\n", encoding="utf-8")
    words, vectors = read_word_vectors(tmp_path / "a.txt")
    assert words == ["the", ". .", "\xa0"]
    assert vectors.tolist() == [[1, 2], [3, 4], [9, 1]]
    (tmp_path / "a.txt").write_bytes(b"1 2\nna\xc3 1 2\n")  # cut inside a character
    assert read_word_vectors(tmp_path / "a.txt")[0] == ["na\N{REPLACEMENT CHARACTER}"]


# The first .txt is cut, the last one a pickle; the last .bin is fastText's.
DAMAGED = [("a.txt", b"the 1 2\ncat 3\n", r"a\.txt, line 2: could not"), ("a.txt", b"\n", r"a\.txt has no vector")]
DAMAGED += [("a.txt", b"\x80\x04\x95x\n\xff", r"a\.txt, line 1: "), ("a.vec", b"3 2\nthe 1 2\ncat 3 4\n", "says 3")]
DAMAGED += [("a.bin", binary(b"")[:-1], "smaller"), ("a.bin", b"2 1\nNew York \1\1\1\1\nthe \2\2\2\2\n", "space")]
DAMAGED += [("a.bin", b"\xba\x16\x4f\x2f\x0c\0\0\0", r"a\.bin is not .*\.vec")]


@pytest.mark.parametrize(("name", "content", "named"), DAMAGED)
def test_a_damaged_file_is_not_read(tmp_path, name: str, content: bytes, named: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=named):
        read_word_vectors(tmp_path / name)


def test_word_vectors_in_one_call(tmp_path, tokenizer) -> None:
    (tmp_path / "vectors.txt").write_bytes(FILES["glove.txt"])
    model = small_model(ElmoForSequenceClassification, num_labels=3).half()
    for source in (model, tmp_path / "saved"):
        found = add_word_vectors(source, tokenizer, tmp_path / "vectors.txt", ["The rain"], freeze_word_vectors=True)
        assert tokenizer.words == ["the"]
        assert found.dtype == torch.float16
        weight = found.classifier.word_vectors.weight
        np.testing.assert_array_equal(weight[3].detach().numpy(), VECTORS[0].astype(np.float16))
        assert not weight.requires_grad
        assert torch.equal(found.elmo.bilm.layers[0].lstm.bias, model.elmo.bilm.layers[0].lstm.bias)
        assert found(**tokenizer("The rain", return_tensors="pt")).logits.shape == (1, 3)
        save_checkpoint(tmp_path / "saved", found, tokenizer)
    alone = add_word_vectors(model, tokenizer, tmp_path / "vectors.txt", use_elmo=False)
    assert tokenizer.words == WORDS
    assert not hasattr(alone, "elmo")


def test_a_head_with_word_vectors_begins_as_one_that_is_loaded(tmp_path, tokenizer) -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed")
    bilm = small_model(scalar_mix_alignment=True)
    bilm.scalar_mix.scalars.data = torch.tensor([3.0, 0.0, -3.0])
    bilm.scalar_mix.alignment.copy_(torch.randn(22, 22))
    bilm.save_pretrained(tmp_path / "bilm")
    model = ElmoForSequenceClassification.from_pretrained(tmp_path / "bilm")
    (tmp_path / "vectors.txt").write_bytes(FILES["glove.txt"])
    sizes = {"word_vectors_vocab_size": len(WORDS) + 3, "word_vectors_size": 3}
    for changes in ({}, {"num_labels": 3, "layer_weights": [0, 1, 1]}):
        loaded = ElmoForSequenceClassification.from_pretrained(tmp_path / "bilm", **sizes, **changes)
        found = add_word_vectors(model, tokenizer, tmp_path / "vectors.txt", **changes)
        assert found.is_new is loaded.is_new is True
        for head in (found, loaded):
            torch.nn.init.ones_(head.classifier.out_proj.weight)
            head.set_word_vectors(VECTORS)
        batch = tokenizer("The rain", return_tensors="pt")
        torch.testing.assert_close(found(**batch).logits, loaded(**batch).logits)
    assert {p.data_ptr() for p in found.parameters()}.isdisjoint(p.data_ptr() for p in model.parameters())
    with pytest.raises(TypeError, match="encoder"):
        add_word_vectors(model, tokenizer, tmp_path / "vectors.txt", encoder="bilstm")
    model.add_adapter(peft.LoraConfig(target_modules=["carry"]))
    with pytest.raises(ValueError, match="adapters"):
        add_word_vectors(model, tokenizer, tmp_path / "vectors.txt")


def test_words_of_texts() -> None:
    tokenizer = ElmoTokenizer()
    texts = ["The cat, the dog.", ["the", "Cat", "New York", ""]]
    assert count_words(tokenizer, texts) == ["the", ",", ".", "Cat", "New York", "The", "cat", "dog"]
    assert count_words(tokenizer, texts, min_count=2, lowercase=True) == ["the", "cat"]
    assert count_words(tokenizer, texts, limit=1) == ["the"]
