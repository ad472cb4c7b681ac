"""The recipe of elmo-compact-en: each rule of its cleaning, its text as a whole, and the table of its card."""

import dataclasses
import gzip
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

import hf_elmo_cli

pytest.importorskip("nltk")

from examples.pretrain_compact import cleaning, evaluate, mixture, prepare, short_runs
from examples.pretrain_compact.prepare import Paragraph
from examples.pretrain_mini import prepare as mini
from examples.pretrain_mini.publish import average, joined, load
from hf_elmo import perplexity
from tests.conftest import TINY
from tests.language_models import TEXTS, small_language_model, small_tokenizer

# What every rule must leave in: prose of all sources, as the repairs leave it.
PROSE = (
    "The president of the company said on Monday that 3,400 workers would keep their jobs until 2024.",
    '"Yes?"',
    '"I don\'t understand," said I, bluntly, and, I fear, gruffly, also.',
    "She bought apples, pears, plums and cherries, and carried them home in a basket.",
    "photosynthesis: process by which plants turn light into chemical energy",
    "In 1971, the United States lowered the voting age from 21 to 18.",
    "He won in Virginia, Alabama, Oklahoma, Tennessee, Minnesota, Arkansas. According to CNN, Maine was close.",
    "The overall mortality rates were 49% for patients of the first group, 53% for those of the second group, 29% for "
    "those of the third, and 34% for all of the others who were treated in the same hospitals during that year.",
    "The château of the Comte de La Tour stood on the hill above the Loire, and nobody lived in it.",
    "Federal agencies can use .gov domains, and the file .htaccess tells the server which of them it serves.",
    "By courtesy of the captain we were allowed to follow us wherever the boats would lead.",
    "Accordingly, Uruguay supports the convening of the summit, to be held in Copenhagen in March 1995.",
    "He wrote ..... and then ..... nothing, but everybody in the town knew well enough what he had not said, "
    "and nobody asked him for it again in all the years that he was there.",
    "Call 'em; let me see 'em.",
    "We do not subscribe to that view of the matter.",
)


@pytest.mark.parametrize("text", PROSE)
def test_prose_stays(text):
    assert cleaning.repaired(text) == text
    assert cleaning.reason(text) is None
    assert not [name for name, holds in cleaning.SENTENCE_RULES if holds(text)]


@pytest.mark.parametrize(
    ("repair", "before", "after"),
    [
        (cleaning.undamaged, "donâ€™t cafÃ©", "don’t café"),
        (cleaning.undamaged, "Assemblyâ\x80\x99s", "Assembly’s"),
        (cleaning.undamaged, "soupe Ã l'oignon", "soupe à l'oignon"),
        (cleaning.undamaged, "the “hotâ€ issues", "the “hot” issues"),
        (cleaning.undamaged, "2012\x9613", "2012–13"),
        (cleaning.undamaged, "co\u00adoper\u200bate\ufeff", "cooperate"),
        (cleaning.undamaged, "Ceará and Ângela, à la carte", "Ceará and Ângela, à la carte"),
        (cleaning.without_markup, "----- ## For press", "For press"),
        (cleaning.without_markup, "See [the guide](https://a.gov/x) **now**, *please*!", "See the guide now, please!"),
        (cleaning.without_markup, 'A <a href="x">link</a> and `code` {{< box >}}', "A link and code "),
        (cleaning.without_markup, "Pain. - Fever. - rash.", "Pain. Fever. rash."),
        (cleaning.without_markup, "snake_case and 2 * 3 - 4 < 5", "snake_case and 2 * 3 - 4 < 5"),
        (cleaning.without_pointers, "the peoples (A/46/PV.59. p. 16).", "the peoples."),
        (cleaning.without_pointers, "one [12] word (Figure 3.2) and (see ) more ()", "one word and more"),
        (cleaning.without_pointers, "as found (Smith & Jones, 1999; Brown et al., 2001) today", "as found today"),
        (cleaning.without_pointers, "a law (of 1999) and (NATO)", "a law (of 1999) and (NATO)"),
        (cleaning.without_stage_directions, "Thank you. (Applause.) Now [Laughter] go", "Thank you. Now go"),
        (cleaning.with_ellipses, "the press . . . shall be free . . . .", "the press ... shall be free ..."),
        (cleaning.with_ellipses, "Contents . . . . . . 12", "Contents . . . . . . 12"),
        (cleaning.one_line, " a\t b\n c ", "a b c"),
        (cleaning.without_speaker, "MK: What did you do?", "What did you do?"),
        (cleaning.without_speaker, "((WSS)) : Why?", "Why?"),
        (cleaning.without_speaker, "AMBASSADOR REINHARDT: No. This is it.", "No. This is it."),
        (cleaning.without_speaker, "Melody Kramer: Tell me.", "Tell me."),
        (cleaning.without_speaker, "Note: This is one. alpha: beta", "Note: This is one. alpha: beta"),
        (cleaning.unglued, "report on it.Craig wrote so.", "report on it. Craig wrote so."),
        (cleaning.unglued, "was high.18 October came. Then", "was high. 18 October came. Then"),
        (cleaning.unglued, "“life.”Then, at 2.5 or at Go.USA.gov", "“life.” Then, at 2.5 or at Go.USA.gov"),
    ],
)
def test_a_repair(repair, before, after):
    assert repair(before) == after
    assert repair in cleaning.REPAIRS


