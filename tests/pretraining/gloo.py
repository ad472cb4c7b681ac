"""Programs in several gloo processes, as torchrun starts them."""

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def launch(folder: Path, program: str, processes: int, arguments: Sequence[str] = ()) -> None:
    """Runs a program, written into `folder`, in so many processes; all of them must end well."""
    (folder / "worker.py").write_text(program, encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    if processes > 1:
        environment |= {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        environment |= {"ACCELERATE_USE_CPU": "true"}
    workers = [
        subprocess.Popen(
            [sys.executable, str(folder / "worker.py"), *arguments],
            env={**environment, **({"RANK": str(rank), "LOCAL_RANK": str(rank)} if processes > 1 else {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(processes)
    ]
    outputs = [worker.communicate(timeout=300)[0] for worker in workers]
    assert all(worker.returncode == 0 for worker in workers), "\n".join(outputs)
