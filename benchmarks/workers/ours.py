"""hf_elmo behind the calls of `protocol.py`: embedding and training, through its public interface."""

from itertools import cycle
from typing import Any

import torch
from protocol import seconds_of, serve

import hf_elmo
from hf_elmo import ElmoModel, ElmoTokenizer, Vocabulary, neighbor_labels
from hf_elmo.kernels.tensors import cached_values
from hf_elmo.kernels.word_cache import WordVectors

STATE: dict[str, Any] = {}
NUM_SAMPLED = 8192


def load(folder: str, threads: int, dtype: str, device: str = "cpu") -> None:
    """A checkpoint in a dtype, and its tokenizer. Training will be in float32, with autocast to that dtype."""
    torch.set_num_threads(threads)
    dtype = getattr(torch, dtype)
    tokenizer = ElmoTokenizer.from_pretrained(folder, word_splitting="whitespace")
    STATE.update(folder=folder, dtype=dtype, tokenizer=tokenizer, device=device)
    STATE["model"] = ElmoModel.from_pretrained(folder, dtype=dtype).eval().to(device)


def forget_words() -> None:
    """For the time of text that is seen for the first time."""
    for value in cached_values():
        if isinstance(value, WordVectors):
            next(rows for rows in vars(value).values() if isinstance(rows, dict)).clear()  # by any version's name


def embed(batches: list[list[str]]) -> float:
    """Text in, arrays of every layer out; `hf_elmo.embed` makes its own batches."""
    sentences = [sentence for batch in batches for sentence in batch]
    options = {"tokenizer": STATE["tokenizer"], "pretokenized": True, "progress": False, "layers": "all"}

    def run() -> None:
        forget_words()
        hf_elmo.embed(STATE["model"], sentences, **options)

    return seconds_of(run)


def latency(sentence: str) -> float:
    """One sentence: tokenizer, model, arrays of every layer."""

    def run() -> None:
        forget_words()
        with torch.inference_mode():
            encoded = STATE["tokenizer"](sentence, return_tensors="pt").to(STATE["device"])
            output = STATE["model"](**encoded, output_hidden_states=True)
            torch.stack(output.hidden_states).float().cpu().numpy()

    return seconds_of(run)


def pretraining(windows: list[list[str]], vocabulary: str) -> float:
    """One step of bilm-tf's recipe, without the reading of text: the state is carried, the optimizer is Adagrad."""
    words = Vocabulary.of(ElmoTokenizer.from_pretrained(vocabulary))
    sizes = {"vocab_size": len(words), "num_sampled": NUM_SAMPLED, "hidden_dropout": 0.1}
    model = hf_elmo.ElmoForPreTraining.from_pretrained(STATE["folder"], dtype=torch.float32, **sizes).train()
    model.to(STATE["device"])
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adagrad(
        parameters, lr=0.2, initial_accumulator_value=1.0, fused=STATE["device"] == "cpu" or None
    )
    half = len(windows) // 2
    inputs = []
    for rows in (windows, windows[half:] + windows[:half]):
        ids = [[words.bos_id, *words.ids(row), words.eos_id] for row in rows]
        labels = neighbor_labels(torch.tensor(ids))
        encoded = STATE["tokenizer"](rows, is_split_into_words=True, return_tensors="pt").to(STATE["device"])
        inputs.append({**encoded, "labels": labels.to(STATE["device"])})
    batches, state = cycle(inputs), None

    def step() -> None:
        nonlocal state
        optimizer.zero_grad()
        with torch.autocast(STATE["device"], torch.bfloat16, enabled=STATE["dtype"] == torch.bfloat16):
            output = model(**next(batches), state=state, use_cache=True)
        (20 * output.loss).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 10.0)
        optimizer.step()
        state = tuple(part.detach() for part in output.state)

    return seconds_of(step)


if __name__ == "__main__":
    serve(globals())
