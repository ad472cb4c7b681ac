"""Words per second on a corpus beside the peers, where the time goes, and the efficiency of the arithmetic."""

from collections.abc import Iterator
from functools import partial

from .bench import COMPACT, Bench, model_name
from .processes import Job, Row, Worker, run_in_turn
from .targets import LARGEST_DIFFERENCE, OWN_BATCHES, SMALLEST_COSINE
from .text import count_words, make_batches, spread

ARRANGEMENTS = {  # of a peer's batches: the number of sentences, and whether they are sorted by length
    f"{size}, {'by length' if by_length else 'as they come'}": (size, by_length)
    for by_length in (True, False)
    for size in (32, 128)
}


def measure(bench: Bench) -> Iterator[Row]:
    """All tables of the section, row by row."""
    for shape in bench.plan.shapes:
        best: dict[str, str] = {}
        for threads in bench.plan.threads:
            ours = [*bench.ours, bench.ours_high, *bench.ours_plain, *bench.before]
            with bench.workers([*ours, *bench.allennlp, *bench.simple_elmo], shape, threads) as workers:
                corpora = bench.plan.sentences[: 1 if (shape, threads) == ("original", 1) else None]
                for sentences in corpora:
                    yield from _corpus(bench, workers, shape, sentences, best)
                if threads == bench.plan.threads[0]:
                    yield from _inside(bench, [worker for worker in workers if worker.engine.is_ours], shape)
    yield from _precision(bench)


def _corpus(bench: Bench, workers: list[Worker], shape: str, sentences: int, best: dict[str, str]) -> Iterator[Row]:
    """A row for each engine, on the first corpus for each arrangement; `best` gets each peer's fastest arrangement."""
    text, threads, jobs = bench.sentences(sentences), workers[0].threads, []
    for worker in workers:
        arrangements = [best[worker.engine.name]] if worker.engine.name in best else list(ARRANGEMENTS)
        for arrangement in [OWN_BATCHES] if worker.engine.is_ours else arrangements:
            batches = [text]
            if not worker.engine.is_ours:
                batches = spread(make_batches(text, *ARRANGEMENTS[arrangement]), bench.plan.peer_words)
            labels = {"kind": "embedding", "shape": shape, "sentences": sentences, "threads": threads}
            labels |= {"engine": worker.engine.name, "arrangement": arrangement}
            words = sum(map(count_words, batches))
            jobs.append(Job({**labels, "words": words}, partial(_embed, worker, batches, words), _fastest))
    first = (threads, sentences) == (bench.plan.threads[0], bench.plan.sentences[0])
    rows = list(run_in_turn(jobs, bench.plan.rounds if first else 1))
    for row in sorted(rows, key=lambda row: row.get("words_per_second", 0)):
        if row["arrangement"] in ARRANGEMENTS and first:
            best[row["engine"]] = row["arrangement"]
    yield from rows


def _embed(worker: Worker, batches: list[list[str]], words: int) -> Row:
    seconds = worker.call("embed", batches=batches)["seconds"]
    return {"words_per_second": words / seconds, "peak_mb": worker.peak_mb}


def _fastest(answers: list[Row]) -> Row:
    return {name: max(answer[name] for answer in answers) for name in answers[0]}


def _inside(bench: Bench, ours: list[Worker], shape: str) -> Iterator[Row]:
    """The time split of the smallest corpus, and the arithmetic."""
    text = bench.sentences(bench.plan.sentences[0])
    for kind, options in (("split", {"sentences": text}), ("arithmetic", {"rounds": bench.plan.rounds})):
        yield from run_in_turn([worker.job({"kind": kind, "shape": shape}, kind, **options) for worker in ours])


def _precision(bench: Bench) -> Iterator[Row]:
    """The effect of bfloat16, and of products of bfloat16 pairs, on the vectors of the model that ships."""
    text = bench.sentences(bench.plan.sentences[0])
    labels = {"kind": "agreement", "model": model_name(COMPACT), "words": count_words(text)}
    with bench.workers(bench.ours[:1], COMPACT, bench.plan.threads[0]) as (worker,):
        for what, call in ((SMALLEST_COSINE, "smallest_cosine"), (LARGEST_DIFFERENCE, "largest_difference")):
            yield from run_in_turn([worker.job({**labels, "what": what}, call, sentences=text)])
