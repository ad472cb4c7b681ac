"""ELMoForManyLangs' models: their files, and their words in a checkpoint (tests/parity has vectors of its own code)."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from hf_elmo import ElmoModel, ElmoTokenizer, embed
from hf_elmo.conversion import convert
from hf_elmo.conversion.manylangs import SAMPLE, read_lexicon, read_settings
from tests.factories import layers_of
from tests.source_files import make_settings, write_model

SENTENCES = [
    ["나는", "어제", "서울", "에서", "친구", "를", "만났다", "."],
    ["Größe", "ist", "nicht", "alles", ",", "sagte", "sie", "."],
    ["北京", "是", "中国", "的", "首都", "。", "a\u3000b", "\U00020000"],  # a blank that char.dic lacks
    ["x" * 47, "x" * 48, "x" * 49, "한" * 60, "", "é", "e\u0301", "<pad>", "<oov>", "unseen", "☃"],
    ["A"],
]


@pytest.fixture
def source(tmp_path) -> Path:
    return write_model(tmp_path / "source", make_settings(), SENTENCES)


def test_the_architecture_is_found_by_its_name(source) -> None:
    absolute = {"config_path": "/Users/somebody/word_elmo/cnn_50_100_512_4096_sample.json"}
    (source / "config.json").write_text(json.dumps(absolute))
    assert read_settings(source) == (SAMPLE, [])
    for path in ("/elsewhere/arch.json", "C:\\models\\arch.json", str(source / "arch.json"), "arch.json"):
        (source / "config.json").write_text(json.dumps({"config_path": path}))
        assert read_settings(source) == (make_settings(), [source / "arch.json"])
    (source / "config.json").write_text(json.dumps({"config_path": "/elsewhere/other.json"}))
    with pytest.raises(FileNotFoundError, match=r"other\.json"):
        read_settings(source)


def test_the_tokenizer_spells_and_reads_back(source, tmp_path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(convert(source, tmp_path / "checkpoint"))
    rows = np.array(tokenizer.convert_tokens_to_ids(["나는", "<S>", "✂는", "</S>", "<pad>"]))
    assert rows.shape == (5, 51)
    assert rows[1, :3].tolist() == [259, 257, 260]
    assert rows[1:4, -1].tolist() == [2, 1, 3]
    assert not rows[4].any()
    assert tokenizer.convert_ids_to_tokens(rows) == ["나는", "<S>", "\ufffd는", "</S>", "<pad>"]
    vocabulary = tokenizer.get_vocab()
    assert [vocabulary[character] for character in "나는"] == rows[0, 1:3].tolist()
    assert (vocabulary["<unknown>"], vocabulary["</S>"], max(vocabulary.values())) == (1, 258, 261)
    assert not any(name.startswith("<0x") for name in vocabulary)
    assert len(tokenizer) == AutoModel.from_pretrained(tmp_path / "checkpoint").config.char_vocab_size
    tokenizer.save_pretrained(tmp_path / "again")
    again = AutoTokenizer.from_pretrained(tmp_path / "again")
    assert again.character_vocab.embedded_words == tokenizer.character_vocab.embedded_words
    text = again("나는 서울 친구", return_tensors="pt")["input_ids"]
    assert again.decode(text[0], skip_special_tokens=True) == "나는 서울 친구"


def test_a_corpus_is_embedded_as_sentences_are(source, tmp_path) -> None:
    checkpoint = convert(source, tmp_path / "checkpoint")
    loaded = AutoModel.from_pretrained(checkpoint), AutoTokenizer.from_pretrained(checkpoint)
    expected = [layers[:, 1:-1] for layers in layers_of(*loaded, SENTENCES)]
    torch.testing.assert_close(embed(checkpoint, SENTENCES, layers="all"), expected, rtol=0, atol=1e-6)
    with pytest.raises(ValueError, match="tokenizer"):
        embed(checkpoint, SENTENCES, tokenizer=ElmoTokenizer())


def test_a_pickle_that_runs_code_is_refused(source, tmp_path) -> None:
    class Harmful:
        def __reduce__(self) -> tuple:
            return (Path.touch, (tmp_path / "ran",))

    (source / "encoder.pkl").write_bytes(pickle.dumps({"weight": Harmful()}))
    with pytest.raises(pickle.UnpicklingError):
        convert(source, tmp_path / "checkpoint")
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "checkpoint").exists()


def test_a_dictionary_has_a_number_for_each_entry_and_a_blank_that_was_stripped(tmp_path) -> None:
    (tmp_path / "char.dic").write_text("a\t1\n\u3000\t0\n", encoding="utf-8")
    assert list(read_lexicon(tmp_path / "char.dic").items()) == [("\u3000", 0), ("a", 1)]


def test_boundaries_that_are_no_words_of_the_list_are_unknown_ones(source, tmp_path) -> None:
    words = [word for word in read_lexicon(source / "word.dic") if word not in ("<bos>", "<eos>")]
    (source / "word.dic").write_text("".join(f"{word}\t{n}\n" for n, word in enumerate(words)), encoding="utf-8")
    token = torch.load(source / "token_embedder.pkl")
    token["word_emb_layer.embedding.weight"] = token["word_emb_layer.embedding.weight"][: len(words)]
    torch.save(token, source / "token_embedder.pkl")
    model = ElmoModel.from_pretrained(convert(source, tmp_path / "out"))
    found = model.char_encoder.word_embedding.weight[1:4]
    assert torch.equal(found, token["word_emb_layer.embedding.weight"][[0, 0, 0]])
