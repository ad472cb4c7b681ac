"""Words per second on a corpus beside the peers, where the time goes, and the efficiency of the arithmetic."""

import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from .bench import Bench
from .processes import Answers, Worker
from .rows import AgreementRow, ArithmeticRow, EmbeddingRow, Row, SplitRow
from .text import Batch, count_words, make_batches, spread

MINUTES = 14
OWN = "its own"
TOO_LONG = 30  # seconds, after which a cell is not repeated
AGREEMENT_SENTENCES = 16


@dataclass(frozen=True)
class Arrangement:
    """How a corpus is batched for a peer."""

    batch_size: int
    by_length: bool

    def __str__(self) -> str:
        return f"{self.batch_size}, {'by length' if self.by_length else 'as they come'}"


ARRANGEMENTS = tuple(Arrangement(size, by_length) for by_length in (True, False) for size in (32, 128))


@dataclass
class Cell:
    """A row of the table while it is measured."""

    worker: Worker
    arrangement: Arrangement | None
    batches: list[Batch]
    answers: Answers = field(init=False)
    words: int = field(init=False)
    peak_mb: float | None = None

    def __post_init__(self) -> None:
        self.answers = Answers(self.worker.engine)
        self.words = sum(map(count_words, self.batches))

    @property
    def seconds(self) -> list[float]:
        """Of each round."""
        return [answer["seconds"] for answer in self.answers.given]

    def run(self) -> None:
        """One more round, unless it takes too long."""
        if not any(seconds > TOO_LONG for seconds in self.seconds):
            self.answers.ask(self.worker.call, "embed", batches=self.batches)
            self.peak_mb = self.worker.peak_mb or None

    @property
    def rate(self) -> float:
        """Words a second at best; 0 if it failed."""
        return self.words / min(self.seconds) if self.seconds else 0.0

    def row(self, shape: str, sentences: int, threads: int) -> EmbeddingRow:
        """The row of the table."""
        row = EmbeddingRow(
            shape=shape,
            sentences=sentences,
            threads=threads,
            engine=self.worker.engine.name,
            arrangement=OWN if self.arrangement is None else str(self.arrangement),
            words=self.words,
            words_per_second=self.rate or None,
            peak_mb=self.peak_mb,
        )
        return row if self.answers.error is None else row.failed(self.answers.error)


def measure(bench: Bench) -> Iterator[Row]:
    """All tables of the section, row by row."""
    for shape in bench.plan.shapes:
        best: dict[str, list[Arrangement]] = {}
        for threads in bench.plan.threads:
            ours = [*bench.ours, bench.ours_high, *bench.ours_plain, *bench.before]
            engines = [*ours, *bench.allennlp, *bench.simple_elmo]
            with bench.workers(engines, shape, threads) as workers:
                for sentences in bench.plan.corpora(shape, threads):
                    yield from _corpus(bench, workers, shape, threads, sentences, best)
                if threads == bench.plan.threads[0]:
                    yield from _inside(bench, [worker for worker in workers if worker.engine.is_ours], shape, threads)
                    yield from _agreement(bench, workers, shape)
    yield from _precision(bench)


def _corpus(
    bench: Bench, workers: list[Worker], shape: str, threads: int, sentences: int, best: dict[str, list[Arrangement]]
) -> Iterator[EmbeddingRow]:
    """A row for each engine and arrangement; `best` gets the peers' best ones, the only ones tried later."""
    plan = bench.plan
    text, words = bench.sentences(sentences), dict(plan.peer_words)[shape]
    cells = []
    for worker in workers:
        if worker.engine.is_ours:
            cells.append(Cell(worker, None, [text]))
            continue
        arrangements = best.get(worker.engine.name, ARRANGEMENTS)
        for arrangement in arrangements if sentences == plan.sentences[0] else arrangements[:1]:
            batches = make_batches(text, arrangement.batch_size, arrangement.by_length)
            cells.append(Cell(worker, arrangement, spread(batches, words)))
    for cell in cells:
        cell.run()
    chosen = _best_of_each_order(cells)
    for _ in range(plan.rounds_with(threads) - 1 if sentences == plan.sentences[0] else 0):
        for cell in chosen:
            cell.run()
    for worker in workers:
        if not worker.engine.is_ours:
            best.setdefault(worker.engine.name, [cell.arrangement for cell in chosen if cell.worker is worker])
    for cell in cells:
        row = cell.row(shape, sentences, threads)
        bench.show(row)
        yield row


