"""hf_elmo behind the calls of `protocol.py`: embedding and training, through its public interface."""

# ruff: noqa: E402, the imports are timed
import time

START = time.perf_counter()

import torch

from hf_elmo import ElmoModel, ElmoTokenizer

IMPORTED = time.perf_counter()

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any
from unittest import mock

import numpy as np
from protocol import median_of, seconds_of, serve, times_of
from torch.utils.data import DataLoader

import hf_elmo
from hf_elmo.modeling_elmo import Packing
from hf_elmo.spelling import Speller

STATE = {}
PRODUCTS = ((2048, 2048, 2048), (128, 512, 16384))
ROWS, STEPS = 128, 20


def load(folder: str, threads: int, dtype: str, precision: str = "highest") -> dict:
    """A checkpoint in a dtype, and its tokenizer. Training will be in float32, with autocast to that dtype.

    `precision`: of products in float32, as in `torch.set_float32_matmul_precision`.
    """
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision(precision)
    dtype = getattr(torch, dtype)
    start = time.perf_counter()
    model = ElmoModel.from_pretrained(folder, dtype=dtype).eval()
    loaded = time.perf_counter() - start
    tokenizer = ElmoTokenizer.from_pretrained(folder, word_splitting="whitespace")
    STATE.update(folder=folder, dtype=dtype, model=model, tokenizer=tokenizer)
    return {"import_seconds": IMPORTED - START, "load_seconds": loaded}


# -- embedding ---------------------------------------------------------------------------------------------------------


def _embed(sentences: list[str], layers: str = "all", **options: Any) -> Any:
    options |= {"tokenizer": STATE["tokenizer"], "pretokenized": True, "progress": False}
    return hf_elmo.embed(STATE["model"], sentences, layers=layers, **options)


def _forget_words() -> None:
    """Empty the cache of word vectors: times are those of text that is seen for the first time."""
    from hf_elmo.kernels.word_cache import clear

    clear()


def embed(batches: list[list[str]]) -> dict:
    """Text in, arrays of every layer out; `hf_elmo.embed` makes its own batches."""
    return _seconds_to_embed([sentence for batch in batches for sentence in batch])


def pooled(lines: list[str]) -> dict:
    """One vector a line, so that the result does not grow with the number of words."""
    return _seconds_to_embed(lines, layers="mix", pooling="mean")


def _seconds_to_embed(sentences: list[str], **options: Any) -> dict:
    _embed(sentences[:16])
    _forget_words()
    return {"seconds": seconds_of(lambda: _embed(sentences, **options))}


def latency(sentence: str, seconds: float) -> list[float]:
    """The times of one sentence: tokenizer, model, arrays of every layer."""
    return times_of(lambda: _one_sentence(sentence), seconds)


def first_call(sentence: str) -> dict:
    """Seconds of the first sentence with a model that is loaded, and of the fastest of later ones."""
    first = seconds_of(lambda: _one_sentence(sentence))
    return {"first_seconds": first, "later_seconds": min(latency(sentence, 0.3))}


def _one_sentence(sentence: str) -> None:
    _forget_words()
    with torch.inference_mode():
        output = STATE["model"](**STATE["tokenizer"](sentence, return_tensors="pt"), output_hidden_states=True)
        torch.stack(output.hidden_states).float().numpy()


@contextmanager
def _timers(calls: dict[str, list[tuple[Any, str]]]) -> Iterator[Counter[str]]:
    """The seconds that calls take in the block, by name; `calls` has the objects and their methods for each name."""
    seconds: Counter[str] = Counter()

    def timed(name: str, call: Callable) -> Callable:
        def run(*arguments: Any, **options: Any) -> Any:
            start = time.perf_counter()
            try:
                return call(*arguments, **options)
            finally:
                seconds[name] += time.perf_counter() - start

        return run

    with ExitStack() as stack:
        for name, places in calls.items():
            for owner, attribute in places:
                stack.enter_context(mock.patch.object(owner, attribute, timed(name, getattr(owner, attribute))))
        yield seconds


def split(sentences: list[str]) -> dict:
    """Shares of the time: words and characters of text, character CNN, LSTM, and the rest."""
    _embed(sentences[:16])
    _forget_words()
    calls = {
        "tokenizing": [(ElmoTokenizer, "split_into_words"), (Speller, "distinct")],
        "characters": [(STATE["model"].char_encoder, "forward")],
        "lstm": [(type(STATE["model"].bilm), way) for way in ("forward", "run_direction")],
    }
    with _timers(calls) as seconds:
        total = seconds_of(lambda: _embed(sentences))
    shares = {name: seconds[name] / total for name in calls}
    return {**shares, "rest": 1 - sum(shares.values())}


