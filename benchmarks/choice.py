"""Whether each operation chooses the fastest backend that could run on this machine.

    python benchmarks/choice.py [--quick] [--out FILE]

Runs the LSTM layer and the character CNN with each backend that supports the arguments and in plain PyTorch, in turn:
over shapes, rows and types (bfloat16 if PyTorch has instructions for it), with gradients and without. Marks a row whose
choice takes more than a tenth longer than the fastest, in two measurements, and exits with 1 at more than a half.
"""

import argparse
import itertools
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from common import describe_machine, markdown_table
from hf_elmo import ElmoConfig, kernels
from hf_elmo.modeling_elmo import ElmoCharacterEncoder, ElmoLSTMLayer, LstmCall, bilstm_layer

SHAPES = {"mini": (128, 640), "small": (128, 1024), "compact": (256, 768), "original": (512, 4096)}  # P and C
ROWS = (1, 4, 32, 128, 512)
QUICK_SHAPES, QUICK_ROWS = ("small", "compact"), (1, 4, 32, 128)
WORDS = 640  # of a call, about: 20 steps at most, two at least
ROUNDS = 5
MARKED, FAILED = 1.1, 1.5  # times the fastest
PLAIN, LOSS = "plain PyTorch", "choice over fastest"
Run = Callable[[], object]


def lstm(shape: str, dtype: torch.dtype, rows: int, training: bool) -> tuple[Run, list[str]]:
    """A call of the LSTM layer of both directions, and the backends that support it."""
    size, cells = SHAPES[shape]
    config = ElmoConfig(hidden_size=2 * size, cell_size=cells)
    layers = torch.nn.ModuleList(ElmoLSTMLayer(config) for _ in range(2)).to(dtype).requires_grad_(training)
    for parameter in layers.parameters():
        torch.nn.init.uniform_(parameter, -0.05, 0.05)
    steps = max(2, min(20, WORDS // rows))
    inputs = torch.randn(2, steps * rows, size, dtype=dtype)
    state = torch.zeros(2, rows, size, dtype=dtype), torch.zeros(2, rows, cells)
    weights = [layer(inputs) for layer in layers]
    call = LstmCall(inputs, [rows] * steps, *state, weights, 3.0, 3.0)

    def run() -> None:
        outputs, _ = bilstm_layer(inputs, [rows] * steps, state, weights, 3.0, 3.0)
        if training:
            outputs.sum().backward()

    names = []
    for backend in kernels.BACKENDS["lstm"]:
        with torch.set_grad_enabled(training), kernels.use(backend.name):
            names += [backend.name] * (backend.supports(call) is None)
    return run, names


def words(shape: str, dtype: torch.dtype, rows: int, training: bool) -> tuple[Run, list[str]]:
    """A call of the character CNN with words that it has not seen, and the backends that support it."""
    size, cells = SHAPES[shape]
    encoder = ElmoCharacterEncoder(ElmoConfig(hidden_size=2 * size, cell_size=cells)).to(dtype)
    encoder.requires_grad_(training)

    def run() -> None:
        lengths = torch.randint(3, 12, (min(20 * rows, WORDS), 1))
        ids = torch.randint(98, 123, (len(lengths), 50)).where(torch.arange(50) < lengths, 261)
        vectors = encoder(ids)
        if training:
            vectors.sum().backward()

    return run, ["character-tables" if training else "word-cache"]


OPERATIONS = {"LSTM": lstm, "character CNN": words}


def seconds(run: Run, ways: dict[str, tuple[str, ...]], rounds: int, training: bool) -> dict[str, float]:
    """The shortest time of several calls with each set of backends, in turn, without the first call, which lays out
    weights. On one thread it is processor time, which other work on the machine changes least."""
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    best = dict.fromkeys(ways, math.inf)
    with torch.set_grad_enabled(training):
        for number, (way, names) in itertools.product(range(rounds + 1), ways.items()):
            with kernels.use(*names):
                start = clock()
                run()
                if number:
                    best[way] = min(best[way], clock() - start)
    return best


def measure(operation: str, shape: str, dtype: torch.dtype, rows: int, training: bool) -> dict[str, Any]:
    """A row of the table: times by backend in ms, the choice, and its time over the shortest."""
    torch.manual_seed(0)
    run, names = OPERATIONS[operation](shape, dtype, rows, training)
    with kernels.use("on"), kernels.record() as chosen, torch.set_grad_enabled(training):
        run()
    choice = next((name for _, name in chosen if name in names), PLAIN)
    ways = {name: (name, "cell-c") for name in names} | {PLAIN: ("off",)}
    times = seconds(run, ways, ROUNDS, training)
    if times[choice] > MARKED * min(times.values()):
        again = seconds(run, ways, 3 * ROUNDS, training)
        times = {way: min(time, again[way]) for way, time in times.items()}
    row = {"operation": operation, "shape": shape, "type": str(dtype)[6:], "rows": rows}
    row |= {"gradients": "yes" if training else "no", "choice": choice, LOSS: times[choice] / min(times.values())}
    return row | {f"{way}, ms": f"{1e3 * time:.3g}" for way, time in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer shapes and rows, one thread: two minutes")
    parser.add_argument("--out", type=Path, help="file of the table, in Markdown")
    options = parser.parse_args()
    shapes, counts = (QUICK_SHAPES, QUICK_ROWS) if options.quick else (SHAPES, ROWS)
    if options.quick:
        torch.set_num_threads(1)
    types = (torch.float32, torch.bfloat16) if torch.ops.mkldnn._is_mkldnn_bf16_supported() else (torch.float32,)
    cases = list(itertools.product(OPERATIONS, shapes, types, counts, (False, True)))
    rows = [measure(*case) for case in tqdm(cases, disable=None)]
    failed = any(row[LOSS] > FAILED for row in rows)
    for row in rows:
        row[LOSS] = f"{row[LOSS]:.2f}{' **slow**' if row[LOSS] > MARKED else ''}"
    page = f"{describe_machine()}; {torch.get_num_threads()} threads\n\n{markdown_table(rows)}"
    print(page)
    if options.out:
        options.out.write_text(f"# Each backend beside the chosen one\n\n{page}", encoding="utf-8")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
