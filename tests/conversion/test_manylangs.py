"""ELMoForManyLangs' models: against a slow reference, and against its own code where an environment has it."""

import copy
import gzip
import hashlib
import json
import pickle
import shutil
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

from hf_elmo import ElmoForPreTraining, ElmoModel, ElmoTokenizer, embed, kernels
from hf_elmo.conversion import convert_manylangs, export, export_onnx
from hf_elmo.conversion.manylangs import CHARACTERS, FILES, SAMPLE, WORDS, read_lexicon, read_manylangs, read_settings
from hf_elmo.pretraining.recipe import pretrain

from ..manylangs_files import make_settings, write_model
from ..reference_manylangs import NumpyManyLangs

LANGUAGES = ("ko_pud", "zh_pud", "de_pud", "es_pud", "pt_pud", "ru_pud", "ar_pud", "ja_gsd")
TOLERANCE = 1e-5
SENTENCES = [
    ["나는", "어제", "서울", "에서", "친구", "를", "만났다", "."],
    ["Größe", "ist", "nicht", "alles", ",", "sagte", "sie", "."],
    ["北京", "是", "中国", "的", "首都", "。", "\U00020000", "a\u3000b"],
    ["x" * 47, "x" * 48, "x" * 49, "한" * 60, "", "é", "e\u0301", "<pad>", "<oov>", "unseen", "☃"],
    ["A"],
]
ARCHITECTURES = {
    "as published, small": {},
    "characters alone": {"embedder": {"word_dim": 0}},
    "no highway, tanh": {"embedder": {"n_highway": 0, "activation": "tanh"}},
    "no clips, three layers": {"encoder": {"cell_clip": 0, "proj_clip": 0, "n_layers": 3}},
    "cell as large as its projection": {"encoder": {"dim": 7, "n_layers": 1}},
    "short words": {"embedder": {"max_characters_per_token": 9}},
}