@pytest.mark.parametrize(
    ("rule", "texts"),
    {
        "page header": ("12", "Page 3 of 40", "- 17 -", "xiv", "92-61345", "A/47/PV.21", "Friday, January 4, 2019"),
        "damaged": ("The \ufffdrst of the Ãx was lost.",),
        "boilerplate": (
            "Follow @uswds on Twitter",
            "All rights reserved by the publisher.",
            "Write to us at press@example.org for more.",
            "Image: Nicholas Moreau.",
            "Historical Thinking Skills: HTS-2 Sourcing and Situation",
            "Watch this video to learn more about the ear.",
            "Brian Dille, Mesa Community College",
            "What are the treatments for it? These resources address the management of it: "
            + "Gene Review: It - " * 12,
            "This Narrative should be assigned at the beginning of the unit.",
        ),
        "reference": (
            "The report is at https://example.org/report for everyone to read.",
            "Putnam, Robert D. 2001. Bowling Alone: The Collapse and Revival of American Community. New York: Knopf.",
            "Rymer, R. (1993). Genie: A Scientific Tragedy. Harper Collins.",
            "Hollar-Zwick, Carol. Me, Hemorrhage: Recovery. Amazon, 2020.",
            "Roe v. Wade, 410 U.S. 113 (1973).",
        ),
        "code": ("const { accordion } = USWDS; run();", "curl --remote-name $(path) && make_all the_things"),
        "table": (
            "Score 1 2 3 4 5 6 7",
            "Cell | cell | cell",
            "Introduction ............ 7 ........ 9",
            "V = (4/3) π R3 = (4/3) π (4.2 × 9.5 × 1017)",
            "Kikuyu 17.1%, Luhya 14.3%, Luo 10.7%, Kamba 9.8%, Somali 5.8%",
            "Approximate number of patients (when available) Short stature and other signs of it are seen",
        ),
        "another language": (
            "Luego de la reunión y el almuerzo, me uno a una llamada del equipo de desarrollo.",
            "Enfin, vous est donc décidé. C'est bien alors.",
            "Der Weg ist lang, und die Nacht war kalt.",
            "Не все так думают в нашем городе.",
        ),
        "capitals": ("PAST HISTORY OF MISS ELEANORE LEAVENWORTH", "MR. PRESIDENT, PEACE IS UNDER THREAT."),
        "list": (
            "crude petroleum, diamonds, natural gas, ships, refined petroleum, wheat, soybeans",
            "Fever - Headache - Muscle aches - Tiredness - Loss of appetite",
        ),
        "fragment": ("making audit data more transparent", "The Origins of the War", "and so on,", "..."),
    }.items(),
)
def test_a_rule(rule, texts):
    assert {text: cleaning.reason(cleaning.repaired(text)) for text in texts} == dict.fromkeys(texts, rule)


def test_every_rule_has_a_test():
    (mark,) = (mark for mark in test_a_rule.pytestmark if mark.name == "parametrize")
    assert {name for name, _ in mark.args[1]} == {name for name, _ in cleaning.RULES}


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("boilerplate", "To join, sign up for the list."),
        ("reference", "Ibid., www.example.org."),
        ("gap", "A device used to measure it is shown in ."),
        ("gap", "Instead of , I will eat."),
        ("long word", f"It was {'a' * 51} once."),
    ],
)
def test_a_rule_for_sentences(name, sentence):
    assert next(rule for rule, holds in cleaning.SENTENCE_RULES if holds(sentence)) == name


def test_what_a_rule_for_short_texts_finds_stays_in_a_long_one():
    prose = "The committee met again on the next day and heard what the members had to say about it, and so on and on "
    for text in ("sign up for the list", "see www.example.org"):
        assert cleaning.reason(f"{text}.") is not None
        assert cleaning.reason(f"{prose * 2}until they could {text}.") is None


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("The Origins of the Cold War", True),
        ("What data is available via the API", True),
        ("making audit data more transparent", False),
        ("Introduction", False),
        ("The war began.", False),
        (" ".join(["Word"] * 15), False),
    ],
)
def test_titles(text, title):
    assert cleaning.is_title(text) == title


def test_lines_that_a_document_repeats_are_headers():
    document = [
        "Annual Report",
        "It rained.",
        "Annual Report",
        "It rained.",
        "Annual Report",
        "It rained.",
        "Twice",
        "Twice",
    ]
    assert cleaning.running_headers(document) == {"Annual Report"}


def test_a_document_in_another_language_goes_with_its_headings():
    spanish = "Luego de la reunión y el almuerzo, me uno a una llamada del equipo de desarrollo."
    assert cleaning.is_another_language_altogether([spanish, "Salud", "Some English words here are too few."])
    assert not cleaning.is_another_language_altogether([spanish, "Some English words here are more. " * 4])


