"""Which numbers of somebody else's HDF5 file are read: those that the file itself stores, and no more than it stores.

The format can also refer to other files and other places, and to numbers that were never written.
"""

from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from hf_elmo.optional import import_optional

if TYPE_CHECKING:
    import h5py

# How much smaller compression may make a dataset of more than a mebibyte: trained weights lose a tenth, zeros 99.9 %.
MOST_COMPRESSION, SMALL_BYTES = 100, 1 << 20


class ModelFileError(ValueError):
    """Says which file cannot be used, and why; h5py's own errors, ValueError among them, name no file."""


def import_h5py() -> ModuleType:
    """The library that reads and writes `weights.hdf5`; ImportError where it is not installed."""
    return import_optional("h5py", "AllenNLP's format", "'hf-elmo[convert]'")


def stored_datasets(file: "h5py.File") -> dict[str, "h5py.Dataset"]:
    """
    The datasets of a file, by name.

    Raises:
        ModelFileError: a link, a virtual dataset or external storage would read from elsewhere; something is neither
            group nor dataset, or contains itself; a dataset claims more than the file stores, or is stored with
            filters other than gzip, lzf, shuffle and fletcher32, each once.
    """
    h5py = import_h5py()
    groups, seen = [("", file)], {h5py.h5o.get_info(file.id).addr}
    datasets: dict[str, h5py.Dataset] = {}
    while groups:
        prefix, group = groups.pop()
        for name in group:
            where = f"{file.filename}: {prefix + name!r}"
            if not _is_own(group, name):
                raise ModelFileError(
                    f"{where} is a link to somewhere else, which is not followed: copy its numbers here."
                )
            item = group[name]
            if isinstance(item, h5py.Dataset):
                _require_stored(where, item)
                datasets[prefix + name] = item
                continue
            address = h5py.h5o.get_info(item.id).addr
            if not isinstance(item, h5py.Group) or address in seen:
                raise ModelFileError(f"{where} is neither a dataset nor a new group: the weights have nothing else.")
            seen.add(address)
            groups.append((f"{prefix}{name}/", item))
    _require_size(file, datasets)
    return datasets


def _is_own(group: "h5py.Group", name: str) -> bool:
    """Whether a name of a group stands for an object of the file itself, not for a soft, external or other link."""
    h5py = import_h5py()
    try:
        return group.id.links.get_info(name.encode("utf-8", "surrogateescape")).type == h5py.h5l.TYPE_HARD
    except ValueError:  # a class of links that only the program of its author knows
        return False


def _require_stored(where: str, dataset: "h5py.Dataset") -> None:
    h5py = import_h5py()
    if dataset.external or dataset.is_virtual:
        raise ModelFileError(
            f"{where} reads its numbers from other files, which are not opened: copy its numbers here."
        )
    created = dataset.id.get_create_plist()
    filters = [created.get_filter(number)[0] for number in range(created.get_nfilters())]
    compressing = {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_LZF}
    known = compressing | {h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32}
    if not set(filters) <= known or len(set(filters)) < len(filters):
        raise ModelFileError(
            f"{where} is stored with the filters {filters}, but gzip, lzf, shuffle and fletcher32 are read, each once: "
            "store it without."
        )
    stored, claimed = dataset.id.get_storage_size(), (dataset.size or 0) * dataset.dtype.itemsize
    most = stored if compressing.isdisjoint(filters) else max(stored * MOST_COMPRESSION, SMALL_BYTES)
    if claimed > most:
        raise ModelFileError(
            f"{where} claims {claimed:,} bytes of numbers, but the file stores {stored:,} bytes of them: "
            "write it with all its numbers."
        )


def _require_size(file: "h5py.File", datasets: dict[str, "h5py.Dataset"]) -> None:
    size = Path(file.filename).stat().st_size
    stored = sum(dataset.id.get_storage_size() for dataset in datasets.values())
    if stored > size:
        raise ModelFileError(
            f"{file.filename} is truncated or damaged: its datasets claim to store {stored:,} bytes, but it has "
            f"{size:,}. Download or copy it again."
        )
