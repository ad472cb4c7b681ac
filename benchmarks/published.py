"""First contact with the published models: downloads, converts and tries each, and repeats published numbers.

    python -m benchmarks.published [NAME ...] [--out FILE] [--data FOLDER]

For each model that `hf-elmo convert --list` names: its files are served; they are converted, so every tensor equals its
source; the checkpoint loads with the Auto classes and embeds the two examples of its card; the numbers that people
published (`NUMBERS`) are met; of an English model, a tenth of WiC's dev part is measured. Ends with 1 if any failed.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.spatial.distance import cosine
from transformers import AutoModel, AutoTokenizer

import hf_elmo
from examples.scoreboard.words import wic
from hf_elmo.allennlp import Elmo, ElmoEmbedder, batch_to_ids
from hf_elmo.conversion import convert
from hf_elmo.conversion.published import PUBLISHED, download, page

ISSUES = "https://github.com/allenai/allennlp/issues/"


class Number(NamedTuple):
    """Published numbers of a model: where, the values, how far ours may differ, and how ours are computed from the
    downloaded files and the converted folder."""

    model: str
    address: str
    values: tuple[float, ...]
    tolerance: float
    measure: Callable[[list[Path], Path], Sequence[float]]


def apple_and_carrot(files: list[Path], folder: Path) -> list[float]:
    """The cosine distance of two words in the last layer, by two calls in this order."""
    embedder = ElmoEmbedder(*files)
    first = embedder.embed_sentence(["I", "ate", "an", "apple", "for", "breakfast"])
    second = embedder.embed_sentence(["I", "ate", "a", "carrot", "for", "breakfast"])
    return [cosine(first[2][3], second[2][3])]


def hello_twice(files: list[Path], folder: Path) -> list[float]:
    """The cosine distance of a word to itself in the next call."""
    embedder = ElmoEmbedder(*files)
    first, second = (embedder.embed_sentence(["hello", "my", "name", "is", "mud", "."])[2, 0] for _ in range(2))
    return [cosine(first, second)]


def sums_of_calls(files: list[Path], folder: Path) -> list[float]:
    """The sum of all numbers of the mix, by two calls."""
    elmo = Elmo(*files, 1, dropout=0).eval()
    ids = batch_to_ids([["1", "mxn", "to", "usd"]])
    with torch.no_grad():
        return [elmo(ids)["elmo_representations"][0].double().sum().item() for _ in range(2)]


def word_and_letter(files: list[Path], folder: Path) -> list[float]:
    """The cosine of "i" in a sentence, last layer, and of "i" alone, mix: words were read as sentences of letters."""
    words = ["i", "am", "flying", "to", "new", "york"]
    with torch.no_grad():
        mix = Elmo(*files, 2, dropout=0).eval()(batch_to_ids([list(word) for word in words]))["elmo_representations"][1]
    return [1 - cosine(ElmoEmbedder(*files).embed_sentence(words)[2][0], mix[0][0].numpy())]


def settling(files: list[Path], folder: Path) -> list[float]:
    """How far the mean vectors of sentences move from call to call, by the last layer."""
    store = ["Mr", "Michael", "went", "to", "the", "store", "to", "buy", "some", "eggs", "."]
    street = ["Joel", "rolled", "down", "the", "street", "on", "his", "skateboard", "."]
    first = ["test", "/", "this", "is", "a", "first", "sentence"]
    look = ["Take", "a", "look", ",", "then", ",", "at", "Tuesday", "'s", "elections", "in", "New", "York", "City", ","]
    look += ["New", "Jersey", "and", "Virginia", ":"]
    embedder = ElmoEmbedder(*files)
    calls = [embedder.embed_batch([store, street, first, look, store]) for _ in range(4)]
    means = np.array([[layers[2].mean(axis=0) for layers in call] for call in calls])
    return list(np.abs(np.diff(means, axis=0)).mean(axis=(1, 2)))


def japanese(files: list[Path], folder: Path) -> list[float]:
    """The first and last three numbers of each word, by the mean of the layers."""
    model, tokenizer = hf_elmo.load_model(folder)
    rows = hf_elmo.embed(model, [["今"], ["潮水", "退"]], tokenizer=tokenizer, layers="sum", progress=False)
    return list((np.concatenate(rows)[:, [0, 1, 2, -3, -2, -1]] / 3).flatten())


def names_in_a_sentence(files: list[Path], folder: Path) -> list[float]:
    """Whether the tags are those that allennlp-models' tests assert."""
    (record,) = hf_elmo.predict(folder, ["Michael Jordan is a professor at Berkeley."])
    return [float(record["tags"] == ["B-PER", "L-PER", "O", "O", "O", "O", "U-LOC", "O"])]


def entailment(files: list[Path], folder: Path) -> list[float]:
    """Whether the probabilities are over the bounds that allennlp-models' tests assert."""
    records = hf_elmo.predict(folder, [pair for pair, *_ in ENTAILMENT])
    rows = zip(records, ENTAILMENT, strict=True)
    return [float(record["probabilities"][label] > bound) for record, (_, label, bound) in rows]