def two_passes(sentences: list[str]) -> list[dict]:
    """Seconds and the character CNN's share of a first and a second pass with a newly loaded model."""
    STATE["model"] = ElmoModel.from_pretrained(STATE["folder"], dtype=STATE["dtype"]).eval()
    _embed(["warm up"])
    results = []
    for _ in range(2):
        with _timers({"characters": [(STATE["model"].char_encoder, "forward")]}) as timers:
            seconds = seconds_of(lambda: _embed(sentences))
        results.append({"seconds": seconds, "character_share": timers["characters"] / seconds})
    return results


def arithmetic(rounds: int) -> dict:
    """Operations a second of `torch.mm` and of the biLM, in turn, the best of the rounds."""
    model = STATE["model"]
    packing = Packing.of(torch.ones(ROWS, STEPS, dtype=torch.bool))
    size, cell = model.config.projection_size, model.config.cell_size
    operations = 2 * model.config.num_hidden_layers * 2 * (4 * cell * 2 * size + size * cell) * ROWS * STEPS
    words = torch.randn(2, ROWS * STEPS, size, dtype=model.dtype)
    pairs = [(torch.randn(n, k, dtype=model.dtype), torch.randn(k, m, dtype=model.dtype)) for n, k, m in PRODUCTS]
    machine, lstm = 0.0, 0.0
    with torch.inference_mode():
        for _ in range(rounds):
            for (n, k, m), pair in zip(PRODUCTS, pairs, strict=True):
                machine = max(machine, 2 * n * k * m / _fastest(lambda pair=pair: torch.mm(*pair)))
            lstm = max(lstm, operations / _fastest(lambda: model.bilm(words, packing)))
    return {"machine_gflops": machine / 1e9, "lstm_gflops": lstm / 1e9, "share": lstm / machine}


def _fastest(call: Callable[[], Any]) -> float:
    return min(times_of(call, seconds=0.5, least=2))


def onnx(sentences: list[str], batch_size: int, rounds: int) -> dict:
    """Words a second of the exported graph in onnxruntime and of the model, with and without kernels, in turn; the
    largest difference of the graph from the model."""
    from hf_elmo.kernels import use

    session = _onnx_session()
    parts = [sentences[start : start + batch_size] for start in range(0, len(sentences), batch_size)]
    batches = [dict(STATE["tokenizer"](part, padding=True, return_tensors="np")) for part in parts]

    def by_model() -> list:
        _forget_words()
        with torch.inference_mode():
            tensors = [{name: torch.from_numpy(x) for name, x in batch.items()} for batch in batches]
            return [STATE["model"](**batch).last_hidden_state.numpy() for batch in tensors]

    def without_kernels() -> list:
        with use("off"):
            return by_model()

    def by_session() -> list:
        return [session.run(["last_hidden_state"], batch)[0] for batch in batches]

    difference = max(abs(x - y).max() for x, y in zip(by_model(), by_session(), strict=True))
    ways = {"torch": by_model, "plain": without_kernels, "onnxruntime": by_session}
    times = [[seconds_of(way) for way in ways.values()] for _ in range(rounds)]
    words = sum(len(sentence.split()) for sentence in sentences)
    rates = {name: words / min(ones) for name, ones in zip(ways, zip(*times, strict=True), strict=True)}
    return {**rates, "difference": float(difference)}


@cache
def _onnx_session() -> Any:
    """The loaded model in onnxruntime."""
    import onnxruntime

    from hf_elmo.conversion import export_onnx

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as folder:
        export_onnx(STATE["folder"], f"{folder}/model.onnx")
        return onnxruntime.InferenceSession(f"{folder}/model.onnx", options)


def smallest_cosine(sentences: list[str]) -> dict:
    """The smallest cosine between a word's vector in float32 and in bfloat16, over all words and layers."""
    cosines = []
    for wide, narrow in zip(_embed(sentences, dtype="float32"), _embed(sentences, dtype="bfloat16"), strict=True):
        lengths = np.linalg.norm(wide, axis=-1) * np.linalg.norm(narrow, axis=-1)
        cosines.append(((wide * narrow).sum(-1) / lengths).min())
    return {"value": float(min(cosines))}


def largest_difference(sentences: list[str]) -> dict:
    """The largest difference between a word's vectors with float32 products of the precisions "highest" and "high"."""
    vectors = []
    for precision in ("high", "highest"):
        torch.set_float32_matmul_precision(precision)
        vectors.append(_embed(sentences))
    return {"value": float(max(abs(x - y).max() for x, y in zip(*vectors, strict=True)))}


def make_tiny_model(folder: str) -> None:
    """Save a model that costs next to nothing, so that the code around it is measured."""
    sizes = {"char_embedding_size": 4, "char_filters": [[1, 4], [2, 4]], "hidden_size": 16, "cell_size": 16}
    ElmoModel(hf_elmo.ElmoConfig(**sizes, num_highway_layers=1)).save_pretrained(folder)
    ElmoTokenizer(word_splitting="whitespace").save_pretrained(folder)


