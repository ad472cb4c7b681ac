"""Products and highways of rows in C: as exact as a library's, and each row by itself."""

import pytest
import torch

from hf_elmo.kernels import native
from hf_elmo.kernels.product import row_highway, row_product

pytestmark = pytest.mark.skipif(native.library() is None, reason=str(native.reason()))

SHAPES = {
    "one number": (1, 1),
    "a block": (64, 128),
    "no full block": (37, 5),
    "several": (130, 257),
    "long": (70, 2048),
}


@pytest.fixture(params=SHAPES.values(), ids=SHAPES)
def problem(request) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x [113, in], weight [out, in], bias [out]."""
    columns, depth = request.param
    torch.manual_seed(columns)
    return torch.randn(113, depth), torch.randn(columns, depth), torch.randn(columns)


def test_equals_the_product_in_double_precision(problem) -> None:
    x, weight, bias = problem
    exact = torch.nn.functional.linear(x.double(), weight.double(), bias.double())
    # A sum of n products is rounded by n + 1 halves of a unit of the sum of their absolute values, at the most; chunks
    # of 128 that are added up by 128 and as many as there are chunks.
    steps = min(128, x.shape[1]) + x.shape[1] // 128 + 2
    size = torch.nn.functional.linear(x.abs().double(), weight.abs().double(), bias.abs().double())
    assert ((row_product(weight, bias)(x) - exact).abs() <= steps * 2**-24 * size).all()


@pytest.mark.parametrize("rows", [1, 2, 5, 6, 7, 96, 97])
def test_a_row_has_the_same_bits_among_any_others(problem, rows: int) -> None:
    x, weight, bias = problem
    product = row_product(weight, bias)
    whole = product(x)
    assert torch.equal(torch.cat([product(part) for part in x.split(rows)]), whole)
    unaligned = torch.empty(x.numel() + 1)[1:].view(x.shape).copy_(x)
    assert torch.equal(product(unaligned), whole)


def test_any_number_of_threads_gives_the_same_bits(problem, threads) -> None:
    x, weight, bias = problem
    product = row_product(weight, bias)
    threads(1)
    whole = product(x)
    for number in (2, 3, 8):
        threads(number)
        assert torch.equal(product(x), whole)


def test_no_rows_nan_and_infinity() -> None:
    weight, bias = torch.randn(9, 7), torch.zeros(9)
    product = row_product(weight, bias)
    assert product(torch.zeros(0, 7)).shape == (0, 9)
    x = torch.randn(8, 7)
    x[3, 2], x[5, 1] = torch.nan, torch.inf
    found = product(x)
    assert found[3].isnan().all()
    assert (found[5].abs() == torch.inf).all()
    assert found[[0, 1, 2, 4, 6, 7]].isfinite().all()


@pytest.mark.parametrize("columns", [1, 15, 16, 37, 64, 131])
def test_a_highway_is_that_of_the_module_and_has_the_same_bits_among_any_rows(columns: int, threads) -> None:
    torch.manual_seed(columns)
    x, carry, transform = 3 * torch.randn(3, 83, columns)
    carry[5], carry[6] = 90, -90  # where a sigmoid is 1, and nearly 0
    threads(1)
    whole = row_highway(x.clone(), carry, transform)
    gate = carry.double().sigmoid()
    exact = gate * transform.double().relu() + (1 - gate) * x.double()
    torch.testing.assert_close(whole.double(), exact, rtol=0, atol=2e-6)  # four roundings of numbers up to 12
    for rows in (1, 2, 7):
        parts = zip(x.split(rows), carry.split(rows), transform.split(rows), strict=True)
        assert torch.equal(torch.cat([row_highway(own.clone(), *others) for own, *others in parts]), whole)
    for number in (2, 3, 5):
        threads(number)
        assert torch.equal(row_highway(x.clone(), carry, transform), whole)


def test_a_highway_lets_nan_and_infinity_through() -> None:
    x, carry, transform = torch.randn(3, 4, 9)
    x[0, 1] = carry[1, 2] = transform[2, 3] = torch.nan
    transform[3, 4] = torch.inf
    found = row_highway(x, carry, transform)
    assert found.isnan().nonzero().tolist() == [[0, 1], [1, 2], [2, 3]]
    assert found[3, 4] == torch.inf
