"""The softmax's gradients among gloo processes: the mean of all, and equal bits in each."""

import json
from pathlib import Path

import pytest
import torch

from hf_elmo.pretraining.text import TextFiles
from tests.pretraining.gloo import launch

pytestmark = pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="this PyTorch has no gloo")

# Rows that each of three processes touches, of 20.
CASES = {
    "few rows": [[3, 0], [19], [3, 7, 8, 9]],
    "nothing": [[], [], []],
    "nothing in one process": [[], [4], [5]],
    "all rows": [list(range(20)), [1], []],
}

WORKER = """
import sys, torch
from torch import distributed, nn
from hf_elmo.pretraining.exchange import mean_rows
from tests.pretraining.test_exchange import CASES, gradients

distributed.init_process_group("gloo")
rank, found = distributed.get_rank(), {}
for name in CASES:
    parameters = [nn.Parameter(torch.zeros(20, 4)), nn.Parameter(torch.zeros(20))]
    for parameter, gradient in zip(parameters, gradients(name, rank)):
        parameter.grad = gradient
    sent_rows = mean_rows(parameters)
    found[name] = sent_rows, [parameter.grad for parameter in parameters]
torch.save(found, f"{sys.argv[1]}/{rank}.pt")
distributed.destroy_process_group()
"""


def gradients(name: str, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A weight's and a bias's of a process; some of the touched rows are touched in one of the two only."""
    generator = torch.Generator().manual_seed(rank)
    weight, bias = torch.zeros(20, 4), torch.zeros(20)
    for number, row in enumerate(CASES[name][rank]):
        if number % 3 != 1:
            weight[row] = torch.randn(4, generator=generator)
        if number % 3 != 2:
            bias[row] = torch.randn((), generator=generator)
    return weight, bias


def test_each_process_has_the_mean_of_all(tmp_path: Path) -> None:
    launch(tmp_path, WORKER, 3, [str(tmp_path)])
    found = [torch.load(tmp_path / f"{rank}.pt") for rank in range(3)]
    for name in CASES:
        assert [one[name][0] for one in found] == [name != "all rows"] * 3, name
        expected = [sum(parts) / 3 for parts in zip(*(gradients(name, rank) for rank in range(3)), strict=True)]
        for _, actual in (one[name] for one in found):
            for tensor, mean, first in zip(actual, expected, found[0][name][1], strict=True):
                torch.testing.assert_close(tensor, mean)
                assert torch.equal(tensor, first)


DIFFERENT = """
import os, sys
from hf_elmo.pretraining.recipe import pretrain
from tests.pretraining.test_recipe import SMALL

folder, rank = sys.argv[1], os.environ["RANK"]
for text in (f"{rank}.txt", "short.txt"):
    try:
        pretrain(f"{folder}/out", f"{folder}/{text}", vocabulary=f"{folder}/vocab.txt", max_steps=1, **SMALL)
    except ValueError as error:
        open(f"{folder}/{rank}.error", "a").write(str(error))
"""


def test_processes_with_different_texts_or_too_little_are_refused(tmp_path: Path) -> None:
    for rank, line in enumerate(("the cat sat on the mat", "the mat sat on the cat")):
        (tmp_path / f"{rank}.txt").write_text(f"{line}\n" * 50)
    # The first part has the one long line, the second one a single word: all processes end, not only that one.
    (tmp_path / "short.txt").write_text(f"{'the cat ' * 50}\nthe\n")
    (tmp_path / "vocab.txt").write_text("<S>\n</S>\n<UNK>\nthe\ncat\n")
    launch(tmp_path, DIFFERENT, 2, [str(tmp_path)])
    for rank in range(2):
        errors = (tmp_path / f"{rank}.error").read_text()
        assert "the processes read different texts" in errors
        assert "the text does not fill one batch in each of 2 processes" in errors


ONE_READS = """
import json, os, sys
from pathlib import Path
from hf_elmo.pretraining import text
from hf_elmo.pretraining.recipe import pretrain
from tests.pretraining.test_recipe import SMALL

folder, rank = Path(sys.argv[1]), os.environ["RANK"]
if rank == sys.argv[2]:  # this process is the first one of another machine, where a byte of the file is another one
    os.environ["LOCAL_RANK"] = "0"
    folder = folder / "there"
own, read = text.TextFiles.fingerprint.func, []
text.TextFiles.fingerprint.func = lambda self: read.append(1) or own(self)
found = {}
try:
    how = {**SMALL, "max_steps": 2, "save_steps": 2, "vocabulary": folder / "vocab.txt"}
    pretrain(Path(sys.argv[1]) / "out", folder / "text.txt", **how)
except ValueError as error:
    found["error"] = str(error)
(Path(sys.argv[1]) / f"{rank}.json").write_text(json.dumps({**found, "read": len(read)}))
"""


@pytest.mark.parametrize("other", ["nobody", "1"])
def test_a_text_is_read_to_be_known_once_on_each_machine(tmp_path: Path, other: str) -> None:
    content = b"the cat sat on the mat\n" * 400_000  # between the samples lies more than they are
    for folder in (tmp_path, tmp_path / "there"):
        folder.mkdir(exist_ok=True)
        (folder / "text.txt").write_bytes(content)
        (folder / "vocab.txt").write_text("<S>\n</S>\n<UNK>\nthe\ncat\n")
    changed = tmp_path / "there" / "text.txt"
    with changed.open("r+b") as opened:
        opened.seek(100_001)
        opened.write(b"Q")
    assert TextFiles(changed).sampled_fingerprint == TextFiles(tmp_path / "text.txt").sampled_fingerprint
    launch(tmp_path, ONE_READS, 2, [str(tmp_path), other])
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    if other == "nobody":
        assert found == [{"read": 1}, {"read": 0}]
        record = json.loads((tmp_path / "out" / "checkpoint-2" / "elmo_data.json").read_text())
        known = [position["text"] for position in (record, *record["other_positions"])]
        assert known == [TextFiles(tmp_path / "text.txt").fingerprint] * 2
    else:
        assert all("the processes read different texts" in one["error"] for one in found)
