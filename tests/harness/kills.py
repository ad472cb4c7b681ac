"""Runs of the command line that are killed (SIGKILL), some twice or three times, and then left to end.

The result must be that of a run in one piece, byte by byte, and what stands under the result's name must be whole at
any time. Half of the moments are operations on files, counted, so that a seed finds them again, half are times.
"""

import contextlib
import functools
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hf_elmo import ElmoConfig, ElmoTokenizer
from hf_elmo.cli import main
from hf_elmo.conversion import download as downloads
from tests.allennlp_files import make_arrays, make_options, write_files
from tests.conftest import SENTENCES, TINY, random_model
from tests.conversion.server import Server, serving

from .checks import Case, Check, Fault, described
from .processes import Child, Ended, start, warm_up

FILE_EVENTS = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.link", "os.symlink")
PIECE_BYTES, PIECE_SECONDS = 1 << 15, 0.001  # how fast the server sends

# How often a test kills its work: few in the suite, hundreds by hand (ELMO_KILLS=300 pytest -k killed).
KILLS = int(os.environ.get("ELMO_KILLS", "3"))


def nothing() -> None:
    """What most commands need before."""


@dataclass
class Command:
    """A command, where it writes, and what it writes when nothing happens to it.

    Args:
        arguments: of `hf-elmo`; OUT stands for the folder of a case.
        output: the result's name in that folder.
        before: called in the process before the command.
        whole_at_once: the result's name stands for nothing until it stands for the whole.
        leaves: the folder, by its ending, that a run which is killed after its result leaves to the next one.
    """

    arguments: list[str]
    output: str
    before: Callable[[], None] = nothing
    whole_at_once: bool = True
    leaves: str = ""
    expected: dict[str, bytes] = field(default_factory=dict)
    events: int = 0
    seconds: float = 0.0

    def start(self, folder: Path, kill_at: int | None = None, count: Path | None = None) -> Child:
        """The command in a child that kills itself at one of its operations on files, or counts them."""
        arguments = [argument.replace("OUT", str(folder)) for argument in self.arguments]
        return start(folder.parent / "standard-error", watched, arguments, folder, self.before, kill_at, count)

    def measure(self, folder: Path) -> None:
        """One run in one piece."""
        folder.mkdir()
        counted, start = folder.parent / "events", time.monotonic()
        ended = self.start(folder, count=counted).wait()
        if ended.status:
            raise RuntimeError(f"hf-elmo {' '.join(self.arguments)} failed without being killed: {ended.said}")
        self.seconds, self.events = time.monotonic() - start, counted.stat().st_size
        self.expected = contents(folder / self.output)
        shutil.rmtree(folder)


def watched(
    arguments: list[str], folder: Path, before: Callable[[], None], kill_at: int | None, count: Path | None
) -> int:
    """What a child does."""
    watch_files(folder, kill_at, count)
    before()
    return main(arguments)


def watch_files(folder: Path, kill_at: int | None, count: Path | None) -> None:
    """From now on: this process is killed before its operation number `kill_at` on files in `folder`; each adds a byte
    to `count`."""
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
    """The bytes of a file, or of all files in a folder that the result consists of."""
    if path.is_file():
        return {path.name: path.read_bytes()}
    # A training's own notes hold times; its intermediate checkpoints are not the result.
    skipped = ("checkpoint-", "training_args.bin", "trainer_state.json", "runs")
    files = (file for file in sorted(path.rglob("*")) if file.is_file())
    named = {str(file.relative_to(path)): file for file in files}
    return {name: file.read_bytes() for name, file in named.items() if not name.startswith(skipped)}


def serve_from(url: str) -> None:
    """The published models come from `url` in this process, a little at a time."""
    os.environ["no_proxy"] = "127.0.0.1"
    downloads.download_published.__defaults__ = (None, [url])
    downloads.CHUNK_BYTES = PIECE_BYTES


def download_command(model: str, server: Server) -> Command:
    """A published model is downloaded and converted, from a server that is slow enough to be killed at."""
    server.pieces = PIECE_BYTES, PIECE_SECONDS
    arguments = ["convert", "--model", model, "--cache-dir", "OUT/cache", "OUT/converted"]
    return Command(arguments, "converted", functools.partial(serve_from, server.url))


def pretrain_command(text: Path, options: str, save_steps: int = 1) -> Command:
    """A tiny model is trained; after a kill the training resumes."""
    tiny = [part for name, value in TINY.items() for part in ("--config", f"{name}={value}".replace(" ", ""))]
    settings = ["--words", "--pretokenized", "--resume", "--set=use_cpu=true", f"--set=save_steps={save_steps}"]
    arguments = ["pretrain", *settings, *options.split(), *tiny, "OUT/trained", str(text)]
    return Command(arguments, "trained", whole_at_once=False)


