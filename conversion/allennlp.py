"""AllenNLP's and bilm-tf's format, `options.json` and `weights.hdf5`, read and written. The options of a word-level
model, which only bilm-tf has, lack `char_cnn`: the vectors of the words of a `vocab.txt` are the rows of `embedding`.

[`TABLE`] defines the format: each entry has one or more datasets of the HDF5 file, the tensors that they become, and
the transform between them. Reading and writing use the same entries. Both reject any other tensor; one that is missing
or has another shape is an error of the model that loads them.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from transformers import PreTrainedModel

from hf_elmo.checkpoints.loading import load_weights, tokenizer_of
from hf_elmo.configuration_elmo import ElmoConfig
from hf_elmo.modeling_elmo import SUFFIXES, ElmoModel
from hf_elmo.text_elmo import read_vocabulary
from hf_elmo.tokenization_elmo import embedded_ids
from hf_elmo.utils.extras import extra_needed

from .checkpoint import NamedArrays, Source, model_of, new_path
from .files import find_files, read_json

Arrays = tuple[np.ndarray | None, ...]  # None: an optional array that is absent
# Two functions: from arrays of another format to tensors, and back.
Transform = tuple[Callable[..., Arrays], Callable[..., Arrays]]

# The fields that the two parts of an `options.json` set.
FIELDS = {
    "lstm": {"dim": "cell_size", "projection_dim": "projection_size", "n_layers": "num_hidden_layers"},
    "char_cnn": {"activation": "char_activation", "embedding": "char_embedding_size", "filters": "char_filters"},
}
FIELDS["lstm"] |= {name: name for name in ("cell_clip", "proj_clip", "use_skip_connections")}
FIELDS["char_cnn"] |= {"n_highway": "num_highway_layers", "max_characters_per_token": "max_word_length"}
# What bilm-tf sets without the option; other options are required.
DEFAULTS = {"n_layers": 1, "use_skip_connections": False, "cell_clip": None, "proj_clip": None, "n_highway": 0}


class Entry(NamedTuple):
    """An entry of a format's table: arrays by name, the tensors that they become by state-dict key, and the transform.
    An entry with `{i}` in its names stands for one entry for each number from 0 on."""

    names: list[str]
    keys: list[str]
    transform: Transform


def numbered(table: Iterable[Entry], present: Collection[str]) -> Iterator[Entry]:
    """The entries of a table of which a name or key is in `present`, with numbers for `{i}`."""
    for entry in table:
        for i in count():
            names, keys = ([name.format(i=i) for name in own] for own in entry[:2])
            if not any(name in present for name in names + keys):
                break
            yield Entry(names, keys, entry.transform)
            if names == entry.names:
                break


def read_tensors(table: Iterable[Entry], datasets: NamedArrays, where: str) -> NamedArrays:
    """The tensors of a model, float32 arrays by state-dict key, from all datasets of the file `where` by name. Raises
    ValueError if one is in no entry."""
    left = dict(datasets)
    tensors = {}
    for names, keys, (read, _) in numbered(table, datasets):
        arrays = [np.asarray(left.pop(name), np.float32) if name in left else None for name in names]
        tensors.update(zip(keys, read(*arrays), strict=True))
    if left:
        raise ValueError(f"{where} has {len(left)} unexpected tensors, such as {min(left)!r}.")
    return tensors


def read_sizes(tensors: NamedArrays) -> dict[str, Any]:
    """The fields of the configuration that are sizes of a biLM's tensors, which [`read_tensors`] gives."""
    shapes = {key: array.shape for key, array in tensors.items()}
    filters = [shape for key, shape in shapes.items() if re.fullmatch(r".*convolutions\.\d+\.weight", key)]
    projections = [shape for key, shape in shapes.items() if re.fullmatch(r".*layers\.\d+\.lstm\.weight_hr", key)]
    return {
        "char_embedding_size": shapes["char_encoder.embedding.weight"][1],
        "char_filters": [[width, num_filters] for num_filters, _, width in filters],
        "num_highway_layers": sum(key.endswith(".carry.weight") for key in shapes),
        "num_hidden_layers": len(projections),
        "cell_size": projections[0][1],
        "hidden_size": 2 * projections[0][0],
    }


def swap_gates(gates: np.ndarray) -> np.ndarray:
    """TensorFlow's i, j, f, o along the first axis <-> torch's i, f, g, o (g is j)."""
    return np.concatenate([np.split(gates, 4)[gate] for gate in (0, 2, 1, 3)])


def read_lstm_bias(bias: np.ndarray, remainder: np.ndarray | None) -> Arrays:
    """TensorFlow adds 1 to the forget gate when it runs; here the 1 is part of the bias."""
    gate_i, gate_f, gate_g, gate_o = np.split(swap_gates(bias), 4)
    gate_f = gate_f + 1 + (0 if remainder is None else remainder)
    return (np.concatenate([gate_i, gate_f, gate_g, gate_o]),)


