"""A model with a head: load it, batch rows of similar length, set learning rates, plot the weights of the layers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, EvalPrediction, TrainingArguments

import hf_elmo

from ..analysis.similarity import legend_above, new_axes
from ..checkpoints.loading import locate, no_loading_bar, tokenizer_of
from ..configuration_elmo import FIRST_VECTOR_ID
from ..modeling_elmo import ElmoPreTrainedModel, ElmoScalarMix
from ..modeling_heads_elmo import ElmoTaskModel
from ..tokenization_elmo import ElmoTokenizer
from ..utils.extras import extra_needed
from ..utils.spelling import require_tokenizer

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The part of a model with a learning rate of its own, by the name of a module.
PARTS = {"scalar_mix": "mix", "output_mix": "mix", "char_encoder": "bilm", "bilm": "bilm"}
PARTS["word_vectors"] = "word_vectors"


def load_head(
    model: ElmoTaskModel | str | os.PathLike,
    tokenizer: ElmoTokenizer | None,
    device: str | torch.device | None,
    head: type = ElmoTaskModel,
) -> tuple[ElmoTaskModel, ElmoTokenizer]:
    """A fine-tuned model of the class `head`, on a device, and its tokenizer; the arguments are as for [`predict`].
    ValueError if the model has another head or none, such as a language model, or the tokenizer is another model's: it
    has other characters, or another number of words."""
    folder = locate(model) if isinstance(model, (str, os.PathLike)) else None
    kind = type(model)
    if folder is not None:
        kind = getattr(hf_elmo, (AutoConfig.from_pretrained(folder).architectures or ["ElmoModel"])[0])
    if issubclass(kind, ElmoPreTrainedModel) and not issubclass(kind, head):  # others wrap a model, as PEFT's do
        wanted = "a fine-tuned model with a head" if head is ElmoTaskModel else head.__name__
        raise ValueError(f"{folder or 'model'} is an {kind.__name__}, but must be {wanted}")
    if folder is not None:
        with no_loading_bar(folder):
            model = kind.from_pretrained(folder)
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = tokenizer_of(model) if tokenizer is None else tokenizer
    require_tokenizer(model.config, tokenizer)
    num_words, num_vectors = len(tokenizer.words or ()), model.config.word_vectors_vocab_size
    if num_vectors is not None and num_words + FIRST_VECTOR_ID != num_vectors:
        needed = f"the model has vectors of {num_vectors - FIRST_VECTOR_ID:,} (word_vectors_vocab_size)"
        raise ValueError(f"tokenizer has {num_words:,} words, but {needed}: use the tokenizer saved with the model.")
    return model if device is None else model.to(device), tokenizer


def in_batches(lengths: Sequence[int], batch_tokens: int, compute: Callable[[list[int]], Iterable[Any]]) -> list[Any]:
    """The results of `compute` for rows, in order. `compute` gets the indices of a batch: rows of similar length with
    at most `batch_tokens` positions, padding included, or a single row."""
    batches: list[list[int]] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if not batches or lengths[row] * (len(batches[-1]) + 1) > batch_tokens:
            batches.append([])
        batches[-1].append(row)
    results: list[Any] = [None] * len(lengths)
    for batch in batches:
        for row, result in zip(batch, compute(batch), strict=True):
            results[row] = result
    return results


def tokens_of_batch(model: ElmoTaskModel, batch_tokens: int) -> int:
    """`batch_tokens`, or 0 (single rows) if layer normalization spans the batch (`scalar_mix_layer_norm`)."""
    return 0 if model.config.use_elmo and model.config.scalar_mix_layer_norm else batch_tokens


def require_no_nan(*scores: Tensor) -> None:
    """Raises ValueError for scores that are NaN, as after diverged training: argmax would return a label anyway."""
    if any(part.isnan().any() for part in scores):
        raise ValueError("the model's scores are NaN: its weights are NaN, or too large for its dtype (try float32).")


def precision_recall_f1(precision: float, recall: float, prefix: str = "") -> dict[str, float]:
    """Precision, recall and their harmonic mean F1; their names begin with `prefix`."""
    f1 = ratio(2 * precision * recall, precision + recall)
    return {f"{prefix}precision": precision, f"{prefix}recall": recall, f"{prefix}f1": f1}


def ratio(part: float, whole: float) -> float:
    """`part / whole`, or 0 if `whole` is 0."""
    return float(part / whole) if whole else 0.0


def classification_metrics() -> Callable[[EvalPrediction], dict[str, float]]:
    """
    `compute_metrics` of Trainer for classifiers: accuracy and macro F1.

    With several labels at once (`problem_type="multi_label_classification"`) a label is predicted if its logit is
    above 0, and accuracy is the share of texts whose labels are all predicted correctly.
    """
    with extra_needed():
        from sklearn.metrics import accuracy_score, f1_score

    def compute(prediction: EvalPrediction) -> dict[str, float]:
        logits, labels = prediction.predictions, prediction.label_ids
        predicted = logits.argmax(1) if labels.ndim == 1 < logits.shape[1] else logits > 0
        macro_f1 = f1_score(labels, predicted, average="macro", zero_division=0)
        return {"accuracy": float(accuracy_score(labels, predicted)), "macro_f1": float(macro_f1)}

    return compute


def learning_rates(
    model: nn.Module,
    arguments: TrainingArguments,
    *,
    bilm: float | None = None,
    mix: float | None = None,
    word_vectors: float | None = None,
) -> tuple[type, dict[str, Any]]:
    """
    The optimizer of `arguments` with separate learning rates for parts of a model.

    The schedule of Trainer applies to every rate, and the gradients of all parts are clipped together
    (`max_grad_norm`). Call this function once for each Trainer, after the model is frozen or unfrozen.

    Args:
        model: with or without a head.
        arguments: with the optimizer, its settings, the weight decay, and the learning rate of all other parameters.
        bilm: learning rate of the character CNN and the biLM, if they are trained (`unfreeze_bilm`).
        mix: learning rate of the scalar mixes (s and gamma), which have no weight decay.
        word_vectors: learning rate of the word vectors.

    Returns:
        the argument `optimizer_cls_and_kwargs` of Trainer.
    """
    from transformers import Trainer  # imports accelerate, which takes seconds

    rates = {"bilm": bilm, "mix": mix, "word_vectors": word_vectors}
    groups: dict[tuple[str, bool], dict[str, Any]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            part = next((PARTS[module] for module in name.split(".") if module in PARTS), "head")
            rate = arguments.learning_rate if rates.get(part) is None else rates[part]
            decays = part != "mix" and parameter.dim() > 1
            group = {"params": [], "lr": rate, "weight_decay": arguments.weight_decay if decays else 0.0}
            groups.setdefault((part, decays), group)["params"].append(parameter)
    optimizer, options = Trainer.get_optimizer_cls_and_kwargs(arguments, model)
    options = getattr(arguments, "adagrad_settings", {}) | options  # of ElmoPreTrainingArguments
    return optimizer, {**options, "params": list(groups.values())}


def layer_weights(model: nn.Module) -> dict[str, tuple[list[float], float]]:
    """
    For each scalar mix of a model, the weights of the layers, and gamma. Learned weights add up to 1.

    Keys are `"input"` and `"output"`; several mixes at one place are numbered, `"input 1"`, `"input 2"`.
    """
    mixes: dict[str, tuple[list[float], float]] = {}
    for name, module in model.named_modules():
        if isinstance(module, ElmoScalarMix):
            place = "output" if "output_mix" in name.split(".") else "input"
            if module.fixed is not None:
                mixes[place] = list(module.fixed), 1.0
                continue
            weights = torch.softmax(module.scalars.detach().float(), dim=1).tolist()
            gammas = module.gamma.detach().float().tolist()
            for index, mix in enumerate(zip(weights, gammas, strict=True), start=1):
                mixes[place if len(weights) == 1 else f"{place} {index}"] = mix
    return mixes


def plot_layer_weights(
    model: nn.Module, axes: Axes | None = None, path: str | os.PathLike | None = None, title: str | None = None
) -> Axes:
    """
    Draw the weights that a task learned for the layers of the biLM (like figure 2 of Peters et al. 2018).

    Args:
        model: with or without a head.
        axes: matplotlib's axes to draw on, which are returned; by default of a new figure.
        path: a file to write the figure to, `.png`, `.svg` or `.pdf`.
        title: the text above the legend.
    """
    mixes = layer_weights(model)
    axes = axes or new_axes(5, 3)
    width = 0.8 / len(mixes)
    for index, (name, (weights, gamma)) in enumerate(mixes.items()):
        places = [layer + (index - (len(mixes) - 1) / 2) * width for layer in range(len(weights))]
        bars = axes.bar(places, weights, width, label=f"{name} (gamma {gamma:.2f})")
        axes.bar_label(bars, fmt="%.2f", fontsize="small")
    layers = range(len(weights))
    axes.set_xticks(list(layers), ["characters" if layer == 0 else f"LSTM {layer}" for layer in layers])
    axes.margins(y=0.12)  # leaves room for the number above the highest bar
    axes.set_ylabel("weight")
    legend_above(axes, title=title, ncols=2, alignment="left")
    if path is not None:
        axes.figure.savefig(path)
    return axes
