"""Any published model, by its name; any source, by what it is recognized as."""

from collections.abc import Callable, Sequence
from pathlib import Path

from .allennlp_archive import convert_archive
from .archives import inner_folder
from .bilm_tf import convert_bilm_tf, find_checkpoint, import_tensorflow
from .checkpoint import convert_published, require_digest, require_dtype
from .download import PUBLISHED_TRAININGS, cache_folder, download, download_training, published_model
from .manylangs import convert_manylangs
from .output import require_absent
from .published import NLPL_HOSTS, default_word_splitting, manylangs_number, page
from .recognize import recognize
from .repository import convert_repository
from .tf_hub import convert_saved_model

# What `recognize` calls a source that is one path, and what converts it.
CONVERTERS: dict[str, Callable[..., Path]] = {
    "elmoformanylangs": convert_manylangs,
    "allennlp-archive": convert_archive,
    "saved-model": convert_saved_model,
    "repository": convert_repository,
}
# What copies of published models are: in words, and as `recognize` calls them.
ALLENNLP_COPY = (
    "options.json and weights.hdf5, or their folder or archive",
    ("allennlp", "repository"),
)
TRAINING_COPY = "a TensorFlow checkpoint of bilm-tf, and its vocabulary where it is not beside it", ("bilm-tf",)
MANYLANGS_COPY = "a folder or an archive of ELMoForManyLangs", ("elmoformanylangs",)


def convert_source(kind: str, source: str | Path, out: str | Path, *, digest: str | None = None, **how: str) -> Path:
    """
    Convert a folder or an archive.

    Args:
        kind: a key of [`CONVERTERS`], as `recognize` finds it.
        source: the folder or archive.
        out: the folder to write; it must not exist.
        digest: the SHA-256 that the archive must have, in hexadecimal digits; in a folder of AllenNLP's two files, the
            weights.
        how: of the converter, `dtype`, `word_splitting` and others.

    Raises:
        ValueError: the archive has another digest, or a digest is given for a folder; or as the converter.
    """
    if digest is not None and kind == "repository" and Path(source).is_dir():
        return CONVERTERS[kind](source, out, digest=digest, **how)
    if digest is not None and Path(source).is_dir():
        raise ValueError(f"a SHA-256 is given, but {source} is a folder: give the archive, or AllenNLP's two files.")
    require_digest(Path(source), digest)
    return CONVERTERS[kind](source, out, **how)


def convert_named(
    model: str,
    out: str | Path,
    *,
    files: Sequence[str | Path] = (),
    dtype: str = "float32",
    word_splitting: str | None = None,
    cache_dir: str | Path | None = None,
    digest: str | None = None,
) -> Path:
    """
    Convert a published model: download it, or take a copy of it. Its name gives it its model card, the language of it
    and the way in which its tokenizer splits text, so a copy becomes the folder that a download becomes.

    Args:
        model: a name of [`published.all_names`]: those of [`convert_published`], and `"manylangs-de"` and the like.
        out: the folder to write; it must not exist.
        files: a copy, which is converted instead of a download: a folder or an archive, AllenNLP's options and
            weights, or of `"original-softmax"` a TensorFlow checkpoint and its vocabulary, unless that is beside it.
        dtype: `"float32"`, `"bfloat16"` or `"float16"`, the type of the weights in the folder.
        word_splitting: how the tokenizer splits text; by default that of the model's kind.
        cache_dir: where the downloaded files are kept, in a folder of the model's name; by default huggingface_hub's
            assets folder.
        digest: the SHA-256 that the weights, or the archive, must have, in hexadecimal digits.

    Returns:
        `out`.

    Raises:
        ValueError: there is no such model, what was downloaded or given is not what it should be, or both `files` and
            `cache_dir` are given.
        ConnectionError: the files cannot be downloaded.
        FileNotFoundError: a given file does not exist.
        FileExistsError, ImportError: as `convert`.
    """
    how = {"dtype": dtype, "word_splitting": word_splitting or default_word_splitting(model)}
    if files and cache_dir is not None:
        raise ValueError(f"cache_dir is {cache_dir}, but nothing is downloaded: files are given.")
    if model in PUBLISHED_TRAININGS:
        return _convert_training(model, out, files, cache_dir, digest, **how)
    number = manylangs_number(model)
    if number is None:
        published_model(model)
    if files:
        kind, files = _copy(model, files)
        if kind in CONVERTERS:
            return convert_source(kind, *files, out, digest=digest, about=page(model), published=model, **how)
    if number is None:
        return convert_published(model, out, files=files, cache_dir=cache_dir, digest=digest, **how)
    require_dtype(dtype)
    require_absent(Path(out))
    folder = cache_folder("nlpl", model, cache_dir)
    archive = download(f"{number}.zip", folder / f"{number}.zip", NLPL_HOSTS, model)
    return convert_source("elmoformanylangs", archive, out, digest=digest, about=page(model), published=model, **how)


def _convert_training(
    model: str,
    out: str | Path,
    files: Sequence[str | Path],
    cache_dir: str | Path | None,
    digest: str | None,
    dtype: str,
    word_splitting: str,
) -> Path:
    """A training of bilm-tf, softmax included, downloaded or given."""
    if dtype != "float32":
        raise ValueError(f"dtype is {dtype}, but {model} is a TensorFlow training, which is converted in float32.")
    if digest is not None:
        raise ValueError(f"a SHA-256 is given, but {model} is a TensorFlow training, which has several files.")
    require_absent(Path(out))
    if files:
        _, (source, *words) = _copy(model, files)
        source = inner_folder(source)
        checkpoint = _prefix(model, source)
        vocabulary = words[0] if words else _vocabulary_beside(model, source)
    else:
        import_tensorflow()
        checkpoint, vocabulary = download_training(model, cache_dir)
    return convert_bilm_tf(
        checkpoint, vocabulary, out, word_splitting=word_splitting, about=page(model), published=model
    )


def _prefix(model: str, checkpoint: str | Path) -> Path:
    """The published checkpoint in a folder, whose `checkpoint` names a folder of its author's; or what is given."""
    published = Path(checkpoint) / Path(PUBLISHED_TRAININGS[model][1]).stem
    return published if Path(f"{published}.index").is_file() else find_checkpoint(checkpoint)


def _vocabulary_beside(model: str, source: str | Path) -> Path:
    folder = Path(source) if Path(source).is_dir() else Path(source).parent
    published = folder / PUBLISHED_TRAININGS[model][-1]
    return published if published.is_file() else folder / "vocab.txt"


def _copy(model: str, files: Sequence[str | Path]) -> tuple[str, Sequence[str | Path]]:
    """What the copy of a published model is, as `recognize` calls it, and its one or two files."""
    found = recognize(files[0])
    if found.message:
        raise found.error
    what, kinds = ALLENNLP_COPY if manylangs_number(model) is None else MANYLANGS_COPY
    if model in PUBLISHED_TRAININGS:
        what, kinds = TRAINING_COPY
    numbers = {"allennlp": (2,), "bilm-tf": (1, 2)}.get(found.kind, (1,))
    if found.kind not in kinds or len(files) not in numbers:
        raise ValueError(f"{' and '.join(map(str, files))}: {model} is {what}, and this is no copy of it.")
    return found.kind, found.files or files