def write_lstm_bias(bias: np.ndarray) -> Arrays:
    """Subtracting 1 from a float32 near 0 loses its last digits, which a model has that this package trained. They are
    stored in a dataset of their own, which other readers ignore."""
    gate_i, gate_f, gate_g, gate_o = np.split(bias, 4)
    stored = gate_f - 1
    remainder = gate_f - (stored + 1)
    return swap_gates(np.concatenate([gate_i, stored, gate_g, gate_o])), remainder if remainder.any() else None


# The format omits row 0, the padded position; its readers add the row.
CHARACTER_EMBEDDING = (lambda rows: (np.pad(rows, ((1, 0), (0, 0))),), lambda embedding: (embedding[1:],))
# [1, width, size, filters] of TensorFlow's 2-D convolution <-> [filters, size, width].
CONVOLUTION = (lambda kernel: (kernel[0].T,), lambda weight: (weight.T[None],))
# [in, out] <-> [out, in]: TensorFlow multiplies from the right.
TRANSPOSE = (lambda weight: (weight.T,), lambda weight: (weight.T,))
COPY = (lambda array: (array,), lambda array: (array,))
# One matrix [input + output, 4C] <-> two, [4C, input] for the input and [4C, output] for the previous output.
LSTM_KERNEL = (
    lambda kernel: tuple(np.split(swap_gates(kernel.T), 2, axis=1)),
    lambda weight_ih, weight_hh: (swap_gates(np.concatenate([weight_ih, weight_hh], axis=1)).T,),
)
LSTM_BIAS = (read_lstm_bias, write_lstm_bias)


def reorder(rows: Sequence[int], places: Sequence[int]) -> Transform:
    """Row `rows[i]` of an embedding <-> row `places[i]` of another, whose other rows are zero."""

    def move(embedding: np.ndarray, source: Sequence[int], target: Sequence[int]) -> Arrays:
        if len(embedding) != max(source) + 1:
            raise ValueError(f"the embedding has {len(embedding)} rows, but the vocabulary {max(source) + 1}.")
        moved = np.zeros((max(target) + 1, embedding.shape[1]), np.float32)
        moved[target] = embedding[source]
        return (moved,)

    return lambda x: move(x, rows, places), lambda x: move(x, places, rows)


TABLE = [
    Entry(["char_embed"], ["char_encoder.embedding.weight"], CHARACTER_EMBEDDING),
    Entry(["CNN/W_cnn_{i}"], ["char_encoder.convolutions.{i}.weight"], CONVOLUTION),
    Entry(["CNN/b_cnn_{i}"], ["char_encoder.convolutions.{i}.bias"], COPY),
    Entry(["CNN_high_{i}/W_carry"], ["char_encoder.highways.{i}.carry.weight"], TRANSPOSE),
    Entry(["CNN_high_{i}/b_carry"], ["char_encoder.highways.{i}.carry.bias"], COPY),
    Entry(["CNN_high_{i}/W_transform"], ["char_encoder.highways.{i}.transform.weight"], TRANSPOSE),
    Entry(["CNN_high_{i}/b_transform"], ["char_encoder.highways.{i}.transform.bias"], COPY),
    Entry(["CNN_proj/W_proj"], ["char_encoder.projection.weight"], TRANSPOSE),
    Entry(["CNN_proj/b_proj"], ["char_encoder.projection.bias"], COPY),
    Entry(["softmax/W"], ["lm_head.weight"], COPY),  # only in training checkpoints
    Entry(["softmax/b"], ["lm_head.bias"], COPY),
]
for number, suffix in enumerate(SUFFIXES):
    cell = f"RNN_{number}/RNN/MultiRNNCell/Cell{{i}}/LSTMCell"
    layer = "bilm.layers.{i}.lstm"
    TABLE += [
        Entry([f"{cell}/W_0"], [f"{layer}.weight_ih{suffix}", f"{layer}.weight_hh{suffix}"], LSTM_KERNEL),
        Entry([f"{cell}/B", f"{cell}/B_forget_remainder"], [f"{layer}.bias{suffix}"], LSTM_BIAS),
        Entry([f"{cell}/W_P_0"], [f"{layer}.weight_hr{suffix}"], TRANSPOSE),
    ]


def table_of(vocabulary: Sequence[str]) -> list[Entry]:
    """[`TABLE`] with the embedding of the words of a word-level model, in the order of the rows of `embedding`."""
    transform = reorder(range(len(vocabulary)), embedded_ids(vocabulary))
    return [*TABLE, Entry(["embedding"], ["char_encoder.word_embedding.weight"], transform)]


