"""LSTM layers on the CPU: oneDNN computes the products from packed weights, and `cells.py` computes the activations.

`torch.nn.functional.linear` converts the weight to oneDNN's layout at each call. In a recurrence, which multiplies a
small batch of rows by the same weight at each step, the conversion can take as long as the product.

"onednn" computes without gradients. "onednn-training" is one autograd function for each layer and direction, with the
same loop over the steps and another one backward. What does not depend on the previous step is a product of all words:
the gradients of weights after the loop and, without packed weights, the input half of the gates before it.
"""

import platform
from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor, nn

from . import native
from .cells import TYPES, backward_cell, clip_backward_, forward_cell
from .tensors import LstmCall, State, aliases, first_order, get_cached, has, last_words, steps_of, why_not_cached

Product = Callable[..., Tensor]
Steps = list[tuple[int, int]]
Saved = Sequence[Tensor | None]
Clips = tuple[float | None, float | None]

ROWS = 128  # oneDNN chooses the layout for this number of rows; the layout works for any number
# For fewer rows, reading the weights takes most time: "small-batch" and plain PyTorch read only half of them in a step.
FEWEST_ROWS = 8


@cache
def multiplies_bfloat16() -> bool:
    """Whether oneDNN multiplies bfloat16 by instructions for it. On x86 it does so with any AVX-512, but slowly."""
    supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", bool)
    is_x86 = platform.machine() in ("x86_64", "AMD64")
    return torch.backends.mkldnn.is_available() and supported() and (has("avx512_bf16") or not is_x86)


def why_not_packed(x: Tensor, rows: int = ROWS) -> str | None:
    """Why packed weights do not speed up products of `rows` rows with tensors like `x`, or `None` if they do."""
    if rows == 1 and x.dtype == torch.float32:
        return "to multiply one row takes as long as to read the weights, so packing them gains nothing"
    if not torch.backends.mkldnn.is_available() or not torch.backends.mkldnn.enabled:
        return "oneDNN is switched off, or this PyTorch was built without it"
    if not hasattr(torch.ops.mkldnn, "_reorder_linear_weight") or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return "this PyTorch has other operations for packed weights"
    if x.dtype != torch.float32 and not (x.dtype == torch.bfloat16 and multiplies_bfloat16()):
        return f"oneDNN does not multiply {x.dtype} on this processor"
    return None


def pack(weight: Tensor) -> Product:
    """The function `(x [rows, in], bias [out] or None) -> x @ weight.T + bias`, in the type of `weight [out, in]`."""
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), ROWS)
    linear = torch.ops.mkldnn._linear_pointwise
    return lambda x, bias=None: linear(x, packed, bias, "none", [], "")


def product_of(weight: Tensor, rows: int = ROWS) -> Product:
    """The function `(x [rows, in], bias [out] or None) -> x @ weight.T + bias` for `weight [out, in]`."""
    if why_not_packed(weight, rows):
        return lambda x, bias=None: nn.functional.linear(x, weight, bias)
    return pack(weight)


def why_not_inference(call: LstmCall) -> str | None:
    """Why "onednn" does not compute the call, or `None` if it does."""
    if call.batch_sizes[0] < FEWEST_ROWS:
        return f"a batch of fewer than {FEWEST_ROWS} rows"
    weights = (tensor for weights in call.weights for tensor in weights)
    return why_not_packed(call.inputs) or why_not_training(call) or why_not_cached(weights)


def why_not_training(call: LstmCall) -> str | None:
    """Why "onednn-training" does not compute the call, or `None` if it does."""
    if call.inputs.dtype not in TYPES or call.cell.dtype != torch.float32:
        return f"inputs are {call.inputs.dtype}, not float32 or bfloat16, or cells are {call.cell.dtype}, not float32"
    return native.reason()


def _run(call: LstmCall, direction: Callable[..., tuple[Tensor, Tensor, Tensor]]) -> tuple[Tensor, State]:
    """The directions one after the other: the outputs of each, and its state after the last step of each row."""
    loop = steps_of(call.batch_sizes), (call.cell_clip, call.proj_clip)
    arguments = zip(call.inputs, call.hidden, call.cell, call.weights, strict=True)
    outputs, hidden, cell = map(torch.stack, zip(*(direction(*own, *loop) for own in arguments), strict=True))
    return outputs, (hidden, cell)


