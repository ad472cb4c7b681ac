"""
The layouts of the checkpoints of each version, `VERSION.json`: texts, names of the code files, names and shapes of the
tensors, and a few numbers of the output with weights that a formula makes. A later version must load all of them.
"""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

import hf_elmo
from hf_elmo import (
    CoreferenceCollator,
    ElmoConfig,
    ElmoForCoreferenceResolution,
    ElmoForPreTraining,
    ElmoForQuestionAnswering,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoModel,
    ElmoTokenizer,
    encode_document,
    kernels,
)
from hf_elmo.tokenization_elmo import CharacterVocabulary

from ..conftest import TINY

FOLDER = Path(__file__).parent
TEXTS = ["The cat sat on the mat .", "Ünïcödé wörds 日本語"]
WEIGHTS = "model.safetensors"
TAGS = {"id2label": {0: "O", 1: "B-x", 2: "I-x"}, "tagging_crf": True, "tagging_scheme": "IOB2"}
WORDS = {"word_vectors_vocab_size": 6, "word_vectors_size": 5}
ROLES = {
    "encoder_type": "alternating",
    "encoder_num_layers": 3,
    "encoder_hidden_size": 7,
    "tagging_indicator_size": 4,
    "tagging_crf": False,
}
COREFERENCE = {"coreference_hidden_size": 6, "coreference_feature_size": 3, "coreference_speakers": True}


def cases() -> dict[str, tuple[type[PreTrainedModel], dict[str, Any]]]:
    """Of each checkpoint the class and the fields of its configuration; between them they have every kind of file."""
    encoder = {"encoder_type": "bilstm", "encoder_hidden_size": 7}
    return {
        "biLM": (ElmoModel, {"num_scalar_mixes": 2}),
        "biLM of other characters and words": (
            ElmoModel,
            {"char_units": "unicode", "word_vocab_size": 7, "word_embedding_size": 3},
        ),
        "classifier": (ElmoForSequenceClassification, {"num_labels": 3, **encoder, "elmo_at_output": True}),
        "tagger": (ElmoForTokenClassification, {**TAGS, **encoder, **WORDS}),
        "tagger of semantic roles": (ElmoForTokenClassification, {**TAGS, **ROLES}),
        "answers to questions": (ElmoForQuestionAnswering, {"encoder_hidden_size": 7, "allow_no_answer": True}),
        "resolver of coreference": (ElmoForCoreferenceResolution, {**encoder, **COREFERENCE}),
        "language models": (ElmoForPreTraining, {"vocab_size": 4}),
    }


def save(name: str, folder: Path) -> None:
    """Write a checkpoint of this version."""
    model_class, fields = cases()[name]
    tokenizer = ElmoTokenizer()
    if "characters" in name:
        tokenizer = ElmoTokenizer(word_splitting="whitespace")
        tokenizer.character_vocab = CharacterVocabulary(list("aceht"), ["cat", "The", "."])
    if "word_vectors_size" in fields:
        tokenizer.words = ["cat", "the", "."]
    if "vocab_size" in fields:
        (folder / "words").mkdir(parents=True)
        (folder / "words" / "vocab.txt").write_text("<S>\n</S>\n<UNK>\ncat\n", encoding="utf-8")
        tokenizer = ElmoTokenizer(vocab_file=str(folder / "words" / "vocab.txt"))
    model_class(ElmoConfig(**TINY, **fields)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if "vocab_size" in fields:
        (folder / "words" / "vocab.txt").unlink()
        (folder / "words").rmdir()


def layout_of(folder: Path) -> dict[str, Any]:
    """What a folder holds: its texts, the names of its code files, and its tensors' shapes."""
    names = sorted(path.name for path in folder.iterdir())
    texts = {name: (folder / name).read_text(encoding="utf-8") for name in names if name.endswith((".json", ".txt"))}
    return {
        "texts": {name: json.loads(text) if name.endswith(".json") else text for name, text in texts.items()},
        "code": [name for name in names if name.endswith(".py")],
        "tensors": {key: list(tensor.shape) for key, tensor in sorted(load_file(folder / WEIGHTS).items())},
    }


def write(layout: dict[str, Any], folder: Path) -> dict[str, torch.Tensor]:
    """A checkpoint with a layout, without its code; returns its weights."""
    folder.mkdir()
    for name, text in layout["texts"].items():
        text = json.dumps(text, ensure_ascii=False) if name.endswith(".json") else text
        (folder / name).write_text(text, encoding="utf-8")
    tensors = {key: weights(key, shape) for key, shape in layout["tensors"].items()}
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    return tensors


def weights(key: str, shape: list[int]) -> torch.Tensor:
    """Numbers between -0.5 and 0.5 that depend on the name and on the place alone, in any version of any library."""
    start = sum(key.encode())
    numbers = 0.5 * np.sin(0.7 * np.arange(int(np.prod(shape))) + start)
    tensor = torch.from_numpy(numbers.astype(np.float32)).reshape(shape)
    if key.endswith("char_encoder.embedding.weight"):
        tensor[0] = 0  # the padded position
    return tensor


def _batch(model: PreTrainedModel, tokenizer: ElmoTokenizer) -> Mapping[str, torch.Tensor]:
    """`TEXTS` as the model takes them."""
    if isinstance(model, ElmoForCoreferenceResolution):
        return CoreferenceCollator(tokenizer)([encode_document(tokenizer, "\n".join(TEXTS), speakers=["Ann", "Bob"])])
    if isinstance(model, ElmoForQuestionAnswering):
        return tokenizer(TEXTS, TEXTS[::-1], padding=True, return_tensors="pt")
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    if model.config.tagging_indicator_size is not None:
        batch["token_type_ids"] = torch.zeros(batch["input_ids"].shape[:2], dtype=torch.int64)
        batch["token_type_ids"][:, 2] = 1
    return batch


def output(folder: Path) -> list[float]:
    """A few numbers of what the checkpoint gives for `TEXTS`."""
    config = json.loads((folder / "config.json").read_text())
    model = getattr(hf_elmo, config["architectures"][0]).from_pretrained(folder).eval()
    with torch.no_grad(), kernels.use("off"):
        result = model(**_batch(model, ElmoTokenizer.from_pretrained(folder)))
    names = "logits", "start_logits", "antecedent_scores", "forward_logits", "last_hidden_state"
    numbers = result[next(name for name in names if name in result)].flatten()
    numbers = numbers[numbers > torch.finfo(numbers.dtype).min]  # places that no word may be found at
    return numbers[:: max(1, len(numbers) // 12)][:12].tolist()


def describe() -> Path:
    """Write the layouts of this version."""
    found = {}
    for name in cases():
        with tempfile.TemporaryDirectory() as folder:
            save(name, Path(folder, "saved"))
            found[name] = layout_of(Path(folder, "saved"))
            write(found[name], Path(folder, "written"))
            found[name]["output"] = [round(number, 7) for number in output(Path(folder, "written"))]
    file = FOLDER / f"{hf_elmo.__version__}.json"
    file.write_text(json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
    return file
