"""Compiling: once, cached, by several processes at once, and working code with one warning wherever it fails."""

import logging
import os
import platform
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from hf_elmo import kernels
from hf_elmo.kernels import native
from hf_elmo.kernels.report import describe_environment
from hf_elmo.lstm_elmo import bilstm_layer
from tests.forks import exit_code
from tests.lstm_layers import assert_near, flat, random_layer, reference

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "geteuid"), reason="a system without users and permissions"),
    pytest.mark.skipif(native.library() is None, reason=str(native.reason())),
]

REAL = shutil.which("gcc") or shutil.which("cc")


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path: Path) -> None:
    """A cache of the test's own, and a compiler that need not optimize."""
    monkeypatch.setattr(native, "HF_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(native, "FLAGS", ("-O0", *native.FLAGS[1:]))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("HF_ELMO_CFLAGS", raising=False)


@pytest.fixture
def warnings() -> list[str]:
    """What is logged."""
    messages = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())
    native.logger.addHandler(handler)
    yield messages
    native.logger.removeHandler(handler)


def load() -> native._Library:
    """The library as a new process would find or make it."""
    library = native._Library()
    loaded = library.get()
    assert (loaded is None) == (library.reason is not None)
    if loaded is not None:
        assert loaded.sizeof_layer() > 0
    return library


@pytest.fixture
def computes(monkeypatch) -> Iterator[Callable[[native._Library], None]]:
    """Asserts that a library computes a layer as the reference does."""

    def look(library: native._Library) -> None:
        assert library.loaded is not None
        monkeypatch.setattr(native, "_library", library)
        native.function.cache_clear()
        layer = random_layer([3, 2, 1], sizes=(7, 32, 16))
        arguments = layer[0], [3, 2, 1], *layer[1:], 0.5, 0.4
        with kernels.use("small-batch"), kernels.record() as ran:
            found = flat(bilstm_layer(*arguments))
        assert ran == [("lstm", "small-batch")]
        assert_near(found, flat(reference(*arguments)), 3e-6)

    yield look
    native.function.cache_clear()


def cached(home: Path) -> list[Path]:
    return list(home.glob("hf_elmo/kernels/*/elmo-*.so"))


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """A home whose cache holds the library."""
    load()
    return tmp_path / "home"


def test_the_library_is_cached_for_its_user_alone(filled: Path, warnings) -> None:
    (library,) = cached(filled)
    for path in (library, library.parent, library.parents[1]):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
    assert list(library.parent.iterdir()) == [library]
    assert not warnings


def a_compiler(folder: Path, script: str) -> str:
    path = folder / "own-cc"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_it_is_compiled_once(tmp_path: Path, monkeypatch, warnings) -> None:
    """A compiler that counts: a version is asked of it each time, a library once."""
    count = tmp_path / "count"
    script = f'case "$*" in *--version*);; *) echo >> {count};; esac\nexec {REAL} "$@"'
    monkeypatch.setenv("CC", a_compiler(tmp_path, script))
    for _ in range(3):
        assert load().loaded is not None
    assert len(count.read_text()) == 1
    assert not warnings


