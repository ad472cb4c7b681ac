"""What `benchmarks/speed.py` does with text and numbers; its measurements are never run here."""

import json
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path

import pytest

from measure import embedding, results, text
from measure.bench import FULL, Bench, Settings
from measure.embedding import LARGEST_DIFFERENCE, OWN, SMALLEST_COSINE
from measure.memory import DOCUMENT, LINES
from measure.plots import COLORS, draw_plots
from measure.processes import Answers, Engine, Worker, WorkerError, ask_in_turn, loaded_workers
from measure.report import markdown_table, rows_table, write_readme
from measure.results import Results, Section, describe_machine
from measure.rows import (
    KINDS,
    AgreementRow,
    ArithmeticRow,
    EmbeddingRow,
    LatencyRow,
    MemoryRow,
    PretrainingRow,
    RepetitionRow,
    Row,
)
from measure.targets import BFLOAT16, FLOAT32, Target, targets

# -- text --------------------------------------------------------------------------------------------------------------


def test_sentences_are_cut_after_full_stops_and_headings_left_out() -> None:
    lines = [" \n", " = Robert = \n", " He came . He saw 3.5 men . And \n", " = = Career = = \n", " Mr. X left .\n"]
    assert text.cut_sentences(lines) == ["He came .", "He saw 3.5 men .", "And", "Mr. X left ."]


def test_batches_as_they_come_and_by_length() -> None:
    sentences = ["a b c", "d", "e f g h i", "j k", "l m n o"]
    assert text.make_batches(sentences, 2, by_length=False) == [["a b c", "d"], ["e f g h i", "j k"], ["l m n o"]]
    assert text.make_batches(sentences, 3, by_length=True) == [["d", "j k", "a b c"], ["l m n o", "e f g h i"]]


@pytest.mark.parametrize(("words", "chosen"), [(0, [3]), (2, [1, 5]), (3, [1, 3, 5]), (7, range(7)), (99, range(7))])
def test_batches_that_stand_for_all_are_evenly_spaced(words: int, chosen: list[int]) -> None:
    batches = [[f"w{number}"] for number in range(7)]
    assert text.spread(batches, words) == [batches[place] for place in chosen]


def test_words_windows_and_repetition() -> None:
    sentences = ["a b c", "d", "e f g h"]
    assert text.count_words(sentences) == 8
    assert text.running_text(sentences, 5) == "a b c d e"
    assert text.word_windows(sentences, rows=2, words=3) == [["a", "b", "c"], ["d", "e", "f"]]
    assert text.repeat_to(sentences, 5) == ["a b c", "d", "e f g h", "a b c", "d"]
    with pytest.raises(ValueError, match="no text to repeat"):
        text.repeat_to([], 5)


def test_the_first_lines_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "one.txt").write_text("first\n\n second \nthird\n")
    (tmp_path / "two.txt").write_text("fourth\n")
    (tmp_path / "table.tsv").write_text("no text\n")
    assert text.first_lines(tmp_path, 3) == ["first", "second", "third"]
    assert text.first_lines(tmp_path, 9) == ["first", "second", "third", "fourth"]


def test_the_plan_leaves_out_what_takes_too_long() -> None:
    assert FULL.corpora("small", 1) == [512, 4096]
    assert FULL.corpora("original", 2) == [512, 4096]
    assert FULL.corpora("original", 1) == [512]


# -- workers -----------------------------------------------------------------------------------------------------------

WORKER = """
import os, sys
sys.path.insert(0, {folder!r})
from protocol import serve

def load(folder, threads):
    if folder == "broken":
        raise ImportError("no such library")
    return {{"threads": int(os.environ["OMP_NUM_THREADS"])}}

def add(first, second):
    print("a library's chatter")
    return first + second

def die():
    sys.exit("the memory is used up")

serve({{"load": load, "add": add, "die": die}})
"""


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    import sys

    from measure.processes import WORKERS

    script = tmp_path / "worker.py"
    script.write_text(WORKER.format(folder=str(WORKERS)))
    return Engine("made", sys.executable, str(script))


def test_a_worker_answers_and_says_what_memory_it_took(engine: Engine) -> None:
    with Worker(engine, threads=3) as worker:
        assert worker.call("load", folder="whole", threads=3) == {"threads": 3}
        assert worker.call("add", first=2, second=5) == 7
        assert 1 < worker.peak_mb < 100  # its own: the process that started it holds torch


