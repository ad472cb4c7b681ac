"""Learning rates of their own for the biLM, the mixes and the word vectors, through Trainer's own argument."""

from typing import Any

from torch import nn
from transformers import Trainer, TrainingArguments


def learning_rates(
    model: nn.Module,
    arguments: TrainingArguments,
    *,
    bilm: float | None = None,
    mix: float | None = None,
    word_vectors: float | None = None,
) -> tuple[type, dict[str, Any]]:
    """
    The optimizer of `arguments` with learning rates of their own for parts of a model.

    Trainer schedules each rate as it does its own, and clips the gradients of all parts together (`max_grad_norm`).

    Args:
        model: with or without a head.
        arguments: name the optimizer, its settings, the weight decay and the learning rate of the head.
        bilm: of the character CNN and the biLM, where they are trained (`unfreeze_bilm`).
        mix: of the scalar mixes (s and gamma), which have no weight decay.
        word_vectors: of the word vectors beside ELMo.

    Returns:
        what `Trainer(optimizer_cls_and_kwargs=...)` takes, once: each Trainer needs its own.

    Raises:
        ValueError: a rate is negative, or given for a part that is not trained; or, when Trainer takes them, a part is
            trained that was frozen here.

    Example:

    ```python
    >>> rates = learning_rates(model, arguments, bilm=1e-4, mix=1e-2)
    >>> Trainer(model, arguments, optimizer_cls_and_kwargs=rates, ...)
    ```"""
    given = {"bilm": bilm, "mix": mix, "word_vectors": word_vectors}
    parts: dict[str, dict[bool, list[nn.Parameter]]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            part = _part_of(name)
            decays = part != "mix" and parameter.dim() > 1
            parts.setdefault(part, {}).setdefault(decays, []).append(parameter)
    for part, rate in given.items():
        if rate is not None and rate < 0:
            raise ValueError(f"{part} is {rate}, but a learning rate must be 0 or more.")
        if rate is not None and part not in parts:
            raise ValueError(
                f"{part} is {rate}, but the model trains no parameter of it: freeze_bilm, freeze_word_vectors and "
                "layer_weights of the configuration say what is trained."
            )
    optimizer, options = Trainer.get_optimizer_cls_and_kwargs(arguments, model)
    options = getattr(arguments, "own_optimizer_settings", {}) | options  # of pretraining's arguments
    groups = []
    for part, by_decay in parts.items():
        rate = arguments.learning_rate if given.get(part) is None else given[part]
        for decays, parameters in by_decay.items():
            decay = arguments.weight_decay if decays else 0.0
            groups.append({"params": parameters, "lr": rate, "weight_decay": decay})
    return optimizer, _OfOneTrainer(model, {**options, "params": groups})


class _OfOneTrainer(dict):
    """Options of an optimizer, out of which Trainer takes the groups: a second one would train at one rate, and what
    was unfrozen since then not at all."""

    def __init__(self, model: nn.Module, options: dict[str, Any]) -> None:
        super().__init__(options)
        self._model = model

    def __contains__(self, key: object) -> bool:
        found = super().__contains__(key)
        if key == "params":
            self._require_all(found)
        return found

    def _require_all(self, found: bool) -> None:
        """Refuses groups that were taken, or that lack a parameter which is trained (ValueError)."""
        if not found:
            raise ValueError("another Trainer has taken these learning rates: call learning_rates for each Trainer.")
        known = {id(parameter) for group in self["params"] for parameter in group["params"]}
        for name, parameter in self._model.named_parameters():
            if parameter.requires_grad and id(parameter) not in known:
                raise ValueError(
                    f"{name} is trained, but has no learning rate: it was frozen, or not there, when they were made. "
                    "Call learning_rates after unfreeze_bilm() and all else that changes the model."
                )


def _part_of(name: str) -> str:
    """The part that a parameter belongs to, by its name in any of the classes."""
    modules = name.split(".")
    for part, own in (("mix", ("scalar_mix", "output_mix")), ("bilm", ("char_encoder", "bilm"))):
        if set(own) & set(modules):
            return part
    return "word_vectors" if "word_vectors" in modules else "head"
