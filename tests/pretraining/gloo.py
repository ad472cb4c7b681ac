"""Programs in several gloo processes, as torchrun starts them."""

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

# With MKL_CBWR, MKL's sums are the same wherever the numbers lie in memory.
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
ENVIRONMENT |= {"MKL_CBWR": "COMPATIBLE", "TOKENIZERS_PARALLELISM": "false"}


def launch(folder: Path, program: str, processes: int, arguments: Sequence[str] = ()) -> None:
    """Runs a program, written into `folder`, in so many processes; all of them must end well."""
    (folder / "worker.py").write_text(program, encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    group = {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    workers = [
        subprocess.Popen(
            [sys.executable, str(folder / "worker.py"), *arguments],
            env={**ENVIRONMENT, **group, "ACCELERATE_USE_CPU": "true", "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(processes)
    ]
    outputs = [worker.communicate(timeout=300)[0] for worker in workers]
    assert all(worker.returncode == 0 for worker in workers), "\n".join(outputs)
