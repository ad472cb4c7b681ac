"""The published models that are converted by name: their descriptions, the addresses of their files, the download."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from huggingface_hub import ModelCard, cached_assets_path, get_hf_file_metadata
from huggingface_hub.file_download import http_get
from huggingface_hub.utils import WeakFileLock

from hf_elmo.model_cards import published_card

# Both hosts serve the same files; the second is the older address.
ALLENNLP = (
    "https://allennlp.s3.amazonaws.com/models/elmo/",
    "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo/",
)
ROSTLAB = tuple(f"{scheme}://rostlab.org/~deepppi/embedding_repo/embedding_models/" for scheme in ("https", "http"))
NLPL = ("http://vectors.nlpl.eu/repository/11/",)  # ELMoForManyLangs
NLPL_OWN = ("http://vectors.nlpl.eu/repository/20/",)
CLARIN_SI = ("https://www.clarin.si/repository/xmlui/bitstream/handle/11356/1277/",)
TF_HUB = ("https://storage.googleapis.com/tfhub-modules/google/elmo/",)
# How a page of HTML begins, and none of the files: a network that asks for a login serves its page as every file.
PAGE = re.compile(rb"\s*<[!?h]", re.IGNORECASE)


class Published(NamedTuple):
    """A published model."""

    about: str
    files: tuple[str, ...]  # their paths below each of the hosts
    hosts: tuple[str, ...] = ALLENNLP  # which are tried in this order
    word_splitting: str = "lm1b"
    page: str | None = None
    page_fields: Mapping[str, str] = {}  # the values in its page, if this describes several models


def _files(folder: str, name: str | None = None, weights: str = "weights") -> tuple[str, str]:
    name = name or f"elmo_{folder}"
    return f"{folder}/{name}_options.json", f"{folder}/{name}_{weights}.hdf5"


_ORIGINAL = "2x4096_512_2048cnn_2xhighway"
_TRAINING = f"{_ORIGINAL}_tf_checkpoint"
PUBLISHED = {
    "small": Published("English, cell 1024, 1 Billion Word Benchmark", _files("2x1024_128_2048cnn_1xhighway")),
    "medium": Published("English, cell 2048, 1 Billion Word Benchmark", _files("2x2048_256_2048cnn_1xhighway")),
    "original": Published("English, cell 4096, 1 Billion Word Benchmark", _files(_ORIGINAL)),
    "original-5.5b": Published(
        "English, cell 4096, 5.5 billion words of Wikipedia and news", _files(f"{_ORIGINAL}_5.5B")
    ),
    "portuguese": Published("Portuguese, of AllenNLP's contributed models", _files("contributed/pt", "elmo_pt")),
    "pubmed": Published(
        "English, PubMed, of AllenNLP's contributed models",
        _files("contributed/pubmed", f"elmo_{_ORIGINAL}", "weights_PubMed_only"),
    ),
    "seqvec": Published(
        "proteins, UniRef50 (SeqVec); each letter is a word",
        ("seqvec/options.json", "seqvec/weights.hdf5"),
        ROSTLAB,
        "characters",
    ),
    "original-softmax": Published(
        "English, the training of the original with its softmax, a TensorFlow checkpoint",
        (
            f"{_TRAINING}/options.json",
            f"{_TRAINING}/model.ckpt-935588.index",
            f"{_TRAINING}/model.ckpt-935588.data-00000-of-00001",
            "vocab-2016-09-10.txt",
        ),
    ),
}


def _add(family: str, key: str, about: str, file: str, hosts: tuple[str, ...], **fields: str) -> None:
    """Adds a model of one file, of a family of models that share a page with the values `fields`."""
    PUBLISHED[f"{family}-{key}"] = Published(about, (file,), hosts, "whitespace", family, fields)


# The code and the language of each model of ELMoForManyLangs, in the order of the models' numbers in NLPL's repository
# of word vectors. The first number is 136.
_LANGUAGES = (
    "ar Arabic, bg Bulgarian, ca Catalan, cs Czech, cu Old Church Slavonic, da Danish, de German, el Greek, "
    "en English, es Spanish, et Estonian, eu Basque, fa Persian, fi Finnish, fr French, ga Irish, gl Galician, "
    "grc Ancient Greek, he Hebrew, hi Hindi, hr Croatian, hu Hungarian, id Indonesian, it Italian, ja Japanese, "
    "ko Korean, la Latin, lv Latvian, nl Dutch, nb Norwegian Bokmål, nn Norwegian Nynorsk, pl Polish, "
    "pt Portuguese, ro Romanian, ru Russian, sk Slovak, sl Slovene, sv Swedish, tr Turkish, ug Uyghur, "
    "uk Ukrainian, ur Urdu, vi Vietnamese, zh Chinese"
)
for number, entry in enumerate(_LANGUAGES.split(", "), start=136):
    code, _, language = entry.partition(" ")
    about = f"{language}, ELMoForManyLangs, {NLPL[0]}{number}.zip"
    _add("manylangs", code, about, f"{number}.zip", NLPL, code=code, language=language, number=str(number))

# The code, the language and two examples of each model of EMBEDDIA.
_EMBEDDIA = (
    ("hr", "Croatian", "Dijete čita knjigu .", "Voda je hladna ."),
    ("et", "Estonian", "Laps loeb raamatut .", "Vesi on külm ."),
    ("fi", "Finnish", "Lapsi lukee kirjaa .", "Vesi on kylmää ."),
    ("lv", "Latvian", "Bērns lasa grāmatu .", "Ūdens ir auksts ."),
    ("lt", "Lithuanian", "Vaikas skaito knygą .", "Vanduo šaltas ."),
    ("sl", "Slovenian", "Otrok bere knjigo .", "Voda je mrzla ."),
    ("sv", "Swedish", "Barnet läser en bok .", "Vattnet är kallt ."),
)
for code, language, first, second in _EMBEDDIA:
    file = f"{language.lower()}-elmo.tar.gz"
    about = f"{language}, EMBEDDIA, {CLARIN_SI[0]}{file}"
    _add("embeddia", code, about, file, CLARIN_SI, code=code, language=language, first=first, second=second)

# The number in NLPL's repository, the language's code and name, and two examples, of models trained with simple_elmo.
_OSLO = (
    ("193", "en", "English", "He sat on the river bank .", "The bank closes at four ."),
    ("201", "de", "German", "Er saß auf der Bank am Fluss .", "Die Bank schließt um vier Uhr ."),
    ("202", "sv", "Swedish", "Barnet läser en bok .", "Vattnet är kallt ."),
    ("203", "la", "Latin", "Puer librum legit .", "Aqua frigida est ."),
    ("209", "en", "English", "He sat on the river bank .", "The bank closes at four ."),
)
for number, code, language, first, second in _OSLO:
    fields = {"number": number, "code": code, "language": language, "first": first, "second": second}
    _add("nlpl", number, f"{language}, NLPL, {NLPL_OWN[0]}{number}.zip", f"{number}.zip", NLPL_OWN, **fields)

for number in ("1", "2", "3"):
    fields = {"number": number, "first": "the cat is on the mat", "second": "dogs are in the fog"}
    _add("tfhub", number, f"English, TF-Hub's google/elmo/{number}", f"{number}.tar.gz", TF_HUB, **fields)


def all_names() -> dict[str, str]:
    """The names that `hf-elmo convert` takes, each with a description of the model."""
    return {name: published.about for name, published in PUBLISHED.items()}


def page(name: str) -> ModelCard:
    return published_card(PUBLISHED[name].page or name, **PUBLISHED[name].page_fields)


def download(name: str, cache_dir: str | Path | None = None) -> list[Path]:
    """The files of a published model, downloaded unless they are in the folder `cache_dir/name`, by default in the
    assets of huggingface_hub's cache. An interrupted download resumes.

    Raises:
        ConnectionError: no host serves a file.
    """
    model = PUBLISHED[name]
    folder = cached_assets_path("hf_elmo", "conversion", name) if cache_dir is None else Path(cache_dir, name)
    folder.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(folder / ".lock"):
        return [_download(name, model.hosts, path, folder / path.rpartition("/")[2]) for path in model.files]


def _download(name: str, hosts: tuple[str, ...], path: str, target: Path) -> Path:
    if target.exists():
        return target
    message, partial = f"{target.name} could not be downloaded:\n", target.with_name(f"{target.name}.partial")
    for host in hosts:
        try:
            with partial.open("ab") as file:
                done = file.tell()  # of a partial file that is complete, the host would refuse to send the rest
                size = get_hf_file_metadata(host + path, token=False).size if done else None
                headers = {"Accept-Encoding": "identity"}
                http_get(host + path, file, resume_size=done, expected_size=size, headers=headers)
            with partial.open("rb") as file:
                begin = file.read(1000)
            if PAGE.match(begin):
                partial.unlink()
                raise ValueError(f"the answer begins with {begin[:60]!r}, unlike such a file")
            return partial.replace(target)
        except Exception as error:  # raised by the Hub's client, its HTTP library, or the connection
            message += f"  {host}{path}: {error}\n"
    raise ConnectionError(f"{message}If you have the model's files, run: hf-elmo convert --model {name} FILES OUT")
