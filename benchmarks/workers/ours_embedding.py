"""Embedding with hf_elmo, measured through its public interface."""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from typing import Any
from unittest import mock

from protocol import seconds_of, times_of

STATE = {}
EMBED = {"layers": "all", "pretokenized": True, "progress": False}
PRODUCTS = ((2048, 2048, 2048), (4096, 4096, 4096), (128, 512, 16384))
ROWS, STEPS = 128, 20


def load(folder: str, threads: int, dtype: str, precision: str = "highest", constant_weights: bool = False) -> dict:
    """A checkpoint in a number type, and its tokenizer. Training will be in float32, with autocast to that type.

    `precision`: of products in float32, as `torch.set_float32_matmul_precision` has it.
    `constant_weights`: whether calls of the model run in such a block, as a server's would.
    """
    start = time.perf_counter()
    import torch

    from hf_elmo import ElmoModel, ElmoTokenizer

    imported = time.perf_counter()
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision(precision)
    STATE["model"] = ElmoModel.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
    loaded = time.perf_counter()
    STATE["tokenizer"] = ElmoTokenizer.from_pretrained(folder, word_splitting="whitespace")
    STATE.update(folder=folder, dtype=getattr(torch, dtype), constant_weights=constant_weights)
    return {"import_seconds": imported - start, "load_seconds": loaded - imported}


def forget_words() -> None:
    """Empty the cache of words' vectors, so that a time is that of text which comes for the first time."""
    from hf_elmo.kernels.word_cache import clear

    clear()


def _embed(sentences: list[str], **options: Any) -> Any:
    import hf_elmo

    return hf_elmo.embed(STATE["model"], sentences, tokenizer=STATE["tokenizer"], **{**EMBED, **options})


def embed(batches: list[list[str]]) -> dict:
    """Text in, arrays of every layer out; `hf_elmo.embed` makes batches of its own."""
    sentences = [sentence for batch in batches for sentence in batch]
    _embed(sentences[:16])
    forget_words()
    return {"seconds": seconds_of(lambda: _embed(sentences))}


def pooled(lines: list[str]) -> dict:
    """One vector a line, so that the result does not grow with the number of words."""
    _embed(lines[:16])
    forget_words()
    return {"seconds": seconds_of(lambda: _embed(lines, layers="mix", pooling="mean"))}


def latency(sentence: str, seconds: float) -> list[float]:
    """The times of one sentence: tokenizer, model, arrays of every layer."""
    from hf_elmo.kernels import constant_weights

    with constant_weights() if STATE["constant_weights"] else nullcontext():
        return times_of(_one_sentence(sentence), seconds)


def _one_sentence(sentence: str) -> Callable[[], None]:
    import torch

    model, tokenizer = STATE["model"], STATE["tokenizer"]

    def run() -> None:
        forget_words()
        with torch.inference_mode():
            output = model(**tokenizer(sentence, return_tensors="pt"), output_hidden_states=True)
            torch.stack(output.hidden_states).float().numpy()

    return run


def first_call(sentence: str) -> dict:
    """Seconds of the first sentence with a model that is loaded, and of the fastest of later ones."""
    run = _one_sentence(sentence)
    first = seconds_of(run)
    return {"first_seconds": first, "later_seconds": min(times_of(run, 0.3))}


def save_layers(sentences: list[str], path: str) -> None:
    """Write the layers of each sentence: arrays `0`, `1`, ... `[layers, words, 2P]`."""
    import numpy as np

    np.savez(path, **{str(number): array for number, array in enumerate(_embed(sentences))})


class Timers:
    """Seconds by name, of calls that are timed while the block runs."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._stack = ExitStack()

    def __enter__(self) -> "Timers":
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def wrap(self, name: str, owner: Any, attribute: str) -> None:
        """Count the time of `owner.attribute` under `name`."""
        call = getattr(owner, attribute)

        def timed(*arguments: Any, **options: Any) -> Any:
            start = time.perf_counter()
            try:
                return call(*arguments, **options)
            finally:
                self.seconds[name] += time.perf_counter() - start

        self._stack.enter_context(mock.patch.object(owner, attribute, timed))


def split(sentences: list[str]) -> dict:
    """Shares of the time: words and characters of text, character CNN, LSTM, and the rest."""
    from hf_elmo import ElmoTokenizer
    from hf_elmo.spelling import Speller

    _embed(sentences[:16])
    forget_words()
    with Timers() as timers:
        timers.wrap("tokenizing", ElmoTokenizer, "split_into_words")
        timers.wrap("tokenizing", Speller, "distinct")
        timers.wrap("characters", STATE["model"].char_encoder, "forward")
        for way in ("forward", "run_direction"):
            timers.wrap("lstm", type(STATE["model"].bilm), way)  # of the class: embed refuses a module's own forward
        total = seconds_of(lambda: _embed(sentences))
    shares = {name: timers.seconds[name] / total for name in ("tokenizing", "characters", "lstm")}
    return {**shares, "rest": 1 - sum(shares.values())}


def two_passes(sentences: list[str]) -> list[dict]:
    """Seconds and the character CNN's share of a first and a second pass with a newly loaded model."""
    from hf_elmo import ElmoModel

    STATE["model"] = ElmoModel.from_pretrained(STATE["folder"], dtype=STATE["dtype"]).eval()
    _embed(["warm up"])
    results = []
    for _ in range(2):
        with Timers() as timers:
            timers.wrap("characters", STATE["model"].char_encoder, "forward")
            seconds = seconds_of(lambda: _embed(sentences))
        results.append({"seconds": seconds, "character_share": timers.seconds["characters"] / seconds})
    return results


