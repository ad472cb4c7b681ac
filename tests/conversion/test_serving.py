"""The production recipe of docs/guides/onnx.md, as it is printed, in an environment that holds nothing else."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from hf_elmo_cli import main

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_onnx_runtime_without_pytorch_and_hf_elmo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs/guides/onnx.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```\w*\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    export, save, install, serve, printed = blocks[:5]
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(export.partition("\n")[0])[2:]) == 0
    exec(save, {})
    shutil.copy(ROOT / "constraints.txt", tmp_path)
    subprocess.run(install, shell=True, check=True)
    python = tmp_path / "server" / "bin" / "python"
    done = subprocess.run([python, "-I", "-c", serve], capture_output=True, text=True)
    assert done.stdout == printed, done.stderr
    for absent in ("torch", "hf_elmo"):
        assert subprocess.run([python, "-I", "-c", f"import {absent}"], stderr=subprocess.DEVNULL).returncode == 1