def words(count: int, seed: int) -> str:
    """A text of words that come once."""
    return " ".join(f"w{seed}x{number}" for number in range(count))


def test_duplicates():
    duplicates = cleaning.Duplicates(cleaning.Hashes())
    text = words(60, seed=1)
    assert duplicates.reason(text) is None
    assert duplicates.reason(f"{text.upper()} !") == "duplicate"
    assert duplicates.reason("Yes, sir, I do so.") is None
    assert duplicates.reason("Yes, sir, I do so.") is None  # too short
    assert duplicates.reason("Yes, sir, I do so.", shortest=1) is None
    assert duplicates.reason("Yes, sir, I do so.", shortest=1) == "duplicate"


@pytest.mark.parametrize(("shared", "found"), [(0, None), (20, None), (50, "near duplicate"), (60, "near duplicate")])
def test_near_duplicates_share_most_of_their_runs(shared, found):
    duplicates = cleaning.Duplicates(cleaning.Hashes())
    text = words(64, seed=1).split()
    assert duplicates.reason(" ".join(text)) is None
    assert duplicates.reason(" ".join(text[:shared]) + " " + words(64 - shared, seed=2)) == found


def test_a_paragraph_that_was_left_out_is_not_remembered():
    duplicates = cleaning.Duplicates(cleaning.Hashes())
    first, ending = words(64, seed=1), words(24, seed=2)
    assert duplicates.reason(first) is None
    assert duplicates.reason(f"{first} {ending}") == "near duplicate"
    assert duplicates.reason(ending) is None


@pytest.mark.parametrize(("length", "shares"), [(12, False), (13, True)])
def test_overlap_is_a_run_of_13_words(length, shares):
    overlap = cleaning.Overlap(cleaning.Hashes())
    tested = words(30, seed=1).split()
    overlap.add([" ".join(tested[:7]), " ".join(tested[7:])])
    run = " ".join(tested[3 : 3 + length])
    assert overlap.shares([f"{words(5, seed=2)} {run}", words(9, seed=3)]) == shares


@pytest.mark.parametrize(("length", "shares"), [(7, False), (8, True)])
def test_overlap_is_a_whole_sentence_of_eight_words(length, shares):
    overlap = cleaning.Overlap(cleaning.Hashes())
    sentence = words(length, seed=1)
    overlap.add([sentence])
    assert overlap.shares([words(5, seed=2), sentence]) == shares
    assert not overlap.shares([f"{sentence} more"])


def test_overlap_sees_through_notations():
    plain = "He didn't pay 1,500 dollars for the long-term loan of Smith's bank, \"he said\"."
    tokenized = "He didn 't pay 1 @,@ 500 dollars for the long @-@ term loan of Smith 's bank , \" he said \" ."
    assert cleaning.plain_words(plain) == cleaning.plain_words(tokenized)
    overlap = cleaning.Overlap(cleaning.Hashes())
    overlap.add([tokenized])
    assert overlap.shares([plain])


def test_hashes_are_the_same_in_every_process():
    hashes = cleaning.Hashes()
    assert hashes.words(["the", "of"]).tolist() == [0x5EDAAB6C90973A2E, 0xBE7E43D2EE604E93]
    runs = hashes.runs([*"abcabcd"], 3)
    assert runs[0] == runs[3]
    assert len(set(runs.tolist())) == 4
    assert runs.tolist() == cleaning.Hashes().runs([*"abcabcd"], 3).tolist()
    assert hashes.runs(["a", "b"], 3).size == 0


def test_what_is_held_out_depends_on_names_alone():
    source = prepare.SOURCES[0]
    parts = [prepare.part_of(source, str(number)) for number in range(20_000)]
    assert parts == [prepare.part_of(source, str(number)) for number in range(20_000)]
    assert parts.count("heldout_modern") == pytest.approx(200, abs=50)
    assert parts.count("dev_modern") == pytest.approx(40, abs=20)
    (books,) = (source for source in prepare.SOURCES if source.read is prepare.books)
    assert [prepare.part_of(books, name) for name in ("pg_174", "pg_46", "pg_84")] == ["heldout", "dev", "train"]


def test_notation_of_tokenized_corpora():
    known = {"The", "long", "term", "loan", "of"}
    line = "The long-term loan of 1,500.25 dollars ( x1 ) -- Mr. 's 2-for-1"
    expected = "The long @-@ term loan of 1 @,@ 500 @.@ 25 <unk> ( <unk> ) -- <unk> 's 2 @-@ <unk> @-@ 1"
    assert prepare.in_notation(line, known) == expected
    title = prepare.title_in_notation("The Mid-term loan", known)
    assert title.strip("= ") == "The <unk> @-@ term loan"
    levels = {prepare.title_in_notation(f"The loan {number}", known).split(" The ")[0] for number in range(40)}
    assert levels == {"=", "= =", "= = ="}


