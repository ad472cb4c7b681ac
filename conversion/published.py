"""The names of all published models that are converted by name: what each is, and where ELMoForManyLangs' were put."""

import re

from huggingface_hub import ModelCard

from hf_elmo.configuration_elmo import ElmoConfig
from hf_elmo.model_cards import published_card

from .download import PUBLISHED_MODELS, PUBLISHED_TRAININGS

# Of each language of ELMoForManyLangs its identifier in the repository of word vectors of NLPL, and its name.
MANYLANGS = {
    "ar": (136, "Arabic"),
    "bg": (137, "Bulgarian"),
    "ca": (138, "Catalan"),
    "cs": (139, "Czech"),
    "cu": (140, "Old Church Slavonic"),
    "da": (141, "Danish"),
    "de": (142, "German"),
    "el": (143, "Greek"),
    "en": (144, "English"),
    "es": (145, "Spanish"),
    "et": (146, "Estonian"),
    "eu": (147, "Basque"),
    "fa": (148, "Persian"),
    "fi": (149, "Finnish"),
    "fr": (150, "French"),
    "ga": (151, "Irish"),
    "gl": (152, "Galician"),
    "grc": (153, "Ancient Greek"),
    "he": (154, "Hebrew"),
    "hi": (155, "Hindi"),
    "hr": (156, "Croatian"),
    "hu": (157, "Hungarian"),
    "id": (158, "Indonesian"),
    "it": (159, "Italian"),
    "ja": (160, "Japanese"),
    "ko": (161, "Korean"),
    "la": (162, "Latin"),
    "lv": (163, "Latvian"),
    "nl": (164, "Dutch"),
    "nb": (165, "Norwegian Bokmål"),
    "nn": (166, "Norwegian Nynorsk"),
    "pl": (167, "Polish"),
    "pt": (168, "Portuguese"),
    "ro": (169, "Romanian"),
    "ru": (170, "Russian"),
    "sk": (171, "Slovak"),
    "sl": (172, "Slovene"),
    "sv": (173, "Swedish"),
    "tr": (174, "Turkish"),
    "ug": (175, "Uyghur"),
    "uk": (176, "Ukrainian"),
    "ur": (177, "Urdu"),
    "vi": (178, "Vietnamese"),
    "zh": (179, "Chinese"),
}
MANYLANGS_PREFIX = "manylangs-"
NLPL_HOSTS = ("http://vectors.nlpl.eu/repository/11/",)

ABOUT = {
    "small": "English, cell 1024, 1 Billion Word Benchmark",
    "medium": "English, cell 2048, 1 Billion Word Benchmark",
    "original": "English, cell 4096, 1 Billion Word Benchmark",
    "original-5.5b": "English, cell 4096, 5.5 billion words of Wikipedia and news",
    "portuguese": "Portuguese, of AllenNLP's contributed models",
    "pubmed": "English, PubMed, of AllenNLP's contributed models",
    "original-softmax": "English, the training of the original with its softmax, a TensorFlow checkpoint",
    "seqvec": "proteins, UniRef50 (SeqVec); each letter is a word",
}

# The fields of the configuration that the names of AllenNLP's files give, as in 2x1024_128_2048cnn_1xhighway.
SIZES_OF_A_NAME = ("num_hidden_layers", "cell_size", "projection_size", "num_filters", "num_highway_layers")
NAMED_SIZES = re.compile(r"(\d+)x(\d+)_(\d+)_(\d+)cnn_(\d+)xhighway")
# The sizes of published models, where they are known. Of ELMoForManyLangs those of `manylangs.SAMPLE`.
SIZES = {
    name: dict(zip(SIZES_OF_A_NAME, map(int, found.groups()), strict=True))
    for name, (options, *_) in (PUBLISHED_MODELS | PUBLISHED_TRAININGS).items()
    if (found := NAMED_SIZES.search(options))
}
SIZES |= {
    MANYLANGS_PREFIX + code: dict(zip(SIZES_OF_A_NAME, (2, 4096, 512, 2048, 2), strict=True)) for code in MANYLANGS
}


# The scripts in which the text of these is written, for the warning of others: English, Portuguese, the letters of
# residues; medicine writes Greek letters, too. What ELMoForManyLangs' models read their characters tell.
SCRIPTS = {name: ["Latin"] for name in ABOUT} | {"pubmed": ["Greek", "Latin"]}


def all_names() -> dict[str, str]:
    """Each name that `hf-elmo convert` takes, and what it is; of ELMoForManyLangs with its address."""
    names = {name: ABOUT[name] for name in (*PUBLISHED_MODELS, *PUBLISHED_TRAININGS)}
    for code, (number, language) in MANYLANGS.items():
        names[MANYLANGS_PREFIX + code] = f"{language}, ELMoForManyLangs, {NLPL_HOSTS[0]}{number}.zip"
    return names


def default_word_splitting(name: str) -> str:
    """How the tokenizer of a published model splits text, unless it is told: as the text that the model read."""
    if manylangs_number(name) is not None:
        return "whitespace"
    return "characters" if name == "seqvec" else "lm1b"


def manylangs_number(name: str) -> int | None:
    """The identifier of a model of ELMoForManyLangs by its name; `None` for another name."""
    found = MANYLANGS.get(name.removeprefix(MANYLANGS_PREFIX)) if name.startswith(MANYLANGS_PREFIX) else None
    return found and found[0]


def require_sizes(config: ElmoConfig, name: str | None) -> None:
    """Raises ValueError where a configuration has other sizes than the published model of a name, if one is given."""
    wanted = SIZES.get(name or "", {})
    found = {field: getattr(config, field) for field in wanted}
    if other := [field for field in wanted if found[field] != wanted[field]]:
        theirs, its = (", ".join(f"{field} {sizes[field]}" for field in other) for sizes in (found, wanted))
        raise ValueError(f"these files are no copy of {name}: they have {theirs}, but {name} has {its}.")


def page(name: str) -> ModelCard:
    """The page of a published model, by a name of [`all_names`]."""
    if manylangs_number(name) is None:
        return published_card(name)
    code = name.removeprefix(MANYLANGS_PREFIX)
    number, language = MANYLANGS[code]
    return published_card("manylangs", code=code, language=language, number=str(number))
