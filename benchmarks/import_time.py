"""How long `import hf_elmo` takes beside importing `AutoModel` alone: at most 0.1 s more.

    python benchmarks/import_time.py [--rounds 7]

Each import runs in a new process, the two in turn. Processor time is what counts, since other work on the machine does
not change it; on an idle machine it is the time that one waits.
"""

import argparse
import statistics
import subprocess
import sys

STATEMENTS = {"AutoModel": "from transformers import AutoModel", "hf_elmo": "import hf_elmo"}
TARGET = 0.1
CODE = """
import time
start, cpu = time.perf_counter(), time.process_time()
{}
print(time.process_time() - cpu, time.perf_counter() - start)
"""


def seconds(statement: str) -> tuple[float, float]:
    """Processor and wall time of one import in a new process, without the start of Python itself."""
    command = [sys.executable, "-c", CODE.format(statement)]
    cpu, wall = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(cpu), float(wall)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="imports of each kind (default: 7)")
    rounds = parser.parse_args().rounds
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in STATEMENTS}
    for _ in range(rounds + 1):  # the first round compiles bytecode and fills the disk cache
        for name, statement in STATEMENTS.items():
            times[name].append(seconds(statement))
    medians = {}
    for name, pairs in times.items():
        medians[name], wall = map(statistics.median, zip(*pairs[1:], strict=True))
        print(f"{name:10} median of {rounds}: {medians[name]:.3f} s of processor time, {wall:.3f} s waited")
    more = medians["hf_elmo"] - medians["AutoModel"]
    verdict = "within" if more <= TARGET else "OVER"
    print(f"difference {more:+.3f} s of processor time: {verdict} the target, +{TARGET} s")
    return int(more > TARGET)


if __name__ == "__main__":
    raise SystemExit(main())