def test_half_of_the_paragraphs_are_lines_and_the_other_half_in_the_second_reading():
    paragraphs = [Paragraph([f"Sentence {number} .", "Second ."]) for number in range(400)]
    first, second = ([prepare.lines_of(one, reading) for one in paragraphs] for reading in (0, 1))
    assert 150 < sum(len(lines) == 1 for lines in first) < 250
    assert all(sorted(map(len, pair)) == [1, 2] for pair in zip(first, second, strict=True))
    assert first[0] in ([" ".join(paragraphs[0].sentences)], paragraphs[0].sentences)


def test_text_of_today_is_read_twice_in_part_in_notation():
    paragraphs = [Paragraph([f"A well-known rule {number} ."]) for number in range(400)]
    known = {"A", "well", "known", "rule"}
    old, new = ([list(prepare.training_lines(one, modern, known)) for one in paragraphs] for modern in (False, True))
    assert old == [one.sentences for one in paragraphs]
    assert {len(lines) for lines in new} == {2}
    assert 0.2 < np.mean([" @-@ " in line for lines in new for line in lines]) < 0.3
    titles = [Paragraph([f"A rule {number}"], title=True) for number in range(200)]
    marked = [line.startswith("=") for one in titles for line in prepare.training_lines(one, True, known)]
    assert 0.4 < np.mean(marked) < 0.6


def test_the_last_run_reads_each_source_as_often_as_it_says():
    paragraphs = [Paragraph([f"A well-known rule {number} .", "It holds ."]) for number in range(400)]
    known = {"A", "well", "known", "rule", "It", "holds"}
    for last, modern in ((3, True), (0.4, False), (1.5, True)):
        source = dataclasses.replace(prepare.SOURCES[0], modern=modern, last=last)
        found = [list(prepare.last_lines(one, source, known)) for one in paragraphs]
        words = sum(len(line.replace(" @-@ ", "-").split()) for lines in found for line in lines)
        assert words == pytest.approx(8 * 400 * last, rel=0.1)
        marked = np.mean([" @-@ " in line for lines in found for line in lines if "rule" in line])
        assert 0.35 < marked < 0.45 if modern else marked == 0
    assert {len(lines) for lines in found} == {1, 2, 3}  # a line, its two sentences, or both
    titles = [Paragraph([f"A rule {number}"], title=True) for number in range(400)]
    marked = [line.startswith("=") for one in titles for line in prepare.last_lines(one, prepare.SOURCES[0], known)]
    assert 0.55 < np.mean(marked) < 0.65


def test_readings_of_the_last_run_differ_from_those_before():
    paragraphs = [Paragraph([f"A well-known rule {number} ."]) for number in range(200)]
    source = dataclasses.replace(prepare.SOURCES[0], last=2)
    before = [list(prepare.training_lines(one, True, {"A", "rule"})) for one in paragraphs]
    assert before != [list(prepare.last_lines(one, source, {"A", "rule"})) for one in paragraphs]


def test_a_bigram_model():
    train = mixture.word_ids(["a b a b a c", "a b"], {"a": 2, "b": 3, "c": 4})
    assert train.tolist() == [0, 2, 3, 2, 3, 2, 4, 0, 2, 3, 0]
    size = 5
    found = np.array(
        [mixture.bigram_probabilities(train, np.full(size, before), np.arange(size), size) for before in range(size)]
    )
    assert np.allclose(found.sum(axis=1), 1)
    unigram = (np.array([3, 0, 4, 3, 1]) + 4 / size) / (11 + 4)
    assert np.allclose(
        found[2], (np.array([0, 0, 0, 3, 1]) + 2 * unigram) / (4 + 2)
    )  # after "a": b three times, c once
    assert np.allclose(found[1], unigram)  # nothing was seen after it


def test_the_weights_of_a_mixture():
    rng = np.random.default_rng(0)
    models = rng.dirichlet(np.ones(20), size=3)
    words = rng.choice(20, size=20_000, p=np.array([0.7, 0.3, 0.0]) @ models)
    weights = mixture.mixture_weights(models[:, words])
    assert np.allclose(weights, [0.7, 0.3, 0.0], atol=0.05)
    assert weights.sum() == pytest.approx(1)
    best = mixture.perplexity(weights @ models[:, words])
    assert best < min(mixture.perplexity(own) for own in models[:, words])


def test_frequent_words_count_text_of_today_twice():
    modern, old = prepare.SOURCES[0], prepare.SOURCES[-1]
    train = {modern: [Paragraph(["new-found now now"])], old: [Paragraph(["old old old then then"])]}
    assert prepare.frequent_words(train, 2) == {"now", "old"}
    assert prepare.frequent_words(train, 5) == {"now", "old", "new", "found", "-"}


def gz(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()))


