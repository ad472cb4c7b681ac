"""Training steps of hf_elmo."""

from contextlib import AbstractContextManager

from ours_embedding import STATE
from protocol import median_of


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


CALLS = (finetuning, pretraining)
