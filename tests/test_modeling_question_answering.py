"""ElmoForQuestionAnswering: the attention flow by loops, losses, padding, checkpoints, answers that cannot be."""

from pathlib import Path

import pytest
import torch
from datasets import Dataset
from torch import Tensor, nn
from transformers import AutoModelForQuestionAnswering, DataCollatorWithPadding, Trainer, TrainingArguments

from hf_elmo import (
    ElmoConfig,
    ElmoForQuestionAnswering,
    ElmoForSequenceClassification,
    ElmoModel,
    ElmoTokenizer,
    store_layers,
)
from hf_elmo.encoders_elmo import ElmoBiLSTM
from tests.conftest import TINY, random_model

QUESTIONS = ["Who ran ?", "What", "Where did the 日本 cat sit ?", "Is it so"]
PASSAGES = ["The cat ran far away .", "A", "The cat sat on the mat , not in it .", "No rain at all"]
STARTS, ENDS = torch.tensor([7, 4, 14, 6]), torch.tensor([8, 4, 15, 9])  # cat ran; A; the mat; No rain at all
WORDS = ["the", "cat", "rain", "on"]
VECTORS = {"word_vectors_vocab_size": len(WORDS) + 3, "word_vectors_size": 6}
FLOW = {"encoder_type": "attention_flow"}
HEADS = {
    "plain": {},
    "ELMo twice": {**FLOW, "elmo_at_output": True},
    "no answer": {**FLOW, "allow_no_answer": True, "encoder_num_layers": 2},
    "word vectors": {**FLOW, **VECTORS, "elmo_at_output": True, "allow_no_answer": True},
    "no ELMo": {**FLOW, **VECTORS, "use_elmo": False, "elmo_at_output": True},
}
OFF = {"encoder_dropout": 0.0, "classifier_dropout": 0.0}


def make(**changes: object) -> ElmoForQuestionAnswering:
    model = random_model(ElmoConfig(**{**TINY, "encoder_hidden_size": 5, **changes}), ElmoForQuestionAnswering)
    with torch.no_grad():  # so that attention is far from even
        for name, parameter in model.named_parameters():
            if "similarity" in name:
                parameter.mul_(4)
    return model


@pytest.fixture
def tokenizer(tokenizer: ElmoTokenizer) -> ElmoTokenizer:
    tokenizer.words = WORDS
    return tokenizer


@pytest.fixture
def inputs(tokenizer: ElmoTokenizer) -> dict[str, Tensor]:
    return tokenizer(QUESTIONS, PASSAGES, padding=True, return_tensors="pt")


@pytest.mark.parametrize("head", HEADS)
def test_shapes(inputs: dict, head: str) -> None:
    model = make(**HEADS[head])
    output = model(**inputs, start_positions=STARTS, end_positions=ENDS, output_hidden_states=True)
    positions = inputs["attention_mask"].shape
    lowest = torch.finfo(torch.float32).min
    assert output.loss.shape == ()
    for logits in (output.start_logits, output.end_logits):
        assert logits.shape == positions
        for row, (question, passage) in enumerate(zip(QUESTIONS, PASSAGES, strict=True)):
            first, words = len(question.split()) + 3, len(passage.split())
            of_no_answer = [0] if "allow_no_answer" in HEADS[head] else []
            expected = [*of_no_answer, *range(first, first + words)]
            assert (logits[row] > lowest).nonzero()[:, 0].tolist() == expected
    if head == "no ELMo":
        assert output.hidden_states is None
    else:
        assert [layer.shape for layer in output.hidden_states] == [(*positions, 22)] * 3
    assert model(**inputs).loss is None
    assert len(model(**inputs, return_dict=False)) == 2


# -- by loops ----------------------------------------------------------------------------------------------------------


def plain_bilstm(module: ElmoBiLSTM, words: Tensor) -> Tensor:
    """A sentence alone, `[words, size]`, through torch's LSTM without packing."""
    return nn.LSTM.forward(module.lstm, words[:, None])[0][:, 0]