def embed_file(folder: str, threads: int, source: str, output: str, pooling: str) -> dict:
    """A text file into a file of vectors, one row a line."""
    torch.set_num_threads(threads)
    start = time.perf_counter()
    corpus = hf_elmo.embed(folder, source, output, pooling=pooling, pretokenized=True, overwrite=True)
    return {"seconds": time.perf_counter() - start, "words": corpus.words}


# -- training ----------------------------------------------------------------------------------------------------------


def finetuning(sentences: list[str], unfrozen: bool, seconds: float) -> dict:
    """One step of a classifier on the mean of the mixed layers: forward, backward, AdamW."""
    return head_step(sentences, "mean", "trained" if unfrozen else "frozen", seconds)


def head_step(sentences: list[str], head: str, bilm: str, seconds: float) -> dict:
    """One step of a task's head on a batch: forward, backward, AdamW. `bilm`: frozen, stored or trained."""
    model, optimizer = _head(head, trained=bilm == "trained")
    inputs = next(iter(_batches(model, sentences, len(sentences), stored=bilm == "stored")))
    return {"seconds": median_of(lambda: _step(model, optimizer, inputs), seconds, least=2)}


def _head(head: str, trained: bool) -> tuple[Any, torch.optim.Optimizer]:
    """A model with a head in training mode, and its optimizer."""
    options = {"dtype": torch.float32, "freeze_bilm": not trained, "num_labels": 9 if head == "tagger" else 2}
    if head != "mean":
        options |= {"encoder_type": "bilstm", "encoder_hidden_size": 200}
    if head == "tagger":
        options |= {"tagging_crf": True, "encoder_num_layers": 2}
        model = hf_elmo.ElmoForTokenClassification.from_pretrained(STATE["folder"], **options).train()
    else:
        options |= {"classifier_pooling": "last"} if head == "classifier" else {}
        model = hf_elmo.ElmoForSequenceClassification.from_pretrained(STATE["folder"], **options).train()
    return model, torch.optim.AdamW(parameter for parameter in model.parameters() if parameter.requires_grad)


def _batches(model: Any, sentences: list[str], size: int, stored: bool) -> DataLoader:
    """Batches of sentences with labels, as Trainer would make them."""
    from datasets import Dataset

    tokenizer, rows = STATE["tokenizer"], dict(STATE["tokenizer"](sentences))
    if tagging := isinstance(model, hf_elmo.ElmoForTokenClassification):
        rows["labels"] = [[-100, *(place % 9 for place in range(len(row) - 2)), -100] for row in rows["attention_mask"]]
    else:
        rows["labels"] = [place % 2 for place in range(len(sentences))]
    dataset = Dataset.from_dict(rows)
    if stored:
        dataset = hf_elmo.store_layers(model, dataset)
    collator = hf_elmo.TaggingCollator if tagging else hf_elmo.LayersCollator
    return DataLoader(dataset, size, collate_fn=collator(tokenizer))


def _step(model: Any, optimizer: torch.optim.Optimizer, inputs: Any) -> None:
    inputs.pop("length", None)
    optimizer.zero_grad()
    with _autocast():
        loss = model(**inputs).loss
    loss.backward()
    optimizer.step()


def _autocast() -> torch.autocast:
    """Autocast to the engine's dtype; weights are in float32."""
    return torch.autocast("cpu", torch.bfloat16, enabled=STATE["dtype"] == torch.bfloat16)


def pretraining(text: str, vocabulary: str, num_sampled: int, seconds: float) -> dict:
    """One step of the published recipe on windows of 128 x 20 words, the state carried."""
    from hf_elmo.pretraining.data import PackedWindows
    from hf_elmo.pretraining.texts import TextFiles

    tokenizer = ElmoTokenizer.from_pretrained(vocabulary)
    batches = PackedWindows(TextFiles([text]), tokenizer, batch_size=ROWS, window=STEPS)
    sizes = {"vocab_size": len(batches.encoder.vocabulary), "num_sampled": num_sampled}
    model = hf_elmo.ElmoForPreTraining.from_pretrained(
        STATE["folder"], dtype=torch.float32, hidden_dropout=0.1, **sizes
    ).train()
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adagrad(parameters, lr=0.2, initial_accumulator_value=1.0, fused=True)
    windows = [batch for batch, _ in zip(batches, range(4), strict=False)]
    state, count = None, 0

    def step() -> None:
        nonlocal state, count
        count += 1
        optimizer.zero_grad()
        with _autocast():
            output = model(**windows[count % len(windows)], state=state, use_cache=True)
        (STEPS * output.loss).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 10.0)
        optimizer.step()
        state = tuple(part.detach() for part in output.state)

    return {"seconds": median_of(step, seconds)}


if __name__ == "__main__":
    serve(globals())
