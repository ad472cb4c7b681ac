"""accelerate's hooks: weights that are on the disk or elsewhere until a module is called give the plain numbers."""

from pathlib import Path

import accelerate
import pytest
import torch
from accelerate import cpu_offload, disk_offload, dispatch_model

from hf_elmo import (
    CoreferenceCollator,
    ElmoConfig,
    ElmoForCoreferenceResolution,
    ElmoForPreTraining,
    ElmoForQuestionAnswering,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoModel,
    ElmoTokenClassificationPipeline,
    ElmoTokenizer,
    embed,
    encode_document,
)
from hf_elmo.modeling_pretraining_elmo import neighbor_labels

from .conftest import SENTENCES, TINY

ACCELERATE = tuple(map(int, accelerate.__version__.split(".")[:2]))
PARTS = ["char_encoder", "bilm.forward_layers.0", "bilm.forward_layers.1", "bilm.backward_layers", "scalar_mix"]
BILSTM = {"encoder_type": "bilstm", "encoder_hidden_size": 7}
TWICE = {**BILSTM, "elmo_at_output": True, "word_vectors_vocab_size": 6, "word_vectors_size": 4}
PAIRS = {"classifier_text_pairs": True}
FEATURES = {"coreference_speakers": True, "coreference_num_genres": 3}
SPANS = {"coreference_max_width": 4, "coreference_hidden_size": 9}
HEADS = {
    "no head": (ElmoModel, {}),
    "language models": (ElmoForPreTraining, {}),
    "classifier": (ElmoForSequenceClassification, {}),
    "attention": (ElmoForSequenceClassification, {**TWICE, "classifier_pooling": "attention"}),
    "biattentive": (ElmoForSequenceClassification, {**BILSTM, "encoder_type": "biattentive", **PAIRS}),
    "esim": (
        ElmoForSequenceClassification,
        {**TWICE, "encoder_type": "esim", **PAIRS, "classifier_hidden_size": 5},
    ),
    "tagger": (ElmoForTokenClassification, {}),
    "crf": (ElmoForTokenClassification, {**BILSTM, "tagging_crf": True}),
    "scheme": (ElmoForTokenClassification, {**TWICE, "tagging_scheme": "IOB2"}),
    "roles": (
        ElmoForTokenClassification,
        {**BILSTM, "encoder_type": "alternating", "encoder_num_layers": 2, "tagging_indicator_size": 3},
    ),
    "question answering": (ElmoForQuestionAnswering, {"encoder_hidden_size": 5}),
    "no answer": (ElmoForQuestionAnswering, {**TWICE, "encoder_type": "attention_flow", "allow_no_answer": True}),
    "coreference": (ElmoForCoreferenceResolution, SPANS),
    "coreference with speakers": (ElmoForCoreferenceResolution, {**TWICE, **SPANS, **FEATURES}),
}


def make(head: str) -> torch.nn.Module:
    model_class, settings = HEADS[head]
    torch.manual_seed(0)
    labels = {"id2label": {0: "O", 1: "B-x", 2: "I-x"}, "label2id": {"O": 0, "B-x": 1, "I-x": 2}}
    return model_class(ElmoConfig(**TINY, vocab_size=23, **labels, **settings)).eval()


def batch_of(model: torch.nn.Module) -> dict[str, object]:
    """What the head reads, with labels."""
    tokenizer = ElmoTokenizer(word_splitting="whitespace")
    tokenizer.words = ["the", "mat", "."] if getattr(model, "word_vectors", None) is not None else None
    if isinstance(model, ElmoForCoreferenceResolution):
        document = [sentence.split() for sentence in SENTENCES]
        row = encode_document(tokenizer, document, [[(0, 1), (5, 5)]], ["Ann", None, "Bob", "Ann"]) | {"genre_ids": 2}
        return dict(CoreferenceCollator(tokenizer)([row]))
    pairs = [SENTENCES[::-1]] if getattr(model, "reads_text_pairs", False) else []
    given = {"padding": True, "return_tensors": "pt", "return_special_tokens_mask": True}
    inputs = dict(tokenizer(SENTENCES, *pairs, **given))
    mask, words = inputs["attention_mask"], inputs["special_tokens_mask"] == 0
    if isinstance(model, ElmoForPreTraining):
        word_ids = torch.randint(3, 23, mask.shape, generator=torch.Generator().manual_seed(1))
        return inputs | {"labels": neighbor_labels(word_ids, mask), "output_logits": True}
    if isinstance(model, ElmoForTokenClassification):
        indicator = {"token_type_ids": ((words.cumsum(1) == 1) & words).long()} if model.indicator is not None else {}
        return inputs | indicator | {"labels": torch.ones_like(mask).masked_fill(~words, -100)}
    if isinstance(model, ElmoForQuestionAnswering):
        first = torch.tensor([len(sentence.split()) + 3 for sentence in SENTENCES])
        return inputs | {"start_positions": first, "end_positions": first}
    return inputs if isinstance(model, ElmoModel) else inputs | {"labels": torch.tensor([2, 0, 1, 1])}


