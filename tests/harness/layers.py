"""LSTM layers of any sizes, types and threads: every backend that takes a call against the reference in float64."""

import random
from collections import Counter
from unittest import mock

import torch
from torch import Tensor

from hf_elmo import kernels, lstm_elmo
from hf_elmo.lstm_elmo import LstmCall, LstmWeights, bilstm_layer
from tests.lstm_layers import everything, flat, random_layer, reference

from .checks import Check, Fault, described, without_preparation

# An error may be a few times that of plain PyTorch in the same type, which rounds in another order, and always a few
# roundings of the largest value: 8 units in the last place of float32, and of bfloat16 2 (of 2 ** -8, half a rounding).
TIMES, FLOOR = 4, {torch.float64: 1e-13, torch.float32: 1e-6, torch.bfloat16: 8e-3}
SAME_BITS = ("fused-tiles", "fused", "small-batch")  # for any number of threads
CLIP_MARGIN = 1e-4  # nearer to a clip, rounding decides whether a gradient passes

Layer = tuple[Tensor, list[int], tuple[Tensor, Tensor], list[LstmWeights], float | None, float | None]


def random_call(rng: random.Random) -> Layer:
    """Sizes that fill the blocks of the kernels, or any; sentences that end at any step; clips that take part."""
    filled = rng.random() < 0.6
    step, wide = (32, 64) if filled else (1, 1)
    width, cell = (step * rng.randint(1, 5 if filled else 90) for _ in range(2))
    size = wide * rng.randint(1, 3 if filled else 90)
    rows, words = rng.choice((1, 2, 3, 7, 8, 9, 15, 16, 17, 33, 70)), rng.choice((1, 2, 5, 12))
    sizes = sorted((rng.randint(1, rows) for _ in range(words - 1)), reverse=True)
    dtype = rng.choice((torch.float32, torch.float32, torch.bfloat16, torch.float64))
    arguments = [rows, *sizes], dtype, rng.choice((1, 2, 2, 3)), rng.random() < 0.8, rng.randrange(1 << 31)
    inputs, state, weights = random_layer(*arguments, sizes=(width, size, cell))
    clips = (rng.choice((None, 0.3, 1.0)) for _ in range(2))
    return inputs, [rows, *sizes], state, weights, *clips


def exactly(layer: Layer) -> Layer:
    """The same numbers in float64."""
    inputs, sizes, state, weights, *clips = layer
    doubled = [LstmWeights(*(None if x is None else x.double() for x in own)) for own in weights]
    return inputs.double(), sizes, tuple(x.double() for x in state), doubled, *clips


def near_a_clip(layer: Layer) -> bool:
    """Whether a number lies so near to a clip that rounding decides on which side."""
    margins = [1.0]

    def clip(x: Tensor, bound: float | None) -> Tensor:
        if bound is not None:
            margins.append((x.abs() - bound).abs().min().item())
            return x.clamp(-bound, bound)
        return x

    with mock.patch.object(lstm_elmo, "clip", clip):
        reference(*exactly(layer))
    return min(margins) < CLIP_MARGIN


def require_near(found: list[Tensor], plain: list[Tensor], exact: list[Tensor], dtype: torch.dtype) -> None:
    """Raises Fault where a tensor is farther from the exact one than plain PyTorch's rounding explains."""
    for number, (one, other, truth) in enumerate(zip(found, plain, exact, strict=True)):
        largest = truth.abs().max().clamp(min=1e-6)
        error, rounding = (((x.double() - truth).abs().max() / largest).item() for x in (one, other))
        if not error <= TIMES * rounding + FLOOR[dtype]:
            raise Fault(f"tensor {number} of {tuple(one.shape)} is off by {error:.1e}, plain PyTorch by {rounding:.1e}")


def case(rng: random.Random) -> Counter:
    """A layer by each backend that takes it: outputs and state, sometimes with a NaN, or gradients."""
    layer = random_call(rng)
    inputs, sizes, state, weights, *clips = layer
    shapes = f"{inputs.dtype}, inputs {tuple(inputs.shape)}, P {state[0].shape[2]}, C {state[1].shape[2]}"
    what = f"{shapes}, batch_sizes {sizes}, clips {clips}, projection {weights[0].weight_hr is not None}"
    before, threads = torch.get_num_threads(), rng.choice((1, 2, 3, 5))
    torch.set_num_threads(threads)
    try:
        with described(f"{threads} threads, {what}"):
            return gradients(layer) if rng.random() < 0.3 else inference(rng, layer)
    finally:
        torch.set_num_threads(before)


def inference(rng: random.Random, layer: Layer) -> Counter:
    """Each backend of inference, and PyTorch's loop."""
    inputs, sizes, state, weights, *clips = layer
    counts, dtype = Counter(), inputs.dtype
    plain, exact = flat(reference(*layer)), flat(reference(*exactly(layer)))
    for backend in kernels.BACKENDS["lstm"]:
        if backend.supports(LstmCall(inputs, sizes, *state, weights, *clips)) is not None:
            continue
        with (
            kernels.use(backend.name, rng.choice(("cell-c", backend.name))),
            kernels.record() as ran,
            described(backend.name),
        ):
            found = flat(bilstm_layer(*layer))
            require_near(found, plain, exact, dtype)
            if ("lstm", backend.name) not in ran:
                raise Fault(f"it did not run, but {ran}")
            if backend.name in SAME_BITS:
                torch.set_num_threads(rng.choice((1, 2, 3, 4, 7)))
                if not all(map(torch.equal, flat(bilstm_layer(*layer)), found)):
                    raise Fault(f"other bits with {torch.get_num_threads()} threads")
            nan_in_one_row(rng, layer, found[0])
        counts[backend.name] += 1
    with kernels.use("off"), described("plain PyTorch"):
        require_near(flat(bilstm_layer(*layer)), plain, exact, dtype)
    return counts + Counter(plain=1)


def nan_in_one_row(rng: random.Random, layer: Layer, right: Tensor) -> None:
    """Raises Fault where a NaN among the inputs changes other rows, or is lost in its own."""
    inputs, sizes, *rest = layer
    row, first = rng.randrange(sizes[0]), 0
    broken = inputs.clone()
    broken[:, row, rng.randrange(inputs.shape[2])] = torch.nan
    found = bilstm_layer(broken, sizes, *rest)[0]
    for size in sizes:
        of_step, was = found[:, first : first + size], right[:, first : first + size]
        others = torch.arange(size) != row
        if not torch.equal(of_step[:, others], was[:, others]):
            raise Fault(f"a NaN in row {row} changes other rows")
        if row < size and not of_step[:, row].isnan().all():
            raise Fault(f"a NaN in row {row} is lost")
        first += size


def gradients(layer: Layer) -> Counter:
    """Outputs, state and all gradients of a training step."""
    dtype = layer[0].dtype
    if (dtype == torch.bfloat16 and any(layer[4:])) or near_a_clip(layer):
        # A bfloat16 has 8 bits: that puts many a number on the other side of a clip.
        layer = *layer[:4], None, None
    plain, exact = everything(reference, *layer), everything(reference, *exactly(layer))
    for cell in ("cell-c", "training"):
        with kernels.use("training", cell), kernels.record() as ran, described(f"training with {cell}"):
            require_near(everything(bilstm_layer, *layer), plain, exact, dtype)
            if ("lstm", "training") not in ran:
                raise Fault("it did not run")
    return Counter(training=1)


CHECK = Check("layers", without_preparation(case), cases=40)
