"""A model that is asked for a script which it never read says so, once, where its vocabulary tells."""

import gzip
import logging
from pathlib import Path, PurePosixPath

import pytest
from transformers import AutoTokenizer

import hf_elmo.words_elmo
from hf_elmo import ElmoTokenizer, embed, pretrain
from hf_elmo.character_vocab_elmo import CharacterVocabulary
from hf_elmo.conversion import convert, convert_archive, convert_manylangs, convert_named, convert_repository, load
from hf_elmo.conversion.download import PUBLISHED_MODELS
from hf_elmo.conversion.published import ABOUT, SCRIPTS
from hf_elmo.words_elmo import ScriptsRead, script_of

from .allennlp_files import make_arrays, make_options, write_files
from .conversion.test_allennlp_archive import pack, state_of, task
from .manylangs_files import make_settings, write_model

PUBLISHED = PurePosixPath(PUBLISHED_MODELS["small"].options).name


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the module warns of."""
    said: list[str] = []
    monkeypatch.setattr(hf_elmo.words_elmo.logger, "warning", said.append)
    return said


def with_vocabulary(folder: Path, *words: str) -> ElmoTokenizer:
    (folder / "vocab.txt").write_text("\n".join(("<S>", "</S>", "<UNK>", *words)) + "\n", encoding="utf-8")
    return ElmoTokenizer(vocab_file=str(folder / "vocab.txt"))


@pytest.mark.parametrize(
    ("characters", "script"),
    [
        ("aÉßſǅＡ", "Latin"),
        ("αΩ", "Greek"),
        ("жЇ", "Cyrillic"),
        ("אש", "Hebrew"),
        ("عی", "Arabic"),
        ("कख", "Devanagari"),
        ("กฮ", "Thai"),
        ("ሀ", "Ethiopic"),
        ("한ᄀㄱ", "Hangul"),
        ("漢一豈", "Chinese characters"),
        ("あ", "Hiragana"),
        ("アｱ", "Katakana"),
        ("1.€ª\u00b5\u2126𝐀ー々ˈ\u0301\ue000\ud800 😀", None),
    ],
    ids=lambda value: value if value and len(value) > 6 else "",
)
def test_the_script_of_a_letter(characters: str, script: str | None) -> None:
    assert {character: script_of(character) for character in characters} == dict.fromkeys(characters, script)


def test_a_script_that_the_vocabulary_has_none_of_is_told_once(tmp_path: Path, warnings: list[str]) -> None:
    tokenizer = with_vocabulary(tmp_path, "the", "naïve", "β", ".")
    tokenizer(["The œuvre, 3.0 €", "a β-version of Γ 😀"])
    assert warnings == []
    tokenizer(["a word 서울 of it", "부산"], padding=True)
    assert len(warnings) == 1
    assert "'서울'" in warnings[0]
    assert "Hangul" in warnings[0]
    tokenizer("대구")
    tokenizer(["서울"], is_split_into_words=True)
    assert len(warnings) == 1
    tokenizer("Москва and 서울")
    assert len(warnings) == 2
    assert "Cyrillic" in warnings[1]


def test_a_model_that_never_read_latin_letters_tells_that_too(tmp_path: Path, warnings: list[str]) -> None:
    tokenizer = with_vocabulary(tmp_path, "서울", ".")  # its <S> and <UNK> are no words
    tokenizer("서울 , 3")
    assert warnings == []
    tokenizer("Seoul")
    assert len(warnings) == 1
    assert "Latin" in warnings[0]


def test_what_embed_reads_is_looked_at(model, tmp_path: Path, warnings: list[str]) -> None:
    embed(model, ["the city", "서울 부산"], tokenizer=with_vocabulary(tmp_path, "the"), progress=False)
    assert len(warnings) == 1


def test_characters_of_a_models_own_tell(warnings: list[str]) -> None:
    tokenizer = ElmoTokenizer()
    tokenizer.character_vocab = CharacterVocabulary(["a", "b", "서", "울"])
    tokenizer("zebra 부산")
    assert warnings == []
    tokenizer("東京")
    assert "Chinese characters" in warnings[0]


def test_without_a_vocabulary_nothing_is_known_and_nothing_said(tmp_path: Path, warnings: list[str]) -> None:
    ElmoTokenizer()("서울 Москва 東京")
    lost = with_vocabulary(tmp_path, "the")
    (tmp_path / "vocab.txt").unlink()
    lost("서울 Москва 東京")
    assert warnings == []


def test_a_warning_goes_to_the_log(tmp_path: Path) -> None:
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append
    logger = hf_elmo.words_elmo.logger
    logger.addHandler(handler)
    try:
        with_vocabulary(tmp_path, "the").spell(["서울"])
    finally:
        logger.removeHandler(handler)
    assert [(record.levelname, record.name) for record in records] == [("WARNING", "transformers.hf_elmo.words_elmo")]


def files_of(folder: Path) -> tuple[Path, Path]:
    options = make_options()
    return write_files(folder, options, make_arrays(options))


@pytest.mark.usefixtures("any_sizes")
@pytest.mark.parametrize("name", ["small", "portuguese", "seqvec"])
def test_a_published_models_language_tells(name: str, tmp_path: Path, warnings: list[str]) -> None:
    out = convert_named(name, tmp_path / "out", files=files_of(tmp_path / "source"))
    tokenizer = ElmoTokenizer.from_pretrained(out)
    tokenizer("MKTAYIAK São Paulo , 3 €")
    assert warnings == []
    tokenizer("서울 and 부산")
    assert len(warnings) == 1
    assert "a script that is not its text's (Hangul)" in warnings[0]
    tokenizer.save_pretrained(tmp_path / "again")
    AutoTokenizer.from_pretrained(tmp_path / "again")("Москва")
    assert len(warnings) == 2
    assert "Cyrillic" in warnings[1]


def test_the_scripts_of_every_published_model_are_known_and_named_as_letters_are() -> None:
    assert SCRIPTS.keys() == ABOUT.keys()
    assert {script for scripts in SCRIPTS.values() for script in scripts} <= {script_of(letter) for letter in "aжα"}


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
def test_the_words_beside_a_repositorys_files_tell(packed: bool, tmp_path: Path, warnings: list[str]) -> None:
    options, weights = files_of(tmp_path / "source")
    weights.rename(weights.with_name("model.hdf5"))
    words = "\n".join(("<S>", "</S>", "<UNK>", "Москва", ".", "город")).encode() + b"\n"
    vocabulary = options.with_name("vocab.txt.gz" if packed else "vocab.txt")
    vocabulary.write_bytes(gzip.compress(words) if packed else words)
    tokenizer = ElmoTokenizer.from_pretrained(convert_repository(options.parent, tmp_path / "out"))
    tokenizer("столица , 3")
    assert warnings == []
    tokenizer("the city")
    tokenizer("another city")
    assert len(warnings) == 1
    assert "(Latin)" in warnings[0]


def test_the_characters_of_elmoformanylangs_tell(tmp_path: Path, warnings: list[str]) -> None:
    source = write_model(tmp_path / "source", make_settings(), [["Ein", "Wort", "."]])
    tokenizer = ElmoTokenizer.from_pretrained(convert_manylangs(source, tmp_path / "out"))
    tokenizer("Noch ein Satz ! 3 €")
    assert warnings == []
    tokenizer("слово")
    assert len(warnings) == 1
    assert "this model's vocabulary has none (Cyrillic)" in warnings[0]


def test_the_published_model_that_a_tasks_archive_names_tells(tmp_path: Path, warnings: list[str]) -> None:
    model, options = load(*files_of(tmp_path / "source")), make_options()
    for number, (file, known) in enumerate(((f"https://x.org/{PUBLISHED}", True), ("/home/x/options.json", False))):
        archive = pack(tmp_path / f"{number}.tar.gz", task(file), state_of(model, [([0.0] * 3, 1.0)]), options)
        tokenizer = ElmoTokenizer.from_pretrained(convert_archive(archive, tmp_path / f"out{number}"))
        tokenizer("서울")
        assert len(warnings) == 1
        assert ("scripts" in tokenizer.init_kwargs) == known


@pytest.mark.usefixtures("any_sizes")
def test_a_published_model_that_reads_on_keeps_what_it_read(tmp_path: Path, warnings: list[str]) -> None:
    init = convert_named("small", tmp_path / "init", files=files_of(tmp_path / "source"))
    (tmp_path / "text.txt").write_text("서울 에 간다 .\n" * 40, encoding="utf-8")
    arguments = {"max_steps": 1, "batch_size": 2, "window": 4, "report_to": []}
    pretrain(tmp_path / "out", tmp_path / "text.txt", init=init, pretokenized=True, **arguments)
    tokenizer = ElmoTokenizer.from_pretrained(tmp_path / "out")
    tokenizer("Seoul 부산")
    assert warnings == []
    tokenizer("Москва")
    assert len(warnings) == 1


def test_of_files_without_a_name_nothing_is_known(tmp_path: Path, warnings: list[str]) -> None:
    ElmoTokenizer.from_pretrained(convert(*files_of(tmp_path / "source"), tmp_path / "out"))("서울 Москва 東京")
    assert warnings == []


def test_scripts_that_are_no_list_of_names_are_refused() -> None:
    with pytest.raises(ValueError, match="scripts is 'Latin', but must be a list of names of scripts"):
        ElmoTokenizer(scripts="Latin")("a word")


def test_the_model_that_ships_read_english(warnings: list[str]) -> None:
    scripts = ScriptsRead.of(ElmoTokenizer.from_pretrained(hf_elmo.shipped.FOLDER))
    scripts.check(["Señor", "Brontë's", "café", "—", "“naïve”", "£3", "½"])
    assert warnings == []
    scripts.check(["서울"])
    assert len(warnings) == 1