def softmax(scores: list[Tensor]) -> list[Tensor]:
    powers = [score.exp() for score in scores]
    return [power / sum(powers) for power in powers]


def plain_flow(model: ElmoForQuestionAnswering, passage: Tensor, question: Tensor) -> Tensor:
    """Each pair of words by itself: Seo et al. 2017, section 2, equations 1 to 3 (with the projection of Clark and
    Gardner)."""
    w = model.flow.similarity
    scores = [[w.of_x @ h + w.of_y @ u + w.of_both @ (h * u) for u in question] for h in passage]
    sought = sum(weight * h for weight, h in zip(softmax([max(row) for row in scores]), passage, strict=True))
    rows = []
    for h, row in zip(passage, scores, strict=True):
        found = sum(weight * u for weight, u in zip(softmax(row), question, strict=True))
        rows.append(model.flow.projection(torch.cat((h, found, h * found, h * sought))).clamp(min=0))
    return torch.stack(rows)


def plain_self_attention(model: ElmoForQuestionAnswering, passage: Tensor) -> Tensor:
    attention, rows = model.self_attention, []
    read, w = plain_bilstm(attention.bilstm, passage), attention.similarity
    for i, h in enumerate(read):
        others = [u for j, u in enumerate(read) if j != i]
        weights = softmax([w.of_y @ u + w.of_both @ (h * u) for u in others])
        found = sum((weight * u for weight, u in zip(weights, others, strict=True)), torch.zeros_like(h))
        rows.append(passage[i] + attention.projection(torch.cat((h, found, h * found))).clamp(min=0))
    return torch.stack(rows)


def plain_scores(model: ElmoForQuestionAnswering, passage: Tensor) -> tuple[list[Tensor], list[Tensor], Tensor | None]:
    """The scores of starts, of ends and of no answer."""
    span = model.span
    first = plain_bilstm(span.start_bilstm, passage)
    last = plain_bilstm(span.end_bilstm, torch.cat((passage, first), dim=1))
    start, end = [span.start.weight[0] @ h for h in first], [span.end.weight[0] @ h for h in last]
    if span.no_answer is None:
        return start, end, None
    parts = [(start, first), (end, last), ([span.attention.score.weight[0] @ h for h in passage], passage)]
    found = [sum(w * h for w, h in zip(softmax(scores), words, strict=True)) for scores, words in parts]
    return start, end, span.no_answer(span.hidden(torch.cat(found)).clamp(min=0))[0]


@pytest.mark.parametrize("head", HEADS)
def test_the_network_is_the_one_of_the_papers(inputs: dict, head: str) -> None:
    model = make(**HEADS[head]).double()
    output = model(**inputs, start_positions=STARTS, end_positions=ENDS)
    read = model.read_words(**inputs, text_pairs=True)
    losses = []
    for row, (a, b) in enumerate(zip(STARTS.tolist(), ENDS.tolist(), strict=True)):
        texts = []
        for number in (1, 2):
            here = read.words[row] & (read.texts[row] == number)
            text = plain_bilstm(model.encoder.bilstm, read.vectors[row, here])
            again = read.elmo_at_output
            texts.append(text if again is None else torch.cat((text, again[row, here]), dim=1))
        question, passage = texts
        passage = plain_self_attention(model, plain_flow(model, passage, question))
        start, end, no_answer = plain_scores(model, passage)
        first, words = len(question) + 3, len(passage)
        torch.testing.assert_close(output.start_logits[row, first : first + words], torch.stack(start))
        torch.testing.assert_close(output.end_logits[row, first : first + words], torch.stack(end))
        every = [s + e for s in start for e in end]  # Clark and Gardner's normalizer: of every start with every end
        if no_answer is not None:
            torch.testing.assert_close(output.start_logits[row, 0] + output.end_logits[row, 0], no_answer)
            every.append(no_answer)
        losses.append(sum(score.exp() for score in every).log() - start[a - first] - end[b - first])
    torch.testing.assert_close(output.loss, sum(losses) / 4)


