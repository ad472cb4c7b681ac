"""One function that converts any published ELMo, given by its name or its files, to a checkpoint."""

from collections.abc import Callable, Iterator
from pathlib import Path

from hf_elmo.reading.files import open_file

from .allennlp import read_allennlp
from .allennlp_archive import read_archive
from .checkpoint import Source, add_alignment, require_absent, write_checkpoint
from .files import find_files, unpack
from .manylangs import read_manylangs
from .published import PUBLISHED, download, page
from .tensorflow_checkpoints import find_checkpoint, read_bilm_tf, read_saved_model

Reader = Callable[..., Source]

# Readers, each with the files that a folder must have for it. The first reader whose files are there is used.
READERS: tuple[tuple[Reader, tuple[str, ...]], ...] = (
    (read_manylangs, ("encoder.pkl", "token_embedder.pkl")),
    (read_saved_model, ("saved_model.pb",)),
    (read_archive, ("config.json", "weights.th")),
    (read_allennlp, ("*.hdf5",)),  # before TensorFlow's files, which NLPL's archives hold, too
    (read_bilm_tf, ("*.index",)),
)


def convert(
    *paths: str | Path,
    model: str | None = None,
    dtype: str = "float32",
    word_splitting: str | None = None,
    cache_dir: str | Path | None = None,
    elmo_options: str | Path | None = None,
    use: str | None = None,
    bilm_only: bool = False,
    align: str | Path | None = None,
    align_layer: int | None = None,
) -> Path:
    """Write a published ELMo, in any of its formats, as a folder for the Hub: safetensors, configuration, tokenizer,
    code, model card and the record of the conversion (`conversion.json`). The folder is read back and compared with the
    source, tensor by tensor, before it appears. Its path is returned.

    Args:
        paths: what to convert, then the folder to write, which must not exist. What to convert is one of:

            - the name of a published model (see [`all_names`]), which is downloaded, unless a path has that name
            - a folder or an archive (zip, tar) of any format
            - AllenNLP's `options.json` and `weights.hdf5`, two paths, and optionally a vocabulary file
            - the prefix of a TensorFlow checkpoint's files, and optionally its vocabulary file

        model: the name of the published model that the files are a copy of; without files, this model is downloaded.
            The name determines the model card and how the tokenizer splits text.
        dtype: `"float32"`, `"bfloat16"` or `"float16"`, the type of the stored weights.
        word_splitting: an argument of [`ElmoTokenizer`]; by default as the model's training text was split.
        cache_dir: where downloads are kept, in a folder with the model's name; by default huggingface_hub's cache.
        elmo_options: the `options.json` of the ELMo, for a task's model of AllenNLP whose files lack it.
        use: for a task's model of AllenNLP with several ELMos that differ: the name of the ELMo to convert, alone.
        bilm_only: convert the biLM of a task's model of AllenNLP without its head; the card names what is left behind.
        align: a file of a matrix `[2P, 2P]` (`.npy` or `.pth`) that maps the model's vectors to those of another
            language's model. The checkpoint multiplies its mix by it, and the mix is fixed.
        align_layer: the layer whose vectors the matrix maps, by default the mean of all.

    Raises:
        FileExistsError: the folder exists.
        FileNotFoundError: a file is missing.
        KeyError: `model` is not the name of a published model.
        ConnectionError: a file cannot be downloaded.
        ValueError: the files are of no known format, or their content is wrong.
    """
    *given, out = (Path(path).expanduser() for path in paths)
    require_absent(out)
    if model is None and len(given) == 1 and not given[0].exists() and str(given[0]) in PUBLISHED:
        model = str(given[0])
        given = []
    if model is not None:
        word_splitting = word_splitting or PUBLISHED[model].word_splitting
        if not given:
            files = download(model, cache_dir)
            given = files if len(files) == 1 else [files[0].parent]
    settings = {"options": elmo_options, "use": use, "bilm_only": bilm_only or None}
    with unpack(given[0]) as source:
        read_paths = [source, *given[1:], *map(Path, filter(None, (elmo_options, align)))]
        for file in [file for path in read_paths for file in (path, *path.rglob("*")) if file.is_file()]:
            with open_file(file):  # a pointer of Git LFS is refused
                pass
        read, arguments = recognize(source, *given[1:])
        original = read(*arguments, **{name: value for name, value in settings.items() if value is not None})
        if align is not None:
            add_alignment(original, Path(align), align_layer)
        if source != given[0]:
            original.files.insert(0, given[0])
        return write_checkpoint(out, original, dtype, word_splitting, None if model is None else page(model))


def recognize(path: Path, *others: Path) -> tuple[Reader, list[Path]]:
    """The reader of a model, and the reader's arguments: a folder that holds the model (`path` or one below), or files.
    Raises ValueError if `path` does not hold one model of a known format."""
    if not path.is_dir() and find_checkpoint(path) is not None:
        return read_bilm_tf, [path, *others]
    if path.suffix == ".json" and others:
        return read_allennlp, [path, *others]
    models = list(_models(path))
    if len(models) != 1:
        folders = [str(folder.relative_to(path)) for _, folder in models]
        what = "one (extract it, if in an archive), or a name of hf-elmo convert --list"
        raise ValueError(f"{path} has {len(models)} models of a known format, in {folders}: give {what}.")
    return models[0][0], [models[0][1], *others]


def _models(folder: Path) -> Iterator[tuple[Reader, Path]]:
    """The models in a folder or in its subfolders: the reader and the folder of each."""
    for read, names in READERS:
        if all(find_files(folder, name) for name in names):
            yield read, folder
            return
    for inside in find_files(folder, "*/"):
        yield from _models(inside)
