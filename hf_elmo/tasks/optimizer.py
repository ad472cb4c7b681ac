"""Learning rates of their own for parts of a model: the biLM, the mixes of its layers, the word vectors."""

from typing import Any

from torch import nn
from torch.optim import Optimizer
from transformers import TrainingArguments

# The part of a model with a learning rate of its own, by the name of a module.
PARTS = {"scalar_mix": "mix", "output_mix": "mix", "char_encoder": "bilm", "bilm": "bilm"}
PARTS["word_vectors"] = "word_vectors"


def optimizer_cls_and_kwargs(
    model: nn.Module | None,
    arguments: TrainingArguments,
    *,
    bilm: float | None = None,
    mix: float | None = None,
    word_vectors: float | None = None,
) -> tuple[Any, dict[str, Any]]:
    """Trainer's argument of this name: the optimizer of `arguments` with separate learning rates for parts of a model.

    The schedule of Trainer applies to every rate, and the gradients of all parts are clipped together
    (`max_grad_norm`). Call this function once for each Trainer, after the model is frozen or unfrozen.

    Args:
        model: Trainer's (of another, the first step raises ValueError); `None` for each model of its `model_init`.
        arguments: with the optimizer, its settings, the weight decay, and the learning rate of all other parameters.
        bilm: learning rate of the character CNN and the biLM, if they are trained (`freeze_bilm(False)`).
        mix, word_vectors: those of the scalar mixes (s and gamma), which have no weight decay, and of the word vectors.
    """
    from transformers import Trainer  # imports accelerate, which takes seconds

    rates = {"bilm": bilm, "mix": mix, "word_vectors": word_vectors}
    if model is None:

        def optimizer_of(trained: nn.Module) -> Optimizer:
            optimizer, options = optimizer_cls_and_kwargs(trained, arguments, **rates)
            return optimizer(**options)

        return lambda: optimizer_of, {}  # what is no class of optimizers is called by Trainer, and given the model
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

    def begin(self: Optimizer, *arguments: Any, **options: Any) -> None:
        optimizer.__init__(self, *arguments, **options)
        self.register_step_pre_hook(_require_gradients)

    return type(optimizer.__name__, (optimizer,), {"__init__": begin}), {**options, "params": list(groups.values())}


def _require_gradients(optimizer: Optimizer, *_: object) -> None:
    """Raises ValueError if no parameter has a gradient: the parameters of another model would be skipped."""
    if all(parameter.grad is None for group in optimizer.param_groups for parameter in group["params"]):
        raise ValueError("optimizer_cls_and_kwargs got a model that is not trained: pass None with model_init.")
