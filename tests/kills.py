"""Commands that are killed (SIGKILL) one to three times and then run to their end.

The result must be that of an uninterrupted run, byte for byte. Half of the kills come before a file operation, which is
counted, so that a seed repeats it; half come after a share of the command's time.
"""

import contextlib
import io
import multiprocessing
import os
import random
import shutil
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest
import torch
from tqdm import tqdm

from .factories import TINY

if not hasattr(os, "fork"):
    pytest.skip("no fork on this system", allow_module_level=True)

FILE_EVENTS = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.link", "os.symlink")
SECONDS = 120  # in which a command must end

# Runs that a test kills: few by default, hundreds by hand (ELMO_KILLS=300 pytest -m slow -k killed).
KILLS = int(os.environ.get("ELMO_KILLS", "3"))

# A server without threads forks the commands: they find everything imported.
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["hf_elmo.conversion", "hf_elmo.embedding.corpus", "hf_elmo.pretraining.recipe"])


@dataclass
class Command:
    """A command.

    Args:
        arguments: of `hf-elmo`; OUT stands for the folder of a run.
        output: the result's name in that folder.
        whole_at_once: the result appears under its name when it is complete.
    """

    arguments: list[str]
    output: str
    whole_at_once: bool = True

    def start(self, folder: Path, kill_at: int | None = None, count: Path | None = None) -> ForkServerProcess:
        """Starts the command in a process that kills itself before file operation `kill_at`, or counts them."""
        arguments = [argument.replace("OUT", str(folder)) for argument in self.arguments]
        process = _processes.Process(target=_run, args=(_log(folder), arguments, folder, kill_at, count))
        process.start()
        return process


def _log(folder: Path) -> Path:
    return folder.parent / "standard-error"


def _require_success(process: ForkServerProcess, folder: Path) -> None:
    """Waits for the end of a command that nobody kills."""
    process.join(SECONDS)
    assert process.exitcode == 0, _log(folder).read_text()[-2000:]


def _run(log: Path, arguments: list[str], folder: Path, kill_at: int | None, count: Path | None) -> None:
    from hf_elmo.cli import main

    # MKL's sums in one order, wherever the memory lies: the same numbers in each process.
    os.environ["MKL_CBWR"] = "COMPATIBLE"
    torch.set_num_threads(1)
    tqdm.set_lock(threading.RLock())  # by default a lock of multiprocessing, which a killed process never releases
    with (
        log.open("w", buffering=1) as file,
        contextlib.redirect_stderr(file),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        try:
            _watch_files(folder, kill_at, count)
            status = main(arguments)
        except BaseException:
            traceback.print_exc()
            raise
    sys.exit(status)


def _watch_files(folder: Path, kill_at: int | None, count: Path | None) -> None:
    """From now on this process kills itself before its file operation number `kill_at` in `folder`; each operation adds
    a byte to `count`."""
    number, log = 0, None if count is None else os.open(count, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal number
        if event not in FILE_EVENTS or not str(arguments[0]).startswith(str(folder)):
            return
        if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR):
            return
        number += 1
        if log is not None:
            os.write(log, b".")
        if number == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def contents(path: Path) -> dict[str, bytes]:
    """The bytes of a file, or of all files of a folder that belong to the result."""
    if path.is_file():
        return {path.name: path.read_bytes()}
    # Notes of a training hold times; its intermediate checkpoints are not the result.
    skipped = ("checkpoint-", "training_args.bin", "trainer_state.json", "runs")
    named = {str(file.relative_to(path)): file for file in sorted(path.rglob("*")) if file.is_file()}
    return {name: file.read_bytes() for name, file in named.items() if not name.startswith(skipped)}


def pretrain_command(text: Path, options: str, save_steps: int = 1) -> Command:
    """Trains a tiny model; a killed training resumes."""
    tiny = [part for name, value in TINY.items() for part in ("--config", f"{name}={value}".replace(" ", ""))]
    settings = ["--pretokenized", "--resume", "--set=use_cpu=true", f"--set=save_steps={save_steps}"]
    arguments = ["pretrain", *settings, *options.split(), *tiny, "OUT/trained", str(text)]
    return Command(arguments, "trained", whole_at_once=False)


def run_with_kills(command: Command, folder: Path, runs: int, seed: int = 0) -> Counter:
    """Runs a command `runs` times, each killed one to three times; returns the number of kills."""
    warm_up = _processes.Process(target=os.getpid)  # the server imports everything, which takes seconds once
    warm_up.start()
    warm_up.join()
    place, counted, start = folder / "killed", folder / "events", time.monotonic()
    place.mkdir()
    _require_success(command.start(place, count=counted), place)
    seconds, events, expected = time.monotonic() - start, counted.stat().st_size, contents(place / command.output)
    generator, kills = random.Random(seed), 0
    for _ in range(runs):
        shutil.rmtree(place)
        place.mkdir()
        is_complete = False
        for _ in range(generator.choice((1, 1, 2, 3))):
            if generator.random() < 0.5:
                process = command.start(place, kill_at=generator.randint(1, events))
            else:
                process = command.start(place)
                time.sleep(generator.random() * seconds)
                process.kill()
            process.join(SECONDS)
            is_complete = command.whole_at_once and (place / command.output).exists()
            if process.exitcode != -signal.SIGKILL:  # it ended before
                _require_success(process, place)
                is_complete = True
                break
            kills += 1
            if is_complete:  # another run would refuse to overwrite it
                break
        if not is_complete:
            _require_success(command.start(place), place)
            assert {path.name for path in place.iterdir()} <= {command.output, "cache"}
        result = contents(place / command.output)
        assert result.keys() == expected.keys()
        assert [name for name in result if result[name] != expected[name]] == []
    return Counter({"kills": kills})
