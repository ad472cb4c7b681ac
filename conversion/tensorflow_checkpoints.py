"""Reads TensorFlow's files: the training checkpoints of bilm-tf and simple_elmo, with the softmax over words, and
TF-Hub's `google/elmo` (versions 1 to 3), a SavedModel that also has the weights of a scalar mix.

The variables are the datasets of AllenNLP's format, but have other names. TensorFlow reads the files; no graph is run.
"""

import re
from pathlib import Path

import numpy as np

from hf_elmo.pretraining.vocabulary import Vocabulary
from hf_elmo.utils.extras import extra_needed

from .allennlp import TABLE, read_bilm, read_options, read_sizes, read_tensors
from .checkpoint import SCALAR_MIX, NamedArrays, Source
from .files import find_files, read_json

# Variables that are not weights: counters, and the optimizer's state for each weight.
NOT_WEIGHTS = re.compile(r"(^|/)(global_step|train_perplexity|beta[12]_power)$|/(Adagrad|Adam(_1)?|Momentum)$")
SCOPE = re.compile(r"^(.*/)?(?=(bilm|aggregation)/)")  # the scope that a module was saved under
CELL = re.compile(r"RNN_([01])/(?:.*?cell_?(\d+)/)?(?:.*/)?lstm_?cell/(.+)", re.IGNORECASE)
CELL_PARTS = {"kernel": "W_0", "bias": "B", "projection/kernel": "W_P_0"}
CHECKPOINT_FILE = re.compile(r"\.(index|meta|data-\d+-of-\d+)$")


def read_variables(prefix: Path) -> NamedArrays:
    """All variables of a TensorFlow checkpoint, by name, from the prefix of its files (`model.ckpt-2500`)."""
    with extra_needed("tensorflow", "; or let bilm-tf's bin/dump_weights.py write an HDF5 file, where TensorFlow is"):
        import tensorflow

    reader = tensorflow.train.load_checkpoint(str(prefix))
    return {name: np.asarray(reader.get_tensor(name)) for name in reader.get_variable_to_shape_map()}


def _read(prefix: Path) -> tuple[NamedArrays, list[Path]]:
    """The weights of a checkpoint by their names in AllenNLP's format, and the files that hold them."""
    datasets = {}
    for variable, array in read_variables(prefix).items():
        name = re.sub(r"^(bilm|lm)/", "", SCOPE.sub("", variable))
        if match := CELL.fullmatch(name):
            direction, layer, part = match.groups()
            name = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer or 0}/LSTMCell/{CELL_PARTS.get(part, part)}"
        if not NOT_WEIGHTS.search(variable):
            datasets[name] = array
    return datasets, find_files(prefix.parent, f"{prefix.name}.[di]*")  # .data-*, .index


def find_checkpoint(path: Path) -> Path | None:
    """The prefix of a TensorFlow checkpoint's files, from their folder, the prefix or one of them; of several
    the latest, which the file `checkpoint` names. `None` if there is none, or if the latest is not known."""
    if not path.is_dir():
        prefix = path.with_name(CHECKPOINT_FILE.sub("", path.name))
        return prefix if prefix.with_name(f"{prefix.name}.index").is_file() else None
    state = path / "checkpoint"
    latest = state.is_file() and re.search(r'^model_checkpoint_path: "(?:.*/)?(.+)"', state.read_text(encoding="utf-8"))
    if latest and (path / f"{latest[1]}.index").is_file():
        return path / latest[1]
    indices = find_files(path, "*.index")
    return indices[0].with_suffix("") if len(indices) == 1 else None


def read_bilm_tf(source: Path, vocabulary: Path | None = None) -> Source:
    """A training checkpoint of bilm-tf or simple_elmo, next to the training's `options.json`: its folder, the prefix of
    its files, or one of them. The softmax's words are those of `vocabulary`, by default the only `vocab*.txt` there."""
    prefix = find_checkpoint(source)
    if prefix is None:
        raise FileNotFoundError(f"{source} has no checkpoint, or several: give a prefix, such as model.ckpt-2500.")
    vocabularies = [vocabulary] if vocabulary is not None else find_files(prefix.parent, "vocab*.txt")
    if len(vocabularies) != 1:
        raise FileNotFoundError(f"{prefix.parent} has {len(vocabularies)} files vocab*.txt: give the path of one.")
    settings = prefix.with_name("options.json")
    words = Vocabulary.load(vocabularies[0]).words
    datasets, files = _read(prefix)
    fields = read_options(settings)
    training = read_json(settings)
    fields |= {"vocab_size": len(words), "hidden_dropout": training.get("dropout", 0.0)}
    fields["num_sampled"] = training.get("n_negative_samples_batch", 8192)
    if training.get("share_embedding_softmax"):
        datasets["softmax/W"] = datasets["embedding"]
    config, arrays = read_bilm(fields, datasets, str(prefix), words)
    files += [settings, vocabularies[0]]
    return Source("bilm-tf's TensorFlow checkpoint", config, arrays, files, vocabulary=vocabularies[0])


def read_saved_model(source: Path) -> Source:
    """TF-Hub's SavedModel, a folder. Options that its variables do not determine are those of the published models."""
    datasets, files = _read(source / "variables" / "variables")
    mix = [np.asarray(datasets.pop(f"aggregation/{name}"), np.float32) for name in ("weights", "scaling")]
    sizes = read_sizes(read_tensors(TABLE, datasets, str(source)))
    config, arrays = read_bilm(sizes, datasets, str(source))
    arrays |= {SCALAR_MIX[0]: mix[0].reshape(-1), SCALAR_MIX[1]: mix[1].reshape(-1)}
    return Source("TF-Hub's SavedModel", config, arrays, files)
