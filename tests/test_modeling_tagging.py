"""ElmoForTokenClassification: labels one to one with words, losses, the CRF's place, padding, checkpoints."""

from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor
from transformers import AutoModelForTokenClassification, Trainer, TrainingArguments
from transformers.loss.loss_utils import ForTokenClassification

from hf_elmo import ElmoConfig, ElmoForTokenClassification, ElmoModel, ElmoTokenizer, TaggingCollator
from tests.conftest import SENTENCES, TINY, random_labels, random_model

NAMES = ["O", "B-x", "I-x", "B-y", "I-y"]
FIELDS = {"id2label": dict(enumerate(NAMES)), "label2id": {n: i for i, n in enumerate(NAMES)}}
BILSTM = {"encoder_type": "bilstm", "encoder_hidden_size": 7}
HEADS = {
    "linear": {},
    "bilstm": {**BILSTM, "encoder_num_layers": 2},
    "crf": {"tagging_crf": True},
    "bilstm and crf": {**BILSTM, "tagging_crf": True, "tagging_scheme": "IOB2", "elmo_at_output": True},
}


def make(**changes: object) -> ElmoForTokenClassification:
    return random_model(ElmoConfig(**{**TINY, **FIELDS, **changes}), ElmoForTokenClassification)


@pytest.fixture
def inputs(tokenizer: ElmoTokenizer) -> dict[str, Tensor]:
    return tokenizer(SENTENCES, padding=True, return_tensors="pt")


def labels_of(inputs: dict[str, Tensor], seed: int = 0) -> Tensor:
    return random_labels(inputs["attention_mask"].bool() & (inputs["input_ids"][:, :, 1] < 257), seed)


@pytest.mark.parametrize("head", HEADS)
def test_shapes(inputs: dict, head: str) -> None:
    model, labels = make(**HEADS[head]), labels_of(inputs)
    output = model(**inputs, labels=labels, output_hidden_states=True)
    assert output.loss.shape == ()
    assert output.logits.shape == (*labels.shape, len(NAMES))
    assert (output.logits[labels == -100] == 0).all()
    assert [layer.shape for layer in output.hidden_states] == [(*labels.shape, 22)] * 3
    if "crf" in head:
        assert torch.equal(output.tags == -100, labels == -100)
        assert model.train()(**inputs).tags is None
    else:
        assert output.tags is None
    assert model(**inputs).loss is None


def test_the_linear_head(inputs: dict) -> None:
    model, labels = make(), labels_of(inputs)
    output = model(**inputs, labels=labels)
    vectors = model.elmo(**inputs).last_hidden_state
    expected = vectors @ model.classifier.weight.T + model.classifier.bias
    torch.testing.assert_close(output.logits[labels >= 0], expected[labels >= 0])
    nll = -output.logits.log_softmax(2)[labels >= 0].gather(1, labels[labels >= 0][:, None])
    torch.testing.assert_close(output.loss, nll.mean())


@pytest.mark.parametrize("scheme", [None, "IOB2"])
def test_a_loss_of_ones_own_is_the_one_that_is_trained(inputs: dict, scheme: str | None) -> None:
    model, labels = make(tagging_scheme=scheme), labels_of(inputs)
    model.loss_function = ForTokenClassification  # of transformers
    own, items = model(**inputs, labels=labels), int((labels >= 0).sum())
    torch.testing.assert_close(own.loss, model(**inputs, labels=labels, num_items_in_batch=items).loss)
    model.loss_function = lambda logits, labels, config, **kwargs: 3 * ForTokenClassification(logits, labels, config)
    torch.testing.assert_close(model(**inputs, labels=labels).loss, 3 * own.loss)
    torch.testing.assert_close(make(tagging_scheme=scheme)(**inputs, labels=labels).loss, own.loss)