@pytest.mark.slow
def test_our_worker_measures_a_tiny_model(tmp_path: Path) -> None:
    """Calls that reach into hf_elmo, which would fail only when somebody measures."""
    import sys

    folder, text = str(tmp_path / "model"), ["So many words .", "And two more ."] * 20
    with Worker(Engine("ours", sys.executable, "ours.py"), threads=1) as worker:
        worker.call("make_tiny_model", folder=folder)
        worker.call("load", folder=folder, threads=1, dtype="float32")
        shares = worker.call("split", sentences=text)
        assert set(shares) == {"tokenizing", "characters", "lstm", "rest"}
        assert all(0 < share < 1 for share in shares.values())
        assert [0 < each["character_share"] < 1 for each in worker.call("two_passes", sentences=text)] == [True, True]
        rates = worker.call("onnx", sentences=text[:4], batch_size=2, rounds=1)
        assert min(rates["torch"], rates["plain"], rates["onnxruntime"]) > 0
        assert rates["difference"] < 1e-5


def test_a_call_that_fails_leaves_the_worker_at_work(engine: Engine) -> None:
    with Worker(engine, threads=1) as worker:
        with pytest.raises(WorkerError, match="TypeError"):
            worker.call("add", first=2, second="x")
        assert worker.call("add", first=2, second=5) == 7


def test_a_worker_that_dies_says_why_to_each_later_call(engine: Engine) -> None:
    with Worker(engine, threads=1) as worker:
        for call in ("die", "add"):
            with pytest.raises(WorkerError, match=r"has ended: the memory is used up \(status 1\)"):
                worker.call(call)


def test_one_engine_that_cannot_load_leaves_the_others_at_work(engine: Engine) -> None:
    with loaded_workers([(engine, Path("broken")), (engine, Path("whole"))], threads=1) as workers:
        broken, whole = ask_in_turn(workers, 2, "add", first=1, second=2)
    assert whole.all() == [3, 3]
    with pytest.raises(WorkerError, match="loading: ImportError: no such library"):
        broken.all()


def test_answers_stop_at_the_first_failure() -> None:
    asked = []

    def call(value: int) -> int:
        asked.append(value)
        if value == 2:
            raise WorkerError("two")
        return value

    answers = Answers(Engine("made", "python", "none.py"))
    for value in (1, 2, 3):
        answers.ask(call, value)
    assert (asked, answers.given) == ([1, 2], [1])


# -- cells of the embedding table --------------------------------------------------------------------------------------


class FixedWorker:
    """A peer whose speed depends on how it is given the text."""

    peak_mb = 7.0

    def __init__(self, name: str, seconds: list[float]) -> None:
        self.engine, self.seconds = Engine(name, "python", "peer.py"), iter(seconds)

    def call(self, name: str, batches: list[list[str]]) -> dict:
        assert name == "embed"
        return {"seconds": next(self.seconds)}


def test_a_peers_best_batches_of_each_order_are_found() -> None:
    worker = FixedWorker("peer", [4.0, 2.0, 8.0, 16.0])
    cells = [embedding.Cell(worker, arrangement, [["a b c d"]]) for arrangement in embedding.ARRANGEMENTS]
    for cell in cells:
        cell.run()
    chosen = embedding._best_of_each_order(cells)
    assert [str(cell.arrangement) for cell in chosen] == ["128, by length", "32, as they come"]
    assert [cell.rate for cell in chosen] == [2.0, 0.5]


def test_the_best_round_counts_and_long_ones_are_not_repeated() -> None:
    quick, slow = (
        embedding.Cell(FixedWorker("peer", times), None, [["a b", "c"]]) for times in ([2.0, 1.5], [31.0, 1.0])
    )
    for cell in (quick, quick, slow, slow):
        cell.run()
    row = quick.row("small", sentences=2, threads=1)
    assert (row.words, row.words_per_second, row.peak_mb, row.arrangement) == (3, 2.0, 7.0, OWN)
    assert slow.rate == 3 / 31


# -- results -----------------------------------------------------------------------------------------------------------


def embedding_row(engine: str, rate: float, shape: str = "original", arrangement: str = OWN) -> EmbeddingRow:
    return EmbeddingRow(
        shape=shape, sentences=512, threads=2, engine=engine, arrangement=arrangement, words_per_second=rate
    )


def test_results_come_back_from_their_file(tmp_path: Path) -> None:
    section = Section([embedding_row(FLOAT32, 812.5)], "a machine", "2026-11-20", 61.5, True, "ended early")
    stored = Results({"embedding": section})
    stored.save(tmp_path / "results.json")
    assert Results.load(tmp_path / "results.json") == stored
    assert Results.load(tmp_path / "none.json") == Results()