def device_map(model: torch.nn.Module, offloaded: set[int], place: str = "disk") -> dict[str, str]:
    prefix = "" if isinstance(model, ElmoModel) else "elmo."
    parts = {f"{prefix}{part}": place if n in offloaded else "cpu" for n, part in enumerate(PARTS)}
    heads = [name for name, _ in model.named_children() if name not in ("elmo", "char_encoder", "bilm")]
    return parts | {f"{prefix}bilm.dropout": "cpu"} | {name: place for name in heads if name != "scalar_mix"}


WAYS = {
    "cpu_offload": lambda model, folder: cpu_offload(model, execution_device=torch.device("cpu")),
    "disk_offload": lambda model, folder: disk_offload(model, folder, execution_device=torch.device("cpu")),
    "dispatch_model": lambda model, folder: dispatch_model(
        model, device_map(model, {0, 2, 3}), main_device="cpu", offload_dir=folder
    ),
    "hooks only": lambda model, folder: dispatch_model(
        model, device_map(model, set(), "cpu"), main_device="cpu", force_hooks=True
    ),
    "from_pretrained": lambda model, folder: saved(model, folder, device_map(model, {0, 1, 4})),
    "everything on the disk": lambda model, folder: saved(model, folder, {"": "disk"}),
    "auto": lambda model, folder: saved(model, folder, "auto", max_memory={"cpu": 9000}),
}


def saved(model: torch.nn.Module, folder: Path, where: object, **settings: object) -> torch.nn.Module:
    model.save_pretrained(folder / "checkpoint")
    return type(model).from_pretrained(
        folder / "checkpoint", device_map=where, offload_folder=folder / "offloaded", **settings
    )


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("head", HEADS)
@torch.no_grad()
def test_offloaded_weights_give_the_plain_numbers(tmp_path: Path, head: str, way) -> None:
    if way in (WAYS["everything on the disk"], WAYS["auto"]) and ACCELERATE < (1, 15):
        pytest.skip("accelerate before 1.15 refuses to put all of a model on the disk")
    plain = make(head)
    inputs = batch_of(plain)
    model = way(make(head), tmp_path)
    called = sum("forward" in vars(module) for module in model.modules())
    assert called >= 5  # accelerate has put itself in front of the modules
    expected = plain(**inputs, output_hidden_states=True)
    found = model(**inputs, output_hidden_states=True)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, atol=1e-6, rtol=0)


@torch.no_grad()
def test_the_probabilities_of_an_offloaded_crf(tmp_path: Path) -> None:
    tags = []
    places = device_map(make("crf"), {1})  # a pipeline is on the device of the first one
    for model in (make("crf"), saved(make("crf"), tmp_path, places)):
        tag = ElmoTokenClassificationPipeline(model=model, tokenizer=ElmoTokenizer())
        tags.append([one for found in tag(SENTENCES, ignore_labels=[]) for one in found])
    for expected, found in zip(*tags, strict=True):
        assert found["entity"] == expected["entity"]
        assert found["score"] == pytest.approx(expected["score"])


# Language models read the layers of the biLM and not their mix, by a method of the ElmoModel: it can read other words
# backward than forward.
NEVER_CALLED = {"language models": {"elmo", "elmo.scalar_mix"}}


@pytest.mark.parametrize("head", HEADS)
@torch.no_grad()
def test_each_module_that_has_parameters_is_called(head: str) -> None:
    """So that what hooks on it do (offloading, sharding, pruning) has its effect."""
    model, called = make(head), set()
    modules = {name: module for name, module in model.named_modules() if any(True for _ in module.parameters())}
    modules = {name: module for name, module in modules.items() if not isinstance(module, torch.nn.ModuleList)}
    for name, module in modules.items():
        module.register_forward_hook(lambda *_, name=name: called.add(name))
    model(**batch_of(model))
    assert modules.keys() - called == NEVER_CALLED.get(head, set())


def test_what_reads_weights_beside_the_model_refuses_offloaded_ones(tmp_path: Path) -> None:
    model = disk_offload(make("no head"), tmp_path, execution_device=torch.device("cpu"))
    with pytest.raises(ValueError, match="offloaded"):
        embed(model, SENTENCES, tokenizer=ElmoTokenizer())


def test_a_sampled_softmax_refuses_an_offloaded_head(tmp_path: Path) -> None:
    model = ElmoForPreTraining(ElmoConfig(**TINY, vocab_size=23, num_sampled=7))
    model = disk_offload(model, tmp_path, execution_device=torch.device("cpu")).train()
    inputs = dict(ElmoTokenizer()(SENTENCES, padding=True, return_tensors="pt"))
    labels = neighbor_labels(torch.full_like(inputs["attention_mask"], 5), inputs["attention_mask"])
    with pytest.raises(ValueError, match=r"sampled softmax reads the weights of lm_head.*offloading"):
        model(**inputs, labels=labels)