def identities(config: ElmoConfig) -> dict[str, NamedArrays]:
    """AllenNLP always projects; bilm-tf and this package project only if the sizes differ. For the two fields of the
    configuration, the tensors of projections that change nothing: identities."""
    identity = np.eye(config.projection_size, dtype=np.float32)
    cells = [f"bilm.layers.{i}.lstm.weight_hr{one}" for one in SUFFIXES for i in range(config.num_hidden_layers)]
    projections = {"cell_projection": dict.fromkeys(cells, identity)}
    if config.char_filters:
        character = {"char_encoder.projection.weight": identity, "char_encoder.projection.bias": 0 * identity[0]}
        projections["char_projection"] = character
    return projections


def read_options(file: Path) -> dict[str, Any]:
    """The fields of the configuration that an `options.json` describes; KeyError if one is missing."""
    options = read_json(file)
    fields = {}
    for part in FIELDS if options.get("char_cnn") else ["lstm"]:
        given = DEFAULTS | {name: value for name, value in (options.get(part) or {}).items() if value is not None}
        fields |= {field: given[name] for name, field in FIELDS[part].items()}
    if "char_filters" in fields:
        fields["char_embedding_size"] = fields["char_embedding_size"]["dim"]
    return {"char_filters": [], "hidden_size": 2 * fields.pop("projection_size"), **fields}


def options_of(config: ElmoConfig) -> dict[str, Any]:
    """The content of `options.json` for a configuration, with every entry that AllenNLP and bilm-tf read."""
    lstm, characters = ({name: getattr(config, field) for name, field in part.items()} for part in FIELDS.values())
    characters |= {"n_characters": config.char_vocab_size, "embedding": {"dim": config.char_embedding_size}}
    if not config.cell_projection and (config.proj_clip or 1) < 1:
        # Here only a projection is clipped, but AllenNLP would also clip the output of the identity. A clip of 1 or
        # more has no effect on that output: without a projection it is between -1 and 1.
        lstm["proj_clip"] = None
    return {"lstm": lstm, "char_cnn": characters} if config.char_filters else {"lstm": lstm}


def read_bilm(
    fields: Mapping[str, Any], datasets: NamedArrays, where: str, vocabulary: Sequence[str] = ()
) -> tuple[ElmoConfig, NamedArrays]:
    """The configuration of a biLM, and float32 arrays by state-dict key, without the scalar mix. `fields` are those of
    the configuration that the weights do not determine; with `vocab_size` the softmax is read. `vocabulary` has the
    words of the rows of `embedding`. Raises ValueError as [`read_tensors`], or for the vocabulary of another model."""
    # The single layer of a model that bilm-tf saved has another path.
    datasets = {name.replace("RNN/LSTMCell", "RNN/MultiRNNCell/Cell0/LSTMCell"): x for name, x in datasets.items()}
    fields = {**fields, "cell_projection": any(name.endswith("/W_P_0") for name in datasets) or None}
    if fields["char_filters"]:
        # `n_characters` in the options is 261 in training and 262 in inference; the tensor decides. It has 261 rows for
        # 256 bytes and five markers, or one more for padding. Here, row 0 is that of a padded position.
        rows = len(datasets.get("char_embed", ()))
        fields |= {"char_vocab_size": rows + 1, "char_projection": "CNN_proj/W_proj" in datasets or None}
    else:
        if missing := {"<S>", "</S>"}.difference(vocabulary):
            raise ValueError(f"the vocabulary lacks {max(missing)}: give the file of the words of {where}.")
        fields["word_vocab_size"] = max(embedded_ids(vocabulary)) + 1
    arrays = read_tensors(table_of(vocabulary), datasets, where)
    for field, projections in identities(ElmoConfig(**fields)).items():
        if all(np.array_equal(arrays.get(key), identity) for key, identity in projections.items()):
            fields[field] = False
            arrays = {key: array for key, array in arrays.items() if key not in projections}
    return ElmoConfig(**fields), arrays


def read_hdf5(path: str | Path) -> NamedArrays:
    """All datasets of a file, by name. Raises OSError if it is not an HDF5 file."""
    with extra_needed("convert"):
        import h5py

    datasets = {}
    with h5py.File(path, "r") as file:
        file.visititems(lambda name, x: datasets.update({name: x[()]}) if isinstance(x, h5py.Dataset) else None)
    return datasets


