"""Reads the models of ELMoForManyLangs (Che et al. 2018) for 44 languages.

A model is a folder with the files [`FILES`] and the architecture file that `config.json` names. Unlike AllenNLP's
models, it reads Unicode characters, and each word has a second vector, looked up by the word's first 48 characters. The
rows are put into the order of [`CharacterVocabulary`], whose markers have the same ids as in models that read bytes.
"""

from collections.abc import Mapping
from pathlib import Path, PureWindowsPath
from typing import Any

from hf_elmo.configuration_elmo import BOS_ID, ElmoConfig
from hf_elmo.tokenization_elmo import FIRST_WORD_ID, CharacterVocabulary

from .allennlp import Entry, read_tensors, reorder
from .allennlp_archive import module_table, read_pickle
from .checkpoint import Source
from .files import read_json

FILES = ("config.json", "char.dic", "word.dic", "token_embedder.pkl", "encoder.pkl")
# The architecture of all 44 published models. Their config.json names a file that the archives lack.
SAMPLE: dict[str, dict[str, Any]] = {
    "encoder": {"name": "elmo", "projection_dim": 512, "cell_clip": 3, "proj_clip": 3, "dim": 4096, "n_layers": 2},
    "token_embedder": {"name": "cnn", "activation": "relu", "n_highway": 2, "word_dim": 100, "char_dim": 50},
}
SAMPLE["token_embedder"] |= {"filters": ElmoConfig().char_filters, "max_characters_per_token": 50}
SAMPLE_NAMES = ("cnn_50_100_512_4096_sample.json", "cnn_0_100_512_4096_sample.json")  # their content is SAMPLE

NAMES = ("token_embedder.convolutions.", "token_embedder.highways", "token_embedder.projection", "encoder")
CHARACTERS = "token_embedder.char_emb_layer.embedding.weight"
WORDS = "token_embedder.word_emb_layer.embedding.weight"
UNKNOWN = "<oov>"
# Their ids are consecutive. ELMoForManyLangs swaps two, in training, too: "<eow>" begins a word, and "<bow>" ends it.
MARKERS = ("<bos>", "<eos>", "<eow>", "<bow>", "<pad>")
MARKER_IDS = {UNKNOWN: 1, **{name: number for number, name in enumerate(MARKERS, BOS_ID)}}
BOUNDARY_WORDS = (UNKNOWN, "<bos>", "<eos>")


def read_manylangs(folder: Path) -> Source:
    """Reads a model of ELMoForManyLangs from a folder with the files [`FILES`]; `word.dic` is needed only if the model
    has word vectors (`word_dim`), and `char.dic` only if it reads characters (`char_dim`)."""
    settings, settings_files = read_settings(folder)
    words = read_lexicon(folder / "word.dic") if settings["token_embedder"].get("word_dim") else None
    has_characters = settings["token_embedder"]["char_dim"] > 0
    characters = read_lexicon(folder / "char.dic") if has_characters else dict.fromkeys("".join(words or ()), 0)
    vocabulary = CharacterVocabulary(
        [character for character in characters if character not in MARKER_IDS],
        None if words is None else [word for word in words if word not in BOUNDARY_WORDS],
    )
    table = module_table(*NAMES)
    if has_characters:
        ids = MARKER_IDS | vocabulary.character_ids
        transform = reorder(list(characters.values()), [ids[character] for character in characters])
        table.append(Entry([CHARACTERS], ["char_encoder.embedding.weight"], transform))
    if words is not None:
        # A boundary that `words` lacks gets the row of unknown words; row 0 is for padding.
        numbers = [words.get(word, words[UNKNOWN]) for word in BOUNDARY_WORDS]
        numbers += [number for word, number in words.items() if word not in BOUNDARY_WORDS]
        transform = reorder(numbers, range(1, len(numbers) + 1))
        table.append(Entry([WORDS], ["char_encoder.word_embedding.weight"], transform))
    tensors = {}
    for part in ("token_embedder", "encoder"):
        tensors |= {f"{part}.{name}": array for name, array in read_pickle(folder / f"{part}.pkl").items()}
    config = config_from_settings(settings, vocabulary)
    arrays = read_tensors(table, tensors, str(folder))
    files = [*filter(Path.is_file, map(folder.joinpath, FILES)), *settings_files]
    return Source("ELMoForManyLangs' format", config, arrays, files, characters=vocabulary)


def read_settings(folder: Path) -> tuple[dict[str, Any], list[Path]]:
    """The architecture and its file, if this is not `config.json` or a sample of ELMoForManyLangs."""
    settings = read_json(folder / "config.json")
    if "token_embedder" in settings:
        return settings, []
    path = settings["config_path"]
    name = PureWindowsPath(path).name  # PureWindowsPath splits at both kinds of slashes
    for file in (folder / path, folder / name):
        if file.is_file():
            return read_json(file), [file]
    if name not in SAMPLE_NAMES:
        raise FileNotFoundError(f"{folder / 'config.json'} lacks its file {path!r}: put {name} beside config.json.")
    return SAMPLE, []


def config_from_settings(settings: Mapping[str, Any], vocabulary: CharacterVocabulary) -> ElmoConfig:
    """The configuration that the architecture describes. A clip of 0 means no clip in ELMoForManyLangs."""
    embedder = settings["token_embedder"]
    encoder = settings["encoder"]
    words = vocabulary.embedded_words
    longest = 3 + max(map(len, words or ()), default=0)
    length = embedder["max_characters_per_token"] if embedder["name"] == "cnn" else longest
    fields: dict[str, Any] = {"char_units": "unicode", "char_vocab_size": vocabulary.size, "char_filters": []}
    fields |= {"max_word_length": length, "char_projection": True, "cell_projection": True}
    fields |= {"hidden_size": 2 * encoder["projection_dim"], "cell_size": encoder["dim"]}
    fields |= {clip: float(encoder[clip] or 0) or None for clip in ("cell_clip", "proj_clip")}
    if embedder["char_dim"]:
        fields |= {"char_embedding_size": embedder["char_dim"], "char_filters": embedder["filters"]}
        fields |= {"char_activation": embedder["activation"], "num_highway_layers": embedder["n_highway"]}
    if words is not None:
        fields |= {"word_vocab_size": FIRST_WORD_ID + len(words), "word_embedding_size": embedder["word_dim"]}
    return ElmoConfig(**fields, num_hidden_layers=encoder["n_layers"])


def read_lexicon(path: Path) -> dict[str, int]:
    """The entries of a `.dic` file, ordered by number. Each line has a character or word, a tab and a number.
    ELMoForManyLangs strips lines, so a whitespace character disappears; a line without one is read as U+3000."""
    entries = {}
    with path.open(encoding="utf-8", newline="\n") as lines:
        for line in lines:
            *entry, number = line.strip().split("\t")
            entries[entry[0] if entry else "\u3000"] = int(number)
    return dict(sorted(entries.items(), key=lambda entry: entry[1]))