def run_inference(call: LstmCall) -> tuple[Tensor, State]:
    """The result of `modeling_elmo.bilstm_layer`."""

    def product(*weights: Tensor) -> Product:
        name = "packed", call.inputs.dtype, len(weights)
        return get_cached(weights, name, lambda: pack(torch.cat(weights, 1).detach().to(call.inputs.dtype)))

    def direction(inputs, hidden, cell, weights, *loop):
        bias = weights.bias.detach().to(inputs.dtype)
        gates_of = _both_halves(product(weights.weight_ih, weights.weight_hh), inputs, hidden, bias)
        project = None if weights.weight_hr is None else product(weights.weight_hr)
        return _results(*loop, *_forward_loop(*loop, (inputs, hidden, cell), gates_of, project, keep=False))

    return _run(call, direction)


def run_training(call: LstmCall) -> tuple[Tensor, State]:
    """The result of `modeling_elmo.bilstm_layer`, with gradients."""

    def direction(inputs, hidden, cell, weights, *loop):
        # oneDNN's product does not ask for the strides of a bias.
        cast = (None if weight is None else weight.to(inputs.dtype).contiguous() for weight in weights)
        return _Layer.apply(inputs, hidden, cell, *cast, *loop)

    return _run(call, direction)


def _results(steps: Steps, clips: Clips, *saved: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The outputs of all words, and the state after the last step of each row."""
    *_, cells, _, _, outputs = saved
    last = last_words([end - start for start, end in steps])
    after = cells.index_select(0, last)
    return outputs, outputs.index_select(0, last), after if clips[0] is None else after.clamp(-clips[0], clips[0])


class _Layer(torch.autograd.Function):
    """One direction of `modeling_elmo.bilstm_layer`, and its gradient."""

    @staticmethod
    def forward(ctx, inputs, hidden, cell, weight_ih, weight_hh, bias, weight_hr, steps, clips):
        if why_not_packed(weight_ih, len(hidden)):
            gates = nn.functional.linear(inputs, weight_ih, bias)
            gates_of = lambda now, hidden: gates[now].addmm_(hidden, weight_hh.T)  # noqa: E731
        else:  # one product for both halves is faster than two
            gates_of = _both_halves(pack(torch.cat((weight_ih, weight_hh), dim=1)), inputs, hidden, bias)
        project = None if weight_hr is None else product_of(weight_hr, len(hidden))
        saved = _forward_loop(steps, clips, (inputs, hidden, cell), gates_of, project)
        ctx.save_for_backward(*aliases(inputs, hidden, cell, weight_ih, weight_hh, bias, weight_hr), *saved)
        ctx.loop = steps, clips
        return _results(steps, clips, *saved)

    @staticmethod
    @first_order
    def backward(ctx, *grads):
        tensors = ctx.saved_tensors
        arguments, saved = tensors[:7], tensors[7:]
        inputs, hidden, _, weight_ih, _, _, weight_hr = arguments
        *_, cell_outputs, _, outputs = saved
        grad_outputs, grad_hidden, grad_cell = (grad.clone(memory_format=torch.contiguous_format) for grad in grads)
        grad_gates = _backward_loop(*ctx.loop, arguments, saved, grad_outputs, grad_hidden, grad_cell)
        wanted = ctx.needs_input_grad
        grad_weights: tuple[Tensor | None, ...] = (None, None, None)
        if any(wanted[3:6]):
            grad_weights = _weight_gradients(grad_gates, inputs, _words_before(outputs, hidden, ctx.loop[0]))
        return (
            grad_gates @ weight_ih if wanted[0] else None,
            grad_hidden,
            grad_cell,
            *grad_weights,
            grad_outputs.T @ cell_outputs if weight_hr is not None and wanted[6] else None,
            *(None, None),
        )


def _both_halves(product: Product, inputs: Tensor, hidden: Tensor, bias: Tensor) -> Callable[[slice, Tensor], Tensor]:
    """A function `(words, hidden) -> gates` by one product of the words and the hidden states side by side."""
    both = torch.cat((inputs, inputs.new_empty(len(inputs), hidden.shape[1])), dim=1)

    def gates_of(now: slice, hidden: Tensor) -> Tensor:
        both[now, inputs.shape[1] :] = hidden
        return product(both[now], bias)

    return gates_of


def _forward_loop(
    steps: Steps, clips: Clips, start: Sequence[Tensor], gates_of: Product, project: Product | None, keep: bool = True
) -> Saved:
    """What the gradient needs, from inputs and state: the gates of each step before activation (with `keep`), the cells
    before their clip, the outputs of the cells, the projections before their clip or `None`, and the outputs."""
    (inputs, hidden, cell), (cell_clip, proj_clip) = start, clips
    cells, cell_outputs = cell.new_empty(len(inputs), cell.shape[1]), inputs.new_empty(len(inputs), cell.shape[1])
    projected = None if project is None else inputs.new_empty(len(inputs), hidden.shape[1])
    outputs = cell_outputs if projected is None else projected if proj_clip is None else torch.empty_like(projected)
    cell, before_clip, step_gates = cell.contiguous(), None, []
    for start, end in steps:
        now, rows = slice(start, end), slice(0, end - start)
        gates = gates_of(now, hidden[rows])
        step_gates += [gates] if keep else []
        forward_cell(gates, cell[rows], before_clip, cell_clip, cells[now], cell_outputs[now])
        if project is not None:
            projected[now] = project(cell_outputs[now])
            if proj_clip is not None:
                torch.clamp(projected[now], -proj_clip, proj_clip, out=outputs[now])
        hidden, cell, before_clip = outputs[now], cells[now], cell_clip
    return *step_gates, cells, cell_outputs, projected, outputs


def _backward_loop(steps: Steps, clips: Clips, arguments: Saved, saved: Saved, *grads: Tensor) -> Tensor:
    """The gradient of the gates before activation, from the arguments and the result of `_forward_loop`.

    In place, the gradient of the outputs becomes that of the projections before their clip, and the gradients of the
    state after the last step become those of the state before the first step.
    """
    grad_outputs, grad_hidden, grad_cell = grads
    (_, _, cell, _, weight_hh, _, weight_hr), (*gates, cells, _, projected, _) = arguments, saved
    cell_clip, proj_clip = clips
    cell, grad_gates = cell.contiguous(), cells.new_empty(len(cells), 4 * cells.shape[1], dtype=gates[0].dtype)
    to_hidden = product_of(weight_hh.T, len(cell))
    to_cell_outputs = None if weight_hr is None else product_of(weight_hr.T, len(cell))
    for step in reversed(range(len(steps))):
        start, end = steps[step]
        now, rows = slice(start, end), slice(0, end - start)
        grad = grad_outputs[now].add_(grad_hidden[rows])
        if to_cell_outputs is not None:
            grad = to_cell_outputs(clip_backward_(grad, projected[now], proj_clip))
        before, before_clip = (cells[slice(*steps[step - 1])], cell_clip) if step else (cell, None)
        forward = gates[step], before[rows], before_clip, cell_clip, cells[now]
        backward_cell(*forward, grad, grad_cell[rows], grad_gates[now])
        grad_hidden[rows] = to_hidden(grad_gates[now])
    return grad_gates


def _weight_gradients(grad_gates: Tensor, inputs: Tensor, before: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of `weight_ih`, `weight_hh` and `bias`, by one product, which takes half the time of three."""
    sources = torch.cat((inputs, before, inputs.new_ones(len(inputs), 1)), dim=1).T.contiguous()
    grad_ih, grad_hh, grad_bias = (sources @ grad_gates).split((inputs.shape[1], before.shape[1], 1))
    return grad_ih.T.contiguous(), grad_hh.T.contiguous(), grad_bias[0]


def _words_before(x: Tensor, first: Tensor, steps: Steps) -> Tensor:
    """For each packed word, its row of `x [N, n]` at the previous step, or of `first [rows, n]` in the first step."""
    rows_after = [end - start for start, end in steps[1:]]
    return torch.cat([first, *(x[start : start + rows] for (start, _), rows in zip(steps, rows_after, strict=False))])