def test_readers(tmp_path):
    gz(tmp_path / "a.txt.gz", "one\r\ntwo\n\n\nthree\n\nfour\n\nfive\n")
    assert list(prepare.texts(tmp_path)) == [("0", ["one", "two"]), ("1", ["three"]), ("2", ["four"]), ("3", ["five"])]
    assert list(prepare.one_in_three(tmp_path)) == [("0", ["one", "two"]), ("3", ["five"])]
    gz(tmp_path / "a.txt.gz", "\n\n".join(f"line {number}" for number in range(250)))
    assert [(name, len(lines)) for name, lines in prepare.single_sentences(tmp_path)] == [
        ("0", 100),
        ("1", 100),
        ("2", 50),
    ]


TESTED = "He could play the piano , the flute and the violin before he could read or write at all ."


def sentence(key: str) -> str:
    """A sentence of small words that no other key has in this order."""
    first = ["bdfgklmnprst"[int(12 * prepare.draw(key, place))] for place in range(14)]
    second = [("ab", "ex", "ick", "op", "ux")[int(5 * prepare.draw(place, key))] for place in range(14)]
    return f"The {' '.join(map(str.__add__, first, second))} of it was well-known."


@pytest.fixture
def data(tmp_path) -> Path:
    """All sources, small, and the texts that models are tested on."""
    folder = tmp_path / "data"
    for source in prepare.SOURCES:
        documents = [
            [
                f"{sentence(f'{source.path} {number} {line}')} {sentence(f'{line} {number} {source.path}')}"
                for line in "abc"
            ]
            for number in range(150)
        ]
        for number in range(9):
            key = f"{sentence(f'{source.path} {number}')} {sentence(f'{number} {source.path}')}"
            documents[number] += ["Click here!", documents[number][0], f"{key} {TESTED}", "Salient Points of It"]
        if source.read is prepare.books:
            for name in ("A_book", *mini.HELD_OUT, *mini.DEV):
                gz(folder / "lm" / source.path / "books" / f"{name}.txt.gz", sentence(name) * 3 + "\n\nIt rained.\n")
        else:
            text = "\n\n".join("\n".join(document) for document in documents)
            gz(folder / "lm" / source.path / "text.txt.gz", text)
    for part in ("valid", "test"):
        path = folder / "lm" / "other" / "wikitext-2" / f"{part}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f" \n = Head = \n \n The {part} was 3 @.@ 5 @-@ mile . He went .\n", encoding="utf-8")
    gz(folder / "lm" / "other" / "brown.txt.gz", f"{TESTED}\n`` We saw a play '' , he said .\nA play on words .\n")
    for word in ("line", "interest"):
        instances = "".join(
            f'<instance id="{word}"><answer instance="x" senseid="{sense}"/><context>\n'
            f'<wf pos="DT">{other}{number}</wf> <head><wf pos="NN">{word}</wf></head>\n</context></instance>\n'
            for sense, other in (("a", "the"), ("b", "some"))
            for number in range(6)
        )
        gz(folder / "wsd" / "senseval" / f"{word}.pos.gz", instances)
    return folder


def test_the_whole_text(data, tmp_path, capsys):
    out, again = tmp_path / "out", tmp_path / "again"
    left_out = tmp_path / "left_out.tsv"
    prepare.main([str(data), str(out), "--vocab-size", "60", "--left-out", str(left_out)])
    names = {"train.txt", "last.txt", "heldout.txt", "heldout_modern.txt", "dev.txt", "vocab.txt", "sources.md"}
    assert {path.name for path in out.iterdir()} == names
    parts = {path.stem: path.read_text(encoding="utf-8").splitlines() for path in out.glob("*.txt")}
    assert len(parts["vocab"]) == 60
    assert parts["heldout"].count("It rained .") == len(mini.HELD_OUT)
    assert parts["dev"].count("It rained .") == 1
    assert parts["heldout_modern"]
    hashes = cleaning.Hashes()
    tested = cleaning.Overlap(hashes)
    for part in ("heldout", "heldout_modern", "dev"):
        tested.add(parts[part])
    tested.add([TESTED])
    assert not [line for part in ("train", "last") for line in parts[part] if tested.shares([line])]
    assert len(parts["train"]) > 1000
    assert 0.2 < np.mean(["well @-@ known" in line for line in parts["train"] if "known" in line]) < 0.3
    rules = {tuple(line.split("\t")[:2]) for line in left_out.read_text(encoding="utf-8").splitlines()}
    for source in prepare.SOURCES:
        if source.read is not prepare.books:
            assert {(source.path, rule) for rule in ("boilerplate", "duplicate", "tested on")} <= rules
    page = (out / "sources.md").read_text(encoding="utf-8")
    assert all(f"| {source.path} |" in page and source.license in page for source in prepare.SOURCES)
    assert "modern/masc_open" in page
    assert f"train           {len(parts['train']):9,} lines" in capsys.readouterr().out
    prepare.main([str(data), str(again), "--vocab-size", "60"])
    assert {name: (out / name).read_bytes() for name in names} == {name: (again / name).read_bytes() for name in names}