@contextlib.contextmanager
def prepare(folder: Path) -> Iterator[Case]:
    """A model, texts and an archive; and what each command makes of them in one piece."""
    warm_up()
    random_model(ElmoConfig(**TINY)).save_pretrained(folder / "model")
    ElmoTokenizer().save_pretrained(folder / "model")
    (folder / "rows.txt").write_text("".join(f"{row} {number}\n" for number in range(12) for row in SENTENCES))
    (folder / "text.txt").write_text("the cat sat on the mat\na dog saw the cat\nrain fell all day\n" * 20)
    options = make_options({"dim": 512, "projection_dim": 32})
    archive = write_files(folder / "archive", options, make_arrays(options))
    with serving() as server:
        server.files = dict(
            zip(downloads.PUBLISHED_MODELS["portuguese"], (file.read_bytes() for file in archive), strict=True)
        )
        commands = all_commands(folder, *archive, server)
        for command in commands.values():
            command.measure(folder / "case")
        yield functools.partial(case, folder, commands)


def all_commands(folder: Path, options: Path, weights: Path, server: Server) -> dict[str, Command]:
    """The commands that are killed, by a name for each."""
    commands = {}
    for ending in ("safetensors", "npz", "hdf5", "parquet"):
        arguments = f"embed --batch-tokens 40 --window 90 {folder}/model {folder}/rows.txt OUT/vectors.{ending}"
        commands[f"embed {ending}"] = Command(arguments.split(), f"vectors.{ending}", leaves=".parts")
    commands["convert"] = Command(["convert", str(options), str(weights), "OUT/converted"], "converted")
    commands["download"] = download_command("portuguese", server)
    training = "--batch-size 3 --window 5 --steps 8 --seed 3"
    commands["pretrain"] = pretrain_command(folder / "text.txt", training, save_steps=2)
    return commands


def case(folder: Path, commands: dict[str, Command], rng: random.Random) -> Counter:
    """One of the commands."""
    kind = rng.choice(sorted({name.split()[0] for name in commands}))
    name = rng.choice([name for name in commands if name.split()[0] == kind])
    with described(name):
        return Counter({f"runs of {name}": 1}) + run_killed(rng, commands[name], folder / "case")


def run_with_kills(command: Command, folder: Path, cases: int, seed: int = 0) -> Counter:
    """For the tests of a command: `cases` runs of it, each killed one to three times; raises Fault."""
    warm_up()
    command.measure(folder / "killed")
    rng = random.Random(seed)
    return sum((run_killed(rng, command, folder / "killed") for _ in range(cases)), Counter())


def run_killed(rng: random.Random, command: Command, place: Path) -> Counter:
    """A command in an empty folder, killed one to three times unless it ends before, and then left to end."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    moments, is_there = [], False
    try:
        for _ in range(rng.choice((1, 1, 2, 3))):
            ended, moment = killed(rng, command, place)
            if ended.status != -signal.SIGKILL:
                require_success(ended)
                break
            moments.append(moment)
            is_there = command.whole_at_once and (place / command.output).exists()
            if is_there:  # another run would refuse to write it
                break
        if ended.status == -signal.SIGKILL:
            finish(command, place, is_there)
        require_result(command, place)
        left = {path.name for path in place.iterdir()} - {command.output, "cache"}
        if left and (command.leaves or not is_there):
            raise Fault(f"{', '.join(sorted(left))} is left over")
    except Fault as fault:
        raise Fault(f"killed {', '.join(moments) or 'at no time'}: {fault}") from fault
    return Counter({"kills": len(moments), "kills between the result and the end": is_there})


def finish(command: Command, place: Path, is_there: bool) -> None:
    """The next run, which nobody kills. Where the result is there it removes what is left, and succeeds if that says
    whose it is; an empty folder does not."""
    left = place / f"{command.output}{command.leaves}"
    if not is_there or (command.leaves and (left / "manifest.json").exists()):
        require_success(command.start(place).wait())
    elif command.leaves and left.exists():
        ended = command.start(place).wait()
        if ended.status != 1 or "exists; choose another name" not in ended.said:
            raise Fault(f"the next run ended with {ended.status}: {ended.said.strip()[-400:]!r}")


def killed(rng: random.Random, command: Command, place: Path) -> tuple[Ended, str]:
    """The command, killed at a moment that is drawn, in words; or its end where that came before."""
    if rng.random() < 0.5:
        event = rng.randint(1, command.events)
        return command.start(place, kill_at=event).wait(), f"before operation {event} of {command.events} on files"
    share = rng.random()
    child = command.start(place)
    time.sleep(share * command.seconds)
    child.kill()
    return child.wait(), f"after {share:.0%} of its time"


def require_success(ended: Ended) -> None:
    """Raises Fault where a run that nobody killed did not succeed."""
    if ended.status:
        raise Fault(f"the next run ended with {ended.status}: {ended.said.strip()[-400:]!r}")


def require_result(command: Command, place: Path) -> None:
    """Raises Fault where the result is not, byte by byte, that of a run in one piece."""
    found = contents(place / command.output)
    if found != command.expected:
        names = found.keys() | command.expected.keys()
        wrong = sorted(name for name in names if found.get(name) != command.expected.get(name))
        raise Fault(f"{', '.join(wrong)} of {command.output} differ from those of a run in one piece")


CHECK = Check("kills", prepare, cases=10)