def layers(checkpoint: Path, sentences: list[list[str]]) -> list[np.ndarray]:
    """Ours of each sentence, `[num_layers + 1, words + 2, 2P]`, from the checkpoint's own tokenizer, in one batch."""
    model, tokenizer = AutoModel.from_pretrained(checkpoint), AutoTokenizer.from_pretrained(checkpoint)
    words = tokenizer(sentences, is_split_into_words=True, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = torch.stack(model(**words, output_hidden_states=True).hidden_states)
    return [hidden[:, row, : len(sentence) + 2].numpy() for row, sentence in enumerate(sentences)]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_model(tmp_path / "source", make_settings(), SENTENCES)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_layer_is_that_of_the_reference(name: str, tmp_path: Path) -> None:
    source = write_model(tmp_path / "source", make_settings(**ARCHITECTURES[name]), SENTENCES)
    checkpoint = convert_manylangs(source, tmp_path / "checkpoint")
    reference = NumpyManyLangs(source)
    for found, sentence in zip(layers(checkpoint, SENTENCES), SENTENCES, strict=True):
        assert np.abs(found - reference.layers(sentence)).max() <= TOLERANCE, sentence


def test_both_clips_take_part(source: Path) -> None:
    reference = NumpyManyLangs(source)
    clipped = reference.layers(SENTENCES[0])
    for bound in ("cell_clip", "proj_clip"):
        before, reference.encoder[bound] = reference.encoder[bound], 0
        assert np.abs(reference.layers(SENTENCES[0]) - clipped).max() > 1e-2
        reference.encoder[bound] = before


def universal_dependencies(shared: Path, language: str, number: int) -> list[list[str]]:
    """The first sentences of a treebank, spread over its length."""
    sentences: list[list[str]] = [[]]
    with gzip.open(shared / "data" / "multilingual" / f"{language}-ud-test.conllu.gz", "rt", encoding="utf-8") as file:
        for line in file:
            fields = line.rstrip("\n").split("\t")
            if fields[0].isdecimal():
                sentences[-1].append(fields[1])
            elif not line.strip() and sentences[-1]:
                sentences.append([])
    sentences = [sentence for sentence in sentences if sentence]
    return sentences[:: len(sentences) // number][:number]


@pytest.mark.parametrize("language", LANGUAGES)
def test_real_sentences_have_the_layers_of_the_reference(language: str, shared: Path, tmp_path: Path) -> None:
    sentences = universal_dependencies(shared, language, 6)
    source = write_model(tmp_path / "source", make_settings(), sentences[:4])
    reference = NumpyManyLangs(source)
    for found, sentence in zip(layers(convert_manylangs(source, tmp_path / "out"), sentences), sentences, strict=True):
        assert np.abs(found - reference.layers(sentence)).max() <= TOLERANCE


def peer_layers(python: str, source: Path, sentences: list[list[str]], folder: Path) -> list[np.ndarray]:
    """ELMoForManyLangs' own layers of each sentence, without the boundaries."""
    texts, saved = folder / "sentences.json", folder / "layers.npz"
    texts.write_text(json.dumps(sentences))
    worker = Path(__file__).parent.parent / "peer_manylangs.py"
    done = subprocess.run([python, worker, source, texts, saved], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with np.load(saved) as arrays:
        return [arrays[str(number)] for number in range(len(sentences))]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_layer_is_that_of_elmoformanylangs_itself(
    name: str, shared: Path, manylangs_python: str, tmp_path: Path
) -> None:
    sentences = [sentence for language in LANGUAGES for sentence in universal_dependencies(shared, language, 4)]
    sentences += SENTENCES
    source = write_model(tmp_path / "source", make_settings(**ARCHITECTURES[name]), sentences[::2])
    checkpoint = convert_manylangs(source, tmp_path / "checkpoint")
    expected = peer_layers(manylangs_python, source, sentences, tmp_path)
    for ours, theirs, sentence in zip(layers(checkpoint, sentences), expected, sentences, strict=True):
        assert np.abs(ours[:, 1:-1] - theirs).max() <= TOLERANCE, sentence


def test_the_published_size_has_the_layers_of_elmoformanylangs_itself(
    shared: Path, manylangs_python: str, tmp_path: Path
) -> None:
    """Its sample configuration as it is, cell 4096, found by the name that published models give."""
    sentences = [sentence for language in LANGUAGES for sentence in universal_dependencies(shared, language, 1)]
    path = "/somewhere/of/its/author/cnn_50_100_512_4096_sample.json"
    source = write_model(tmp_path / "source", SAMPLE, sentences, path)
    checkpoint = convert_manylangs(source, tmp_path / "checkpoint")
    expected = peer_layers(manylangs_python, source, sentences, tmp_path)
    worst = 0.0
    for ours, theirs in zip(layers(checkpoint, sentences), expected, strict=True):
        worst = max(worst, float(np.abs(ours[:, 1:-1] - theirs).max()))
    print(f"largest difference {worst:.1e}, largest value {max(np.abs(one).max() for one in expected):.1f}")
    assert worst <= TOLERANCE


def test_its_sample_configuration_is_found_by_its_name_anywhere(source: Path, tmp_path: Path) -> None:
    absolute = {"config_path": "/Users/somebody/word_elmo/cnn_50_100_512_4096_sample.json"}
    (source / "config.json").write_text(json.dumps(absolute))
    settings = read_settings(source)
    assert settings["encoder"]["dim"] == 4096
    assert settings["token_embedder"]["word_dim"] == 100
    for path in ("/elsewhere/arch.json", "C:\\models\\arch.json", str(source / "arch.json"), "arch.json"):
        (source / "config.json").write_text(json.dumps({"config_path": path}))
        assert read_settings(source) == make_settings()
    (source / "config.json").write_text(json.dumps({"config_path": "/elsewhere/other.json"}))
    with pytest.raises(FileNotFoundError, match=r"names the architecture '/elsewhere/other.json': put other.json"):
        read_settings(source)


def test_a_zip_as_the_folder(source: Path, tmp_path: Path) -> None:
    packed = Path(shutil.make_archive(str(tmp_path / "161"), "zip", source))
    one, other = convert_manylangs(source, tmp_path / "one"), convert_manylangs(packed, tmp_path / "other")
    for name in ("config.json", "character_vocab.json"):
        assert (one / name).read_bytes() == (other / name).read_bytes()
    found, expected = (load_file(folder / "model.safetensors") for folder in (other, one))
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[key], tensor) for key, tensor in expected.items())


def test_the_record_names_the_architecture_and_the_archive(source: Path, tmp_path: Path) -> None:
    packed = Path(shutil.make_archive(str(tmp_path / "161"), "zip", source))
    for number, (given, archive) in enumerate(((source, []), (packed, ["161.zip"]))):
        out = convert_manylangs(given, tmp_path / str(number))
        digests = {one["file"]: one["sha256"] for one in json.loads((out / "conversion.json").read_text())["sources"]}
        assert list(digests) == [*archive, *FILES, "arch.json"]
        for file in (source / "arch.json", given):
            assert file.is_dir() or digests[file.name] == hashlib.sha256(file.read_bytes()).hexdigest()


def test_what_a_checkpoint_holds(source: Path, tmp_path: Path) -> None:
    checkpoint = convert_manylangs(source, tmp_path / "checkpoint", dtype="bfloat16")
    names = {path.name for path in checkpoint.iterdir()}
    assert {"character_vocab.json", "character_vocab_elmo.py", "tokenization_elmo.py", "README.md"} <= names
    assert str(tmp_path) not in (checkpoint / "tokenizer_config.json").read_text()
    assert "ELMoForManyLangs" in (checkpoint / "README.md").read_text()
    assert AutoModel.from_pretrained(checkpoint, dtype="auto").dtype == torch.bfloat16


def test_the_tokenizer_spells_and_reads_back(source: Path, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(convert_manylangs(source, tmp_path / "checkpoint"))
    rows = np.array(tokenizer.convert_tokens_to_ids(["나는", "<S>", "✂는", "</S>", "<pad>"]))
    assert rows.shape == (5, 51)
    assert rows[:, :3].tolist()[1] == [259, 257, 260]
    assert rows[1:4, -1].tolist() == [2, 1, 3]
    assert not rows[4].any()
    assert tokenizer.convert_ids_to_tokens(rows) == ["나는", "<S>", "\ufffd는", "</S>", "<pad>"]
    text = tokenizer("나는 서울 친구", return_tensors="pt")["input_ids"]
    assert tokenizer.decode(text[0], skip_special_tokens=True) == "나는 서울 친구"
    padded = tokenizer(["나는 어제", "Größe"], padding=True, return_tensors="pt")["input_ids"]
    assert padded.shape == (2, 4, 51)
    assert not padded[1, 3].any()
    assert torch.equal(
        tokenizer.pad({"input_ids": [padded[1, :3].tolist()]}, return_tensors="pt").input_ids[0], padded[1, :3]
    )
    vocabulary = tokenizer.get_vocab()
    assert [vocabulary[character] for character in "나는"] == rows[0, 1:3].tolist()
    assert (vocabulary["<unknown>"], vocabulary["</S>"], max(vocabulary.values())) == (1, 258, 261)
    assert not any(name.startswith("<0x") for name in vocabulary)
    assert len(tokenizer) == AutoModel.from_pretrained(tmp_path / "checkpoint").config.char_vocab_size
    again = AutoTokenizer.from_pretrained(tokenizer.save_pretrained(tmp_path / "again")[0].rpartition("/")[0])
    assert again.character_vocab.words == tokenizer.character_vocab.words


def test_a_corpus_is_embedded_as_sentences_are(source: Path, tmp_path: Path) -> None:
    checkpoint = convert_manylangs(source, tmp_path / "checkpoint")
    for array, expected in zip(embed(checkpoint, SENTENCES, layers="all"), layers(checkpoint, SENTENCES), strict=True):
        np.testing.assert_allclose(array, expected[:, 1:-1], atol=1e-6)


def test_a_tokenizer_of_bytes_is_refused(source: Path, tmp_path: Path) -> None:
    checkpoint = convert_manylangs(source, tmp_path / "checkpoint")
    with pytest.raises(
        ValueError, match=r"50 characters \(bytes\), the model reads 50 characters \(unicode\) and an id"
    ):
        embed(checkpoint, SENTENCES, tokenizer=ElmoTokenizer())
    with pytest.raises(ValueError, match="char_units is 'unicode', but AllenNLP's models read bytes"):
        export(checkpoint, tmp_path / "exported")


def test_reordered_rows_are_put_back(source: Path) -> None:
    config, arrays, vocabulary = read_manylangs(source)
    from hf_elmo.conversion.manylangs import _characters_row, _words_rows

    stored = torch.load(source / "token_embedder.pkl")
    characters, words = read_lexicon(source / "char.dic"), read_lexicon(source / "word.dic")
    for row in (_characters_row(config, characters), *_words_rows(config, words)):
        (written,) = row.transform.write(*(arrays[target] for target in row.targets))
        name = {CHARACTERS: "char_emb_layer", WORDS: "word_emb_layer"}[row.datasets[0].name]
        assert np.array_equal(written, stored[f"{name}.embedding.weight"].numpy())
    assert vocabulary.size == config.char_vocab_size
    assert not arrays["char_encoder.embedding.weight"][0].any()


def test_a_pickle_that_runs_code_is_refused(source: Path, tmp_path: Path) -> None:
    class Harmful:
        def __reduce__(self) -> tuple:
            return (Path.touch, (tmp_path / "ran",))

    (source / "encoder.pkl").write_bytes(pickle.dumps({"weight": Harmful()}))
    with pytest.raises(ValueError, match=r"encoder\.pkl is no file of tensors alone"):
        convert_manylangs(source, tmp_path / "checkpoint")
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize(
    ("encoder", "embedder", "message"),
    [
        ({"name": "lstm"}, {}, "encoder 'lstm', but the models that were published are 'cnn' and 'elmo'"),
        ({}, {"name": "lstm"}, "token_embedder is 'lstm'"),
        ({}, {"char_dim": 0}, "char_dim is 0"),
        (
            {"dim": 12},
            {},
            r"tensor 'encoder.backward_layer_0.* has shape|has shape \(44, 7\), but should have \(48, 7\)",
        ),
        ({"n_layers": 1}, {}, "unexpected tensor"),
        ({}, {"word_dim": 0}, "has shape|unexpected tensor"),
        ({}, {"activation": "gelu"}, "token_embedder.activation is 'gelu'"),
    ],
    ids=["lstm encoder", "lstm embedder", "no characters", "other cell", "a layer left", "words left", "activation"],
)
def test_an_architecture_that_does_not_fit(
    source: Path, encoder: dict, embedder: dict, message: str, tmp_path: Path
) -> None:
    (source / "arch.json").write_text(json.dumps(make_settings(encoder, embedder)))
    with pytest.raises(ValueError, match=message):
        convert_manylangs(source, tmp_path / "checkpoint")
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("x\ty\t900\n", "line [0-9]+: expected is"),
        ("q\t9000\n", "must have the numbers"),
        ("<oov>\t3\n", "two numbers"),
    ],
    ids=["two tabs", "a gap", "twice"],
)
def test_a_dictionary_that_does_not_fit(source: Path, line: str, message: str) -> None:
    with (source / "word.dic").open("a") as file:
        file.write(line)
    with pytest.raises(ValueError, match=message):
        read_manylangs(source)