def test_the_weights_of_the_sources(data, capsys):
    mixture.main([str(data)])
    header, _, *rows, total = capsys.readouterr().out.splitlines()
    assert header.startswith("| source | words and lines |")
    assert [row.split(" | ")[0].strip("| ") for row in rows] == [source.path for source in prepare.SOURCES]
    for column in (3, 4):
        assert sum(float(row.split(" | ")[column].strip("% |")) for row in rows) == pytest.approx(100, abs=1)
    alone = [float(row.split(" | ")[2].replace(",", "")) for row in rows]
    assert float(total.split(" | ")[2].replace(",", "")) <= min(alone)


def test_words_are_counted(data):
    reader = prepare.Reader()
    source = prepare.SOURCES[0]
    found = reader.clean(source, ["Click here now!", "It rained all day. It is shown in .", "The Origins of War", "12"])
    assert found == [Paragraph(["It rained all day ."]), Paragraph(["The Origins of War"], title=True)]
    count = reader.counts[source.path]
    assert (count.documents, count.words) == (1, 17)
    assert count.left_out == {"boilerplate": 3, "gap (sentence)": 5, "page header": 1}
    (single,) = (source for source in prepare.SOURCES if source.single)
    assert reader.clean(single, ["Where is my other shoe"]) == [Paragraph(["Where is my other shoe"])]
    assert reader.clean(single, ["Where is my other shoe"]) == []


def test_a_book_in_one_paragraph_is_cut_into_pieces(data):
    reader = prepare.Reader()
    text = " ".join(sentence(f"a {number}") for number in range(60)) + " Click here!"
    found = reader.clean(prepare.SOURCES[-1], ["It rained.", text])
    assert sum(len(one.sentences) for one in found) == 61
    assert max(len(" ".join(one.sentences).split()) for one in found) < 500
    assert len(found) == 4
    assert reader.counts[prepare.SOURCES[-1].path].left_out == {"boilerplate (sentence)": 2}


def test_a_missing_source_is_named(data):
    gone = data / "lm" / "modern" / "wikinews_2019_2020_cc_by"
    (gone / "text.txt.gz").unlink()
    gone.rmdir()
    with pytest.raises(FileNotFoundError, match="wikinews_2019_2020_cc_by is missing"):
        prepare.read(data, prepare.Reader())


def test_the_beginning_of_the_real_text(shared, tmp_path):
    prepare.main([str(shared / "data"), str(tmp_path), "--documents", "3"])
    counts = {path.stem: len(path.read_text(encoding="utf-8").split()) for path in tmp_path.glob("*.txt")}
    assert counts["heldout"] == 330_886  # the first recipe's, to the letter
    assert 10_000 < counts["vocab"] <= 40_000
    train = (tmp_path / "train.txt").read_text(encoding="utf-8")
    assert counts["train"] > 300_000
    assert "http" not in train
    assert " @-@ " in train
    page = (tmp_path / "sources.md").read_text(encoding="utf-8")
    assert all(f"| {source.path} |" in page for source in prepare.SOURCES)


@pytest.fixture
def folder(tmp_path) -> str:
    """A saved language model of random weights."""
    path = tmp_path / "model"
    path.mkdir()
    tokenizer = small_tokenizer(path)
    small_language_model(tokenizer).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return str(path)


def test_ranks_of_answers(tmp_path):
    tokenizer = small_tokenizer(tmp_path)
    model = small_language_model(tokenizer).base_model
    sentences = ["the cat saw a play", "it rained", "a play", "the cats saw a play", "we Play"]
    (by_layer, count), (other, _) = evaluate.ranks(model, tokenizer, sentences, "play", {0: 3, 3: 0})
    assert count == 3  # all others with the word, in any case
    assert by_layer == {1: 1, 2: 1}
    assert other == {1: 1, 2: 1}
    last, _ = evaluate.ranks(model, tokenizer, sentences, "play", {0: 4})[0]
    assert last[1] > 1


def test_perplexities_are_those_of_the_command(tmp_path):
    tokenizer = small_tokenizer(tmp_path)
    model = small_language_model(tokenizer)
    (tmp_path / "text.txt").write_text("".join(f"{text}\n" for text in TEXTS), encoding="utf-8")
    expected = perplexity(model, tokenizer, tmp_path / "text.txt", pretokenized=True)
    rows = evaluate.perplexities(model, tokenizer, {"a text": TEXTS})
    assert rows == {"perplexity, a text": f"{expected.mean:.1f} ({expected.unknown:.1%} unknown)"}


def test_texts_of_the_table(data, tmp_path):
    for part in ("heldout", "heldout_modern"):
        (tmp_path / f"{part}.txt").write_text(f"{part} .\n", encoding="utf-8")
    assert list(evaluate.texts(tmp_path, data).values()) == [
        ["heldout ."],
        ["heldout_modern ."],
        [" = Head = ", " The test was 3 @.@ 5 @-@ mile . He went ."],
        ["The test was 3.5-mile .", "He went ."],
    ]


def test_brown_has_quotation_marks(data):
    assert evaluate.brown(data / "lm" / "other" / "brown.txt.gz")[1] == '" We saw a play " , he said .'


