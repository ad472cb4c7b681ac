"""The exported graph in onnxruntime beside the model."""

from collections.abc import Iterator

from .bench import Bench
from .rows import OnnxRow, Row

MINUTES = 2
SENTENCES, BATCH_SIZES, ROUNDS = 64, (1, 32), 3


def measure(bench: Bench) -> Iterator[Row]:
    """A row for the model that ships and for the first shape, for each size of a batch."""
    threads = bench.plan.threads[0]
    sentences = bench.sentences(SENTENCES)
    for shape in ("mini", bench.plan.shapes[0]):
        with bench.workers(bench.ours[:1], shape, threads) as (worker,):
            for batch in BATCH_SIZES:
                call = {"sentences": sentences, "batch_size": batch, "rounds": ROUNDS}
                row = OnnxRow(shape=shape, threads=threads, batch=batch)
                yield bench.fill(row, lambda worker=worker, call=call: worker.call("onnx", **call))
