"""The folder of parts: one run at a time, nobody else's files, and what a kill, a full disk or a changed input leaves.

ELMO_KILLS sets how many runs are killed, and how many pairs of runs meet; by default few.
"""

import json
import os
import random
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from hf_elmo import embed
from hf_elmo.embedding import corpus
from hf_elmo.embedding.engine import CorpusEncoder
from hf_elmo.embedding.parts import PartsFolder, RowLayout
from hf_elmo.embedding.writers import writer_for
from hf_elmo.kernels import native, registry

from ..forks import exit_code
from ..harness.kills import watch_files
from .helpers import ROWS, Stopped, close, read, text_file

KILLS = int(os.environ.get("ELMO_KILLS", 6))
ENDINGS = [".safetensors", ".npz", ".hdf5", ".parquet"]


def started(said: Path, function: Callable[..., None], *arguments: object) -> int:
    """The id of a new process in which a function runs; the message of its error goes to the file `said`."""
    process = os.fork()
    if process:
        return process
    try:
        function(*arguments)
        os._exit(0)
    except BaseException as error:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        said.write_text(f"{type(error).__name__}: {error}")
    finally:
        os._exit(1)


def finish(process: int) -> int:
    """Its exit status, or the number of the signal that ended it, negative."""
    return exit_code(process)


# -- one run at a time -------------------------------------------------------------------------------------------------


def test_a_second_run_of_the_same_output_is_refused_and_says_who_has_it(tmp_path, model, monkeypatch):
    encode, refused = CorpusEncoder.encode, []

    def meanwhile(self, rows, window):
        if not refused:
            refused.append("")
            for options in ({}, {"overwrite": True}, {"restart": True}):
                with pytest.raises(BlockingIOError, match=rf"out.npz' is being written by process {os.getpid()} on .+"):
                    embed(model, ["another"], tmp_path / "out.npz", **options)
        encode(self, rows, window)

    monkeypatch.setattr(CorpusEncoder, "encode", meanwhile)
    embed(model, ROWS, tmp_path / "out.npz", window=20)
    assert refused
    monkeypatch.undo()
    close(read(tmp_path / "out.npz"), embed(model, ROWS))
    assert [path.name for path in tmp_path.iterdir()] == ["out.npz"]


def test_what_another_run_wrote_meanwhile_is_kept(tmp_path, model, monkeypatch):
    prepare = corpus.prepare

    def slowly(*arguments):
        monkeypatch.setattr(corpus, "prepare", prepare)
        embed(model, ROWS, tmp_path / "out.npz")
        return prepare(*arguments)

    monkeypatch.setattr(corpus, "prepare", slowly)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        embed(model, ["another"], tmp_path / "out.npz")
    assert len(read(tmp_path / "out.npz")) == len(ROWS)
    assert [path.name for path in tmp_path.iterdir()] == ["out.npz"]


def test_a_link_that_leads_nowhere_is_an_existing_output(tmp_path, model):
    (tmp_path / "out.npz").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        embed(model, ROWS, tmp_path / "out.npz")
    assert (tmp_path / "out.npz").is_symlink()


# -- input that changes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["other words", "one row more", "one row fewer"])
def test_input_that_changes_while_it_is_embedded_is_refused(tmp_path, model, monkeypatch, change):
    source, encode = text_file(tmp_path / "in.txt", ROWS), CorpusEncoder.encode
    changed = {"other words": ["x", *ROWS[1:]], "one row more": [*ROWS, "x"], "one row fewer": ROWS[:-1]}[change]
    known = corpus.survey

    def survey_and_change(rows):
        found = known(rows)
        text_file(source, changed)
        return found

    monkeypatch.setattr(corpus, "survey", survey_and_change)
    with pytest.raises(ValueError, match="input changed while it was embedded"):
        embed(model, source, tmp_path / "out.npz", window=20)
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]
    assert CorpusEncoder.encode is encode
    embed(model, source, tmp_path / "out.npz")
    close(read(tmp_path / "out.npz"), embed(model, changed))