def test_the_loss_is_that_of_both_ends(inputs: dict) -> None:
    """Without `no answer` it is twice that of transformers' other models, which take the mean of both ends."""
    from transformers.loss.loss_utils import ForQuestionAnsweringLoss

    output = make()(**inputs, start_positions=STARTS, end_positions=ENDS)
    expected = 2 * ForQuestionAnsweringLoss(output.start_logits, output.end_logits, STARTS, ENDS)
    torch.testing.assert_close(output.loss, expected)


def test_no_answer_has_its_probability(inputs: dict) -> None:
    model = make(**HEADS["no answer"]).double()
    nothing = torch.zeros(4, dtype=torch.int64)
    output = model(**inputs, start_positions=nothing, end_positions=nothing)
    probabilities = []
    for row in range(4):
        scores = {}
        places = (output.start_logits[row] > -1e30).nonzero()[1:, 0].tolist()
        for a in places:
            scores |= {(a, b): output.start_logits[row, a] + output.end_logits[row, b] for b in places}
        no_answer = (output.start_logits[row, 0] + output.end_logits[row, 0]).exp()
        probabilities.append(no_answer / (no_answer + sum(score.exp() for score in scores.values())))
    torch.testing.assert_close(output.loss, -torch.stack(probabilities).log().mean())


# -- batches -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_passage_alone_or_in_a_batch(tokenizer: ElmoTokenizer, head: str, side: str, dtype: str) -> None:
    """Positions count without padding, so that answers are where they are on either side."""
    if dtype == "float64":
        model, bound = make(**HEADS[head]).double(), 1e-12
    else:  # the weights of a new model, which do not enlarge a rounding
        torch.manual_seed(0)
        config = ElmoConfig(**{**TINY, "encoder_hidden_size": 5, **HEADS[head]})
        model, bound = ElmoForQuestionAnswering(config).eval(), 1e-6
    given = {"padding": "max_length", "max_length": 25, "padding_side": side, "return_tensors": "pt"}
    together = model(**tokenizer(QUESTIONS, PASSAGES, **given), start_positions=STARTS, end_positions=ENDS)
    losses = []
    for row, pair in enumerate(zip(QUESTIONS, PASSAGES, strict=True)):
        encoded = tokenizer(*pair, return_tensors="pt")
        alone = model(**encoded, start_positions=STARTS[row, None], end_positions=ENDS[row, None])
        length = encoded["attention_mask"].shape[1]
        for name in ("start_logits", "end_logits"):
            torch.testing.assert_close(together[name][row, :length], alone[name][0], atol=bound, rtol=0)
            assert (together[name][row, length:] == torch.finfo(model.dtype).min).all()
        losses.append(alone.loss)
    torch.testing.assert_close(together.loss, sum(losses) / 4, atol=bound, rtol=bound)


@pytest.mark.parametrize("head", HEADS)
def test_parts_of_a_batch_add_up_to_the_whole(inputs: dict, head: str) -> None:
    model = make(**HEADS[head], **OFF, scalar_mix_l2=0.1)
    mixes = [value for name, value in model.named_parameters() if name.endswith("scalars")]
    for number, scalars in enumerate(mixes):
        torch.nn.init.constant_(scalars, number + 1.0)
    model.train()
    starts, ends = STARTS.clone(), ENDS.clone()
    starts[1] = ends[1] = -100
    whole = model(**inputs, start_positions=starts, end_positions=ends).loss
    parts = [
        model(
            **{key: value[rows] for key, value in inputs.items()},
            start_positions=starts[rows],
            end_positions=ends[rows],
            num_items_in_batch=3,
        ).loss
        for rows in (slice(0, 1), slice(1, 4))
    ]
    torch.testing.assert_close(sum(parts), whole)
    penalty = 0.1 * sum(3 * (number + 1.0) ** 2 for number in range(len(mixes)))
    without = model.eval()(**inputs, start_positions=starts, end_positions=ends).loss
    torch.testing.assert_close(whole - without, torch.tensor(penalty), atol=1e-5, rtol=1e-5)


