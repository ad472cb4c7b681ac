"""The rows of the tables. A field's metadata says how its column is headed and its numbers are written."""

from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar


def column(title: str, style: str = "", default: Any = None) -> Any:
    """A field of a row; `style` is a format specification."""
    return field(default=default, metadata={"title": title, "style": style})


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a table: what was measured, and the numbers or the failure."""

    TITLE: ClassVar[str] = ""
    NOTE: ClassVar[str] = ""

    failure: str | None = column("failure")

    def cells(self) -> dict[str, str]:
        """Column heading to text; an empty field is a dash."""
        texts = {}
        for part in sorted(fields(self), key=lambda part: part.name == "failure"):
            value = getattr(self, part.name)
            texts[part.metadata["title"]] = "–" if value is None else format(value, part.metadata["style"])
        return texts

    def failed(self, error: BaseException) -> "Row":
        """The same row with the error instead of numbers."""
        return replace(self, failure=" ".join(f"{type(error).__name__}: {error}".split())[:300])


@dataclass(frozen=True, kw_only=True)
class EmbeddingRow(Row):
    TITLE: ClassVar[str] = "Embedding a corpus"
    NOTE: ClassVar[str] = (
        "Text in, arrays of every layer out (AllenNLP's `batch_to_ids` and simple_elmo's own batching included). "
        "hf_elmo embeds all sentences with `hf_elmo.embed`, its cache of word vectors empty; the peers are slow, so "
        "their rate is that of evenly spaced batches of the same sentences in the same order, with as many words as "
        "the column says. Peak memory is that of the whole process since its start, so it includes corpora of this "
        "table that were embedded before. The smallest corpus on the first number of threads ran in several rounds, "
        "all engines in turn in each, and the best round counts (runs of more than 30 s, and the peers' slower batch "
        "sizes, ran once); the others ran once, the peers with the batches that were best there."
    )
    shape: str = column("shape")
    sentences: int = column("sentences", ",")
    threads: int = column("threads")
    engine: str = column("engine")
    arrangement: str = column("batches")
    words: int | None = column("words measured", ",")
    words_per_second: float | None = column("words/s", ",.0f")
    peak_mb: float | None = column("peak memory, MiB", ",.0f")


@dataclass(frozen=True, kw_only=True)
class SplitRow(Row):
    TITLE: ClassVar[str] = "Where the time goes"
    NOTE: ClassVar[str] = "hf_elmo embedding a corpus once more, with timers around its functions."
    shape: str = column("shape")
    engine: str = column("engine")
    threads: int = column("threads")
    words: int = column("words", ",")
    tokenizing: float | None = column("tokenizing", ".1%")
    characters: float | None = column("character CNN", ".1%")
    lstm: float | None = column("LSTM", ".1%")
    rest: float | None = column("rest", ".1%")


@dataclass(frozen=True, kw_only=True)
class ArithmeticRow(Row):
    TITLE: ClassVar[str] = "The LSTM's arithmetic"
    NOTE: ClassVar[str] = (
        "Both directions and all layers over 128 rows of 20 words, beside the matrix product of the machine "
        "(`torch.mm`, the best of 2048³, 4096³ and 128×512×16384), in turn in one process. The operations counted are "
        "those of the matrix products: for each word, direction and layer 2·(4C·2P + P·C)."
    )
    shape: str = column("shape")
    engine: str = column("engine")
    threads: int = column("threads")
    machine_gflops: float | None = column("torch.mm, GFLOP/s", ",.0f")
    lstm_gflops: float | None = column("LSTM, GFLOP/s", ",.0f")
    share: float | None = column("share", ".0%")


@dataclass(frozen=True, kw_only=True)
class AgreementRow(Row):
    TITLE: ClassVar[str] = "The same numbers"
    NOTE: ClassVar[str] = "Over all words and layers."
    what: str = column("what")
    model: str = column("model")
    words: int | None = column("words", ",")
    value: float | None = column("value", ".6g")


@dataclass(frozen=True, kw_only=True)
class EncoderRow(Row):
    TITLE: ClassVar[str] = "Beside transformers' encoders"
    NOTE: ClassVar[str] = (
        "Text in, arrays out: of all three layers (hf_elmo), of the last one (the others: BERT of that many layers and "
        "sizes, random weights). Word pieces are of a vocabulary of 30,522 that read books and this very text; "
        "sentences are sorted by length, in batches of 32 or 128, whichever is faster. All in turn, the best round "
        "counts. This is speed and nothing else: what the vectors are worth in a task is another matter, and there "
        "these encoders, trained as they are on billions of words, are better."
    )
    encoder: str = column("encoder")
    runtime: str = column("runtime")
    dtype: str = column("dtype")
    threads: int = column("threads")
    words: int | None = column("words", ",")
    tokens: int | None = column("tokens", ",")
    words_per_second: float | None = column("words/s", ",.0f")


@dataclass(frozen=True, kw_only=True)
class LatencyRow(Row):
    TITLE: ClassVar[str] = "One sentence"
    NOTE: ClassVar[str] = (
        "Median time from text to arrays of every layer: tokenizer and model (hf_elmo, its cache of word vectors "
        "empty), `batch_to_ids` and biLM (AllenNLP), `get_elmo_vectors` in an open session (simple_elmo)."
    )
    shape: str = column("shape")
    threads: int = column("threads")
    words: int = column("words")
    engine: str = column("engine")
    milliseconds: float | None = column("ms", ",.1f")


@dataclass(frozen=True, kw_only=True)
class OnnxRow(Row):
    TITLE: ClassVar[str] = "ONNX"
    NOTE: ClassVar[str] = (
        "The mix of the layers of 64 sentences in the order of the text, from precomputed character ids: the graph of "
        "`hf-elmo export --onnx` in onnxruntime, and the model with and without kernels, in turn in one process, "
        "float32, best of three rounds."
    )
    shape: str = column("shape")
    threads: int = column("threads")
    batch: int = column("sentences in a batch")
    torch: float | None = column("torch, words/s", ",.0f")
    plain: float | None = column("torch without kernels, words/s", ",.0f")
    onnxruntime: float | None = column("onnxruntime, words/s", ",.0f")
    difference: float | None = column("largest difference", ".1e")


@dataclass(frozen=True, kw_only=True)
class FinetuningRow(Row):
    TITLE: ClassVar[str] = "Fine-tuning"
    NOTE: ClassVar[str] = (
        "A classifier on the mean of the mixed layers, 32 sentences a step, from precomputed character ids: forward, "
        "backward, AdamW. hf_elmo: `ElmoForSequenceClassification`; AllenNLP: `Elmo(requires_grad=...)` and a linear "
        "layer."
    )
    shape: str = column("shape")
    bilm: str = column("biLM")
    engine: str = column("engine")
    threads: int = column("threads")
    steps_per_second: float | None = column("steps/s", ".3g")
    words_per_second: float | None = column("words/s", ",.0f")


@dataclass(frozen=True, kw_only=True)
class HeadRow(Row):
    TITLE: ClassVar[str] = "The heads of tasks"
    NOTE: ClassVar[str] = (
        "A step on 32 sentences from precomputed batches, AdamW: a bidirectional LSTM of 200 and its last states "
        "(classifier), two layers of it and a CRF of 9 labels (tagger). The biLM is frozen and computed at each step, "
        "frozen and read from layers that were stored once (`hf_elmo.store_layers`), or trained with the head. "
        "AllenNLP: its `BasicClassifier` and `CrfTagger` over its own `ElmoTokenEmbedder`."
    )
    shape: str = column("shape")
    head: str = column("head")
    bilm: str = column("biLM")
    engine: str = column("engine")
    threads: int = column("threads")
    steps_per_second: float | None = column("steps/s", ".3g")
    words_per_second: float | None = column("words/s", ",.0f")


@dataclass(frozen=True, kw_only=True)
class EpochRow(Row):
    TITLE: ClassVar[str] = "An epoch on stored layers"
    NOTE: ClassVar[str] = (
        "A linear classifier on the mean of the mixed layers, 32 sentences a step by `torch.utils.data.DataLoader`: an "
        "epoch on `input_ids`, storing the layers in float16, and an epoch on what is stored, best of two each."
    )
    shape: str = column("shape")
    engine: str = column("engine")
    threads: int = column("threads")
    words: int = column("words", ",")
    epoch_seconds: float | None = column("epoch, s", ".2f")
    store_seconds: float | None = column("storing, s", ".2f")
    stored_seconds: float | None = column("epoch on stored layers, s", ".3f")
    times: float | None = column("times as fast", ".1f")


@dataclass(frozen=True, kw_only=True)
class PretrainingRow(Row):
    TITLE: ClassVar[str] = "Pretraining"
    NOTE: ClassVar[str] = (
        "A step on windows of 128 × 20 words, from precomputed batches. hf_elmo: `ElmoForPreTraining`, state carried, "
        "sampled softmax, gradient clipping and Adagrad included, bfloat16 through autocast. AllenNLP: forward and "
        "backward of its biLM alone, on windows that make 20 positions with the boundaries it adds."
    )
    shape: str = column("shape")
    engine: str = column("engine")
    threads: int = column("threads")
    softmax: str | None = column("softmax")
    words_per_second: float | None = column("words/s", ",.0f")


@dataclass(frozen=True, kw_only=True)
class ScalingRow(Row):
    TITLE: ClassVar[str] = "Size of the corpus"
    NOTE: ClassVar[str] = "elmo-mini-en; lines of books, pooled to one vector a line."
    engine: str = column("engine")
    lines: int = column("lines", ",")
    words: int | None = column("words", ",")
    distinct: int | None = column("distinct words", ",")
    seconds: float | None = column("seconds", ",.1f")
    words_per_second: float | None = column("words/s", ",.0f")


@dataclass(frozen=True, kw_only=True)
class RepetitionRow(Row):
    TITLE: ClassVar[str] = "Repetition of words"
    NOTE: ClassVar[str] = (
        "Corpora of the same length with fewer and fewer distinct sentences, each embedded twice with one loaded model."
    )
    shape: str = column("shape")
    engine: str = column("engine")
    sentences: int = column("sentences", ",")
    different: int = column("distinct ones", ",")
    distinct: int | None = column("distinct words", ",")
    run: str = column("pass")
    words_per_second: float | None = column("words/s", ",.0f")
    character_share: float | None = column("character CNN", ".1%")


@dataclass(frozen=True, kw_only=True)
class MemoryRow(Row):
    TITLE: ClassVar[str] = "Memory"
    NOTE: ClassVar[str] = (
        "`hf_elmo.embed` from a file to a file, each in a process of its own. The model is a very small one (a cell "
        "of 16), so that a million lines finish in time; its own memory is the same in each row."
    )
    engine: str = column("engine")
    what: str = column("what")
    size: int = column("size", ",")
    words: int | None = column("words", ",")
    seconds: float | None = column("seconds", ",.1f")
    peak_mb: float | None = column("peak memory, MiB", ",.0f")


@dataclass(frozen=True, kw_only=True)
class ImportRow(Row):
    TITLE: ClassVar[str] = "Importing"
    NOTE: ClassVar[str] = "Median over new processes, the start of Python itself left out (`import_time.py`)."
    statement: str = column("statement")
    cpu_seconds: float | None = column("processor time, s", ".2f")
    seconds: float | None = column("waited, s", ".2f")


@dataclass(frozen=True, kw_only=True)
class LoadingRow(Row):
    TITLE: ClassVar[str] = "Loading a model"
    NOTE: ClassVar[str] = (
        "Medians over new processes: importing the libraries that the model needs, then loading the model from files "
        "in the disk cache (TensorFlow: until a session is ready)."
    )
    model: str = column("model")
    engine: str = column("engine")
    import_seconds: float | None = column("import, s", ".2f")
    load_seconds: float | None = column("load, s", ".2f")


@dataclass(frozen=True, kw_only=True)
class FirstCallRow(Row):
    TITLE: ClassVar[str] = "The first call of a process"
    NOTE: ClassVar[str] = (
        "One sentence of 25 words, hf_elmo float32 in new processes in turn, medians; the model is loaded before. With "
        "an empty cache of kernels the first process compiles them; every later one finds them."
    )
    model: str = column("model")
    kernels: str = column("kernels in C")
    first_seconds: float | None = column("first call, s", ".3f")
    later_seconds: float | None = column("later calls, s", ".3f")


KINDS: dict[str, type[Row]] = {kind.__name__: kind for kind in Row.__subclasses__()}