def test_a_missing_file_is_named(source: Path) -> None:
    (source / "encoder.pkl").unlink()
    with pytest.raises(FileNotFoundError, match=r"encoder\.pkl: there is no such file"):
        read_manylangs(source)


def test_a_whitespace_character(tmp_path: Path) -> None:
    (tmp_path / "char.dic").write_text("a\t0\n\u3000\t1\n", encoding="utf-8")
    assert read_lexicon(tmp_path / "char.dic") == {"a": 0, "\u3000": 1}


def test_a_zip_within_an_archive_is_not_opened(source: Path, tmp_path: Path) -> None:
    packed = tmp_path / "model.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.write(source / "char.dic", "char.dic")
    with pytest.raises(FileNotFoundError, match=r"config\.json: there is no such file"):
        convert_manylangs(packed, tmp_path / "checkpoint")


def test_words_and_characters_are_computed_alike_by_every_way(source: Path, tmp_path: Path) -> None:
    checkpoint = convert_manylangs(source, tmp_path / "checkpoint")
    model, tokenizer = AutoModel.from_pretrained(checkpoint), AutoTokenizer.from_pretrained(checkpoint)
    rows = torch.tensor(tokenizer.convert_tokens_to_ids(SENTENCES[3]))
    encoder = model.char_encoder
    with torch.no_grad(), kernels.use("off"):
        plain = encoder(rows)
    with torch.no_grad():
        assert torch.allclose(encoder(rows), plain, atol=1e-6)  # with kernels
        assert torch.allclose(encoder.encode_all(rows), plain, atol=1e-6)  # in an exported graph
        assert not torch.allclose(encoder(rows.clone().index_fill_(1, torch.tensor([50]), 2)), plain, atol=1e-2)
        output = model(**model.dummy_inputs)
    assert output.last_hidden_state.isfinite().all()