def read_allennlp(source: Path, *others: Path) -> Source:
    """Reads AllenNLP's two files, or a folder of simple_elmo or of NLPL's repository. Text of a word-level model, or of
    one whose files have simple_elmo's names (`options.json`, `model.hdf5`), is split at whitespace.

    `source` is the options file, and the first of `others` the weights file; or `source` is a folder with one
    `*options*.json` and one `*.hdf5`. The next path is the vocabulary, by default a file beside the weights: for a
    word-level model the only `vocab*.txt`; else, of the softmax, `vocab.txt` or `vocab.txt.gz`.
    """
    files = [source]
    if source.is_dir():
        files = find_files(source, "*options*.json") + find_files(source, "*.hdf5")
        if [file.suffix for file in files] != [".json", ".hdf5"]:
            raise ValueError(f"{source} has {[file.name for file in files]}: give the paths of one model's files.")
    options, weights, *vocabularies = [*files, *others]
    fields = read_options(options)
    needs_words = not fields["char_filters"]
    if not vocabularies:
        found = find_files(weights.parent, "vocab*.txt" if needs_words else "vocab.txt*")
        vocabularies = [file for file in found if file.suffix in (".txt", ".gz")]
    embedded = read_vocabulary(vocabularies[0]) if len(vocabularies) == 1 and needs_words else ()
    config, arrays = read_bilm(fields, read_hdf5(weights), str(weights), embedded)
    of_simple_elmo = (options.name, weights.name) == ("options.json", "model.hdf5")
    splitting = "lm1b" if config.char_filters and not of_simple_elmo else "whitespace"
    files = [options, weights, *vocabularies[:1]]
    return Source("AllenNLP's format", config, arrays, files, splitting, vocabulary=next(iter(vocabularies), None))


def load(options: str | Path, weights: str | Path, dtype: str = "float32") -> ElmoModel:
    """An ElmoModel in memory from AllenNLP's `options.json` and `weights.hdf5`.

    Args:
        options, weights: the two files; the words of a word-level model are the `vocab*.txt` beside the weights.
        dtype: `"float32"`, `"bfloat16"` or `"float16"`.

    Raises:
        OSError: a file does not exist, or `weights` is no HDF5 file.
        KeyError: an option is missing.
        ValueError: a dataset is not an ELMo's; or a weight is NaN, infinite or too large for `dtype`.
        RuntimeError: a dataset is missing, or its shape is not that of the options.
    """
    source = read_allennlp(Path(options), Path(weights))
    return model_of(source.config, source.arrays, dtype)


def export(model: str | Path | PreTrainedModel, out: str | Path) -> Path:
    """Write the biLM of a model as AllenNLP's `options.json` and `weights.hdf5`, which AllenNLP, bilm-tf and
    simple_elmo read. Converted back, the files give the same tensors bit by bit (in float32).

    The scalar mix, task heads and the softmax of the language model are not part of the format and are left out.
    AllenNLP itself rejects a model without skip connections, and a word-level model (its words are in `vocab.txt`).

    Args:
        model: an ElmoModel or a model with a head on an ElmoModel, or the folder or Hub id of a model. The words of a
            word-level model are in the folder from which it was loaded.
        out: the folder to write, which is returned; it must not exist.

    Raises:
        FileExistsError: `out` exists.
        ValueError: the model has something that the format cannot store, such as Unicode characters.
    """
    with extra_needed("convert"):
        import h5py

    out = Path(out)
    model = load_weights(model, ElmoModel, device="cpu")
    config = model.config
    state = model.base_model.state_dict()
    if config.char_units != "bytes" or config.char_vocab_size not in (262, 263):
        found = f"{config.char_units} ({config.char_vocab_size})"
        raise ValueError(f"AllenNLP's models read bytes (char_vocab_size 262 or 263), this one {found}.")
    arrays = {key: x.float().cpu().numpy() for key, x in state.items() if not key.startswith(("scalar_mix", "further"))}
    vocabulary = () if config.char_filters else tokenizer_of(model).vocabulary or ()
    written = {key: array for own in identities(config).values() for key, array in own.items()} | arrays
    table = list(numbered(table_of(vocabulary), written))
    if left := arrays.keys() - {key for entry in table for key in entry.keys}:
        how = "load the model with settled_start=False" if config.settled_start else "merge adapters before (PEFT)"
        raise ValueError(f"AllenNLP's format cannot store {min(left)!r}: {how}.")
    with new_path(out) as folder:
        folder.mkdir()
        options = folder / "options.json"
        weights = folder / "weights.hdf5"
        options.write_text(json.dumps(options_of(config), indent=2) + "\n", encoding="utf-8")
        with h5py.File(weights, "w") as file:
            for names, keys, (_, write) in table:
                for name, array in zip(names, write(*map(written.get, keys)), strict=True):
                    if array is not None:
                        file[name] = array
        np.testing.assert_equal(read_bilm(read_options(options), read_hdf5(weights), "", vocabulary)[1], arrays)
        if vocabulary:
            (folder / "vocab.txt").write_bytes("".join(f"{word}\n" for word in vocabulary).encode())
    return out