def test_input_that_was_another_for_a_while_is_noticed(tmp_path, model, monkeypatch, stop_after):
    source, known = text_file(tmp_path / "in.txt", ROWS), corpus.survey

    def survey_and_change(rows):
        found = known(rows)
        text_file(source, ["x", *ROWS[1:]])
        return found

    with monkeypatch.context() as patched:
        patched.setattr(corpus, "survey", survey_and_change)
        stop_after(1)
        with pytest.raises(Stopped):
            embed(model, source, tmp_path / "out.npz", window=5)
    text_file(source, ROWS)
    stop_after(1000)
    with pytest.raises(ValueError, match=r"has vectors of other rows.*restart=True"):
        embed(model, source, tmp_path / "out.npz", window=5)
    embed(model, source, tmp_path / "out.npz", window=5, restart=True)
    close(read(tmp_path / "out.npz"), embed(model, ROWS))


# -- what is in the folder ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["000000.bin", "000001.words", "manifest.json.draft", "lock", "whole.npz"])
def test_links_in_the_folder_are_not_followed(tmp_path, model, name):
    (tmp_path / "thesis").write_text("mine")
    folder = tmp_path / "out.npz.parts"
    folder.mkdir()
    (folder / name).symlink_to(tmp_path / "thesis")
    with pytest.raises(FileExistsError, match=f"'{name}', which is no part of an embedding"):
        embed(model, ROWS, tmp_path / "out.npz", restart=True)
    assert (tmp_path / "thesis").read_text() == "mine"


def test_what_is_written_anew_is_a_new_file(tmp_path, model, stop_after):
    """A hard link, as a backup makes it, keeps what it had."""
    stop_after(1)
    with pytest.raises(Stopped):
        embed(model, ROWS, tmp_path / "out.npz", window=20)
    (tmp_path / "out.npz.parts/000001.bin").unlink()
    (tmp_path / "backup").write_text("mine")
    (tmp_path / "out.npz.parts/000001.bin").hardlink_to(tmp_path / "backup")
    stop_after(1000)
    embed(model, ROWS, tmp_path / "out.npz", window=20)
    assert (tmp_path / "backup").read_text() == "mine"


@pytest.mark.parametrize("kind", ["link", "file"])
def test_a_folder_that_is_none_is_refused(tmp_path, model, kind):
    parts = tmp_path / "out.npz.parts"
    if kind == "link":
        (tmp_path / "elsewhere").mkdir()
        parts.symlink_to(tmp_path / "elsewhere")
    else:
        parts.write_text("mine")
    with pytest.raises(FileExistsError, match=r"out\.npz\.parts is no folder; move it"):
        embed(model, ROWS, tmp_path / "out.npz")
    assert kind == "link" or parts.read_text() == "mine"


LEFT = {
    "before the manifest": ["lock", "standard_input.text"],
    "draft of the manifest": ["lock", "manifest.json.draft"],
    "half removed": ["lock", "000001.bin", "000003.json", "whole.npz", "000003.words"],
    "nothing": [],
}


@pytest.mark.parametrize("left", LEFT.values(), ids=LEFT)
def test_what_a_kill_leaves_blocks_nobody(tmp_path, model, left):
    (tmp_path / "out.npz.parts").mkdir()
    for name in left:
        (tmp_path / "out.npz.parts" / name).write_text("left")
    embed(model, ROWS, tmp_path / "out.npz")
    close(read(tmp_path / "out.npz"), embed(model, ROWS))
    assert [path.name for path in tmp_path.iterdir()] == ["out.npz"]


def test_parts_are_removed_manifest_first(tmp_path):
    parts, removed = PartsFolder(tmp_path / "out.npz"), []
    unlink = Path.unlink
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Path, "unlink", lambda path, **options: (removed.append(path.name), unlink(path, **options)))
        with parts.prepared(restart=False):
            parts.agree({"model": "m"})
            (parts.path / "000000.json").write_text("{}")
            removed.clear()
            parts.clear()
    assert removed[:2] == ["manifest.json", "000000.json"]
    assert not parts.path.exists()


@pytest.mark.parametrize("ending", ENDINGS)
def flipped(content: bytes, after: bytes = b"", offset: int = 0) -> bytes:
    """With another lowest bit but one in the byte that is `offset` bytes after the end of `after`."""
    place = content.index(after) + len(after) + offset
    return content[:place] + bytes([content[place] ^ 2]) + content[place + 1 :]