def train(folder: Path, model: ElmoForQuestionAnswering, rows: Dataset, tokenizer, **given: object) -> dict:
    arguments = TrainingArguments(
        folder,
        learning_rate=0.05,
        optim="sgd",
        seed=5,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        **{"num_train_epochs": 3, **given},
    )
    Trainer(model, arguments, DataCollatorWithPadding(tokenizer), rows).train()
    return {name: weight.clone() for name, weight in model.named_parameters() if weight.requires_grad}


@pytest.fixture
def rows(tokenizer: ElmoTokenizer) -> Dataset:
    labels = {"start_positions": STARTS.tolist(), "end_positions": ENDS.tolist()}
    return Dataset.from_dict({**tokenizer(QUESTIONS, PASSAGES), **labels})


def test_accumulated_gradients_are_those_of_the_whole_batch(tmp_path: Path, tokenizer, rows: Dataset) -> None:
    fields = {**HEADS["word vectors"], **OFF}
    whole = train(tmp_path, make(**fields), rows, tokenizer, per_device_train_batch_size=4)
    small = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}
    parts = train(tmp_path, make(**fields), rows, tokenizer, **small)
    before = dict(make(**fields).named_parameters())
    for name, weight in whole.items():
        torch.testing.assert_close(parts[name], weight, atol=1e-6, rtol=1e-5, msg=name)
    assert not torch.equal(whole["span.start.weight"], before["span.start.weight"])


@pytest.mark.parametrize("side", ["left", "right"])
def test_training_on_stored_layers_is_the_same(tmp_path: Path, tokenizer, rows: Dataset, side: str) -> None:
    tokenizer.padding_side = side
    fields = {**HEADS["word vectors"], **OFF}
    expected = train(tmp_path, make(**fields), rows, tokenizer, per_device_train_batch_size=3)
    model = make(**fields)
    stored = store_layers(model, rows, "float32")
    words_read = []
    model.elmo.bilm.register_forward_pre_hook(lambda _, arguments: words_read.append(arguments[0].shape[1]))
    found = train(tmp_path, model, stored, tokenizer, per_device_train_batch_size=3)
    assert words_read == [1]  # <S>, once, to compare it with what is stored
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, atol=1e-5, rtol=1e-5, msg=name)


def test_stored_layers_are_those_of_other_readers_of_pairs(rows: Dataset) -> None:
    """Layers of texts that are read apart are one stored file, whatever head they were stored for."""
    model = make()
    esim = ElmoForSequenceClassification(ElmoConfig(**TINY, classifier_text_pairs=True, encoder_type="esim"))
    esim.elmo.load_state_dict(model.elmo.state_dict())
    stored = [store_layers(one.eval(), rows, "float32") for one in (model, esim)]
    assert stored[0]._fingerprint == stored[1]._fingerprint
    torch.testing.assert_close(torch.tensor(stored[0][2]["bilm_layers"]), torch.tensor(stored[1][2]["bilm_layers"]))


@pytest.mark.parametrize("head", HEADS)
def test_gradients_reach_every_parameter(inputs: dict, head: str) -> None:
    model = make(**HEADS[head], **({} if head == "no ELMo" else {"freeze_bilm": False})).train()
    model(**inputs, start_positions=STARTS, end_positions=ENDS).loss.backward()
    without = {name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum()}
    assert without <= {"span.attention.score.bias"}  # in a softmax over words: no effect, and no gradient but rounding


