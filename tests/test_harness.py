"""The harness finds faults that are planted, and says how to find them again."""

import os
import random
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from hf_elmo.kernels import character_tables, cpu_fused, cpu_packed, cpu_small_batch, native, word_cache
from tests.allennlp_files import make_arrays, make_options, write_files
from tests.harness import archives, checks, layers, sanitizers, settings, texts, words
from tests.harness.checks import Check, Fault, without_preparation
from tests.harness.processes import Ended

needs_kernels = pytest.mark.skipif(native.library() is None, reason=str(native.reason()))


def test_a_case_depends_on_the_seed_and_its_number_alone() -> None:
    check = Check("numbers", without_preparation(lambda rng: Counter(sum=rng.randrange(1000))), cases=3)
    whole = [checks.run(check, 7, 1, first).counts["sum"] for first in range(5)]
    assert checks.run(check, 7, 5).counts["sum"] == sum(whole)
    assert len(set(whole)) > 1
    assert checks.run(check, 8, 5).counts["sum"] != sum(whole)


def test_a_fault_is_reported_with_what_repeats_it() -> None:
    def case(rng: random.Random) -> Counter:
        if rng.random() < 0.4:
            raise Fault("wrong")
        return Counter(right=1)

    result = checks.run(Check("some", without_preparation(case), cases=9), 3, 9)
    assert 0 < len(result.faults) < 9
    number = min(result.faults)
    assert f"some --seed 3 --first {number} --cases 1: wrong" in checks.report(Check("some", None, 1), 3, result)
    assert checks.run(Check("some", without_preparation(case), cases=9), 3, 1, number).faults == {number: "wrong"}


def test_a_budget_ends_after_one_case_at_least() -> None:
    check = Check("some", without_preparation(lambda rng: Counter()), cases=9)
    assert checks.run(check, 0, 100, budget=0).cases == 1


@pytest.mark.parametrize("where", ["expected_ids", "split", "decoded"])
def test_texts_finds_another_definition(monkeypatch, where: str) -> None:
    right = getattr(texts, where)
    changed = {
        "expected_ids": lambda word, length=50: right(word + "!", length),
        "split": lambda text, splitting: right(text.replace("9", " "), splitting),
        "decoded": lambda sentence, length: right(sentence, length).replace("a", "b"),
    }
    assert not checks.run(texts.CHECK, 0, 6).faults
    monkeypatch.setattr(texts, where, changed[where])
    assert checks.run(texts.CHECK, 0, 6).faults


@needs_kernels
def test_layers_finds_one_that_is_off(monkeypatch) -> None:
    for module in (cpu_fused, cpu_packed, cpu_small_batch):
        run = module.run

        def off(call, run=run):
            outputs, state = run(call)
            return outputs * (1 + 1e-5) if outputs.dtype != layers.torch.bfloat16 else outputs * 1.1, state

        monkeypatch.setattr(module, "run", off)
    assert checks.run(layers.CHECK, 0, 12).faults


@needs_kernels
def test_words_finds_a_cache_and_tables_that_are_off(monkeypatch) -> None:
    for module in (word_cache, character_tables):
        run = module.run
        monkeypatch.setattr(module, "run", lambda *arguments, run=run: run(*arguments) * 1.05)
    assert len(checks.run(words.CHECK, 0, 5).faults) >= 3


@pytest.mark.parametrize(
    ("ended", "message"),
    [
        (Ended(1, "hf-elmo: error: weights.hdf5 is damaged"), None),
        (Ended(1, "hf-elmo: error: something"), "names neither file"),
        (Ended(1, "Traceback\nhf-elmo: error: weights.hdf5"), "not one error"),
        (Ended(70, "Traceback"), "ended with 70"),
        (Ended(-11, ""), "ended with -11"),
        (Ended(0, ""), "cannot be read"),
    ],
)
def test_what_counts_as_a_clear_error(tmp_path: Path, ended: Ended, message: str | None) -> None:
    files = tmp_path / "options.json", tmp_path / "weights.hdf5"
    if message is None:
        assert archives.judge(ended, *files, tmp_path / "out") == Counter(refused=1)
        return
    with pytest.raises(Fault, match=message):
        archives.judge(ended, *files, tmp_path / "out")


def test_files_that_say_something_else_are_counted(tmp_path: Path) -> None:
    options = make_options()
    sound = write_files(tmp_path / "sound", options, make_arrays(options))
    other_numbers = write_files(tmp_path / "numbers", options, make_arrays(options, seed=1))
    clipped = make_options({"cell_clip": 5})
    other_options = write_files(tmp_path / "options", clipped, make_arrays(clipped))
    assert +archives.compared(sound, sound) == Counter()
    assert +archives.compared(sound, other_numbers) == Counter({"to other weights": 1})
    assert +archives.compared(sound, other_options) == Counter({"with other options": 1})


@pytest.mark.parametrize(("seen", "failed"), [("kernels off, threads 2", 0), ("kernels C, threads 2", 1)])
def test_a_setting_without_effect_is_a_failure(monkeypatch, capsys, seen: str, failed: int) -> None:
    monkeypatch.setattr(settings, "run_tests", lambda *_: settings.Outcome(3, 0, 0, 1.0, [], seen))
    assert settings.run(["kernels off"]) == failed
    assert ("kernels off: without effect" in capsys.readouterr().out) == bool(failed)


def test_what_a_process_sees_changes_with_the_setting() -> None:
    with settings.environment(settings.SETTINGS["kernels off"]) as variables:
        assert re.fullmatch(r"ATen .+, oneDNN .+, kernels off, threads \d+, bits [0-9a-f]{4}", settings.seen(variables))


def test_an_unknown_build_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no build 'gcc memory'"):
        sanitizers.build("gcc memory", tmp_path)


def test_a_sanitizers_symbolizer_finds_nothing_preloaded(tmp_path: Path) -> None:
    """With the sanitizer in it, LLVM's hangs at its end."""
    script = sanitizers._without_preload(shutil.which("printenv"), tmp_path)
    preloaded = {"PATH": os.environ["PATH"], "LD_PRELOAD": "libm.so.6", "KEPT": "a word"}
    done = subprocess.run([script], env=preloaded, capture_output=True, text=True, check=True)
    assert "LD_PRELOAD" not in done.stdout
    assert "KEPT=a word" in done.stdout.splitlines()
    assert subprocess.run([script, "LD_PRELOAD", "KEPT"], env=preloaded, capture_output=True).stdout == b"a word\n"