def test_the_table_of_two_models(data, folder, tmp_path, monkeypatch, capsys):
    pytest.importorskip("accelerate")
    monkeypatch.setattr(evaluate, "PLAY", {1: 2})
    monkeypatch.setattr(evaluate.sms_spam, "TRAIN", 12)
    (data / "sms_spam").mkdir()
    rows = "".join(
        f"{'spam' if number % 3 else 'ham'},message {number} {'win' * (number % 3)}\n" for number in range(20)
    )
    (data / "sms_spam" / "spam.csv").write_text(f"v1,v2\n{rows}", encoding="latin-1")
    for part in ("heldout", "heldout_modern"):
        (tmp_path / f"{part}.txt").write_text("the cat sat\na dog\n", encoding="utf-8")
    measures = [name for name in evaluate.MEASURES if name != "frozen"]
    options = ["--data", str(data), "--seeds", "1", "--measure", *measures]
    evaluate.main([folder, f"{folder}/", "--corpus", str(tmp_path), *options])
    header, _, *rows = capsys.readouterr().out.splitlines()
    assert header == "|  | model |"  # the same name twice is one column
    names = [row.split(" | ")[0] for row in rows]
    assert sum("perplexity" in name for name in names) == 4
    assert sum("senses of" in name for name in names) == 12
    assert sum("play" in name for name in names) == 2
    assert "SMS spam" in names[-1]
    assert all(row.count("|") == 3 and row.split(" | ")[1].strip(" |") for row in rows)


def test_news_and_names_on_frozen_vectors(data_with_vectors, folder, tmp_path, monkeypatch, capsys):
    pytest.importorskip("seqeval")
    data = data_with_vectors(["team", "wins", "anna", "met"])
    monkeypatch.setattr(evaluate.ag_news, "TRAIN_TITLES", 30)
    (data / "ag_news").mkdir()
    titles = [f'"{number % 4 + 1}","Team {number % 4} wins","today"\n' for number in range(40)]
    (data / "ag_news" / "test.csv").write_text("".join(titles), encoding="utf-8")
    for name in evaluate.NAMES:
        task = evaluate.TASKS[name]
        columns = [["-"] * (task.tag + 1) for _ in range(2)]
        for own, word, tag in zip(columns, ("Anna", "met"), ("B-PER", "O"), strict=True):
            own[task.word], own[task.tag] = word, tag
        text = "".join(task.separator.join(own) + "\n" for own in columns) + "\n"
        for file in task.files:
            gz(data / file, text * 20)
    options = ["--data", str(data), "--seeds", "2", "--limit", "1", "--measure", "frozen"]
    evaluate.main([folder, "--corpus", str(tmp_path), *options])
    _, _, weights, topics, *names = capsys.readouterr().out.splitlines()
    assert weights.startswith("| weights |")
    assert topics.startswith("| news topics, titles, embedding + ELMo, 2 seeds | ")
    assert [row.split(", ")[0] for row in names] == ["| names in web text (uner_ewt)", "| names in posts (wnut17)"]
    assert all(" ± " in row for row in (topics, *names))


def test_question_types_on_frozen_vectors(data_with_vectors, folder, tmp_path, capsys):
    data = data_with_vectors(["what", "who"])
    (data / "trec").mkdir()
    for name in evaluate.question_types.FILES.values():
        (data / "trec" / name).write_text("DESC:def What is it ?\nHUM:ind Who is it ?\n" * 20, encoding="latin-1")
    options = ["--data", str(data), "--seeds", "2", "--limit", "1", "--measure", "questions"]
    evaluate.main([folder, "--corpus", str(tmp_path), *options])
    _, _, _, row = capsys.readouterr().out.splitlines()
    assert row.startswith("| question types (TREC-6), embedding + ELMo, 2 seeds | ")
    assert "% ± " in row
    assert "questions" not in evaluate.MEASURES  # its files are not in the data folder


def test_the_table_has_a_column_for_each_model():
    found = {"old": {"a": "1", "b": "2"}, "new": {"a": "3", "c": "4"}}
    assert evaluate.table(found).splitlines() == [
        "|  | old | new |",
        "| --- | --- | --- |",
        "| a | 1 | 3 |",
        "| b | 2 |  |",
        "| c |  | 4 |",
    ]


# -- the command -------------------------------------------------------------------------------------------------------

# Stands in for hf-elmo and python: writes its arguments down, and what a run leaves; the second run is stopped once.
STAND_IN = """#!/bin/bash
printf '%s\\n' "$(basename "$0")" "$@" '' >> "$CALLS"
[ "$1" = pretrain ] || exit 0
mkdir -p "$2/checkpoint-500"
[ -d "$2/../run2" ] && [ ! -f "$CALLS.stopped" ] && touch "$CALLS.stopped" && exit 3
touch "$2/model.safetensors"
"""


