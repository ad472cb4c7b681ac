"""Whether each operation chooses the fastest backend that could run on this machine.

    python benchmarks/choice.py [--quick] [--out FILE]

Runs the LSTM layer and the character CNN in plain PyTorch and with each backend that can run here, whether it would be
chosen or not, in turn: over shapes, rows and types, with gradients and without. (A backend that computes other numbers,
as one for bfloat16 does of a call in float32, is no candidate.) Marks a row whose choice takes over a twentieth longer
than the fastest, in four measurements, and exits with 1 at more than a half. On one thread (`OMP_NUM_THREADS=1`) it
takes eight minutes.
"""

import argparse
import contextlib
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
from hf_elmo.modeling_elmo import ElmoCharacterEncoder, ElmoLayer, bilstm_layer, has_instructions

SHAPES = {"small": (128, 1024), "compact": (256, 768), "original": (512, 4096)}  # P and C
ROWS = (1, 2, 4, 8, 16, 32, 128, 512)
FEWER_ROWS = (1, 8, 32, 128)  # with gradients, and of the character CNN
QUICK_SHAPES, QUICK_ROWS = ("small", "compact"), (1, 4, 32, 128)
WORDS = {"small": 640, "compact": 640, "original": 160}  # of a call, about: 20 steps at most
FEWEST_STEPS = {False: 2, True: 8}  # with gradients, as in a training: packed weights do not pay for two steps
ROUNDS, SECONDS = 5, 2.0  # of a case: that many rounds, or two if they take longer
MARKED, FAILED = 1.05, 1.5  # times the fastest
AGAIN = 3  # measurements of what would be marked: other work on the machine may take half of a core for seconds
SAME = {torch.float32: 1e-5, torch.bfloat16: 2e-2}  # relative difference of results from those of plain PyTorch
PLAIN, LOSS = "plain PyTorch", "choice over fastest"
Run = Callable[[], torch.Tensor]


def lstm(shape: str, dtype: torch.dtype, rows: int, training: bool) -> Run:
    """A call of the LSTM layer of both directions."""
    size, cells = SHAPES[shape]
    config = ElmoConfig(hidden_size=2 * size, cell_size=cells)
    layer = ElmoLayer(config, is_first=True).to(dtype).requires_grad_(training)
    for parameter in layer.parameters():
        torch.nn.init.uniform_(parameter, -0.05, 0.05)
    steps = max(FEWEST_STEPS[training], min(20, WORDS[shape] // rows))
    inputs = torch.randn(2, steps * rows, size, dtype=dtype)
    state = torch.zeros(2, rows, size, dtype=dtype), torch.zeros(2, rows, cells)
    weights = [layer.lstm.weights(0), layer.lstm.weights(1)]
    return lambda: bilstm_layer(inputs, state, [rows] * steps, weights, 3.0, 3.0)[0]


def words(shape: str, dtype: torch.dtype, rows: int, training: bool) -> Run:
    """A call of the character CNN with words that it has not seen."""
    size, cells = SHAPES[shape]
    encoder = ElmoCharacterEncoder(ElmoConfig(hidden_size=2 * size, cell_size=cells)).to(dtype)
    encoder.requires_grad_(training)

    def run() -> torch.Tensor:
        lengths = torch.randint(3, 12, (min(20 * rows, WORDS[shape]), 1))
        return encoder(torch.randint(98, 123, (len(lengths), 50)).where(torch.arange(50) < lengths, 261))

    return run


OPERATIONS = {"LSTM": lstm, "character CNN": words}


def find_ways(run: Run, training: bool) -> tuple[dict[str, Run], str]:
    """The ways to compute what `run` computes that this machine can run, by name, and the name of the chosen one."""
    calls: list[tuple] = []
    with kernels.watch(lambda *call: calls.append(call)):
        run()
    operation, chosen, arguments = next((call for call in calls if call[1]), calls[-1])

    def plain() -> torch.Tensor:
        with kernels.use("off"):
            return run()

    def other(backend: kernels.Backend) -> Run:
        # A word that the cache knows costs nothing, so the character CNN needs new words, and so its own call.
        return (lambda: backend.run(*arguments)[0]) if operation == "lstm" else run

    ways, expected = {PLAIN: plain}, plain().float() if operation == "lstm" else None
    backends = (kernels.WITH_GRADIENTS if training else kernels.WITHOUT_GRADIENTS)[operation]
    for backend in (backend for backend in backends if backend.name in kernels.enabled()):
        with contextlib.suppress(AttributeError, RuntimeError):  # a function that this library lacks; no oneDNN
            result = other(backend)()
            if expected is None or (result - expected).norm() <= SAME[result.dtype] * expected.norm():
                ways[backend.name] = other(backend)
    return ways, chosen.name if chosen else PLAIN


def seconds(ways: dict[str, Run], rounds: int, training: bool) -> dict[str, float]:
    """The shortest time of several calls of each way, in turn; a way that took twice as long as another is not called
    again. On one thread it is processor time, which other work on the machine changes least."""
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    best, begin = dict.fromkeys(ways, math.inf), time.perf_counter()
    for number in range(rounds):
        for way in [way for way in ways if not number or best[way] < 2 * min(best.values())]:
            start = clock()
            result = ways[way]()
            if training:
                result.sum().backward()
            best[way] = min(best[way], clock() - start)
        if number and time.perf_counter() - begin > SECONDS:
            break
    return best


def measure(operation: str, shape: str, dtype: torch.dtype, rows: int, training: bool) -> dict[str, Any]:
    """A row of the table: times by backend in ms, the choice, and its time over the shortest."""
    torch.manual_seed(0)
    with torch.set_grad_enabled(training):
        ways, choice = find_ways(OPERATIONS[operation](shape, dtype, rows, training), training)
        times = seconds(ways, ROUNDS, training)
        for _ in range(AGAIN):
            if times[choice] > MARKED * min(times.values()):
                again = seconds(ways, 3 * ROUNDS, training)
                times = {way: min(time, again[way]) for way, time in times.items()}
    row = {"operation": operation, "shape": shape, "type": str(dtype)[6:], "rows": rows}
    row |= {"gradients": "yes" if training else "no", "choice": choice, LOSS: times[choice] / min(times.values())}
    return row | {f"{way}, ms": f"{1e3 * time:.3g}" for way, time in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer shapes and rows, one thread: two minutes")
    parser.add_argument("--out", type=Path, help="file of the table, in Markdown")
    options, machine = parser.parse_args(), describe_machine()
    shapes, counts = (QUICK_SHAPES, QUICK_ROWS) if options.quick else (SHAPES, ROWS)
    if options.quick:
        torch.set_num_threads(1)
    types = (torch.float32, torch.bfloat16)
    cases = list(itertools.product(OPERATIONS, shapes, types, counts, (False, True)))
    cases = [case for case in cases if case[3] in FEWER_ROWS or (case[0] == "LSTM" and not case[4])]
    if not has_instructions(torch.bfloat16, torch.device("cpu")):  # the character CNN would take minutes
        cases = [case for case in cases if (case[0], case[2]) != ("character CNN", torch.bfloat16)]
    rows = [measure(*case) for case in tqdm(cases, disable=None)]
    failed = any(row[LOSS] > FAILED for row in rows)
    for row in rows:
        row[LOSS] = f"{row[LOSS]:.2f}{' **slow**' if row[LOSS] > MARKED else ''}"
    page = f"{machine}; {torch.get_num_threads()} threads\n\n{markdown_table(rows)}"
    print(page)
    if options.out:
        options.out.write_text(f"# Each backend beside the chosen one\n\n{page}", encoding="utf-8")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
