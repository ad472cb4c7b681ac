"""Training steps of hf_elmo."""

from contextlib import AbstractContextManager
from typing import Any

from ours_embedding import STATE, forget_words
from protocol import median_of, seconds_of, times_of


def finetuning(sentences: list[str], unfrozen: bool, seconds: float) -> dict:
    """One step of a classifier on the mean of the mixed layers: forward, backward, AdamW."""
    import torch

    from hf_elmo import ElmoForSequenceClassification

    model = ElmoForSequenceClassification.from_pretrained(
        STATE["folder"], dtype=torch.float32, num_labels=2, freeze_bilm=not unfrozen
    ).train()
    optimizer = torch.optim.AdamW(parameter for parameter in model.parameters() if parameter.requires_grad)
    inputs = STATE["tokenizer"](sentences, padding=True, return_tensors="pt")
    labels = torch.arange(len(sentences)) % 2

    def step() -> None:
        optimizer.zero_grad()
        with _autocast():
            loss = model(**inputs, labels=labels).loss
        loss.backward()
        optimizer.step()

    return {"seconds": median_of(step, seconds, least=2)}


def head_step(sentences: list[str], head: str, bilm: str, seconds: float) -> dict:
    """One step of a task's head on a batch: forward, backward, AdamW. `bilm`: frozen, stored or trained."""
    import torch

    model = _head(head, trained=bilm == "trained").train()
    optimizer = torch.optim.AdamW(parameter for parameter in model.parameters() if parameter.requires_grad)
    inputs = next(iter(_batches(model, sentences, len(sentences), stored=bilm == "stored")))

    def step() -> None:
        _step(model, optimizer, inputs)

    return {"seconds": median_of(step, seconds, least=2)}


def _head(head: str, trained: bool) -> Any:
    import torch

    from hf_elmo import ElmoForSequenceClassification, ElmoForTokenClassification

    options = {"dtype": torch.float32, "freeze_bilm": not trained, "encoder_type": "bilstm", "encoder_hidden_size": 200}
    if head == "classifier":
        kind, options = ElmoForSequenceClassification, {**options, "num_labels": 2, "classifier_pooling": "last"}
    else:
        kind, options = ElmoForTokenClassification, {**options, "num_labels": 9, "tagging_crf": True}
        options["encoder_num_layers"] = 2
    return kind.from_pretrained(STATE["folder"], **options)


def _batches(model: Any, sentences: list[str], size: int, stored: bool) -> Any:
    """Batches of sentences with labels, of one kind, as Trainer would make them."""
    from datasets import Dataset
    from torch.utils.data import DataLoader
    from transformers import DataCollatorWithPadding

    from hf_elmo import TaggingCollator, store_layers

    tokenizer, tagging = STATE["tokenizer"], type(model).__name__ == "ElmoForTokenClassification"
    rows = dict(tokenizer(sentences))
    if tagging:
        rows["labels"] = [[-100, *(place % 9 for place in range(len(row) - 2)), -100] for row in rows["attention_mask"]]
    else:
        rows["labels"] = [number % 2 for number in range(len(sentences))]
    dataset = Dataset.from_dict(rows)
    if stored:
        dataset = store_layers(model, dataset)
    return DataLoader(dataset, size, collate_fn=(TaggingCollator if tagging else DataCollatorWithPadding)(tokenizer))


def _step(model: Any, optimizer: Any, inputs: Any) -> None:
    inputs.pop("length", None)
    optimizer.zero_grad()
    with _autocast():
        loss = model(**inputs).loss
    loss.backward()
    optimizer.step()


def epochs(sentences: list[str], batch: int) -> dict:
    """Seconds of an epoch on character ids and on stored layers, and of storing them."""
    import torch

    from hf_elmo import ElmoForSequenceClassification

    model = ElmoForSequenceClassification.from_pretrained(STATE["folder"], dtype=torch.float32, num_labels=2).train()
    optimizer = torch.optim.AdamW(parameter for parameter in model.parameters() if parameter.requires_grad)

    def epoch(batches: Any) -> None:
        forget_words()
        for inputs in batches:
            _step(model, optimizer, inputs)

    plain = _batches(model, sentences, batch, stored=False)
    forget_words()
    stored: list[Any] = []
    store_seconds = seconds_of(lambda: stored.append(_batches(model, sentences, batch, stored=True)))
    computed, read = (min(times_of(lambda x=x: epoch(x), 0.0, least=2)) for x in (plain, stored[0]))
    times = {"epoch_seconds": computed, "store_seconds": store_seconds, "stored_seconds": read}
    return {**times, "times": computed / read}


def pretraining(text: str, vocabulary: str, num_sampled: int, seconds: float) -> dict:
    """One step of the published recipe on windows of 128 x 20 words, the state carried."""
    import torch

    from hf_elmo import ElmoForPreTraining, ElmoTokenizer
    from hf_elmo.pretraining.data import PackedWindows
    from hf_elmo.pretraining.text import TextFiles

    tokenizer = ElmoTokenizer.from_pretrained(vocabulary)
    batches = PackedWindows(TextFiles([text]), tokenizer, batch_size=128, window=20)
    sizes = {"vocab_size": len(batches.encoder.vocabulary), "num_sampled": num_sampled}
    model = ElmoForPreTraining.from_pretrained(STATE["folder"], dtype=torch.float32, hidden_dropout=0.1, **sizes)
    model.train()
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adagrad(parameters, lr=0.2, initial_accumulator_value=1.0, fused=True)
    windows = [batch for batch, _ in zip(batches, range(4), strict=False)]
    state, number = None, 0

    def step() -> None:
        nonlocal state, number
        number += 1
        optimizer.zero_grad()
        with _autocast():
            output = model(**windows[number % len(windows)], state=state)
        (20 * output.loss).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 10.0)
        optimizer.step()
        state = tuple(part.detach() for part in output.state)

    return {"seconds": median_of(step, seconds), "words": windows[0]["labels"][..., 0].numel()}


def _autocast() -> AbstractContextManager:
    """Autocast to the engine's dtype; weights are in float32."""
    import torch

    return torch.autocast("cpu", torch.bfloat16, enabled=STATE["dtype"] == torch.bfloat16)


CALLS = (finetuning, head_step, epochs, pretraining)
