"""Any published model, by its name; any source, by what it is recognized as."""

from collections.abc import Callable
from pathlib import Path

from huggingface_hub import cached_assets_path

from .allennlp_archive import convert_archive
from .checkpoint import convert_published, require_digest, require_dtype
from .download import download
from .manylangs import convert_manylangs
from .output import require_absent
from .published import NLPL_HOSTS, manylangs_number, page
from .repository import convert_repository
from .tf_hub import convert_saved_model

# What `recognize` calls a source that is one path, and what converts it.
CONVERTERS: dict[str, Callable[..., Path]] = {
    "elmoformanylangs": convert_manylangs,
    "allennlp-archive": convert_archive,
    "saved-model": convert_saved_model,
    "repository": convert_repository,
}


def convert_source(kind: str, source: str | Path, out: str | Path, *, digest: str | None = None, **how: str) -> Path:
    """
    Convert a folder or an archive.

    Args:
        kind: a key of [`CONVERTERS`], as `recognize` finds it.
        source: the folder or archive.
        out: the folder to write; it must not exist.
        digest: the SHA-256 that the archive must have, in hexadecimal digits.
        how: of the converter, `dtype`, `word_splitting` and others.

    Raises:
        ValueError: the archive has another digest, or a digest is given for a folder; or as the converter.
    """
    if digest is not None and Path(source).is_dir():
        raise ValueError(f"a SHA-256 is given, but {source} is a folder: give the archive, or AllenNLP's two files.")
    require_digest(Path(source), digest)
    return CONVERTERS[kind](source, out, **how)


def convert_named(
    model: str,
    out: str | Path,
    *,
    dtype: str = "float32",
    word_splitting: str | None = None,
    cache_dir: str | Path | None = None,
    digest: str | None = None,
) -> Path:
    """
    Download a published model and convert it.

    Args:
        model: a name of [`published.all_names`]: those of [`convert_published`], and `"manylangs-de"` and the like.
        out: the folder to write; it must not exist.
        dtype: `"float32"`, `"bfloat16"` or `"float16"`, the type of the weights in the folder.
        word_splitting: how the tokenizer splits text; by default that of the model's kind.
        cache_dir: where the downloaded files are kept; by default huggingface_hub's assets folder.
        digest: the SHA-256 that the weights, or the archive, must have, in hexadecimal digits.

    Returns:
        `out`.

    Raises:
        ValueError: there is no such model, or what was downloaded is not what it should be.
        ConnectionError: the files cannot be downloaded.
        FileExistsError, ImportError: as `convert`.
    """
    number = manylangs_number(model)
    if number is None:
        how = {"dtype": dtype, "word_splitting": word_splitting, "cache_dir": cache_dir, "digest": digest}
        return convert_published(model, out, **how)
    require_dtype(dtype)
    require_absent(Path(out))
    folder = Path(cache_dir) if cache_dir is not None else cached_assets_path("hf_elmo", "nlpl", model)
    archive = download(f"{number}.zip", folder / f"{number}.zip", NLPL_HOSTS)
    require_digest(archive, digest)
    how = {"dtype": dtype, "word_splitting": word_splitting or "whitespace", "about": page(model)}
    return convert_manylangs(archive, out, **how)
