"""Checkpoints of a training: which of them are whole, and what of them an exact resume needs.

A checkpoint is whole once it has [`DATA_FILE`], which is written last, under another name first, after every other file
has reached the disk; it records their sizes and their SHA-256, and its own.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, WEIGHTS_INDEX_NAME, WEIGHTS_NAME, logging

logger = logging.get_logger(f"transformers.{__name__}")

DATA_FILE = "elmo_data.json"  # the position of the next batch in the text; sizes and SHA-256 of the other files
OWN_SHA256 = "own_sha256"  # of the rest of DATA_FILE
STATE_FILE = "elmo_state_{rank}.pt"  # a process's LSTM state before the next batch
WEIGHTS = (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME, WEIGHTS_NAME, WEIGHTS_INDEX_NAME)


def mark_whole(folder: Path, record: Mapping[str, Any]) -> None:
    """Writes `record` and the sizes and SHA-256 of all other files as the checkpoint's last file."""
    unfinished = folder / f".{DATA_FILE}.unfinished"
    unfinished.unlink(missing_ok=True)
    sizes, digests = {}, {}
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = file.relative_to(folder).as_posix()
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
            digests[name] = hashlib.file_digest(opened, "sha256").hexdigest()
        sizes[name] = file.stat().st_size
    record = {**record, "files": sizes, "sha256": digests}
    with unfinished.open("w", encoding="utf-8") as opened:
        json.dump({**record, OWN_SHA256: _sha256(record)}, opened)
        opened.flush()
        os.fsync(opened.fileno())
    os.replace(unfinished, folder / DATA_FILE)


def last_whole_checkpoint(folder: str | Path) -> Path | None:
    """The checkpoint of the most steps that was written to its end; `None` where there is none. Later ones, which a
    kill or a full disk cut off, are named in the log."""
    for checkpoint in reversed(_checkpoints(Path(folder))):
        if (checkpoint / DATA_FILE).is_file():
            return checkpoint
        logger.warning("%s has no %s: it was not written to its end and is passed over.", checkpoint, DATA_FILE)
    return None


def remove_old(folder: Path, limit: int | None, kept: set[Path]) -> None:
    """Removes the oldest whole checkpoints over `limit`, but none of `kept`. Trainer's own rotation counts those that
    are not whole, and may keep one of them in the place of the last whole one."""
    if limit is None or limit < 1:
        return
    whole = [checkpoint for checkpoint in _checkpoints(folder) if (checkpoint / DATA_FILE).is_file()]
    surplus = len(whole) - max(limit, len(kept))
    for checkpoint in [checkpoint for checkpoint in whole if checkpoint not in kept][: max(surplus, 0)]:
        (checkpoint / DATA_FILE).unlink()  # first: what a kill leaves of it is not whole
        shutil.rmtree(checkpoint, ignore_errors=True)


def require_free(folder: Path, resume: bool) -> None:
    """
    Refuses to train anew into a folder with a trained model or checkpoints.

    Args:
        folder: of the new model.
        resume: the run would have resumed, but there is no whole checkpoint: those that are not whole do not matter.

    Raises:
        FileExistsError: there is something to lose.
    """
    places = [folder, *([] if resume else reversed(_checkpoints(folder)))]
    found = [place / name for place in places for name in (*WEIGHTS, DATA_FILE) if (place / name).is_file()]
    if not found:
        return
    remedies = "" if resume else "continue it with resume=True (--resume), "
    lacks = ", and no whole checkpoint to resume from" if resume else ""
    raise FileExistsError(
        f"output {str(folder)!r} holds a trained model or its checkpoints ({found[0].relative_to(folder)}){lacks}; "
        f"choose another name, {remedies}or replace it with overwrite=True (--overwrite)"
    )


def remove_checkpoints(folder: Path) -> None:
    """Removes all checkpoints, whole or not."""
    for checkpoint in _checkpoints(folder):
        (checkpoint / DATA_FILE).unlink(missing_ok=True)  # first, as in remove_old
        shutil.rmtree(checkpoint)


def remove_weights(folder: Path) -> None:
    """Removes a model's weights, so that they never lie beside another run's vocabulary."""
    for name in WEIGHTS:
        (folder / name).unlink(missing_ok=True)


def _checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, whole or not, by their steps."""
    steps = {}
    for path in folder.glob(f"{PREFIX_CHECKPOINT_DIR}-*"):
        number = path.name.removeprefix(f"{PREFIX_CHECKPOINT_DIR}-")
        if path.is_dir() and number.isdecimal():
            steps[int(number)] = path
    return [steps[step] for step in sorted(steps)]


def read_record(folder: Path) -> dict[str, Any]:
    """What [`mark_whole`] recorded; ValueError where the checkpoint is not whole, or the record is damaged."""
    file = folder / DATA_FILE
    if not file.is_file():
        raise ValueError(
            f"{folder} has no {DATA_FILE}: it is not a checkpoint of this trainer, or was not written to its end."
        )
    try:
        record = dict(json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file} is damaged ({error}). {_remedy(folder)}") from error
    own = record.pop(OWN_SHA256, None)  # versions before this one recorded none
    if own is not None and own != _sha256(record):
        raise ValueError(f"{file} is damaged (it has another SHA-256 than was written). {_remedy(folder)}")
    return record


def require_files(folder: Path, record: Mapping[str, Any], needed: Iterable[str] = (), contents: bool = True) -> None:
    """
    Requires that the files of a checkpoint are as they were written.

    Args:
        folder: the checkpoint.
        record: what `read_record` read of it.
        needed: names of files without which a resumed training would go on otherwise than the interrupted one.
        contents: whether all their bytes are read, or their sizes only.

    Raises:
        ValueError: one is missing, or has another size or other bytes than were written.
    """
    sizes, digests = record.get("files", {}), record.get("sha256", {})
    for name in sorted({*needed, *sizes}):
        file = folder / name
        if not file.is_file():
            raise ValueError(f"{file} is missing: without it other weights would result. {_remedy(folder)}")
        size = file.stat().st_size
        if size != sizes.get(name, size):
            raise ValueError(f"{file} has {size} bytes, but {sizes[name]} were written. {_remedy(folder)}")
        if contents and name in digests:
            with file.open("rb") as opened:
                found = hashlib.file_digest(opened, "sha256").hexdigest()
            if found != digests[name]:
                raise ValueError(
                    f"{file} is damaged (its SHA-256 is {found}, but {digests[name]} was written). {_remedy(folder)}"
                )


def _sha256(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record).encode()).hexdigest()


def _remedy(folder: Path) -> str:
    return f"Restore the file, or remove {folder.name} to resume from the checkpoint before it."