def test_the_command_trains_in_three_runs_and_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    programs, out = tmp_path / "programs", tmp_path / "out"
    for folder in (programs, out / "corpus"):
        folder.mkdir(parents=True)
    for name in ("hf-elmo", "python"):
        (programs / name).write_text(STAND_IN)
        (programs / name).chmod(0o755)
    for name, text in (("sources.md", ""), ("train.txt", "a b\nc\n"), ("last.txt", "a b c d\n")):
        (out / "corpus" / name).write_text(text)
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "CALLS": str(tmp_path / "calls")}
    command = ["bash", str(Path(prepare.__file__).with_name("run.sh")), "DATA", str(out)]
    ended = [subprocess.run(command, env=environment, check=False).returncode for _ in range(2)]
    assert ended == [3, 0]
    calls = [call.split("\n") for call in (tmp_path / "calls").read_text().strip("\n").split("\n\n")]
    first, stopped, resumed, last, publish, evaluate = calls
    for call, folder, text, before in (
        (first, "run", "train", None),
        (stopped, "run2", "train", "run"),
        (resumed, "run2", "train", "run"),
        (last, "run3", "last", "run2"),
    ):
        options = hf_elmo_cli.make_parser().parse_args(call[1:])  # that each option is one
        assert (call[0], options.out) == ("hf-elmo", str(out / folder))
        assert str(out / "corpus" / f"{text}.txt") in call
        assert options.init == (before and str(out / before))
    assert [call[-1] == "--resume" for call in (first, stopped, resumed, last)] == [False, False, True, False]
    assert stopped == resumed[:-1]
    assert publish[2:4] == [str(out / "run3"), str(out / "elmo-compact-en")]
    assert publish[4:] == ["--before", str(out / "run"), str(out / "run2"), "--average", str(out / "run2"), "0.3"]
    assert evaluate[1:3] == ["-m", "examples.pretrain_compact.evaluate"]


def test_short_runs_have_the_same_compute(tmp_path: Path, monkeypatch, capsys) -> None:
    for name, lines in (("train.txt", TEXTS * 40), ("dev.txt", TEXTS * 4)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    small_tokenizer(tmp_path)  # its vocab.txt
    monkeypatch.setattr(short_runs, "CONFIG", {**TINY, "num_sampled": 5})
    of_five = {"rows": 3, "window": 5}
    small = {
        "the recipe": short_runs.Variant(**of_five),
        "no steps": short_runs.Variant(settings=short_runs.ADAM | {"learning_rate": 0.0}, **of_five),
        "separate": short_runs.Variant(bilm_rate=0.01, **of_five),
        "Adagrad": short_runs.Variant(settings={"optim": "adagrad"}, **of_five),
        "larger": short_runs.Variant({"cell_size": 3 * TINY["cell_size"]}, **of_five),
    }
    monkeypatch.setattr(short_runs, "VARIANTS", small)
    monkeypatch.setattr(short_runs, "Variant", lambda: small["the recipe"])
    short_runs.main([str(tmp_path), "--words", "300", "--lines", "4"])
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[0] for row in rows] == list(small)
    found = {name: float(perplexity) for name, *_, perplexity in rows}
    assert found["the recipe"] < found["no steps"]
    assert found["separate"] != found["the recipe"]
    assert found["Adagrad"] < found["no steps"]

    compute = 300 * short_runs.operations(small["the recipe"], tmp_path)
    for name, words in (("the recipe", 300), ("larger", None)):
        _, each, read, _ = short_runs.run(small[name], tmp_path, compute, tmp_path / "dev.txt")
        assert read == (words or read)
        assert read * each == pytest.approx(compute, abs=15 * each)  # to an update
    assert each > 1.2 * compute / 300


def test_the_weights_of_a_run_before_have_their_share(tmp_path: Path) -> None:
    models = [small_language_model(small_tokenizer(tmp_path)) for _ in range(2)]
    with torch.no_grad():
        for parameter in models[1].parameters():
            parameter.add_(torch.linspace(-1, 1, parameter.numel()).view_as(parameter))
    one, other = ({name: weight.clone() for name, weight in model.state_dict().items()} for model in models)
    for number, model in enumerate(models):
        (tmp_path / "run" / str(number)).mkdir(parents=True)
        model.save_pretrained(tmp_path / "run" / str(number))
    models = [load(tmp_path / "run" / str(number)) for number in range(2)]
    average(*models, 0.25)
    for (name, weight), untouched in zip(models[0].state_dict().items(), models[1].state_dict().values(), strict=True):
        torch.testing.assert_close(weight, 0.75 * one[name] + 0.25 * other[name])
        assert torch.equal(untouched, other[name])
    assert not any(torch.equal(weight, one[name]) for name, weight in models[0].named_parameters())


def test_the_curve_of_a_run_goes_on_from_the_one_before() -> None:
    before = [{"loss": 4.0, "step": 5}, {"loss": 3.0, "step": 20}]
    after = [{"loss": 3.5, "step": 5}, {"loss": 2.5, "step": 10}]
    words = [(one["loss"], one["words"]) for one in joined([before, after], 40)]
    assert words == [(4.0, 200), (3.0, 800), (3.5, 1000), (2.5, 1200)]
