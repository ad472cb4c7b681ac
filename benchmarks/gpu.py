"""ELMo's original shape on a GPU: hf_elmo beside AllenNLP, and beside what the GPU could do.

    python benchmarks/gpu.py --allennlp-python PATH

PATH is the Python of an environment with AllenNLP 2.10.1 and a CUDA build of PyTorch. The model (random weights) and
the character ids are on the GPU before the clock starts; times are medians, the GPU waited for. A training step is the
biLM forward and backward over a window of 128 x 20 words. The floor is the LSTMs' operations over the rate of a large
matrix product in the same type, measured in the same run. Prints a table in Markdown.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch

ROWS = (32, 128, 512, 2048)
WORDS = 25  # of a sentence, boundaries included
WINDOW = (128, 20)
CELL, PROJECTION, LAYERS = 4096, 512, 2
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def seconds(function: Callable[[], object], runs: int = 7) -> float:
    """The median time of a call, after two to warm up."""
    times = []
    for number in range(runs + 2):
        torch.cuda.synchronize()
        start = time.perf_counter()
        function()
        torch.cuda.synchronize()
        if number >= 2:
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def character_ids(rows: int, words: int) -> torch.Tensor:
    """`[rows, words, 50]` on the GPU: words of 1 to 12 letters by Zipf's law, as many distinct ones as in text."""
    generator = torch.Generator().manual_seed(rows)
    numbers = (torch.rand(rows * words, generator=generator) * 10.0).exp().long() - 1
    spelling = torch.randint(98, 123, (23_000, 50), generator=generator)
    ends = torch.randint(2, 14, (23_000, 1), generator=generator)
    place = torch.arange(50)
    spelling = torch.where(place < ends, spelling, torch.where(place == ends, 260, 261))
    spelling[:, 0] = 259
    return spelling[numbers].view(rows, words, 50).cuda()


def measure_ours(folder: Path) -> Iterator[tuple[str, str, float]]:
    """`(what, dtype, words a second)`."""
    from hf_elmo.conversion import load

    for name, dtype in DTYPES.items():
        model = load(folder / "options.json", folder / "weights.hdf5").to("cuda", dtype).eval()
        model.requires_grad_(False)
        for rows in ROWS:
            ids = character_ids(rows, WORDS)
            yield f"embedding, {rows} sentences", name, rows * WORDS / seconds(partial(model, ids))
        model.requires_grad_(True).train()
        step = partial(train, lambda output: output.last_hidden_state, model, character_ids(*WINDOW))
        yield "training step", name, WINDOW[0] * WINDOW[1] / seconds(step)


def train(vectors: Callable[[object], torch.Tensor], model: torch.nn.Module, ids: torch.Tensor) -> None:
    """One forward and backward pass."""
    vectors(model(ids)).float().sum().backward()


def measure_allennlp(folder: Path, shared: Path) -> Iterator[tuple[str, str, float]]:
    sys.path.insert(0, str(shared / "peers"))
    from allennlp_elmo import fill_in_removed_names

    fill_in_removed_names()
    from allennlp.modules.elmo import _ElmoBiLm

    bilm = _ElmoBiLm(str(folder / "options.json"), str(folder / "weights.hdf5"), requires_grad=True).cuda().eval()
    for rows in ROWS:
        # AllenNLP adds the boundaries itself, and numbers characters from 1, as character_ids does.
        ids = character_ids(rows, WORDS - 2)
        with torch.no_grad():
            yield f"embedding, {rows} sentences", "float32", rows * WORDS / seconds(partial(bilm, ids))
    bilm.train()
    step = partial(train, lambda output: output["activations"][-1], bilm, character_ids(WINDOW[0], WINDOW[1] - 2))
    yield "training step", "float32", WINDOW[0] * WINDOW[1] / seconds(step)


def product_rate(dtype: torch.dtype) -> float:
    """Operations a second of a matrix product of 8192 x 8192."""
    x = torch.randn(8192, 8192, device="cuda").to(dtype)
    return 2 * 8192**3 / seconds(lambda: x @ x)


def as_peer(python: str, folder: Path, shared: Path) -> list[tuple[str, str, float]]:
    command = [python, __file__, "--peer", str(folder), "--shared", str(shared)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"AllenNLP's process failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def table(ours: list[tuple[str, str, float]], peer: list[tuple[str, str, float]]) -> str:
    theirs = {what: rate for what, _, rate in peer}
    operations = LAYERS * 2 * 2 * (4 * CELL * 2 * PROJECTION + PROJECTION * CELL)
    floors = {name: product_rate(dtype) / operations for name, dtype in DTYPES.items()}
    lines = [
        f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, original shape, words a second",
        "",
        "| what | type | hf_elmo | AllenNLP (float32) | ratio | share of the floor |",
        "|---|---|---|---|---|---|",
    ]
    for what, name, rate in ours:
        floor = floors[name] / (3 if what == "training step" else 1)  # the gradients of a product are two more
        beside = f"{theirs[what]:,.0f} | {rate / theirs[what]:.1f} x" if what in theirs else "| "
        lines.append(f"| {what} | {name} | {rate:,.0f} | {beside} | {rate / floor:.0%} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--allennlp-python", help="Python of an environment with AllenNLP 2.10.1")
    parser.add_argument("--shared", type=Path, default=Path(__file__).resolve().parents[2] / "shared")
    parser.add_argument("--peer", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.exit(2, "benchmarks/gpu.py needs a GPU that PyTorch can use; there is none here.\n")
    if arguments.peer:
        print(json.dumps(list(measure_allennlp(arguments.peer, arguments.shared))))
        return
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        maker = arguments.shared / "peers" / "make_weights.py"
        subprocess.run([sys.executable, str(maker), str(folder), "--size", "original"], check=True)
        ours = list(measure_ours(folder))
        peer = as_peer(arguments.allennlp_python, folder, arguments.shared) if arguments.allennlp_python else []
    print(table(ours, peer))


if __name__ == "__main__":
    main()
