"""`benchmarks/speed.py`: a run on very little text, its report and plots, and the warning of figures that are old."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import speed

from measure import results, tables
from measure.processes import Engine, Job, Worker, WorkerError, run_in_turn
from measure.report import write_pages
from measure.targets import Target, targets

BENCHMARKS = Path(speed.__file__).parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A trial of two sections on the model that ships, and what it wrote."""
    folder = tmp_path_factory.mktemp("speed")
    (folder / "books").mkdir()
    for file in (folder / "text.txt", folder / "books" / "book.txt"):
        file.write_text("= Heading = \n The cat sat on the mat . It was a fine day . \n" * 20, encoding="utf-8")
    options = ["--quick", "--shapes=compact", f"--text={folder / 'text.txt'}", f"--large-text={folder / 'books'}"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "__main__", speed)
        speed.main([*options, f"--work={folder}", f"--out={folder / 'results'}", "--only", "latency", "scaling"])
    return folder


@pytest.mark.slow
def test_a_run_writes_rows_tables_and_plots(folder: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib draws the plots")
    measured = json.loads((folder / "results" / "results.json").read_text())
    assert [row for section in measured.values() for row in section["rows"] if "failure" in row] == []
    assert {row["kind"] for section in measured.values() for row in section["rows"]} == {
        "latency",
        "scaling",
        "repetition",
    }
    latencies = list(results.find(measured, "latency", engine="hf_elmo float32"))
    assert [row["words"] for row in latencies] == [5, 25]
    assert all(row["milliseconds"] > 0 for row in latencies)
    page = (folder / "results" / "machines.md").read_text(encoding="utf-8")
    for kind in ("latency", "scaling", "repetition"):
        assert f"## {tables.read_tables()[kind][0]}\n" in page
    assert (folder / "results" / "scaling.png").stat().st_size > 0
    assert "| not measured |" in (folder / "results" / "targets.md").read_text(encoding="utf-8")


def test_the_stored_results_have_a_table_for_each_row_and_a_value_for_each_target() -> None:
    stored = results.load_results(BENCHMARKS / "results" / "results.json")
    known = tables.read_tables()
    for section in stored.values():
        assert {row["kind"] for row in section["rows"]} <= known.keys()
        assert section["commit"]
    assert all(target.value is not None for target in targets(stored))


def test_the_pages_of_the_site_are_those_of_the_stored_results(tmp_path: Path) -> None:
    pages = BENCHMARKS.parent / "docs" / "performance"
    copies = tmp_path / "docs" / "performance"
    copies.mkdir(parents=True)
    shutil.copy(pages / "targets.md", copies)
    stored = results.load_results(BENCHMARKS / "results" / "results.json")
    plots = {file.stem: tmp_path / "benchmarks" / "results" / file.name for file in BENCHMARKS.glob("results/*.png")}
    write_pages(stored, plots, copies)
    for page in ("machines.md", "targets.md"):
        assert (copies / page).read_text(encoding="utf-8") == (pages / page).read_text(encoding="utf-8")


def test_a_wide_table_has_a_column_for_each_engine_with_its_best_rate() -> None:
    labels = {"kind": "scaling", "lines": 1000, "words": 7, "distinct": 5}
    rows = [
        labels | {"engine": "hf_elmo float32", "words_per_second": 1234.6},
        labels | {"engine": "hf_elmo float32", "words_per_second": 987.0},
        labels | {"engine": "AllenNLP", "failure": "no memory"},
        labels | {"lines": 2000, "engine": "AllenNLP", "words_per_second": 3.0},
    ]
    assert tables.rows_table(rows).splitlines() == [
        "| lines | words | distinct words | float32 | AllenNLP |",
        "| --- | --- | --- | --- | --- |",
        "| 1,000 | 7 | 5 | 1,235 | no memory |",
        "| 2,000 | 7 | 5 | – | 3 |",
    ]


def test_a_table_has_the_columns_of_all_rows_and_failures_last() -> None:
    rows = [
        {"kind": "memory", "words": 1000, "failure": "a|b"},
        {"kind": "memory", "words": 25, "milliseconds": 12.345},
    ]
    header, _, *lines = tables.rows_table(rows).splitlines()
    assert header == "| words | ms | failure |"
    assert lines == [r"| 1,000 | – | a\|b |", "| 25 | 12.3 | – |"]


@pytest.mark.parametrize(("at_least", "verdict"), [(True, "reached: 1.25"), (False, "**missed**: 1.25")])
def test_a_verdict_says_how_far_a_figure_is_from_its_target(at_least: bool, verdict: str) -> None:
    assert Target("what", ".1f", at_least, 4.0, 5.0).cells()[-1] == f"{verdict} × the target"


def test_figures_that_are_older_than_the_kernels_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> str:
        identity = ("-c", "user.name=test", "-c", "user.email=test@example.com")
        return subprocess.run(
            ["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout

    monkeypatch.setattr(results, "ROOT", tmp_path)
    kernel = tmp_path / "hf_elmo" / "kernels" / "kernel.py"
    kernel.parent.mkdir(parents=True)
    kernel.write_text("")
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    measured = {"latency": {"commit": results.current_commit()}, "memory": {"commit": "0000000"}}
    assert [line.partition(":")[0] for line in results.describe_changes(measured)] == ["memory"]
    kernel.write_text("changed")
    assert [line.partition(":")[0] for line in results.describe_changes(measured)] == ["latency", "memory"]


WORKER = "from protocol import serve\nserve({'add': lambda x, y: x + y, 'end': lambda: exit('no memory is left')})\n"


def test_a_worker_that_fails_or_ends_costs_its_own_rows_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(BENCHMARKS / "workers"))
    (tmp_path / "worker.py").write_text(WORKER)
    with Worker(Engine("made", sys.executable, str(tmp_path / "worker.py")), threads=1) as worker:
        wrong = Job({"kind": "memory"}, lambda: worker.call("add", x=1, y="2"))
        right = worker.job({"kind": "memory"}, "add", lambda answers: {"size": sum(answers)}, x=1, y=2)
        failed, measured = run_in_turn([wrong, right], rounds=2)
        assert failed["failure"].startswith("WorkerError: TypeError")
        assert measured == {"kind": "memory", "engine": "made", "threads": 1, "size": 6}
        with pytest.raises(WorkerError, match="no memory is left"):
            worker.call("end")
