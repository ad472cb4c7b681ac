"""Coreference on Trainer and over texts: documents as rows, batches, stored layers, clusters."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import Trainer, TrainingArguments

from hf_elmo import (
    CoreferenceCollator,
    ElmoConfig,
    ElmoForCoreferenceResolution,
    ElmoForTokenClassification,
    ElmoTokenizer,
    coreference_metrics,
    encode_document,
    resolve,
    store_layers,
)
from tests.conftest import TINY, random_model

FIELDS = {"coreference_max_width": 3, "coreference_hidden_size": 9, "coreference_feature_size": 4}
NAMES = ["Ann", "Bo", "Zoe", "Quentin", "Ruth"]
TEXT = "Ann saw a dog.\n\n  She (Ann!) called it .\nIt came."


def make(**changes: object) -> ElmoForCoreferenceResolution:
    return random_model(ElmoConfig(**{**TINY, **FIELDS, **changes}), ElmoForCoreferenceResolution)


def test_a_document_is_its_sentences_one_after_another(tokenizer: ElmoTokenizer) -> None:
    tokenizer.words = ["a", "dog"]
    sentences = [["Ann", "saw", "a", "dog"], ["She", "ran"]]
    row = encode_document(tokenizer, sentences, [[(0, 0), (4, 4)], [(2, 3)]], ["Eve", None])
    alone = [tokenizer(sentence, is_split_into_words=True) for sentence in sentences]
    for name in ("input_ids", "attention_mask", "word_vector_ids"):
        assert row[name] == alone[0][name] + alone[1][name]
    assert row["labels"] == [[0, 0, 0], [4, 4, 0], [2, 3, 1]]
    assert row["speaker_ids"] == [1] * 6 + [0] * 4
    text = encode_document(tokenizer, "Ann saw a dog\n \nShe ran\n", speakers=["Eve", "Bo", None, "Eve"])
    assert text["input_ids"] == row["input_ids"]
    assert text["speaker_ids"] == [1] * 6 + [0] * 4


@pytest.mark.parametrize(
    ("document", "more", "said"),
    [
        ([], {}, r"the document \[\] has no words"),
        ([[]], {}, "has no words"),
        ("\n ", {}, "has no words"),
        ([["a"], ["b"]], {"speakers": ["Eve"]}, "1 speakers, but 2 sentences"),
        ([["a"], ["b"], ["c"]], {"speakers": "Eve"}, "speakers are the string 'Eve': give a list"),
        ([["a"], "She ran ."], {}, r"sentence 1 is the string 'She ran .', .* list of words; a text is one string"),
    ],
)
def test_documents_that_cannot_be_encoded(tokenizer: ElmoTokenizer, document: list, more: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        encode_document(tokenizer, document, **more)


@pytest.mark.parametrize(
    ("clusters", "said"),
    [
        ([[(0, 0), (30, 30)]], "mention of cluster 0 from word 30 to word 30, but its words are 0 to 3"),
        ([[(0, 0), (1, 1)], [(-1, 0)]], "cluster 1 from word -1 to word 0, but its words are"),
        ([[(-100, -100)]], "from word -100 to word -100, but its words are"),
        ([[(1, 0)]], "from word 1 to word 0, but its words are"),
        ([[(1, 2)]], "from word 1 to word 2, but these are in sentences 0 and 2: cut it there"),
        ([[(0, 0), (3, 3)], [(3, 3), (1, 1)]], "cluster 1 from word 3 to word 3, but cluster 0 has it, too"),
        ([[(0, 0), (0, 0)]], "cluster 0 from word 0 to word 0, but cluster 0 has it, too"),
    ],
)
@pytest.mark.parametrize("document", ["Ann ran\n \nShe fell", [["Ann", "ran"], [], ["She", "fell"]]])
def test_mentions_that_a_document_cannot_have(tokenizer, document: str | list, clusters: list, said: str) -> None:
    with pytest.raises(ValueError, match=f"the document {re.escape(repr(document))} has a .*{said}"):
        encode_document(tokenizer, document, clusters)


def test_words_that_are_read_as_boundaries() -> None:
    document = [["a"], ["b", "<S>", "</S>"]]
    tokenizer = ElmoTokenizer(word_splitting="whitespace", split_special_tokens=False)
    with pytest.raises(ValueError, match="a word of sentence 1 is read as a boundary"):
        encode_document(tokenizer, document)
    assert len(encode_document(ElmoTokenizer(), document)["input_ids"]) == 8


@pytest.mark.parametrize("side", ["right", "left"])
def test_batches(tokenizer: ElmoTokenizer, side: str) -> None:
    tokenizer.padding_side = side
    rows = [
        {**encode_document(tokenizer, [["Ann", "ran"], ["She"]], [[(0, 0), (2, 2)]], ["Eve", "Bo"]), "genre_ids": 2},
        {**encode_document(tokenizer, [["Rain"]], [], [None]), "genre_ids": 0},
    ]
    batch = CoreferenceCollator(tokenizer)(rows)
    assert batch["labels"].tolist() == [[[0, 0, 0], [2, 2, 0]], [[-100] * 3] * 2]
    assert batch["speaker_ids"].tolist() == [[1] * 4 + [2] * 3, [0] * 7]
    assert batch["genre_ids"].tolist() == [2, 0]
    assert batch["input_ids"].shape == (2, 7, 50)
    own = slice(0, 3) if side == "right" else slice(4, 7)
    assert batch["input_ids"][1, own].tolist() == rows[1]["input_ids"]
    assert "labels" not in CoreferenceCollator(tokenizer)([encode_document(tokenizer, "a")])


@pytest.mark.parametrize("name", ["labels", "speaker_ids", "genre_ids"])
@pytest.mark.parametrize("first", [True, False])
def test_some_documents_of_a_batch_without_a_column(tokenizer: ElmoTokenizer, name: str, first: bool) -> None:
    whole = {**encode_document(tokenizer, "Ann ran", [[(0, 0)]], ["Eve"]), "genre_ids": 2}
    for without in ({key: value for key, value in whole.items() if key != name}, {**whole, name: None}):
        rows = [without, whole] if first else [whole, without]
        with pytest.raises(ValueError, match=f"document {1 - first} of the batch has no {name}, but others have"):
            CoreferenceCollator(tokenizer)(rows)
        assert name not in CoreferenceCollator(tokenizer)([without, without])


def people(number: int, seed: int) -> list[tuple[list, list]]:
    """Documents in which each name is there several times, among other words: who is spelled alike is the same."""
    rng, documents = np.random.default_rng(seed), []
    for _ in range(number):
        names = rng.choice(NAMES, size=3, replace=False).tolist()
        sentences, clusters = [], {name: [] for name in names}
        for _ in range(4):
            sentence = []
            for name in rng.choice(names, size=2, replace=False).tolist():
                clusters[name].append((sum(map(len, sentences)) + len(sentence),) * 2)
                sentence += [name, "".join(rng.choice(list("xyz"), size=3))]
            sentences.append(sentence)
        documents.append((sentences, list(clusters.values())))
    return documents


@pytest.mark.parametrize("stored", [False, True], ids=["input_ids", "stored layers"])
def test_it_learns(tokenizer: ElmoTokenizer, tmp_path: Path, stored: bool) -> None:
    torch.manual_seed(0)
    tokenizer.words = NAMES
    fields = {"word_vectors_vocab_size": len(NAMES) + 3, "word_vectors_size": 10, "layer_weights": 0}
    model = make(**fields, coreference_spans_per_word=1.0, coreference_max_width=2, classifier_dropout=0.0)
    parts = [[encode_document(tokenizer, *document) for document in people(*each)] for each in ((24, 1), (6, 2))]
    if stored:
        parts = [store_layers(model, Dataset.from_list(part), "float32") for part in parts]
        assert {"labels", "bilm_layers", "length", "special_tokens_mask"} < set(parts[0].column_names)
    arguments = TrainingArguments(
        str(tmp_path),
        num_train_epochs=10,
        learning_rate=1e-2,
        per_device_train_batch_size=3,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
        logging_strategy="no",
        use_cpu=True,
    )
    trainer = Trainer(model, arguments, CoreferenceCollator(tokenizer), *parts, compute_metrics=coreference_metrics())
    before = trainer.evaluate()["eval_conll_f1"]
    trainer.train()
    found = trainer.evaluate()
    assert before < 0.5
    assert found["eval_conll_f1"] > 0.8
    assert found["eval_muc_precision"] > 0.8


def test_accumulated_steps_are_one_large_batch(tokenizer: ElmoTokenizer, tmp_path: Path) -> None:
    rows = [encode_document(tokenizer, *document) for document in people(4, 3)]
    rows[1]["labels"] = rows[1]["labels"][:2]  # of other numbers of mentions
    weights = []
    for size in (4, 1):
        model = make(classifier_dropout=0.0)
        arguments = TrainingArguments(
            str(tmp_path),
            max_steps=2,
            optim="sgd",
            max_grad_norm=0.0,
            learning_rate=1e-2,
            per_device_train_batch_size=size,
            gradient_accumulation_steps=4 // size,
            report_to=[],
            disable_tqdm=True,
            save_strategy="no",
            use_cpu=True,
        )
        Trainer(model, arguments, CoreferenceCollator(tokenizer), rows).train()
        weights.append({name: p.detach() for name, p in model.named_parameters() if p.requires_grad})
    start = dict(make(classifier_dropout=0.0).named_parameters())
    for name, weight in weights[0].items():
        torch.testing.assert_close(weights[1][name], weight, msg=name, atol=1e-6, rtol=1e-4)
    assert any(not torch.equal(weight, start[name]) for name, weight in weights[0].items())


def test_clusters_of_texts(tmp_path: Path) -> None:
    """Each mention of characters is the mention of words, whatever whitespace and empty lines there are."""
    tokenizer, model = ElmoTokenizer(), make(coreference_spans_per_word=0.8)
    torch.nn.init.constant_(model.pair_scorer.fine.output.bias, 99.0)  # so that some antecedents have more than 0
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    words = [["Ann", "saw", "a", "dog", "."], ["She", "(", "Ann", "!", ")", "called", "it", "."], ["It", "came", "."]]
    for given in (model, str(tmp_path), tmp_path):
        text, split, short = resolve(given, [TEXT, words, "Rain ."])
        assert text.words == split.words == [word for sentence in words for word in sentence]
        assert text.clusters == split.clusters
        assert split.characters is None
        assert text.clusters
        for own, characters in zip(text.clusters, text.characters, strict=True):
            assert len(own) > 1
            assert own == sorted(own)
            for (first, last), (start, end) in zip(own, characters, strict=True):
                assert tokenizer.split_into_words([TEXT[start:end]])[0] == text.words[first : last + 1]
        assert short.words == ["Rain", "."]
    batch = CoreferenceCollator(tokenizer)([encode_document(tokenizer, TEXT)])
    rows = model(**batch).clusters[0].tolist()
    assert rows == sorted([first, last, k] for k, own in enumerate(text.clusters) for first, last in own)
    assert not model.training


def test_clusters_with_speakers_and_genres(tokenizer: ElmoTokenizer) -> None:
    model = make(coreference_speakers=True, coreference_num_genres=2, coreference_spans_per_word=1.0)
    documents = [[["Ann", "ran", "."], ["She", "fell", "."]]] * 2
    first, second = resolve(model, documents, tokenizer=tokenizer, speakers=[["a", "b"], ["a", None]], genres=[0, 1])
    assert first.words == second.words
    with pytest.raises(ValueError, match="genre_ids are missing"):
        resolve(model, documents, tokenizer=tokenizer, speakers=[["a", "b"]] * 2)
    with pytest.raises(ValueError, match="speaker_ids are missing"):
        resolve(model, documents, tokenizer=tokenizer, genres=[0, 1])


def test_documents_without_words_have_no_clusters(tokenizer: ElmoTokenizer) -> None:
    model = make(coreference_speakers=True)
    found = resolve(model, ["", "Rain .", " \n", [], [[]]], tokenizer=tokenizer, speakers=[[None]] * 5)
    assert [one.words for one in found] == [[], ["Rain", "."], [], [], []]
    assert [one.clusters for one in found] == [[]] * 5
    assert [one.characters for one in found] == [[], [], [], None, None]


def test_what_cannot_be_resolved(tokenizer: ElmoTokenizer) -> None:
    documents = [[["Ann", "ran"]], [["She"]]]
    for name, few, many in (("speakers", [["a"]], [["a"]] * 3), ("genres", [0], [0, 0, 0])):
        for given in (few, many, []):
            with pytest.raises(ValueError, match=f"there are {name} of {len(given)} documents, but 2 documents"):
                resolve(make(), documents, tokenizer=tokenizer, **{name: given})
    with pytest.raises(ValueError, match="document 1: there are 2 speakers, but 1 sentences"):
        resolve(make(coreference_speakers=True), documents, tokenizer=tokenizer, speakers=[["a"], ["a", "b"]])
    for name, given in (("speakers", [["a"], ["b"]]), ("genres", [0, 0])):
        with pytest.raises(ValueError, match=rf"{name} are given, but the model reads none \(coreference_"):
            resolve(make(), documents, tokenizer=tokenizer, **{name: given})
    with pytest.raises(ValueError, match=r"document 1: sentence 0 is the string 'Ann saw a dog .', but must be a list"):
        resolve(make(), ["Ann saw .", ["Ann saw a dog .", "She ran ."]], tokenizer=tokenizer)
    with pytest.raises(ValueError, match="must be a list of documents, but is the string 'Ann ran"):
        resolve(make(), "Ann ran .")
    with pytest.raises(ValueError, match="ElmoForTokenClassification, but a fine-tuned head is needed: ElmoForCoref"):
        resolve(random_model(ElmoConfig(**TINY), ElmoForTokenClassification), ["Ann"], tokenizer=tokenizer)


def test_scores_of_pairs_that_are_no_number_are_refused(tokenizer: ElmoTokenizer) -> None:
    model = make()
    with torch.no_grad():
        model.pair_scorer.fine.output.bias.fill_(torch.nan)
    with pytest.raises(ValueError, match=r"document 0: the scores of its mentions would be nan\."):
        resolve(model, ["Ann saw a dog .\nShe called it ."], tokenizer=tokenizer)
