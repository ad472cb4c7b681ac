"""
ELMoForManyLangs (Che et al. 2018; the models of 44 languages), read into our tensors and tokenizer.

A model is a folder, or the zip of one, with `config.json`, the architecture that it names, `char.dic`, `word.dic`,
`token_embedder.pkl` and `encoder.pkl`. It differs from AllenNLP's in this: its characters are Unicode's, and beside
them a word has a vector of its own, found by the word's first 48 characters. The markers of a word's begin and end are
exchanged: its code names them so in every word, also when it trains. The state-dict rows of characters and words are
put into the order of [`CharacterVocabulary`], whose markers are where those of bytes are.
"""

from collections.abc import Mapping
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np
from huggingface_hub import ModelCard

from hf_elmo.character_vocab_elmo import CharacterVocabulary, character_id
from hf_elmo.configuration_elmo import (
    PUBLISHED_FILTERS,
    SENTENCE_BEGIN_ID,
    SENTENCE_END_ID,
    WORD_BEGIN_ID,
    WORD_END_ID,
    WORD_PADDING_ID,
    ElmoConfig,
)
from hf_elmo.tokenization_elmo import ElmoTokenizer

from .allennlp import Dataset, Row, Transform
from .allennlp_options import activation, clip, filters, integer, read_json
from .archives import opened, packed
from .checkpoint import model_of, require_dtype, write_checkpoint
from .output import require_absent
from .published import require_sizes
from .torch_modules import Names, module_rows, read_pickle, read_rows

FILES = ("config.json", "char.dic", "word.dic", "token_embedder.pkl", "encoder.pkl")
# The configuration of all 44 published models. Theirs name it by a path of its author's; the archives do not hold it.
SAMPLE = {
    "encoder": {"name": "elmo", "projection_dim": 512, "cell_clip": 3, "proj_clip": 3, "dim": 4096, "n_layers": 2},
    "token_embedder": {
        "name": "cnn",
        "activation": "relu",
        "filters": [list(pair) for pair in PUBLISHED_FILTERS],
        "n_highway": 2,
        "word_dim": 100,
        "char_dim": 50,
        "max_characters_per_token": 50,
    },
}
SAMPLE_NAMES = ("cnn_50_100_512_4096_sample.json", "cnn_0_100_512_4096_sample.json")  # with the same content

NAMES = Names("token_embedder.", "convolutions.", "highways._layers.", "projection", "encoder.")
CHARACTERS, WORDS = "token_embedder.char_emb_layer.embedding.weight", "token_embedder.word_emb_layer.embedding.weight"
UNKNOWN = "<oov>"
# Its word begins with "<eow>" and ends with "<bow>".
MARKER_IDS = {
    UNKNOWN: 1,
    "<bos>": SENTENCE_BEGIN_ID,
    "<eos>": SENTENCE_END_ID,
    "<eow>": WORD_BEGIN_ID,
    "<bow>": WORD_END_ID,
    "<pad>": WORD_PADDING_ID,
}
BOUNDARY_WORDS = (UNKNOWN, "<bos>", "<eos>")


def read_manylangs(folder: str | Path) -> tuple[ElmoConfig, dict[str, np.ndarray], CharacterVocabulary]:
    """
    Read a model of ELMoForManyLangs.

    Args:
        folder: what holds [`FILES`]; `word.dic` only where the configuration has word vectors.

    Returns:
        The configuration, float32 arrays by state-dict key (all but the scalar mix), and the characters and words.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is not what it should be, the architecture is one that no published model has, or a tensor
            does not fit it.
    """
    folder = Path(folder)
    settings = read_settings(folder)
    embedder = settings["token_embedder"]
    characters = read_lexicon(folder / "char.dic")
    words = read_lexicon(folder / "word.dic") if embedder.get("word_dim", 0) else None
    for file, entries, needed in (("char.dic", characters, MARKER_IDS), ("word.dic", words or {}, ())):
        if missing := [marker for marker in needed if marker not in entries]:
            raise ValueError(f"{folder / file} has no {missing[0]!r}, which its words are spelled with.")
    if words is not None and UNKNOWN not in words:
        raise ValueError(f"{folder / 'word.dic'} has no {UNKNOWN!r}, which words that it does not list become.")
    vocabulary = CharacterVocabulary(
        [character for character in characters if character not in MARKER_IDS],
        None if words is None else [word for word in words if word not in BOUNDARY_WORDS],
    )
    config = config_from_settings(settings, vocabulary)
    arrays = {}
    for file in ("token_embedder", "encoder"):
        arrays |= {f"{file}.{name}": array for name, array in read_pickle(folder / f"{file}.pkl").items()}
    rows = [_characters_row(config, characters), *_words_rows(config, words), *module_rows(config, NAMES)]
    return config, read_rows(rows, arrays, str(folder)), vocabulary