def test_the_crf_reads_words_and_no_boundaries(inputs: dict) -> None:
    model, labels = make(**HEADS["crf"]), labels_of(inputs)
    output = model(**inputs, labels=labels)
    total = 0.0
    for row in range(len(labels)):
        here = labels[row] >= 0
        emissions, mask = output.logits[row][here][None], torch.ones(1, int(here.sum()), dtype=torch.bool)
        total -= model.crf.log_likelihood(emissions, mask, labels[row][here][None])
        assert torch.equal(output.tags[row][here], model.crf.decode(emissions, mask)[0])
    torch.testing.assert_close(output.loss, total[0] / (labels >= 0).sum())


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_sentence_alone_or_in_a_batch(tokenizer: ElmoTokenizer, head: str, side: str) -> None:
    model = make(**HEADS[head]).double()
    batch = tokenizer(SENTENCES, padding=True, padding_side=side, return_tensors="pt")
    together = model(**batch)
    for row, sentence in enumerate(SENTENCES):
        alone = model(**tokenizer(sentence, return_tensors="pt"))
        here = batch["attention_mask"][row].bool()
        torch.testing.assert_close(together.logits[row, here], alone.logits[0])
        if "crf" in head:
            assert torch.equal(together.tags[row, here], alone.tags[0])