DAMAGE = {
    "cut": ("000000.bin", lambda content: content[:-7]),
    "longer": ("000000.bin", lambda content: content + b"1234"),
    "removed": ("000000.bin", None),
    "flipped": ("000000.bin", lambda content: flipped(content, offset=403)),
    "flipped word": ("000000.words", lambda content: flipped(content, b'["')),
    "flipped index": ("000000.json", lambda content: flipped(content, b'"budget": ')),
    "index": ("000000.json", lambda content: content[:-2]),
    "manifest": ("manifest.json", lambda content: content[:-2]),
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(("name", "damaged"), DAMAGE.values(), ids=DAMAGE)
def test_damaged_parts_are_refused(tmp_path, model, stop_after, ending, name, damaged):
    stop_after(1)
    output = tmp_path / f"out{ending}"
    with pytest.raises(Stopped):
        embed(model, ROWS, output, window=20)
    file = tmp_path / f"out{ending}.parts" / name
    if damaged is None:
        file.unlink()
    else:
        file.write_bytes(damaged(file.read_bytes()))
    stop_after(1000)
    with pytest.raises(ValueError, match=rf"{file.name} is damaged .*restart=True"):
        embed(model, ROWS, output, window=20)
    assert not output.exists()
    embed(model, ROWS, output, window=20, restart=True)
    assert output.exists()


def test_parts_of_a_version_without_checksums_are_refused(tmp_path, model, stop_after):
    stop_after(1)
    with pytest.raises(Stopped):
        embed(model, ROWS, tmp_path / "out.npz", window=20)
    index = tmp_path / "out.npz.parts" / "000000.json"
    record = json.loads(index.read_text())
    index.write_text(json.dumps({name: record[name] for name in ("words", "state")}))
    stop_after(1000)
    with pytest.raises(ValueError, match=r"000000\.json has no checksums, as an earlier hf_elmo.*restart=True"):
        embed(model, ROWS, tmp_path / "out.npz", window=20)
    embed(model, ROWS, tmp_path / "out.npz", window=20, restart=True)
    close(read(tmp_path / "out.npz"), embed(model, ROWS))


# -- full disks --------------------------------------------------------------------------------------------------------


def fill_the_disk(output: Path, limit: int, pooled: bool) -> None:
    """Write parts, then the whole file under a limit of its size."""
    parts, layout = PartsFolder(output), RowLayout(None, 64, pooled, np.dtype("<f4"))
    with parts.prepared(restart=False):
        parts.agree({})
        for number in range(6):
            with parts.new_window(number, layout, [["w"] * (row % 7) for row in range(40)]):
                pass
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        writer_for(output)(parts.path / f"whole{output.suffix}", parts, layout)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("pooled", [True, False], ids=["pooled", "words"])
@pytest.mark.parametrize("limit", [100, 3000])
def test_a_full_disk_ends_in_a_message(tmp_path, ending, pooled, limit):
    output, said = tmp_path / f"out{ending}", tmp_path / "said"
    writer_for(output)  # imports its library
    assert finish(started(said, fill_the_disk, output, limit, pooled)) == 1  # and no signal
    assert "no room to write" in said.read_text()
    assert "The finished work is kept: make room, and run the same again" in said.read_text()
    assert (tmp_path / f"out{ending}.parts/manifest.json").exists()
    assert not list(tmp_path.glob("*/whole*"))


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_run_that_found_the_disk_full_resumes(tmp_path, model, ending):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    output = tmp_path / f"out{ending}"
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, limits[1]))
        with pytest.raises(OSError, match=r"no room to write.*The finished work is kept"):
            embed(model, ROWS, output, window=20)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert embed(model, ROWS, output, window=20).rows == len(ROWS)
    assert sorted(path.name for path in tmp_path.iterdir()) == [output.name]


def test_hdf5_written_through_python_is_what_hdf5_writes(tmp_path):
    h5py = pytest.importorskip("h5py")
    parts, layout = PartsFolder(tmp_path / "out.hdf5"), RowLayout(None, 3, False, np.dtype("<f4"))
    with parts.prepared(restart=False):
        parts.agree({})
        with parts.new_window(0, layout, [["w"] * (row % 4) for row in range(2000)]):
            pass
        writer_for(parts.output)(parts.output, parts, layout)
    with h5py.File(parts.output) as file:
        assert len(file) == 2000
        assert all(file[str(row)].shape == (row % 4, 3) and not file[str(row)][()].any() for row in range(2000))