def convert_manylangs(
    source: str | Path,
    out: str | Path,
    *,
    dtype: str = "float32",
    word_splitting: str = "whitespace",
    about: ModelCard | None = None,
    published: str | None = None,
) -> Path:
    """
    Write a model of ELMoForManyLangs as a folder for the Hub, with its characters and words in the tokenizer.

    Args:
        source: the model's folder, or a zip or tar archive of it.
        out: the folder to write; it must not exist.
        dtype: `"float32"`, `"bfloat16"` or `"float16"`, the type of the weights in the folder.
        word_splitting: how the tokenizer splits text, an argument of [`ElmoTokenizer`]. The models were trained on
            words as Universal Dependencies splits them; give them such words.
        about: a page about the model, for the model card.
        published: the name of the published model that it is: it must have its sizes.

    Returns:
        `out`.

    Raises:
        FileExistsError: `out` exists.
        FileNotFoundError, ValueError: as [`read_manylangs`], or an archive is not safe to open.
    """
    require_dtype(dtype)
    require_absent(Path(out))
    with opened(source, lambda name: name in FILES or name.endswith(".json")) as folder:
        config, arrays, vocabulary = read_manylangs(folder)
        require_sizes(config, published)
        tokenizer = ElmoTokenizer(word_splitting=word_splitting, max_word_length=config.max_word_length)
        tokenizer.character_vocab = vocabulary
        files = [*packed(source), *(file for file in map(folder.joinpath, FILES) if file.is_file())]
        if (architecture := architecture_file(folder)) is not None:
            files.append(architecture)
        model = model_of(config, arrays, dtype)
        return write_checkpoint(out, model, tokenizer, files, "ELMoForManyLangs' format", about)


def read_settings(folder: Path) -> dict[str, Any]:
    """
    The architecture: the file that `config_path` of `config.json` names, wherever it is: there, beside `config.json`
    under its own name, or among the samples of ELMoForManyLangs.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not JSON of the kind.
    """
    named = read_json(folder / "config.json")
    if "token_embedder" in named:
        return named
    place = architecture_file(folder)
    if place is None:
        return SAMPLE
    settings = read_json(place)
    if not isinstance(settings.get("token_embedder"), dict) or not isinstance(settings.get("encoder"), dict):
        raise ValueError(f"{place} has no token_embedder and encoder: it is no model's architecture.")
    return settings


def architecture_file(folder: Path) -> Path | None:
    """The file of [`read_settings`] beside `config.json`; `None` where that holds the architecture itself, or names a
    sample that is not there. Raises as [`read_settings`]."""
    named = read_json(folder / "config.json")
    if "token_embedder" in named:
        return None
    path = named.get("config_path")
    if not isinstance(path, str) or not path:
        raise ValueError(f"{folder / 'config.json'} names no architecture: its config_path is {path!r}.")
    name = PureWindowsPath(path).name  # which takes both kinds of slashes
    place = next((place for place in (folder / path, folder / name) if place.is_file()), None)
    if place is None and name not in SAMPLE_NAMES:
        raise FileNotFoundError(f"{folder / 'config.json'} names the architecture {path!r}: put {name} beside it.")
    return place