@pytest.mark.parametrize("head", HEADS)
def test_parts_of_a_batch_add_up_to_the_whole(inputs: dict, head: str) -> None:
    model = make(**HEADS[head], scalar_mix_l2=0.1, encoder_dropout=0.0, classifier_dropout=0.0)
    labels = labels_of(inputs)
    torch.nn.init.normal_(model.elmo.scalar_mix.scalars)
    model.train()
    whole = model(**inputs, labels=labels).loss
    parts = [
        model(
            **{k: v[rows] for k, v in inputs.items()}, labels=labels[rows], num_items_in_batch=(labels >= 0).sum()
        ).loss
        for rows in (slice(0, 1), slice(1, 4))
    ]
    torch.testing.assert_close(sum(parts), whole)
    scalars = sum(value.square().sum() for name, value in model.named_parameters() if name.endswith("scalars"))
    torch.testing.assert_close(whole - model.eval()(**inputs, labels=labels).loss, 0.1 * scalars, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("head", HEADS)
def test_gradients_reach_every_parameter(inputs: dict, head: str) -> None:
    model = make(**HEADS[head], freeze_bilm=False).train()
    model(**inputs, labels=labels_of(inputs)).loss.backward()
    without = {name for name, parameter in model.named_parameters() if parameter.grad is None}
    assert not without
    zero = {name for name, p in model.named_parameters() if not p.grad.abs().sum()}
    assert not zero


@pytest.mark.parametrize("head", HEADS)
def test_a_checkpoint_and_the_auto_class(tmp_path: Path, inputs: dict, head: str) -> None:
    model = make(**HEADS[head])
    model.save_pretrained(tmp_path)
    again = AutoModelForTokenClassification.from_pretrained(tmp_path)
    assert type(again) is ElmoForTokenClassification
    assert {name: tensor.tolist() for name, tensor in again.state_dict().items()} == {
        name: tensor.tolist() for name, tensor in model.state_dict().items()
    }
    torch.testing.assert_close(again(**inputs).logits, model(**inputs).logits)
    if "crf" in head:
        assert torch.equal(again(**inputs).tags, model(**inputs).tags)


@pytest.mark.parametrize("head", HEADS)
def test_a_bilm_takes_a_new_head(tmp_path: Path, inputs: dict, head: str) -> None:
    bilm = random_model(ElmoConfig(**TINY))
    bilm.save_pretrained(tmp_path)
    model = ElmoForTokenClassification.from_pretrained(tmp_path, **FIELDS, **HEADS[head])
    torch.testing.assert_close(model.elmo(**inputs).last_hidden_state, bilm(**inputs).last_hidden_state)
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    assert model.config.num_labels == len(NAMES)
    if model.encoder is not None:
        forget = model.encoder.bilstm.lstm.bias_ih_l0.view(4, -1)
        assert (forget[1] == 1).all()
        assert not forget[[0, 2, 3]].any()


def test_constrained_tags_keep_to_the_scheme(inputs: dict) -> None:
    free, bound = make(**HEADS["crf"]), make(**HEADS["crf"], tagging_scheme="IOB2")
    bound.load_state_dict(free.state_dict())
    for model in (free, bound):
        model.crf.transitions.data[0, 2] = 9.0  # I-x after O
    assert torch.equal(free(**inputs).logits, bound(**inputs).logits)
    tags = bound(**inputs).tags
    after_o = tags[:, 1:][(tags[:, :-1] <= 0) & (tags[:, 1:] >= 0)]  # after O or <S>
    assert not ((after_o == 2) | (after_o == 4)).any()
    assert not torch.equal(free(**inputs).tags, tags)


def test_a_row_without_words(tokenizer: ElmoTokenizer) -> None:
    for head in HEADS.values():
        model = make(**head)
        batch = tokenizer(["", "a word"], padding=True, return_tensors="pt")
        output = model(**batch, labels=labels_of(batch))
        assert output.loss.isfinite()
        assert (output.logits[0] == 0).all()
        nothing = tokenizer(["", ""], padding=True, return_tensors="pt")
        loss = model(**nothing, labels=labels_of(nothing)).loss
        assert loss == 0
        loss.backward()


def test_labels_that_do_not_stand_at_words_are_refused(inputs: dict) -> None:
    model, labels = make(), labels_of(inputs)
    with pytest.raises(ValueError, match=r"labels has the shape \[4, 5\], but must be"):
        model(**inputs, labels=labels[:, :5])
    shifted = torch.cat((labels[:, 1:], labels[:, :1]), dim=1)
    with pytest.raises(ValueError, match=r"in row 0 at position 0, where no word is.*align_labels"):
        model(**inputs, labels=shifted)
    labels[0, 1] = 5
    with pytest.raises(ValueError, match="labels has 5, but must hold 0 to 4"):
        model(**inputs, labels=labels)


SEQUENCES = {
    "IOB1": (["I-x", "I-x", "O", "I-y"], "B-x", "'B-x' after 'O'"),
    "IOB2": (["B-x", "I-x", "O", "B-y"], "I-y", "'I-y' after 'O'"),
    "BIOES": (["S-x", "S-x", "O", "B-y"], "E-y", "'E-y' after 'O'"),
}


@pytest.mark.parametrize("crf", [True, False], ids=["crf", "constraints alone"])
@pytest.mark.parametrize("scheme", SEQUENCES)
def test_labels_that_the_scheme_forbids_are_refused(tokenizer: ElmoTokenizer, scheme: str, crf: bool) -> None:
    """As data of IOB1 that is taken for IOB2."""
    right, other, said = SEQUENCES[scheme]
    names = ["O", *sorted({name[:2] + kind for name in (*right, other) for kind in "xy"} - {"Ox", "Oy"})]
    ids = {name: number for number, name in enumerate(names)}
    model = make(tagging_scheme=scheme, tagging_crf=crf, id2label=dict(enumerate(names)), label2id=ids)
    encoded = tokenizer(["w x y z"] * 2, padding=True, return_tensors="pt")

    def loss(sequence: list[str | None]) -> Tensor:
        numbers = [-100 if name is None else ids[name] for name in sequence]
        labels = torch.tensor([[ids[name] for name in right], numbers])
        return model(**encoded, labels=torch.nn.functional.pad(labels, (1, 1), value=-100)).loss

    assert loss(right).isfinite()
    with pytest.raises(ValueError, match=rf"labels has {said} in row 1, which tagging_scheme '{scheme}' forbids"):
        loss([*right[:3], other])
    assert loss([*right[:2], None, other]).isfinite()  # what stands before it is not known
    assert loss([other, *right[2:3] * 3]).isfinite()  # a text that is cut


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"encoder_type": "biattentive"}, "encoder_type is 'biattentive'"),
        ({"classifier_text_pairs": True}, "classifier_text_pairs is True"),
        ({"tagging_scheme": "BIOES", "id2label": {0: "O", 1: "U-x"}, "label2id": None}, "label 'U-x'"),
    ],
)
def test_a_configuration_that_no_tagger_can_have(changes: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ElmoForTokenClassification(ElmoConfig(**{**TINY, **FIELDS, **changes}))


def test_a_pair_of_texts_is_refused(tokenizer: ElmoTokenizer) -> None:
    with pytest.raises(ValueError, match="row 0 of input_ids holds 2 texts"):
        make()(**tokenizer("a b", "c", return_tensors="pt"))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_label_smoothing_which_trains_no_crf_is_warned_of(
    tmp_path: Path, tokenizer: ElmoTokenizer, caplog, smoothing: float
) -> None:
    transformers.utils.logging.warning_once.cache_clear()
    model, encoded = make(tagging_crf=True), [tokenizer(text) for text in SENTENCES]
    rows = [{**row, "labels": [-100, *[1] * (len(row["input_ids"]) - 2), -100]} for row in encoded]
    settings = {"optim": "sgd", "save_strategy": "no", "report_to": [], "use_cpu": True, "disable_tqdm": True}
    arguments = TrainingArguments(tmp_path, max_steps=1, label_smoothing_factor=smoothing, **settings)
    before = model.crf.transitions.detach().clone()
    Trainer(model, arguments, TaggingCollator(tokenizer), rows).train()
    assert torch.equal(model.crf.transitions, before) == (smoothing > 0)
    assert ("does not train the CRF" in caplog.text) == (smoothing > 0)
    assert ("label_smoothing_factor, which must be 0" in caplog.text) == (smoothing > 0)


def test_the_bilm_is_frozen_by_default() -> None:
    model = make(**HEADS["bilstm and crf"])
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    assert frozen == {f"elmo.{name}" for name, _ in ElmoModel(model.config).named_parameters() if "mix" not in name}


@pytest.mark.parametrize("head", HEADS)
def test_accumulated_steps_without_any_label_have_no_loss(inputs: dict, head: str) -> None:
    model = make(**HEADS[head], scalar_mix_l2=0.1).train()
    labels = torch.full_like(inputs["attention_mask"], -100)
    loss = model(**inputs, labels=labels, num_items_in_batch=torch.tensor(0)).loss  # as Trainer counts
    loss.backward()
    assert loss.isfinite()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_a_word_without_a_label_may_stand_after_and_before_any(tokenizer: ElmoTokenizer) -> None:
    """Whatever the label 0 is."""
    names = {0: "I-x", 1: "O", 2: "B-x"}
    model = random_model(
        ElmoConfig(**TINY, id2label=names, tagging_crf=True, tagging_scheme="IOB2"), ElmoForTokenClassification
    )
    inputs = tokenizer("a b c d", return_tensors="pt")
    assert model(**inputs, labels=torch.tensor([[-100, 1, -100, 2, 0, -100]])).loss.isfinite()
    with pytest.raises(ValueError, match="labels has 'I-x' after 'O' in row 0"):
        model(**inputs, labels=torch.tensor([[-100, 2, 1, 0, 0, -100]]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_the_loss_of_half_precision_is_computed_in_float32(tokenizer: ElmoTokenizer, dtype: torch.dtype) -> None:
    model = random_model(ElmoConfig(**TINY, num_labels=3), ElmoForTokenClassification).to(dtype)
    output = model(**tokenizer("a b", return_tensors="pt"), labels=torch.tensor([[-100, 1, 2, -100]]))
    assert (output.logits.dtype, output.loss.dtype) == (dtype, torch.float32)