# -- kills -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory, model) -> Callable[[Path], None]:
    """Writes an output of some fifty windows."""
    source = text_file(tmp_path_factory.mktemp("kills") / "in.txt", [f"{row} {n}" for n in range(12) for row in ROWS])
    return lambda output: embed(model, source, output, window=40, batch_tokens=40)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, run) -> tuple[Path, float]:
    """The folder of what uninterrupted runs write, and the seconds that one takes."""
    folder = tmp_path_factory.mktemp("whole")
    for ending in (".npz", ".safetensors"):
        start = time.monotonic()
        assert finish(started(folder / "said", run, folder / f"out{ending}")) == 0
    return folder, time.monotonic() - start


def same(file: Path, folder: Path) -> None:
    """As the file of an uninterrupted run: to the byte with the kernels, whose vectors do not depend on the words
    computed with them; without them up to a rounding of float32. Values are up to 1, so a wrong row differs by more."""
    wanted = folder / file.name
    if native.library() is not None and "word-cache" in registry.enabled():
        assert file.read_bytes() == wanted.read_bytes()
    assert file.stat().st_size == wanted.stat().st_size
    load = np.load if file.suffix == ".npz" else load_file
    found, wanted = load(file), load(wanted)
    assert list(found) == list(wanted)
    close([found[name] for name in found], [wanted[name] for name in found])


@pytest.mark.parametrize("ending", [".npz", ".safetensors"])
def test_runs_killed_at_any_moment_resume_to_the_same_file(tmp_path, run, whole, ending):
    moments, output, said = random.Random(f"kills {ending}"), tmp_path / "here" / f"out{ending}", tmp_path / "said"
    folder, seconds = whole
    for _ in range(KILLS):
        process = started(said, run, output)
        time.sleep(moments.uniform(0, seconds) * moments.uniform(0, 1))
        os.kill(process, signal.SIGKILL)
        assert finish(process) in (0, -signal.SIGKILL), said.read_text()
        if output.exists():
            same(output, folder)
            output.unlink()
    assert finish(started(said, run, output)) == 0
    same(output, folder)
    assert [path.name for path in output.parent.iterdir()] == [output.name]


def test_of_two_runs_at_once_one_writes_all(tmp_path, run, whole):
    moments, (folder, seconds) = random.Random("two runs"), whole
    for number in range(KILLS):
        output, said = tmp_path / str(number) / "out.npz", [tmp_path / f"said {number} {run}" for run in range(2)]
        first = started(said[0], run, output)
        time.sleep(moments.uniform(0, seconds))
        second = started(said[1], run, output)
        killed = number % 3 == 2
        if killed:
            time.sleep(moments.uniform(0, seconds))
            os.kill(first, signal.SIGKILL)
        codes = [finish(first), finish(second)]
        for code, file in zip(codes, said, strict=True):
            refused = code == 1 and ("is being written by process" in file.read_text() or "exists" in file.read_text())
            assert refused or code == 0 or (killed and code == -signal.SIGKILL), file.read_text()
        assert codes.count(0) == 1 or killed
        if 0 not in codes and not output.exists():  # killed after the other one was refused
            run(output)
        same(output, folder)


# -- what a run leaves that is killed after its result -----------------------------------------------------------------


def test_a_run_killed_after_its_result_is_ended_by_the_next(tmp_path, model):
    source, said = text_file(tmp_path / "in.txt", ROWS), tmp_path / "said"

    def run(folder: Path, kill_at: int | None, count: Path | None) -> None:
        watch_files(folder, kill_at, count)
        embed(model, source, folder / "out.npz", window=20)

    assert finish(started(said, run, tmp_path / "whole", None, tmp_path / "events")) == 0
    whole, kept = (tmp_path / "whole/out.npz").read_bytes(), []
    for event in range((tmp_path / "events").stat().st_size, 0, -1):
        folder = tmp_path / str(event)
        output = folder / "out.npz"
        assert finish(started(said, run, folder, event, None)) == -signal.SIGKILL, said.read_text()
        is_there = output.exists()
        kept.append((folder / "out.npz.parts/manifest.json").exists())
        if kept[-1]:
            written = embed(model, source, output, window=20)
            assert (written.rows, written.words) == (len(ROWS), sum(map(len, read(output))))
        else:  # all but empty, nothing says that the file is its result
            assert {path.name for path in folder.glob("*.parts/*")} <= {"lock"}
            with pytest.raises(FileExistsError, match="overwrite=True"):
                embed(model, source, output, window=20)
        assert [path.name for path in folder.iterdir()] == ["out.npz"]
        assert output.read_bytes() == whole
        if not is_there:
            break
    assert kept.count(True) > 9


