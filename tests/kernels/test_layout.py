"""Weights laid out in C: the numbers of PyTorch's permuted copies, bit by bit."""

import pytest
import torch

from hf_elmo.kernels import native
from hf_elmo.kernels.cpu_small_batch import projection_layout, recurrent_layout
from hf_elmo.kernels.layout import lay_out
from hf_elmo.kernels.structs import LANES

pytestmark = pytest.mark.skipif(native.library() is None, reason=str(native.reason()))

DEPTHS = [1, 15, 16, 17, 255, 256, 257, 600]


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.view(torch.int32)


def numbers(rows: int, depth: int) -> torch.Tensor:
    torch.manual_seed(rows + depth)
    weight = torch.randn(rows, depth)
    weight[0, 0], weight[-1, -1] = float("nan"), -0.0
    return weight


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("rows", [1, 63, 64, 65, 130])
def test_rows_in_blocks_and_zeros_after_the_last(rows: int, depth: int) -> None:
    weight, blocks = numbers(rows, depth), -(-rows // 64)
    padded = torch.nn.functional.pad(weight, (0, 0, 0, blocks * 64 - rows))
    expected = padded.view(blocks, 64, depth).transpose(1, 2).contiguous()
    found = lay_out(weight, blocks, 64 // LANES, 64, LANES)
    assert found.shape == (blocks, depth, 64 // LANES, LANES)
    assert torch.equal(bits(found).flatten(2), bits(expected))


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("cells", [LANES, 3 * LANES])
def test_gates_side_by_side(cells: int, depth: int) -> None:
    weight = numbers(4 * cells, depth)
    expected = weight.view(2, 2, -1, LANES, depth).permute(2, 4, 0, 1, 3).contiguous()
    assert torch.equal(bits(recurrent_layout(weight)).flatten(), bits(expected).flatten())


@pytest.mark.parametrize("size", [2 * LANES, 6 * LANES])
def test_projections_side_by_side(size: int) -> None:
    weight = numbers(size, 257)
    expected = weight.view(-1, 2, LANES, 257).permute(0, 3, 1, 2).contiguous()
    assert torch.equal(bits(projection_layout(weight)).flatten(), bits(expected).flatten())


def test_any_number_of_threads_and_any_strides(threads) -> None:
    weight = numbers(1024, 1030)
    threads(1)
    expected = lay_out(weight, 16, 4, 64, LANES)
    transposed = weight.t().contiguous().t()
    for number in (2, 3, 8):
        threads(number)
        assert torch.equal(bits(lay_out(weight, 16, 4, 64, LANES)), bits(expected))
        assert torch.equal(bits(lay_out(transposed, 16, 4, 64, LANES)), bits(expected))