def test_exported_to_onnx(source: Path, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    checkpoint = convert_manylangs(source, tmp_path / "checkpoint")
    session = onnxruntime.InferenceSession(export_onnx(checkpoint, tmp_path / "elmo.onnx"))
    model, tokenizer = AutoModel.from_pretrained(checkpoint), AutoTokenizer.from_pretrained(checkpoint)
    encoded = tokenizer(SENTENCES, is_split_into_words=True, padding=True, return_tensors="pt")
    found, _ = session.run(None, {name: tensor.numpy() for name, tensor in encoded.items()})
    with torch.no_grad():
        np.testing.assert_allclose(found, model(**encoded).last_hidden_state, atol=1e-5)


def test_copies_of_the_tokenizer_spell_alike(source: Path, tmp_path: Path) -> None:
    checkpoint = convert_manylangs(source, tmp_path / "checkpoint")
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    others = pickle.loads(pickle.dumps(tokenizer)), copy.deepcopy(tokenizer)
    for other in (*others, AutoTokenizer.from_pretrained(checkpoint, word_splitting="lm1b")):
        assert np.array_equal(other.spell(SENTENCES[3]), tokenizer.spell(SENTENCES[3]))


def test_adapted_to_a_text_it_keeps_its_characters(source: Path, tmp_path: Path) -> None:
    checkpoint, text = convert_manylangs(source, tmp_path / "checkpoint"), tmp_path / "text.txt"
    text.write_text("\n".join(" ".join(sentence) for sentence in SENTENCES[:3] * 9) + "\n", encoding="utf-8")
    result = pretrain(tmp_path / "adapted", [text], init=checkpoint, max_steps=2, batch_size=2, window=5, use_cpu=True)
    before, after = (AutoTokenizer.from_pretrained(folder) for folder in (checkpoint, result.folder))
    assert np.array_equal(after.spell(SENTENCES[3]), before.spell(SENTENCES[3]))
    assert len(after.vocabulary) == ElmoForPreTraining.from_pretrained(result.folder).config.vocab_size


def test_boundaries_that_are_no_words_of_the_list_are_unknown_ones(source: Path, tmp_path: Path) -> None:
    words = [word for word in read_lexicon(source / "word.dic") if word not in ("<bos>", "<eos>")]
    (source / "word.dic").write_text("".join(f"{word}\t{n}\n" for n, word in enumerate(words)), encoding="utf-8")
    token = torch.load(source / "token_embedder.pkl")
    token["word_emb_layer.embedding.weight"] = token["word_emb_layer.embedding.weight"][: len(words)]
    torch.save(token, source / "token_embedder.pkl")
    model = ElmoModel.from_pretrained(convert_manylangs(source, tmp_path / "out"))
    found = model.char_encoder.word_embedding.weight[1:4]
    assert torch.equal(found, token["word_emb_layer.embedding.weight"][[0, 0, 0]])


def test_numbers_of_a_dictionary_that_come_twice(tmp_path: Path) -> None:
    (tmp_path / "char.dic").write_text("a\t0\nb\t2\nc\t2\n", encoding="utf-8")
    with pytest.raises(ValueError, match="its 3 entries must have the numbers 0 to 2, each once"):
        read_lexicon(tmp_path / "char.dic")