def test_bfloat16(inputs: dict) -> None:
    """bfloat16 has 8 bits, so that a sum of n rounded numbers is off by about sqrt(n) * 2**-9 of their size: the logits
    here, of sums of some 20 numbers through 6 layers, by 0.05 of theirs."""
    wide, narrow = make(**HEADS["word vectors"]), make(**HEADS["word vectors"]).to(torch.bfloat16)
    expected = wide(**inputs, start_positions=STARTS, end_positions=ENDS)
    found = narrow(**inputs, start_positions=STARTS, end_positions=ENDS)
    assert found.start_logits.dtype == torch.bfloat16
    assert found.loss.dtype == torch.float32
    here = expected.start_logits > -1e30
    assert torch.equal(found.start_logits > -1e30, here)
    for name in ("start_logits", "end_logits"):
        size = expected[name][here].abs().max()
        assert (found[name][here].float() - expected[name][here]).abs().max() < 0.05 * size
    found.loss.backward()
    assert all(p.grad.isfinite().all() for p in narrow.parameters() if p.requires_grad)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("training", [True, False])
def test_autocast_is_near(inputs: dict, head: str, training: bool) -> None:
    model = make(**HEADS[head], **OFF).train(training)
    here = model(**inputs).start_logits > -1e30

    def run(enabled: bool) -> list[Tensor]:
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            output = model(**inputs, start_positions=STARTS, end_positions=ENDS)
        output.loss.backward()
        gradients = [p.grad.flatten() for p in model.parameters() if p.requires_grad]
        return [output.loss, output.start_logits[here].float(), output.end_logits[here].float(), torch.cat(gradients)]

    # Sixteen roundings, as in the tests of other heads; of the gradients more, as a maximum may be of another word.
    for found, expected, roundings in zip(run(True), run(False), (16, 16, 16, 64), strict=True):
        assert (found - expected).norm() / expected.norm() < roundings * 2**-8


# -- checkpoints -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", HEADS)
def test_a_checkpoint_and_the_auto_class(tmp_path: Path, inputs: dict, head: str) -> None:
    model = make(**HEADS[head])
    model.save_pretrained(tmp_path)
    again = AutoModelForQuestionAnswering.from_pretrained(tmp_path)
    assert type(again) is ElmoForQuestionAnswering
    assert {name: tensor.tolist() for name, tensor in again.state_dict().items()} == {
        name: tensor.tolist() for name, tensor in model.state_dict().items()
    }
    torch.testing.assert_close(again(**inputs).start_logits, model(**inputs).start_logits)


@pytest.mark.parametrize("head", HEADS)
def test_a_bilm_takes_a_new_head(tmp_path: Path, inputs: dict, head: str) -> None:
    bilm = random_model(ElmoConfig(**TINY))
    bilm.save_pretrained(tmp_path)
    model = AutoModelForQuestionAnswering.from_pretrained(tmp_path, encoder_hidden_size=5, **HEADS[head])
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    for similarity in (model.flow.similarity, model.self_attention.similarity):
        for parameter in similarity.parameters():
            assert 0 < parameter.abs().max() <= (6 / (3 * len(parameter) + 1)) ** 0.5
    if model.config.use_elmo:
        given = inputs["input_ids"], inputs["attention_mask"]
        torch.testing.assert_close(model.elmo(*given).last_hidden_state, bilm(*given).last_hidden_state)


def test_the_bilm_is_frozen_by_default() -> None:
    model = make(**HEADS["ELMo twice"])
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    assert frozen == {f"elmo.{name}" for name, _ in ElmoModel(model.config).named_parameters() if "mix" not in name}