@pytest.fixture
def left_over(tmp_path, model, monkeypatch) -> Path:
    """An output beside the folder of the run that wrote it."""
    with monkeypatch.context() as patched:
        patched.setattr(PartsFolder, "_clear_parts", interrupted)
        with pytest.raises(Stopped):
            embed(model, ROWS, tmp_path / "out.npz", window=20)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.npz", "out.npz.parts"]
    return tmp_path / "out.npz"


def interrupted(parts: PartsFolder) -> None:
    if parts.output.exists():
        raise Stopped


@pytest.mark.parametrize("kind", ["list", "generator"])
def test_another_run_over_what_is_left_is_refused_or_overwrites(left_over, model, kind):
    before = left_over.read_bytes()
    rows = (lambda: iter(["another", "row"])) if kind == "generator" else (lambda: ["another", "row"])
    with pytest.raises(FileExistsError, match="overwrite=True"):
        embed(model, rows(), left_over, window=20)
    assert left_over.read_bytes() == before
    assert [path.name for path in left_over.parent.iterdir()] == ["out.npz"]
    embed(model, rows(), left_over, window=20, overwrite=True)
    close(read(left_over), embed(model, ["another", "row"]))


def test_another_run_overwrites_what_is_left_at_once(left_over, model):
    embed(model, iter(["another", "row"]), left_over, window=20, overwrite=True)
    close(read(left_over), embed(model, ["another", "row"]))
    assert [path.name for path in left_over.parent.iterdir()] == ["out.npz"]


@pytest.mark.parametrize("change", ["moved", "another file"])
def test_what_is_left_of_a_result_that_is_elsewhere_is_of_no_use(left_over, model, change):
    for part in left_over.with_name("out.npz.parts").glob("*.bin"):  # the clearing had begun
        part.unlink()
    left_over.rename(left_over.with_name("moved.npz"))
    if change == "another file":
        left_over.write_text("mine")
        with pytest.raises(FileExistsError, match="overwrite=True"):
            embed(model, ROWS, left_over, window=20)
        assert left_over.read_text() == "mine"
    embed(model, ROWS, left_over, window=20, overwrite=change == "another file")
    close(read(left_over), embed(model, ROWS))
    assert sorted(path.name for path in left_over.parent.iterdir()) == ["moved.npz", "out.npz"]


def test_a_restart_discards_what_is_left(left_over, model):
    with pytest.raises(FileExistsError, match="overwrite=True"):
        embed(model, ROWS, left_over, window=20, restart=True)
    assert [path.name for path in left_over.parent.iterdir()] == ["out.npz"]


def test_a_result_that_was_written_over_in_place_is_not_taken(left_over, model):
    with open(left_over, "rb+") as file:  # as many bytes, and the same inode
        file.write(b"mine")
    before = left_over.read_bytes()
    with pytest.raises(FileExistsError, match="overwrite=True"):
        embed(model, ROWS, left_over, window=20)
    assert left_over.read_bytes() == before


def test_a_run_killed_before_its_result_is_in_place_keeps_its_work(tmp_path, model, monkeypatch):
    replace = os.replace

    def killed(source, target):
        if Path(source).name.startswith("whole."):
            raise Stopped
        replace(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", killed)
        with pytest.raises(Stopped):
            embed(model, ROWS, tmp_path / "out.npz", window=20)
    with monkeypatch.context() as patched:
        patched.delattr(CorpusEncoder, "encode")  # nothing is computed again
        embed(model, ROWS, tmp_path / "out.npz", window=20)
    close(read(tmp_path / "out.npz"), embed(model, ROWS))