def test_a_section_measured_again_replaces_its_own_rows_only() -> None:
    merged, order = Results(), ["first", "second", "third"]
    for name, date in (("third", "1"), ("first", "2"), ("third", "3")):
        merged.merge(name, Section(date=date), order)
    assert {name: section.date for name, section in merged.sections.items()} == {"first": "2", "third": "3"}
    assert list(merged.sections) == ["first", "third"]


def test_rows_of_kinds_that_are_no_more_are_left_out(tmp_path: Path) -> None:
    rows = [{"kind": "ForgottenRow", "value": 1}, {"kind": "MemoryRow", **asdict(MemoryRow(what=LINES, size=3))}]
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"memory": {"rows": rows, "machine": "a machine"}}))
    assert Results.load(path).sections["memory"].rows == [MemoryRow(what=LINES, size=3)]


def test_finding_rows_passes_over_failures() -> None:
    good, other = embedding_row(FLOAT32, 2.0), embedding_row(BFLOAT16, 3.0)
    failed = embedding_row(FLOAT32, 5.0).failed(WorkerError("it is\ngone"))
    found = Results({"embedding": Section([failed, good, other])})
    assert failed.failure == "WorkerError: it is gone"
    assert list(found.find(EmbeddingRow, engine=FLOAT32)) == [good]


def test_the_machine_is_described(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("model name\t: A Processor\nflags\t: avx2 amx_bf16\n\nmodel name\t: Another\n")
    assert results._first_facts(tmp_path / "cpuinfo") == {"model name": "A Processor", "flags": "avx2 amx_bf16"}
    assert results._first_facts(tmp_path / "none") == {}
    assert "torch" in describe_machine()
    assert "cores" in describe_machine()


# -- tables ------------------------------------------------------------------------------------------------------------


def test_a_table_leaves_out_empty_columns_and_puts_failures_last() -> None:
    good = LatencyRow(shape="small", threads=2, words=25, engine=FLOAT32, milliseconds=12.345)
    assert rows_table([good]).splitlines() == [
        "| shape | threads | words | engine | ms |",
        "| --- | --- | --- | --- | --- |",
        "| small | 2 | 25 | hf_elmo float32 | 12.3 |",
    ]
    failed = LatencyRow(shape="small", threads=2, words=5, engine="AllenNLP").failed(WorkerError("a|b"))
    header, _, first, second = rows_table([good, failed]).splitlines()
    assert header.endswith("| ms | failure |")
    assert first.endswith("| 12.3 | – |")
    assert second.endswith(r"| AllenNLP | – | WorkerError: a\|b |")


def test_a_markdown_table() -> None:
    assert markdown_table(["a", "b"], [["1", "x|y"]]) == "| a | b |\n| --- | --- |\n| 1 | x\\|y |\n"


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.__name__)
def test_every_kind_of_row_has_a_title_a_note_and_headings(kind: type[Row]) -> None:
    assert kind.TITLE
    assert kind.NOTE
    assert len(kind().cells()) == len(asdict(kind()))


# -- targets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at_least", "value", "verdict"),
    [
        (True, 5.0, "reached: 1.25 × the target"),
        (True, 3.0, "**missed**: 0.75 × the target"),
        (False, 3.0, "reached: 0.75 × the target"),
        (False, 5.0, "**missed**: 1.25 × the target"),
    ],
)
def test_a_verdict_says_how_far_the_figure_is(at_least: bool, value: float, verdict: str) -> None:
    target = Target("what", 4.0, at_least, ".1f", lambda results: value)
    assert target.cells(Results()) == ["what", "≥ 4.0" if at_least else "≤ 4.0", f"{value:.1f}", verdict]


def test_without_results_no_target_is_judged() -> None:
    assert {target.cells(Results())[-1] for target in targets()} == {"not measured"}


