"""transformers' own encoders behind the calls of `protocol.py`: random weights, WordPiece tokens, batches by length."""

from pathlib import Path
from typing import Any

from protocol import seconds_of, serve

STATE = {}


def load(folder: str, threads: int, layers: int, hidden: int, heads: int, dtype: str, runtime: str) -> None:
    """A BERT of a shape, with the tokenizer of `folder`; `runtime` is `torch` or `onnxruntime`."""
    import torch
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    config = BertConfig(
        vocab_size=len(tokenizer),
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
    )
    model = BertModel(config, add_pooling_layer=False).to(getattr(torch, dtype)).eval()
    STATE.update(tokenizer=tokenizer, run=_by_torch(model) if runtime == "torch" else _by_onnxruntime(model, folder))


def _by_torch(model: Any) -> Any:
    import torch

    def run(batch: dict) -> Any:
        with torch.inference_mode():
            tensors = {name: torch.from_numpy(array) for name, array in batch.items()}
            return model(**tensors).last_hidden_state.float().numpy()

    return run


def _by_onnxruntime(model: Any, folder: str) -> Any:
    import onnxruntime
    import torch

    path = Path(folder, f"{model.config.num_hidden_layers}-{model.config.hidden_size}.onnx")
    if not path.exists():
        names, ids = ("input_ids", "attention_mask", "token_type_ids"), torch.ones(2, 8, dtype=torch.long)
        size = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
        program = torch.onnx.export(
            model,
            kwargs=dict.fromkeys(names, ids),
            input_names=names,
            output_names=["last_hidden_state"],
            dynamic_shapes=dict.fromkeys(names, size),
            dynamo=True,
            verbose=False,
        )
        program.save(str(path))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(str(path), options)
    return lambda batch: session.run(["last_hidden_state"], batch)[0]


def embed(sentences: list[str], batch_size: int) -> dict:
    """Text in, arrays of the last layer out; the sentences are sorted by their numbers of tokens."""
    batches = _batches(sentences[: 2 * batch_size], batch_size)
    for batch in batches:
        STATE["run"](batch)
    seconds = seconds_of(lambda: [STATE["run"](batch) for batch in _batches(sentences, batch_size)])
    tokens = sum(map(len, STATE["tokenizer"](sentences)["input_ids"]))
    return {"seconds": seconds, "tokens": tokens}


def _batches(sentences: list[str], batch_size: int) -> list[dict]:
    tokenizer = STATE["tokenizer"]
    found = tokenizer(sentences, truncation=True, max_length=512)["input_ids"]
    found.sort(key=len)
    pieces = [found[start : start + batch_size] for start in range(0, len(found), batch_size)]
    padded = [tokenizer.pad({"input_ids": ids}, return_tensors="np") for ids in pieces]
    return [dict(batch, token_type_ids=0 * batch["input_ids"]) for batch in padded]


def make_tokenizer(text: str, folder: str) -> None:
    """Learn BERT's number of word pieces from a text, and save its tokenizer."""
    from tokenizers import BertWordPieceTokenizer
    from transformers import PreTrainedTokenizerFast

    pieces = BertWordPieceTokenizer()
    pieces.train([text], vocab_size=30_522, show_progress=False)
    special = {"unk": "[UNK]", "sep": "[SEP]", "cls": "[CLS]", "pad": "[PAD]", "mask": "[MASK]"}
    names = {f"{name}_token": token for name, token in special.items()}
    PreTrainedTokenizerFast(tokenizer_object=pieces._tokenizer, **names).save_pretrained(folder)


if __name__ == "__main__":
    serve({call.__name__: call for call in (load, embed, make_tokenizer)})
