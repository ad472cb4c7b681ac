"""
AllenNLP's two files in a folder or an archive, also as simple_elmo and the NLPL repository share them: `model.hdf5`,
`options.json`, the words of its softmax.
"""

from fnmatch import fnmatchcase
from pathlib import Path

from huggingface_hub import ModelCard

from .allennlp import import_h5py
from .archives import opened, packed
from .checkpoint import convert, require_dtype
from .output import require_absent
from .recognize import OPTIONS, WEIGHTS

VOCABULARIES = ("vocab.txt", "vocab.txt.gz")
SIMPLE_ELMO = ("options.json", "model.hdf5")  # its names for the two files


def convert_repository(
    source: str | Path,
    out: str | Path,
    *,
    dtype: str = "float32",
    word_splitting: str | None = None,
    about: ModelCard | None = None,
    digest: str | None = None,
    published: str | None = None,
) -> Path:
    """
    Write a folder or an archive with AllenNLP's files, or a model of simple_elmo or NLPL, as a folder for the Hub.

    Args:
        source: the model's folder, or a zip or tar archive of it.
        out: the folder to write; it must not exist.
        dtype: `"float32"`, `"bfloat16"` or `"float16"`, the type of the weights in the folder.
        word_splitting: how the tokenizer splits text, an argument of [`ElmoTokenizer`]; by default `"lm1b"` for
            AllenNLP's files. For files with the names of simple_elmo's it is `"whitespace"`, where that splits.
        about: a page about the model, for the model card.
        digest: the SHA-256 that the weights file must have, in hexadecimal digits.
        published: the name of the published model that they are of, as in `convert`.

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
        return fnmatchcase(name, OPTIONS) or fnmatchcase(name, WEIGHTS) or name in VOCABULARIES

    with opened(source, wanted) as folder:
        options, weights = _only(folder, OPTIONS, source), _only(folder, WEIGHTS, source)
        vocabulary = next((folder / name for name in VOCABULARIES if (folder / name).is_file()), None)
        by_names = "whitespace" if (options.name, weights.name) == SIMPLE_ELMO else "lm1b"
        how = {"dtype": dtype, "word_splitting": word_splitting or by_names, "about": about, "digest": digest}
        how |= {"published": published, "archive": next(iter(packed(source)), None)}
        return convert(options, weights, out, vocabulary=vocabulary, **how)


def _only(folder: Path, pattern: str, source: str | Path) -> Path:
    found = sorted(folder.glob(pattern))
    if not found:
        raise FileNotFoundError(f"{source} holds no {pattern}: it is no model of AllenNLP's or simple_elmo's.")
    if len(found) > 1:
        raise ValueError(f"{source} holds {', '.join(file.name for file in found)}: name the two files of one model.")
    return found[0]
