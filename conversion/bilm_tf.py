"""
bilm-tf's training checkpoints (TensorFlow's format, with the softmax over words), also those of simple_elmo, read into
our tensors.

The variables are those of the hdf5 format under other names, so the table is that of [`allennlp.key_table`] with two
rows more for the softmax. TensorFlow itself reads the files and is imported only for that.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub import ModelCard

from hf_elmo.configuration_elmo import ElmoConfig
from hf_elmo.modeling_pretraining_elmo import ElmoForPreTraining
from hf_elmo.optional import import_optional
from hf_elmo.pretraining.vocabulary import Vocabulary
from hf_elmo.tokenization_elmo import ElmoTokenizer

from .allennlp import COPY, Dataset, Row, key_table
from .allennlp_options import config_from_options, integer, read_options
from .archives import inner_folder
from .checkpoint import write_files
from .output import new_folder, require_equal
from .published import require_sizes

PREFIX = "lm/"
# Variables of the training that are no weights: counters, and the optimizer's slots.
NOT_WEIGHTS = re.compile(r"(^|/)(global_step|train_perplexity|beta[12]_power)$|/(Adagrad|Adam(_1)?|Momentum)$")
FILE_ENDING = re.compile(r"\.(index|meta|data-\d+-of-\d+)$")  # of a checkpoint's files
BASE = "elmo."  # prefix of the ElmoModel's keys in an ElmoForPreTraining


def variable_name(dataset: str) -> str:
    """The TensorFlow variable of a dataset of the hdf5 format (the inverse of bilm-tf's `dump_weights`)."""
    if "/RNN/" in dataset:
        for hdf5, tensorflow in (
            ("/RNN/", "/rnn/"),
            ("/MultiRNNCell/Cell", "/multi_rnn_cell/cell_"),
            ("/LSTMCell/", "/lstm_cell/"),
            ("/W_P_0", "/projection/kernel"),
            ("/W_0", "/kernel"),
            ("/B", "/bias"),
        ):
            dataset = dataset.replace(hdf5, tensorflow)
    return PREFIX + dataset


def variable_table(config: ElmoConfig, multi_rnn_cell: bool = True) -> list[Row]:
    """The table of a checkpoint: TensorFlow's variables, the keys of an [`ElmoForPreTraining`], and how one becomes the
    other. An optional dataset of the hdf5 format, which bilm-tf's training never has, is none of the variables."""
    rows = []
    for row in key_table(config, multi_rnn_cell):
        datasets = tuple(dataset._replace(name=variable_name(dataset.name)) for dataset in row.datasets)
        rows.append(Row(datasets, tuple(BASE + key for key in row.targets), row.transform))
    shape = (config.vocab_size, config.projection_size)
    rows.append(Row((Dataset(f"{PREFIX}softmax/W", shape),), ("lm_head.weight",), COPY))
    rows.append(Row((Dataset(f"{PREFIX}softmax/b", shape[:1]),), ("lm_head.bias",), COPY))
    return rows


def tensors_from_variables(
    options: Mapping[str, Any], variables: Mapping[str, np.ndarray]
) -> tuple[ElmoConfig, dict[str, np.ndarray]]:
    """
    The configuration and the tensors of a checkpoint's variables.

    Args:
        options: as `read_options` returns them.
        variables: all of the checkpoint, by name.

    Returns:
        The configuration and float32 arrays by state-dict key: all of an [`ElmoForPreTraining`] but the scalar mix.

    Raises:
        ValueError: a variable is missing, unknown, of another shape than the options say, or not finite.
    """
    weights = {name: array for name, array in variables.items() if not NOT_WEIGHTS.search(name)}
    for name in (f"{PREFIX}char_embed", f"{PREFIX}softmax/W"):
        if weights.get(name, np.zeros(0)).ndim != 2:
            raise ValueError(f"the checkpoint has no matrix {name!r}: it is not a character model of bilm-tf.")
    sizes = {
        "char_vocab_size": len(weights[f"{PREFIX}char_embed"]) + 1,
        "vocab_size": len(weights[f"{PREFIX}softmax/W"]),
        "num_sampled": integer("n_negative_samples_batch", options.get("n_negative_samples_batch", 8192)),
        "hidden_dropout": _dropout(options.get("dropout", 0.0)),
    }
    config = config_from_options(options, **sizes)
    single_cell = f"{PREFIX}RNN_0/rnn/lstm_cell/kernel" in weights
    tensors: dict[str, np.ndarray] = {}
    for row in variable_table(config, multi_rnn_cell=not single_cell):
        arrays = [_take(weights, dataset) for dataset in row.datasets]
        tensors.update(zip(row.targets, row.transform.read(*arrays), strict=True))
    if weights:
        raise ValueError(f"unexpected variable {min(weights)!r} ({len(weights)} such): are these its options?")
    return config, tensors


def _dropout(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value < 1:
        raise ValueError(f"dropout is {value!r:.100}, but must be a number from 0 to 1, less than 1.")
    return value


def _take(weights: dict[str, np.ndarray], dataset: Dataset) -> np.ndarray | None:
    """Removes a variable from `weights`, as float32; None where an optional one is absent."""
    array = weights.pop(dataset.name, None)
    if array is None and dataset.optional:
        return None
    if array is None:
        raise ValueError(f"variable {dataset.name!r} is missing; the options ask for one of shape {dataset.shape}.")
    if array.shape != dataset.shape:
        raise ValueError(f"variable {dataset.name!r} has shape {array.shape}, the options ask for {dataset.shape}.")
    if array.dtype.kind != "f":
        raise ValueError(f"variable {dataset.name!r} holds {array.dtype}, not floating-point numbers.")
    with np.errstate(over="ignore"):
        array = array.astype(np.float32)
    if not np.isfinite(array).all():
        raise ValueError(f"variable {dataset.name!r} has values that are NaN or infinite, or too large for float32.")
    return array


def find_checkpoint(path: str | Path) -> Path | None:
    """
    The TensorFlow checkpoint that a path refers to, in the form that [`read_variables`] takes.

    Args:
        path: a folder (or one that holds nothing else), the prefix of a checkpoint's files, or one of them.

    Returns:
        The folder or the prefix; `None` where there is none.
    """
    path = inner_folder(path)
    if path.is_dir():
        return path if any(path.glob("*.index")) else None
    prefix = path.with_name(FILE_ENDING.sub("", path.name))
    return prefix if prefix.with_name(f"{prefix.name}.index").is_file() else None


def import_tensorflow() -> Any:
    """TensorFlow, or an ImportError that says how to install it."""
    return import_optional("tensorflow", "reading a TensorFlow checkpoint", "'hf-elmo[tensorflow]'")


def read_variables(checkpoint: str | Path) -> dict[str, np.ndarray]:
    """
    All variables of a TensorFlow checkpoint.

    Args:
        checkpoint: the folder of a training, whose latest checkpoint is read, or the prefix of a checkpoint's files
            (`model.ckpt-2500`).

    Raises:
        FileNotFoundError: there is no checkpoint.
        ImportError: tensorflow is not installed.
    """
    tensorflow = import_tensorflow()
    prefix = str(checkpoint)
    if Path(checkpoint).is_dir():
        prefix = tensorflow.train.latest_checkpoint(prefix)
        if prefix is None:
            raise FileNotFoundError(f"{checkpoint} holds no TensorFlow checkpoint: give the folder with model.ckpt-*.")
    elif not Path(f"{prefix}.index").is_file():
        raise FileNotFoundError(f"{prefix}.index does not exist: give a training's folder or a checkpoint's prefix.")
    reader = tensorflow.train.load_checkpoint(prefix)
    return {name: np.asarray(reader.get_tensor(name)) for name in reader.get_variable_to_shape_map()}


def checkpoint_files(checkpoint: str | Path) -> list[Path]:
    """The files that [`read_variables`] reads; the latest checkpoint of a folder is the one its `checkpoint` names."""
    folder, name = Path(checkpoint).parent, Path(checkpoint).name
    if Path(checkpoint).is_dir():
        folder, state = Path(checkpoint), Path(checkpoint, "checkpoint")
        named = re.search(r'^model_checkpoint_path: "(?:.*/)?(.+)"', state.read_text() if state.is_file() else "")
        name = named[1] if named else "*"
    data = (file for file in folder.glob(f"{name}.data-*") if FILE_ENDING.search(file.name))  # not a download's lock
    return sorted([*folder.glob(f"{name}.index"), *data])


def load_bilm_tf(checkpoint: str | Path, options: str | Path | None = None) -> ElmoForPreTraining:
    """
    The language models of a training checkpoint of bilm-tf or simple_elmo.

    Args:
        checkpoint: as in [`read_variables`].
        options: the training's `options.json`; by default the one in the checkpoint's folder.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: the options or the variables are not what they should be.
        ImportError: tensorflow is not installed.
    """
    folder = Path(checkpoint) if Path(checkpoint).is_dir() else Path(checkpoint).parent
    settings = read_options(folder / "options.json" if options is None else options)
    config, arrays = tensors_from_variables(settings, read_variables(checkpoint))
    model = ElmoForPreTraining(config)
    start = model.state_dict()
    tensors = {key: torch.from_numpy(np.ascontiguousarray(array)) for key, array in arrays.items()}
    mix = {key: tensor for key, tensor in start.items() if key.startswith(f"{BASE}scalar_mix.")}
    model.load_state_dict(tensors | mix, strict=True)
    return model.eval()


def convert_bilm_tf(
    checkpoint: str | Path,
    vocabulary: str | Path,
    out: str | Path,
    options: str | Path | None = None,
    word_splitting: str = "whitespace",
    about: ModelCard | None = None,
    published: str | None = None,
) -> Path:
    """
    Writes a training checkpoint of bilm-tf as a folder for the Hub, with its softmax and vocabulary, model card and
    conversion record.

    Args:
        checkpoint: as in [`read_variables`].
        vocabulary: the training's vocabulary file, a word for each row of the softmax.
        out: the folder to write; it must not exist.
        options: the training's `options.json`; by default the one in the checkpoint's folder.
        word_splitting: of the tokenizer; bilm-tf itself splits at whitespace.
        about: a page about the model, for the model card.
        published: the name of the published training that it is: it must have its sizes.

    Raises:
        FileExistsError: `out` exists.
        ValueError: the vocabulary has not as many words as the softmax has rows, or as [`load_bilm_tf`].
        FileNotFoundError, ImportError: as [`load_bilm_tf`].
    """
    words = Vocabulary.load(vocabulary)  # first: it fails fast
    model = load_bilm_tf(checkpoint, options)
    require_sizes(model.config, published)
    if len(words) != model.config.vocab_size:
        raise ValueError(
            f"{vocabulary} has {len(words)} words, but the softmax has {model.config.vocab_size}: give the vocabulary "
            "that the model was trained with."
        )
    tokenizer = ElmoTokenizer(
        word_splitting=word_splitting, max_word_length=model.config.max_word_length, vocab_file=str(vocabulary)
    )
    weights = checkpoint_files(checkpoint)
    sources = [*weights, weights[0].parent / "options.json" if options is None else options, vocabulary]
    with new_folder(Path(out)) as folder:
        write_files(folder, Path(out), model, tokenizer, sources, about, "bilm-tf's TensorFlow checkpoint")
        written = ElmoForPreTraining.from_pretrained(folder).state_dict()
        for key, tensor in model.state_dict().items():
            require_equal(key, tensor, written[key])
    return Path(out)
