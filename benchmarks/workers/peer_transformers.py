"""transformers' encoders behind the calls of `protocol.py`: random weights, WordPiece tokens, batches by length."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from protocol import seconds_of, serve
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

Batch = dict[str, np.ndarray]
STATE = {}


def load(folder: str, threads: int, layers: int, hidden: int, heads: int, dtype: str, runtime: str) -> None:
    """A BERT of a shape, with the tokenizer of `folder`; `runtime` is `torch` or `onnxruntime`."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    sizes = {"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads}
    config = BertConfig(vocab_size=len(tokenizer), intermediate_size=4 * hidden, **sizes)
    model = BertModel(config, add_pooling_layer=False).to(getattr(torch, dtype)).eval()
    STATE.update(tokenizer=tokenizer, run=_by_torch(model) if runtime == "torch" else _by_onnxruntime(model, folder))


def _by_torch(model: BertModel) -> Callable[[Batch], np.ndarray]:
    def run(batch: Batch) -> np.ndarray:
        with torch.inference_mode():
            tensors = {name: torch.from_numpy(array) for name, array in batch.items()}
            return model(**tensors).last_hidden_state.float().numpy()

    return run


def _by_onnxruntime(model: BertModel, folder: str) -> Callable[[Batch], np.ndarray]:
    import onnxruntime

    path = Path(folder, f"{model.config.num_hidden_layers}-{model.config.hidden_size}.onnx")
    if not path.exists():
        names, ids = ("input_ids", "attention_mask", "token_type_ids"), torch.ones(2, 8, dtype=torch.long)
        size = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
        options = {"input_names": names, "output_names": ["last_hidden_state"], "dynamo": True, "verbose": False}
        shapes = dict.fromkeys(names, size)
        torch.onnx.export(model, kwargs=dict.fromkeys(names, ids), dynamic_shapes=shapes, **options).save(str(path))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(str(path), options)
    return lambda batch: session.run(["last_hidden_state"], batch)[0]


def embed(sentences: list[str], batch_size: int) -> dict:
    """Text in, arrays of the last layer out; the sentences are sorted by their numbers of tokens."""
    for batch in _batches(sentences[: 2 * batch_size], batch_size):
        STATE["run"](batch)
    seconds = seconds_of(lambda: [STATE["run"](batch) for batch in _batches(sentences, batch_size)])
    return {"seconds": seconds, "tokens": sum(map(len, STATE["tokenizer"](sentences)["input_ids"]))}


def _batches(sentences: list[str], batch_size: int) -> list[Batch]:
    tokenizer = STATE["tokenizer"]
    ids = sorted(tokenizer(sentences, truncation=True, max_length=512)["input_ids"], key=len)
    parts = [ids[start : start + batch_size] for start in range(0, len(ids), batch_size)]
    padded = [tokenizer.pad({"input_ids": part}, return_tensors="np") for part in parts]
    return [dict(batch, token_type_ids=0 * batch["input_ids"]) for batch in padded]


def make_tokenizer(text: str, folder: str) -> None:
    """Learn as many word pieces as BERT has from a text, and save the tokenizer."""
    from tokenizers import BertWordPieceTokenizer

    pieces = BertWordPieceTokenizer()
    pieces.train([text], vocab_size=30_522, show_progress=False)
    special = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "sep", "cls", "pad", "mask")}
    PreTrainedTokenizerFast(tokenizer_object=pieces._tokenizer, **special).save_pretrained(folder)


if __name__ == "__main__":
    serve(globals())