def arithmetic(rounds: int) -> dict:
    """Operations a second of `torch.mm` and of the biLM, in turn, the best of the rounds."""
    import torch

    from hf_elmo.packing_elmo import Packing

    model = STATE["model"]
    config, packing = model.config, Packing.of(torch.ones(ROWS, STEPS, dtype=torch.bool))
    words = torch.randn(2, ROWS * STEPS, config.projection_size, dtype=model.dtype)
    factors = [
        (torch.randn(rows, inner, dtype=model.dtype), torch.randn(inner, columns, dtype=model.dtype))
        for rows, inner, columns in PRODUCTS
    ]
    machine, lstm = 0.0, 0.0
    with torch.inference_mode():
        for _ in range(rounds):
            for shape, pair in zip(PRODUCTS, factors, strict=True):
                machine = max(machine, _rate(2 * shape[0] * shape[1] * shape[2], lambda pair=pair: torch.mm(*pair)))
            lstm = max(lstm, _rate(lstm_operations(config) * words.shape[1], lambda: model.bilm(words, packing)))
    return {"machine_gflops": machine / 1e9, "lstm_gflops": lstm / 1e9, "share": lstm / machine}


def _rate(operations: int, call: Callable[[], Any]) -> float:
    return operations / min(times_of(call, seconds=0.5, least=2))


def lstm_operations(config: Any) -> int:
    """Additions and multiplications of the products for one word, in both directions and all layers."""
    size, cell = config.projection_size, config.cell_size
    return 2 * config.num_hidden_layers * 2 * (4 * cell * 2 * size + size * cell)


def onnx(sentences: list[str], batch_size: int, rounds: int) -> dict:
    """Words a second of the exported graph in onnxruntime and of the model, with and without kernels, in turn; the
    largest difference of the graph from the model."""
    import numpy as np
    import onnxruntime
    import torch

    from hf_elmo.kernels import use

    tokenizer, model = STATE["tokenizer"], STATE["model"]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(_exported(), options)
    batches = [
        dict(tokenizer(sentences[n : n + batch_size], padding=True, return_tensors="np"))
        for n in range(0, len(sentences), batch_size)
    ]

    def by_model() -> list:
        forget_words()
        with torch.inference_mode():
            tensors = [{name: torch.from_numpy(x) for name, x in batch.items()} for batch in batches]
            return [model(**batch).last_hidden_state.numpy() for batch in tensors]

    def without_kernels() -> list:
        with use("off"):
            return by_model()

    def by_session() -> list:
        return [session.run(["last_hidden_state"], batch)[0] for batch in batches]

    difference = max(abs(x - y).max() for x, y in zip(by_model(), by_session(), strict=True))
    ways = {"torch": by_model, "plain": without_kernels, "onnxruntime": by_session}
    times = [[seconds_of(way) for way in ways.values()] for _ in range(rounds)]
    words = sum(len(sentence.split()) for sentence in sentences)
    rates = (words / min(one) for one in zip(*times, strict=True))
    return dict(zip(ways, rates, strict=True)) | {"difference": float(np.float64(difference))}


def _exported() -> str:
    """The loaded model as an ONNX file, made once."""
    if "onnx" not in STATE:
        import tempfile

        from hf_elmo.conversion import export_onnx

        STATE["onnx"] = tempfile.TemporaryDirectory()
        export_onnx(STATE["folder"], f"{STATE['onnx'].name}/model.onnx")
    return f"{STATE['onnx'].name}/model.onnx"


def smallest_cosine(sentences: list[str]) -> dict:
    """The smallest cosine between a word's vector in float32 and in bfloat16, over all words and layers."""
    import numpy as np

    cosines = []
    for wide, narrow in zip(_embed(sentences, dtype="float32"), _embed(sentences, dtype="bfloat16"), strict=True):
        lengths = np.linalg.norm(wide, axis=-1) * np.linalg.norm(narrow, axis=-1)
        cosines.append(((wide * narrow).sum(-1) / lengths).min())
    return {"value": float(min(cosines))}


def largest_difference(sentences: list[str]) -> dict:
    """The largest difference between a word's vectors with float32 products of the precisions "highest" and "high"."""
    import torch

    vectors = []
    for precision in ("highest", "high"):
        torch.set_float32_matmul_precision(precision)
        vectors.append(_embed(sentences))
    torch.set_float32_matmul_precision("highest")
    return {"value": float(max(abs(x - y).max() for x, y in zip(*vectors, strict=True)))}


def make_tiny_model(folder: str) -> None:
    """Save a model that costs next to nothing, so that the code around it is measured."""
    from hf_elmo import ElmoConfig, ElmoModel, ElmoTokenizer

    config = ElmoConfig(
        char_embedding_size=4, char_filters=[[1, 4], [2, 4]], hidden_size=16, cell_size=16, num_highway_layers=1
    )
    ElmoModel(config).save_pretrained(folder)
    ElmoTokenizer(word_splitting="whitespace").save_pretrained(folder)


def embed_file(folder: str, threads: int, source: str, output: str, pooling: str) -> dict:
    """A text file into a file of vectors, one row a line."""
    import torch

    import hf_elmo

    torch.set_num_threads(threads)
    start = time.perf_counter()
    corpus = hf_elmo.embed(folder, source, output, pooling=pooling, pretokenized=True, overwrite=True)
    return {"seconds": time.perf_counter() - start, "words": corpus.words}


CALLS = (
    load,
    embed,
    pooled,
    latency,
    first_call,
    save_layers,
    split,
    two_passes,
    arithmetic,
    onnx,
    smallest_cosine,
    largest_difference,
    make_tiny_model,
    embed_file,
)