@pytest.fixture
def measured() -> Results:
    """Rows for every target, the numbers all different."""
    peers = [("32, by length", 70.0), ("128, as they come", 50.0), ("32, as they come", 40.0)]
    rates = [
        *(embedding_row("AllenNLP", rate, arrangement=arrangement) for arrangement, rate in peers),
        replace(embedding_row("AllenNLP", 110.0, arrangement="32, by length"), sentences=4096),
        *(embedding_row("simple_elmo", 10 * rate, arrangement=arrangement) for arrangement, rate in peers),
        *(embedding_row(engine, rate) for engine, rate in ((FLOAT32, 330.0), (BFLOAT16, 1210.0))),
        embedding_row("AllenNLP", 100.0, "small", "32, by length"),
        embedding_row("simple_elmo", 200.0, "small", "128, by length"),
        *(embedding_row(engine, rate, "small") for engine, rate in ((FLOAT32, 1500.0), (BFLOAT16, 2600.0))),
    ]
    inside = [
        ArithmeticRow(shape=shape, engine=engine, threads=2, share=share)
        for (shape, engine), share in zip(
            (("original", FLOAT32), ("original", BFLOAT16), ("small", FLOAT32), ("small", BFLOAT16)),
            (0.81, 0.72, 0.63, 0.54),
            strict=True,
        )
    ]
    agreement = [
        AgreementRow(what=LARGEST_DIFFERENCE, model="small, random", value=3e-6),
        AgreementRow(what=LARGEST_DIFFERENCE, model="original, random", value=2e-6),
        AgreementRow(what=SMALLEST_COSINE, model="elmo-mini-en", value=0.9995),
    ]
    latency = [
        LatencyRow(shape=shape, threads=2, words=25, engine=engine, milliseconds=time)
        for shape, times in (("original", (570.0, 190.0, 95.0)), ("small", (30.0, 12.0, 6.0)))
        for engine, time in zip(("AllenNLP", FLOAT32, BFLOAT16), times, strict=True)
    ]
    training = [
        PretrainingRow(shape="small", engine=engine, threads=2, words_per_second=rate)
        for engine, rate in (("AllenNLP", 530.0), (FLOAT32, 2120.0), (BFLOAT16, 4240.0))
    ]
    repetition = [
        RepetitionRow(
            shape="small", engine=engine, sentences=64, different=different, distinct=9, run=run, character_share=share
        )
        for engine, shares in ((FLOAT32, (0.2, 0.02, 0.1, 0.01)), (BFLOAT16, (0.3, 0.04, 0.2, 0.03)))
        for (different, run), share in zip(
            ((64, "first"), (64, "second"), (16, "first"), (16, "second")), shares, strict=True
        )
    ]
    memory = [
        MemoryRow(engine=engine, what=what, size=size, peak_mb=peak * (engine == FLOAT32 or size))
        for engine in (FLOAT32, f"{FLOAT32}, without kernels")
        for what, sizes in ((LINES, ((10, 500.0), (1000, 510.0))), (DOCUMENT, ((20, 500.0), (2000, 600.0))))
        for size, peak in sizes
    ]
    kinds = rates + inside + agreement, latency, training, repetition, memory
    names = "embedding", "latency", "pretraining", "scaling", "memory"
    return Results({name: Section(rows, "a machine", "2026-11-20") for name, rows in zip(names, kinds, strict=True)})


def test_every_target_is_judged_by_its_own_rows(measured: Results) -> None:
    values = [target.measured(measured) for target in targets()]
    expected = [
        *(3.0, 6.6, 2e-6, 11.0, 0.9995),  # original: the best of AllenNLP, as sentences come, the numbers
        *(7.5, 13.0),  # small: the best of all peers
        *(0.81, 0.72, 0.63, 0.54),
        *(3.0, 6.0, 2.5),
        *(0.02, 0.04),
        *(4.0, 8.0),
        *(1.02, 1.2),
    ]
    assert values == pytest.approx(expected)


def test_a_plot_for_each_section_that_has_one(measured: Results, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib draws the plots")
    plots = draw_plots(measured, tmp_path)
    assert set(plots) == set(measured.sections)
    assert all(0 < image.stat().st_size < 100_000 for image in plots.values())


def test_every_engine_has_a_color_of_its_own(tmp_path: Path) -> None:
    bench = Bench(Settings("python", "python", *[tmp_path] * 5), FULL)
    ours = [*bench.ours, bench.ours_high, *bench.ours_plain, *bench.before]
    engines = [*ours, *bench.allennlp, *bench.simple_elmo]
    assert {engine.name for engine in engines} == set(COLORS)
    assert len(set(COLORS.values())) == len(COLORS)


def test_the_page_holds_every_table_every_plot_and_the_prose(measured: Results, tmp_path: Path) -> None:
    plots = {"latency": tmp_path / "results" / "latency.png"}
    write_readme(measured, plots, tmp_path / "README.md")
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    kinds = {type(row) for row in chain.from_iterable(section.rows for section in measured.sections.values())}
    assert all(f"## {kind.TITLE}\n" in page for kind in kinds)
    assert "![latency](results/latency.png)\n\n## One sentence\n" in page
    assert "a machine: embedding (2026-11-20" in page
    assert "trial run" not in page
    assert "[`speed.py`](speed.py)" in page
    assert (Path(__file__).parent.parent / "benchmarks" / "limits.md").read_text(encoding="utf-8") in page