@pytest.mark.parametrize("variable", ["HF_HOME", "XDG_CACHE_HOME", "HOME"])
def test_where_the_cache_is(tmp_path: Path, monkeypatch, variable: str) -> None:
    """As huggingface_hub says, which reads the environment when it is imported."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "XDG_"))}
    variables |= {"HOME": str(tmp_path / "home"), variable: str(tmp_path / "given")}
    script = "from huggingface_hub.constants import HF_HOME; print(HF_HOME)"
    done = subprocess.run([sys.executable, "-c", script], env=variables, capture_output=True, text=True, check=True)
    monkeypatch.setattr(native, "HF_HOME", done.stdout.strip())
    below = {"HF_HOME": ".", "XDG_CACHE_HOME": "huggingface", "HOME": ".cache/huggingface"}[variable]
    assert native.cache_folder() == tmp_path / "given" / below / "hf_elmo" / "kernels"


def test_the_key_names_all_that_the_library_depends_on(monkeypatch, tmp_path: Path) -> None:
    keys = [native._key(["cc"])]
    monkeypatch.setattr(native, "FLAGS", ("-O2",))
    keys.append(native._key(["cc"]))
    monkeypatch.setattr(native, "processor", lambda: ["another"])
    keys.append(native._key(["cc"]))
    monkeypatch.setattr(native, "_run", lambda command, folder=None: "another version")
    keys.append(native._key(["cc"]))
    shutil.copytree(native.SOURCES, tmp_path / "csrc")
    monkeypatch.setattr(native, "SOURCES", tmp_path / "csrc")
    assert native._key(["cc"]) == keys[-1]
    (tmp_path / "csrc" / "elmo.h").write_text("int x;")
    keys.append(native._key(["cc"]))
    assert len(set(keys)) == len(keys)


def test_flags_of_the_environment_come_last_and_have_a_library_of_their_own(monkeypatch, warnings) -> None:
    key, described = native._key(["cc"]), describe_environment()
    assert native.flags() == native.FLAGS
    assert "HF_ELMO_CFLAGS             not set" in described
    monkeypatch.setenv("HF_ELMO_CFLAGS", "-DA='two words' -g")
    assert native.flags() == (*native.FLAGS, "-DA=two words", "-g")
    assert native._key(["cc"]) != key
    assert "HF_ELMO_CFLAGS             -DA='two words' -g" in describe_environment()
    assert load().loaded is not None
    assert not warnings


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="-march=haswell is for x86-64")
def test_a_library_as_another_processor_would_have_it(monkeypatch, warnings) -> None:
    """Haswell has no AVX-512: there the library has no function of theirs, whatever this machine has."""
    monkeypatch.setenv("HF_ELMO_CFLAGS", "-march=haswell")
    assert not hasattr(load().loaded, "layer_f32")
    monkeypatch.setenv("HF_ELMO_CFLAGS", "-march=skylake-avx512")
    assert hasattr(load().loaded, "layer_f32")
    assert not warnings


@pytest.mark.parametrize(("flags", "message"), [("-fno-such-flag", "-fno-such-flag"), ("-DA='", "No closing quot")])
def test_flags_that_no_compiler_takes(monkeypatch, warnings, flags: str, message: str) -> None:
    monkeypatch.setenv("HF_ELMO_CFLAGS", flags)
    assert message in load().reason
    assert len(warnings) == 1
    assert message in warnings[0]


def test_several_at_once(tmp_path: Path, warnings) -> None:
    with ThreadPoolExecutor(3) as pool:  # each with a library of its own, as processes have
        assert all(library.loaded is not None for library in pool.map(lambda _: load(), range(3)))
    (library,) = cached(tmp_path / "home")
    assert list(library.parent.iterdir()) == [library]
    assert not warnings


@pytest.mark.slow
def test_several_processes_at_once(tmp_path: Path) -> None:
    script = "from hf_elmo.kernels import native; print(native.library().sizeof_layer() > 0, native.reason())"
    variables = {**os.environ, "HF_HOME": str(tmp_path / "home"), "HF_ELMO_CFLAGS": "-O0"}
    command, pipes = [sys.executable, "-c", script], {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    started = [subprocess.Popen(command, env=variables, text=True, **pipes) for _ in range(3)]
    ended = [process.communicate() for process in started]
    assert [said.strip() for said, _ in ended] == ["True None"] * 3
    assert not any("kernels" in errors for _, errors in ended)
    (library,) = cached(tmp_path / "home")
    assert list(library.parent.iterdir()) == [library]


def test_threads_of_a_process_wait_for_one_library(tmp_path: Path, monkeypatch) -> None:
    library, loads = native._Library(), []
    monkeypatch.setattr(native, "_load", lambda: loads.append(1) or (time.sleep(0.1) or native.library(), None))
    threads = [threading.Thread(target=library.get) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert loads == [1]


# -- what goes wrong ---------------------------------------------------------------------------------------------------

ASKED_FOR_VERSION = 'case "$*" in *--version*) echo 1; exit 0;; esac\n'
COMPILERS = {
    "fails": (ASKED_FOR_VERSION + "echo 'no luck today' >&2; exit 3", "failed (3): no luck today"),
    "does not know its version": ("exit 1", "failed (1): without a message"),
    "is killed": (ASKED_FOR_VERSION + "kill -9 $$", "was killed by signal 9"),
    "writes an empty library": (
        ASKED_FOR_VERSION + 'while [ $# -gt 0 ]; do [ "$1" = -o ] && : > "$2"; shift; done',
        "file too short",
    ),
    "writes nothing": (ASKED_FOR_VERSION, "elmo.so"),
}


@pytest.mark.parametrize("case", COMPILERS)
def test_a_compiler_that(tmp_path: Path, monkeypatch, warnings, case: str) -> None:
    script, message = COMPILERS[case]
    monkeypatch.setenv("CC", a_compiler(tmp_path, script))
    library = load()
    assert message in library.reason
    assert len(warnings) == 1
    assert "kernels in C are not used" in warnings[0]
    assert message in warnings[0]
    assert library.get() is None  # and it is not tried again
    assert len(warnings) == 1


def test_without_a_library_pytorch_computes(monkeypatch) -> None:
    monkeypatch.setattr(native._library, "loaded", None)
    monkeypatch.setattr(native._library, "reason", "a test")
    for rows in (2, 9):
        layer = random_layer([rows, 1], sizes=(32, 128, 96))
        with kernels.record() as ran:
            found, _ = bilstm_layer(layer[0], [rows, 1], *layer[1:], 0.5, 0.4)
        expected, _ = reference(layer[0], [rows, 1], *layer[1:], 0.5, 0.4)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
        assert {name for _, name in ran} == ({"packed"} if rows == 9 else set())


def test_no_compiler(monkeypatch, warnings) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert "CC names the compiler 'no-such-compiler', which is not there" in load().reason
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", "/nowhere")
    assert "there is no C compiler (cc, gcc or clang); install one, or name one in CC" in load().reason
    assert len(warnings) == 2


@pytest.mark.parametrize("command", ["clang", "gcc -g"])
def test_another_compiler_and_its_flags(monkeypatch, warnings, computes, command: str) -> None:
    if shutil.which(command.split()[0]) is None:
        pytest.skip(f"{command} is not installed")
    monkeypatch.setenv("CC", command)
    computes(load())
    assert not warnings


def test_a_library_without_openmp_has_one_thread(tmp_path: Path, monkeypatch, warnings, computes, threads) -> None:
    script = f'case " $* " in *" -fopenmp "*) echo "no omp.h" >&2; exit 1;; esac\nexec {REAL} "$@"'
    monkeypatch.setenv("CC", a_compiler(tmp_path, script))
    threads(2)
    computes(load())
    assert not warnings


@pytest.mark.parametrize("what", ["kernels", "kernels/KEY"])
def test_a_folder_that_others_can_write_to_is_not_trusted(filled: Path, warnings, what: str) -> None:
    (library,) = cached(filled)
    folder = library.parents[1] if what == "kernels" else library.parent
    folder.chmod(0o777)
    library.unlink()
    assert load().loaded is not None  # compiled for this process alone
    assert len(warnings) == 1
    for part in ("not cached", str(folder), "drwxrwxrwx", "remove it, or set HF_HOME"):
        assert part in warnings[0]
    assert not cached(filled)


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() != 0, reason="only root can give folders away")
def test_nor_one_of_another_user(filled: Path, warnings) -> None:
    os.chown(cached(filled)[0].parents[1], 12345, 12345)
    assert load().loaded is not None
    assert len(warnings) == 1
    assert "belongs to user 12345" in warnings[0]


def test_nor_a_link(filled: Path, warnings, monkeypatch, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "hf_elmo").mkdir(parents=True)
    (other / "hf_elmo" / "kernels").symlink_to(filled / "hf_elmo" / "kernels")
    monkeypatch.setattr(native, "HF_HOME", str(other))
    assert load().loaded is not None
    assert len(warnings) == 1
    assert "no link" in warnings[0]


@pytest.mark.parametrize("damage", ["cut", "changed", "empty"])
def test_a_damaged_library_is_compiled_anew(filled: Path, warnings, damage: str) -> None:
    (library,) = cached(filled)
    whole = library.read_bytes()
    library.unlink()
    library.write_bytes({"cut": whole[:1000], "changed": whole[:-1] + b"x", "empty": b""}[damage])
    assert load().loaded is not None
    assert library.read_bytes() == whole
    assert not warnings


def test_a_home_that_cannot_be_written_to(tmp_path: Path, warnings) -> None:
    (tmp_path / "home").write_text("a file, so that nobody, root included, can make folders in it")
    assert load().loaded is not None
    assert len(warnings) == 1
    assert "not cached" in warnings[0]
    assert "Not a directory" in warnings[0]


@pytest.mark.parametrize("limit", [20_000, 0], ids=["compiled, not stored", "nothing can be written"])
def test_a_full_disk(tmp_path: Path, warnings, monkeypatch, limit: int) -> None:
    """A limit on the size of files stands for it: what is left of a copy is removed."""
    store, before = native._store, resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def limited(function):
        def inside(*arguments):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
            try:
                return function(*arguments)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, before)

        return inside

    if limit:
        monkeypatch.setattr(native, "_store", limited(store))
        assert load().loaded is not None
        assert "not cached" in warnings[0]
        assert "File too large" in warnings[0]
    else:
        monkeypatch.setattr(native, "_compile", limited(native._compile))
        assert re.search("File too large|File size limit exceeded|failed", f"{load().reason} {warnings[0]}")
    signal.signal(signal.SIGXFSZ, ignored)
    assert len(warnings) == 1
    assert all(path.is_dir() for path in (tmp_path / "home").rglob("*"))


def test_a_folder_mounted_noexec(tmp_path: Path, warnings, monkeypatch) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "noexec,size=8m", "tmpfs", str(folder)]
    if not shutil.which("mount") or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        assert load().loaded is not None
        assert len(warnings) == 1
        assert "not cached" in warnings[0]
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        assert "elmo" in load().reason
        assert len(warnings) == 2
        assert "kernels in C are not used" in warnings[1]
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_process_killed_while_it_compiles_leaves_nothing_in_the_way(tmp_path: Path, warnings) -> None:
    home = tmp_path / "home"
    script = "from hf_elmo.kernels import native; native.library()"
    slow = a_compiler(tmp_path, ASKED_FOR_VERSION + "sleep 30")
    variables = os.environ | {"HF_HOME": str(home), "CC": slow, "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen([sys.executable, "-c", script], env=variables, start_new_session=True)
    deadline = time.monotonic() + 60
    while not list(home.glob("hf_elmo/kernels/*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert list(home.glob("hf_elmo/kernels/*"))
    assert load().loaded is not None
    assert not warnings


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_fork_does_not_inherit_a_lock_that_is_held() -> None:
    with native._library.lock:
        child = os.fork()
        if child == 0:
            os._exit(0 if native._library.lock.acquire(timeout=5) else 1)
    assert exit_code(child) == 0
