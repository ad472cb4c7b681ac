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
    for statement in STATEMENTS.values():
        seconds(statement)  # compiles what is not compiled yet and warms the disk cache
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in STATEMENTS}
    for _ in range(rounds):
        for name, statement in STATEMENTS.items():
            times[name].append(seconds(statement))
    for name, values in times.items():
        cpu, wall = map(statistics.median, zip(*values, strict=True))
        print(f"{name:10} median of {rounds}: {cpu:.3f} s of processor time, {wall:.3f} s waited")
    pairs = zip(times["hf_elmo"], times["AutoModel"], strict=True)
    more = statistics.median(ours[0] - theirs[0] for ours, theirs in pairs)
    print(
        f"difference {more:+.3f} s of processor time: {'within' if more <= TARGET else 'OVER'} the target, +{TARGET} s"
    )
    return int(more > TARGET)


if __name__ == "__main__":
    raise SystemExit(main())