# -- what cannot be ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "start", "end", "said"),
    [
        (0, 2, 7, "row 0 has an answer from start_positions 2 to end_positions 7, but its passage is at 6 to 11"),
        (0, 7, 12, "row 0 .* to end_positions 12"),  # its </S>
        (1, 5, 5, "row 1 .* its passage is at 4 to 4"),
        (2, 12, 11, "row 2 .* from start_positions 12 to end_positions 11"),
        (3, -1, 8, "row 3 .* from start_positions -1"),
        (3, -100, 8, "row 3 .* -100 for a row without a label"),
        (3, 8, 400, "row 3 .* to end_positions 400"),
        (2, 0, 0, "row 2 .*0, no answer, is for config.allow_no_answer"),
    ],
)
@pytest.mark.parametrize("side", ["left", "right"])
def test_an_answer_outside_of_the_passage(tokenizer, row: int, start: int, end: int, said: str, side: str) -> None:
    inputs = tokenizer(QUESTIONS, PASSAGES, padding=True, padding_side=side, return_tensors="pt")
    starts, ends = STARTS.clone(), ENDS.clone()
    starts[row], ends[row] = start, end
    with pytest.raises(ValueError, match=said):
        make()(**inputs, start_positions=starts, end_positions=ends)


def test_positions_that_do_not_fit(inputs: dict) -> None:
    with pytest.raises(ValueError, match="end_positions is missing"):
        make()(**inputs, start_positions=STARTS)
    with pytest.raises(ValueError, match=r"start_positions has the shape \[3\], but must be \[4\]"):
        make()(**inputs, start_positions=STARTS[:3], end_positions=ENDS)
    with pytest.raises(ValueError, match=r"end_positions has the shape \[2, 2\], but must be \[4\]"):
        make()(**inputs, start_positions=STARTS, end_positions=ENDS.view(2, 2))
    column = make()(**inputs, start_positions=STARTS[:, None], end_positions=ENDS[:, None]).loss
    torch.testing.assert_close(column, make()(**inputs, start_positions=STARTS, end_positions=ENDS).loss)


def test_rows_without_a_label_have_no_loss(inputs: dict) -> None:
    nothing = torch.full((4,), -100)
    model = make()
    loss = model(**inputs, start_positions=nothing, end_positions=nothing).loss
    assert loss == 0
    loss.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_texts_without_words(tokenizer: ElmoTokenizer) -> None:
    """Nothing is found, and nothing is NaN; of the others nothing changes."""
    batch = tokenizer(["", "who ran", ""], ["a b", "", ""], padding=True, return_tensors="pt")
    model = make(**HEADS["word vectors"])
    positions = torch.tensor([4, 0, -100])
    output = model(**batch, start_positions=positions, end_positions=positions)
    assert output.loss.isfinite()
    output.loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.requires_grad)
    alone = model(**tokenizer("", "a b", return_tensors="pt"))
    torch.testing.assert_close(output.start_logits[0], alone.start_logits[0], atol=1e-6, rtol=0)
    with pytest.raises(ValueError, match=r"row 1 .* its passage has no words"):
        model(**batch, start_positions=torch.tensor([4, 3, -100]), end_positions=torch.tensor([4, 3, -100]))


def test_one_text_is_refused(tokenizer: ElmoTokenizer) -> None:
    with pytest.raises(ValueError, match=r"row 0 .* holds 1 texts, but this model reads 2: .*tokenizer\(question, pas"):
        make()(**tokenizer("a b", return_tensors="pt"))


def test_another_encoder_is_refused() -> None:
    with pytest.raises(ValueError, match="'bilstm', but ElmoForQuestionAnswering takes None or 'attention_flow'"):
        make(encoder_type="bilstm")
    with pytest.raises(ValueError, match="'attention_flow', but ElmoForSequenceClassification takes None or "):
        ElmoForSequenceClassification(ElmoConfig(**TINY, encoder_type="attention_flow"))
    with pytest.raises(ValueError, match="encoder_type is None: name the encoder"):
        make(elmo_at_output=True)


def test_dropout_is_where_the_configuration_says(inputs: dict) -> None:
    """Each rate alone makes a difference while training, none in evaluation."""
    for name in OFF:
        model = make(**{**OFF, name: 0.5})
        expected = model(**inputs).start_logits
        assert not torch.equal(model.train()(**inputs).start_logits, expected)
    model = make(**OFF)
    torch.testing.assert_close(model.train()(**inputs).start_logits, model.eval()(**inputs).start_logits)