def _best_of_each_order(cells: list[Cell]) -> list[Cell]:
    """For each worker, and each order of the sentences, the batch size that is fastest."""
    fastest: dict[tuple[int, bool], Cell] = {}
    for cell in cells:
        key = id(cell.worker), cell.arrangement is not None and cell.arrangement.by_length
        if key not in fastest or cell.rate > fastest[key].rate:
            fastest[key] = cell
    return list(fastest.values())


def _inside(bench: Bench, ours: list[Worker], shape: str, threads: int) -> Iterator[Row]:
    """The time split of the smallest corpus, and the arithmetic."""
    text = bench.sentences(bench.plan.sentences[0])
    for worker in ours:
        labels = {"shape": shape, "engine": worker.engine.name, "threads": threads}
        row = SplitRow(**labels, words=count_words(text))
        yield bench.fill(row, lambda worker=worker: worker.call("split", sentences=text))
    for worker in ours:
        row = ArithmeticRow(shape=shape, engine=worker.engine.name, threads=threads)
        yield bench.fill(row, lambda worker=worker: worker.call("arithmetic", rounds=bench.plan.rounds))


def _agreement(bench: Bench, workers: list[Worker], shape: str) -> Iterator[AgreementRow]:
    """The largest difference of our float32 from AllenNLP's, in both precisions."""
    by_name = {worker.engine.name: worker for worker in workers}
    peers = [by_name[engine.name] for engine in bench.allennlp]
    text = bench.sentences(AGREEMENT_SENTENCES)
    for peer in peers:
        for what, engine in ((LARGEST_DIFFERENCE, bench.ours[0]), (LARGEST_DIFFERENCE_HIGH, bench.ours_high)):
            row = AgreementRow(what=what, model=f"{shape}, random", words=count_words(text))
            pair = by_name[engine.name], peer
            yield bench.fill(row, lambda pair=pair: {"value": _largest_difference(pair, text)})


LARGEST_DIFFERENCE = "largest absolute difference, float32, AllenNLP"
LARGEST_DIFFERENCE_HIGH = "largest absolute difference, float32 with precision high, AllenNLP"
LARGEST_DIFFERENCE_OWN = "largest absolute difference, float32 with precision high, float32"
SMALLEST_COSINE = "smallest cosine, bfloat16, float32"


def _largest_difference(workers: tuple[Worker, Worker], text: list[str]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, f"{number}.npz") for number in range(2)]
        for worker, file in zip(workers, files, strict=True):
            worker.call("save_layers", sentences=text, path=str(file))
        with np.load(files[0]) as found, np.load(files[1]) as expected:
            differences = [np.abs(found[name] - expected[name]).max() for name in expected.files]
    return float(max(differences, default=math.nan))


def _precision(bench: Bench) -> Iterator[AgreementRow]:
    """The effect of bfloat16, and of products of bfloat16 pairs, on the vectors of the model that ships."""
    text = bench.sentences(bench.plan.sentences[0])
    with bench.workers(bench.ours[:1], "mini", bench.plan.threads[0]) as (worker,):
        for what, call in ((SMALLEST_COSINE, "smallest_cosine"), (LARGEST_DIFFERENCE_OWN, "largest_difference")):
            row = AgreementRow(what=what, model="elmo-mini-en", words=count_words(text))
            yield bench.fill(row, lambda call=call: worker.call(call, sentences=text))