def config_from_settings(settings: Mapping[str, Any], vocabulary: CharacterVocabulary) -> ElmoConfig:
    """
    The configuration that the architecture describes.

    Raises:
        ValueError: an entry is missing or has a value that no model can have.
    """
    embedder, encoder = settings["token_embedder"], settings["encoder"]
    try:
        kinds = str(embedder["name"]).lower(), str(encoder["name"]).lower()
        if kinds != ("cnn", "elmo"):
            # Its "lstm" encoder mixes both directions in every layer and gives the last one alone; its "lstm" embedder
            # of characters stops with an error in its own code. No published model has either.
            raise ValueError(
                f"token_embedder is {kinds[0]!r} and encoder {kinds[1]!r}, but the models that were published are "
                "'cnn' and 'elmo': the others are no ELMo (their layers are not those of two language models)."
            )
        if not embedder["char_dim"]:
            raise ValueError("token_embedder.char_dim is 0: a model without characters is no ELMo.")
        words = vocabulary.words is not None
        return ElmoConfig(
            char_units="unicode",
            char_vocab_size=vocabulary.size,
            char_embedding_size=integer("token_embedder.char_dim", embedder["char_dim"]),
            char_filters=filters(embedder["filters"], "token_embedder.filters"),
            char_activation=activation(embedder["activation"], "token_embedder.activation"),
            num_highway_layers=integer("token_embedder.n_highway", embedder["n_highway"], least=0),
            max_word_length=integer("max_characters_per_token", embedder["max_characters_per_token"], least=3),
            word_vocab_size=vocabulary.word_size,
            word_embedding_size=integer("token_embedder.word_dim", embedder["word_dim"]) if words else None,
            char_projection=True,
            cell_projection=True,
            hidden_size=2 * integer("encoder.projection_dim", encoder["projection_dim"]),
            cell_size=integer("encoder.dim", encoder["dim"]),
            num_hidden_layers=integer("encoder.n_layers", encoder["n_layers"]),
            cell_clip=clip("encoder.cell_clip", encoder["cell_clip"] or None),  # 0 is no clipping there
            proj_clip=clip("encoder.proj_clip", encoder["proj_clip"] or None),
        )
    except KeyError as error:
        raise ValueError(f"the architecture has no {error.args[0]!r} in its token_embedder or encoder.") from error


def read_lexicon(path: str | Path) -> dict[str, int]:
    """
    A `.dic` file: a character or word and its number on each line, a tab between them; by number.

    What is left of a whitespace character when ELMoForManyLangs has stripped the line, nothing, stands for U+3000.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line is not of that form, or the numbers are not those from 0 on.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file.")
    numbers: dict[str, int] = {}
    with path.open(encoding="utf-8", newline="\n") as lines:
        try:
            for place, line in enumerate(lines, start=1):
                *entry, number = line.strip().split("\t")
                if len(entry) > 1 or not number.isdecimal():
                    raise ValueError(f"{path}, line {place}: expected is an entry, a tab and its number: {line!r:.60}.")
                if numbers.setdefault(entry[0] if entry else "\u3000", int(number)) != int(number):
                    raise ValueError(f"{path}, line {place}: {(entry or ['U+3000'])[0]!r} has two numbers.")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is not UTF-8 text ({error}).") from error
    if sorted(numbers.values()) != list(range(len(numbers))):
        raise ValueError(
            f"{path}: its {len(numbers)} entries must have the numbers 0 to {len(numbers) - 1}, each once."
        )
    return dict(sorted(numbers.items(), key=lambda entry: entry[1]))


def _characters_row(config: ElmoConfig, characters: Mapping[str, int]) -> Row:
    """The character embedding; rows that no character has are zero, as row 0."""
    ids, place = [], 0
    for character in characters:
        if character in MARKER_IDS:
            ids.append(MARKER_IDS[character])
        else:
            ids.append(character_id(place))
            place += 1
    shape = (len(characters), config.char_embedding_size)
    transform = _reorder(list(range(len(ids))), ids, config.char_vocab_size)
    return Row((Dataset(CHARACTERS, shape),), ("char_encoder.embedding.weight",), transform)


def _words_rows(config: ElmoConfig, words: Mapping[str, int] | None) -> list[Row]:
    if words is None:
        return []
    # A boundary that the list does not have is an unknown word there.
    first = [words.get(word, words[UNKNOWN]) for word in BOUNDARY_WORDS]
    numbers = [*first, *(number for word, number in words.items() if word not in BOUNDARY_WORDS)]
    rows = list(range(1, len(numbers) + 1))  # row 0 marks padded positions
    transform = _reorder(numbers, rows, config.word_vocab_size)
    shape = (len(words), config.word_embedding_size)
    return [Row((Dataset(WORDS, shape),), ("char_encoder.word_embedding.weight",), transform)]


def _reorder(numbers: list[int], ids: list[int], size: int) -> Transform:
    """Rows of an embedding under new numbers, among `size`; and back."""

    def read(embedding: np.ndarray) -> tuple[np.ndarray]:
        reordered = np.zeros((size, embedding.shape[1]), np.float32)
        reordered[ids] = embedding[numbers]
        return (reordered,)

    def write(reordered: np.ndarray) -> tuple[np.ndarray]:
        embedding = np.zeros((max(numbers) + 1, reordered.shape[1]), np.float32)
        embedding[numbers] = reordered[ids]
        return (embedding,)

    return Transform(read, write)