def millions(files: list[Path], folder: Path) -> list[float]:
    """Millions of parameters of the biLM."""
    model = AutoModel.from_pretrained(folder)
    return [sum(p.numel() for name, p in model.named_parameters() if "scalar_mix" not in name) / 1e6]


TESTS = "https://github.com/allenai/allennlp-models/blob/main/tests/pretrained_test.py"
SPACECRAFT = "An interplanetary spacecraft is in orbit around a gas giant's icy moon."
WOMEN = "Two women are wandering along the shore drinking iced tea."
BLANKET = "Two women are sitting on a blanket near some rocks talking about politics."
ELEPHANT = "A large, gray elephant walked beside a herd of zebras."
ENTAILMENT = [
    ((SPACECRAFT, "The spacecraft has the ability to travel between planets."), "entailment", 0.7),
    ((WOMEN, BLANKET), "contradiction", 0.8),
    ((ELEPHANT, "The elephant was lost."), "neutral", 0.6),
]
MANYLANGS_30 = "https://github.com/HIT-SCIR/ELMoForManyLangs/issues/30"
JAPANESE = (-0.23187001, -0.09699917, 0.46900252, -0.33114347, 0.18502058, -0.27423012)
JAPANESE += (-0.11759937, -0.04552874, 0.22546595, 0.21812831, -0.33964303, -0.33022305)
JAPANESE += (-0.26380852, -0.27671477, -0.33576807, 0.15142155, -0.04612424, -0.74970037)
SIZES = {"small": 13.6, "medium": 28.0, "original": 93.6, "original-5.5b": 93.6}
NUMBERS = [
    Number("original", f"{ISSUES}1947", (0.18020617961883545,), 1e-4, apple_and_carrot),
    Number("original", f"{ISSUES}1169", (0.02,), 5e-3, hello_twice),
    Number("original", f"{ISSUES}2371", (-35.2547, -32.5144), 0.05, sums_of_calls),
    Number("original", f"{ISSUES}2260", (0.68,), 5e-3, word_and_letter),
    Number("original", f"{ISSUES}3995", (0.05396391, 0.0019521887, 0.00024399883), 1e-4, settling),
    Number("allennlp-ner", TESTS, (1.0,), 0.0, names_in_a_sentence),
    Number("allennlp-decomposable", TESTS, (1.0, 1.0, 1.0), 0.0, entailment),
    Number("manylangs-ja", MANYLANGS_30, JAPANESE, 1e-3, japanese),
    *(Number(name, "https://allenai.org/allennlp/software/elmo", (n,), 0.05, millions) for name, n in SIZES.items()),
]


def check(name: str, folder: Path, data: Path | None) -> list[dict[str, Any]]:
    """What was found of a model, one row for each check: what it is, what was found, and whether it is right."""
    files = download(name, folder / "files")
    megabytes = sum(file.stat().st_size for file in files) / 1e6
    rows = [{"check": "downloaded", "found": f"{megabytes:.1f} MB", "right": True}]
    out = convert(name, folder / "out", cache_dir=folder / "files")
    record = json.loads((out / "conversion.json").read_text(encoding="utf-8"))
    rows.append({"check": "converted", "found": record["sources"], "right": True})
    model, tokenizer = AutoModel.from_pretrained(out).eval(), AutoTokenizer.from_pretrained(out)
    texts = [one["text"] for one in page(name).data.to_dict()["widget"]]
    with torch.no_grad():
        vectors = model(**tokenizer(texts, padding=True, return_tensors="pt")).pooler_output
    differ = bool(vectors.isfinite().all() and not torch.equal(*vectors))
    rows.append({"check": "the card's examples", "found": list(vectors.shape), "right": differ})
    for number in NUMBERS:
        if number.model == name:
            found = [float(value) for value in number.measure(files, out)]
            right = bool(np.allclose(found, number.values, rtol=0, atol=number.tolerance))
            rows.append({"check": number.address, "published": number.values, "found": found, "right": right})
    if page(name).data.language == "en":
        figure = list(wic((model, tokenizer), data, "dev", every=10))[-1]
        rows.append({"check": f"WiC, a tenth of dev, {figure.what}", "found": figure.value, "right": True})
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a line for each check."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="some of the models [all]")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the rows here, too, as JSON")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="read files of this folder [download the data]")
    args = parser.parse_args(arguments)
    rows = []
    for name in args.names or PUBLISHED:
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = check(name, Path(folder), args.data)
            except Exception as error:  # of any library: the other models are tried, too
                found = [{"check": "failed", "found": f"{type(error).__name__}: {error}", "right": False}]
        for row in found:
            rows.append({"model": name, **row})
            print("ok  " if row["right"] else "BAD ", name, *list(row.values())[:-1], flush=True)
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)
    if args.out:
        args.out.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    wrong = sum(not row["right"] for row in rows)
    print(f"{len(rows)} checks of {len(args.names or PUBLISHED)} models, {wrong} failed")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
