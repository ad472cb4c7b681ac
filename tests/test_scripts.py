"""A model that is asked for a script which it never read says so, once, where its vocabulary tells."""

import logging
from pathlib import Path

import pytest

import hf_elmo.words_elmo
from hf_elmo import ElmoTokenizer, embed
from hf_elmo.character_vocab_elmo import CharacterVocabulary
from hf_elmo.words_elmo import ScriptsRead, script_of


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


def test_the_model_that_ships_read_english(warnings: list[str]) -> None:
    scripts = ScriptsRead.of(ElmoTokenizer.from_pretrained(hf_elmo.shipped.FOLDER))
    scripts.check(["Señor", "Brontë's", "café", "—", "“naïve”", "£3", "½"])
    assert warnings == []
    scripts.check(["서울"])
    assert len(warnings) == 1
