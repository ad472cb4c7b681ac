"""A model as simple_elmo and the NLPL repository share it: `model.hdf5`, `options.json`, the words of its softmax."""

from pathlib import Path

from huggingface_hub import ModelCard

from .allennlp import import_h5py
from .archives import opened
from .checkpoint import convert, require_dtype
from .output import require_absent

VOCABULARIES = ("vocab.txt", "vocab.txt.gz")


def convert_repository(
    source: str | Path,
    out: str | Path,
    *,
    dtype: str = "float32",
    word_splitting: str = "whitespace",
    about: ModelCard | None = None,
) -> Path:
    """
    Write a model of simple_elmo or NLPL as a folder for the Hub.

    Args:
        source: the model's folder, or a zip or tar archive of it.
        out: the folder to write; it must not exist.
        dtype: `"float32"`, `"bfloat16"` or `"float16"`, the type of the weights in the folder.
        word_splitting: how the tokenizer splits text, an argument of [`ElmoTokenizer`]; simple_elmo splits at
            whitespace.
        about: a page about the model, for the model card.

    Returns:
        `out`.

    Raises:
        FileExistsError: `out` exists.
        FileNotFoundError: there are no options or no weights.
        ValueError: there are several, an archive is not safe to open, or as `convert`.
        ImportError: h5py is not installed.
    """
    import_h5py()
    require_dtype(dtype)
    require_absent(Path(out))

    def wanted(name: str) -> bool:
        return name.endswith(".hdf5") or (name.endswith(".json") and "options" in name) or name in VOCABULARIES

    with opened(source, wanted) as folder:
        options, weights = _only(folder, "*options*.json", source), _only(folder, "*.hdf5", source)
        vocabulary = next((folder / name for name in VOCABULARIES if (folder / name).is_file()), None)
        how = {"dtype": dtype, "word_splitting": word_splitting, "about": about}
        return convert(options, weights, out, vocabulary=vocabulary, **how)


def _only(folder: Path, pattern: str, source: str | Path) -> Path:
    found = sorted(folder.glob(pattern))
    if not found:
        raise FileNotFoundError(f"{source} holds no {pattern}: it is no model of simple_elmo.")
    if len(found) > 1:
        raise ValueError(f"{source} holds {', '.join(file.name for file in found)}: name the two files of one model.")
    return found[0]
