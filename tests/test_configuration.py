"""ElmoConfig: its defaults, what it derives, what it refuses, and that it comes back from a file."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedConfig

from hf_elmo import ElmoConfig, ElmoModel, ElmoTokenizer
from hf_elmo.configuration_elmo import TOKEN_IDS
from tests.conftest import TINY

# The published "original" model: options.json of elmo_2x4096_512_2048cnn_2xhighway, in this configuration's words.
ORIGINAL = {
    "char_vocab_size": 262,
    "char_embedding_size": 16,
    "char_filters": [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]],
    "char_activation": "relu",
    "num_highway_layers": 2,
    "char_projection": True,
    "max_word_length": 50,
    "hidden_size": 1024,
    "cell_size": 4096,
    "cell_projection": True,
    "num_hidden_layers": 2,
    "cell_clip": 3.0,
    "proj_clip": 3.0,
    "use_skip_connections": True,
    "pad_token_id": 0,
    "bos_token_id": 257,
    "eos_token_id": 258,
}

REFUSED = [
    ("char_vocab_size", 5),
    ("char_vocab_size", 0),
    ("char_units", "letters"),
    ("char_embedding_size", 0),
    ("char_filters", []),
    ("char_filters", [[1]]),
    ("char_filters", [[1, 4, 5]]),
    ("char_filters", [[1, 0]]),
    ("char_filters", [[0, 4]]),
    ("char_filters", [["1", 4]]),
    ("char_filters", [[True, 4]]),
    ("char_filters", [7]),
    ("char_filters", [[51, 4]]),
    ("char_activation", "gelu"),
    ("num_highway_layers", -1),
    ("num_highway_layers", 101),
    ("char_projection", False),
    ("max_word_length", 2),
    ("word_vocab_size", 0),
    ("word_embedding_size", 0),
    ("word_embedding_size", 4),
    ("hidden_size", 0),
    ("hidden_size", 21),
    ("cell_size", 0),
    ("cell_projection", False),
    ("num_hidden_layers", 0),
    ("num_hidden_layers", 101),
    ("cell_clip", 0),
    ("cell_clip", -3.0),
    ("cell_clip", math.nan),
    ("proj_clip", 0.0),
    ("proj_clip", -1),
    ("proj_clip", math.nan),
    ("hidden_dropout", -0.1),
    ("hidden_dropout", 1.0),
    ("hidden_dropout", math.nan),
    ("layer_weights", []),
    ("layer_weights", [0.5, 0.5]),
    ("layer_weights", [0.1, 0.2, 0.3, 0.4]),
    ("layer_weights", ["a", 1, 2]),
    ("layer_weights", [math.nan, 1, 1]),
    ("layer_weights", [math.inf, 1, 1]),
    ("layer_weights", [0, 0, 0]),
    ("layer_weights", 3),
    ("layer_weights", -4),
    ("num_scalar_mixes", 0),
    ("num_scalar_mixes", 101),
    ("classifier_pooling", "sum"),
    ("problem_type", "regresion"),
    ("classifier_hidden_size", 0),
    ("classifier_dropout", -0.5),
    ("classifier_dropout", 1),
    ("use_elmo", False),
    ("word_vectors_vocab_size", 3),
    ("word_vectors_size", 0),
    ("scalar_mix_l2", -0.1),
    ("scalar_mix_l2", math.nan),
    ("scalar_mix_l2", math.inf),
    ("elmo_at_output", True),
    ("encoder_type", "lstm"),
    ("encoder_type", "esim"),
    ("encoder_hidden_size", 0),
    ("encoder_num_layers", 0),
    ("encoder_num_layers", 101),
    ("encoder_dropout", 1.0),
    ("encoder_recurrent_dropout", 1.0),
    ("encoder_recurrent_dropout", 0.1),
    ("tagging_scheme", "IOB"),
    ("tagging_indicator_size", 0),
    ("coreference_max_width", 0),
    ("coreference_spans_per_word", 0.0),
    ("coreference_spans_per_word", math.nan),
    ("coreference_max_antecedents", 0),
    ("coreference_refinements", -1),
    ("coreference_refinements", 101),
    ("coreference_hidden_size", 0),
    ("coreference_feature_size", 0),
    ("coreference_num_genres", 0),
    ("vocab_size", 0),
    ("num_sampled", 0),
    ("pad_token_id", 5),
    ("bos_token_id", 1000),
    ("bos_token_id", -1),
    ("bos_token_id", 258),
    ("bos_token_id", 97),
    ("bos_token_id", None),
    ("eos_token_id", -4),
    ("eos_token_id", 257),
    ("eos_token_id", 261),
    ("eos_token_id", None),
]

OF_ANOTHER_TYPE = [
    ("char_vocab_size", 262.0),
    ("char_units", None),
    ("char_embedding_size", "16"),
    ("char_filters", 5),
    ("char_filters", None),
    ("char_activation", None),
    ("num_highway_layers", None),
    ("char_projection", "yes"),
    ("max_word_length", 50.5),
    ("word_vocab_size", "9"),
    ("word_embedding_size", 4.5),
    ("hidden_size", True),
    ("cell_size", None),
    ("cell_projection", 1),
    ("num_hidden_layers", "2"),
    ("cell_clip", "3"),
    ("proj_clip", True),
    ("use_skip_connections", "no"),
    ("hidden_dropout", None),
    ("settled_start", "yes"),
    ("layer_weights", True),
    ("layer_weights", 0.5),
    ("num_scalar_mixes", 1.5),
    ("scalar_mix_layer_norm", 3),
    ("classifier_pooling", None),
    ("classifier_hidden_size", 8.0),
    ("classifier_dropout", "0.5"),
    ("freeze_bilm", None),
    ("classifier_text_pairs", "yes"),
    ("use_elmo", "no"),
    ("word_vectors_vocab_size", 5.0),
    ("word_vectors_size", None),
    ("freeze_word_vectors", None),
    ("elmo_at_output", 1),
    ("scalar_mix_l2", "0.1"),
    ("encoder_type", True),
    ("encoder_hidden_size", None),
    ("encoder_num_layers", 1.5),
    ("encoder_dropout", None),
    ("encoder_recurrent_dropout", "0.1"),
    ("tagging_crf", "yes"),
    ("allow_no_answer", "yes"),
    ("tagging_scheme", 2),
    ("tagging_indicator_size", 2.5),
    ("coreference_max_width", 2.0),
    ("coreference_spans_per_word", "0.4"),
    ("coreference_max_antecedents", None),
    ("coreference_refinements", 1.0),
    ("coreference_hidden_size", None),
    ("coreference_feature_size", "20"),
    ("coreference_speakers", 1),
    ("coreference_num_genres", 7.0),
    ("vocab_size", 31.0),
    ("num_sampled", None),
    ("pad_token_id", "0"),
    ("bos_token_id", 257.5),
    ("eos_token_id", "258"),
]


def name_of(pair: tuple[str, object]) -> str:
    return f"{pair[0]}={pair[1]!r}"


def test_the_defaults_are_the_published_original_model() -> None:
    assert {name: getattr(ElmoConfig(), name) for name in ORIGINAL} == ORIGINAL


def test_the_defaults_of_what_is_no_part_of_a_published_model() -> None:
    config = ElmoConfig()
    assert config.layer_weights is None
    assert config.num_scalar_mixes == 1
    assert config.scalar_mix_layer_norm is False
    assert config.freeze_bilm is True
    assert config.classifier_dropout == 0.5
    assert config.classifier_pooling == "mean"
    assert config.classifier_hidden_size is None
    assert config.hidden_dropout == 0.0
    assert config.vocab_size is None
    assert config.num_sampled == 8192


def test_a_number_of_layers_that_would_take_forever_is_named_with_its_bound(tmp_path: Path) -> None:
    for field, bounds in (("num_hidden_layers", "1 to 100"), ("num_highway_layers", "0 to 100")):
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "elmo", field: 10**9}))
        with pytest.raises(ValueError, match=f"{field} is 1000000000, but must be {bounds}"):
            ElmoConfig.from_pretrained(tmp_path)
    assert ElmoConfig(num_hidden_layers=100, num_highway_layers=100).num_hidden_layers == 100


def test_sizes_that_follow_from_others() -> None:
    config = ElmoConfig(**TINY)
    assert (config.projection_size, config.num_filters) == (11, 37)
    assert ElmoConfig().projection_size == 512
    assert ElmoConfig().num_filters == 2048


@pytest.mark.parametrize(("hidden_size", "projected"), [(74, False), (22, True)])
def test_characters_are_projected_unless_the_filters_are_as_many(hidden_size: int, projected: bool) -> None:
    assert ElmoConfig(**{**TINY, "hidden_size": hidden_size}).char_projection is projected


@pytest.mark.parametrize(("cell_size", "projected"), [(11, False), (19, True)])
def test_cells_are_projected_unless_they_have_that_size(cell_size: int, projected: bool) -> None:
    assert ElmoConfig(**{**TINY, "cell_size": cell_size}).cell_projection is projected


def test_a_projection_may_be_asked_for_where_none_is_needed() -> None:
    config = ElmoConfig(**{**TINY, "hidden_size": 74, "cell_size": 37}, char_projection=True, cell_projection=True)
    assert config.char_projection is True
    assert config.cell_projection is True


@pytest.mark.parametrize(
    ("number", "weights"), [(0, [1.0, 0.0, 0.0]), (2, [0.0, 0.0, 1.0]), (-1, [0.0, 0.0, 1.0]), (-3, [1.0, 0.0, 0.0])]
)
def test_one_layer_is_a_mix_of_that_layer_alone(number: int, weights: list[float]) -> None:
    assert ElmoConfig(**TINY, layer_weights=number).layer_weights == weights


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cell_clip", None),
        ("proj_clip", None),
        ("cell_clip", 2),
        ("num_highway_layers", 0),
        ("num_hidden_layers", 1),
        ("char_filters", ((1, 4), (3, 9))),
        ("layer_weights", (0.0, 0.5, -0.5)),
        ("classifier_hidden_size", 9),
        ("vocab_size", 31),
        ("max_word_length", 3),
    ],
    ids=str,
)
def test_values_that_are_allowed(field: str, value: object) -> None:
    settings = {**TINY, field: value}
    if field == "max_word_length":
        settings["char_filters"] = [[1, 4], [3, 9]]
    got = getattr(ElmoConfig(**settings), field)
    assert got == ([list(pair) for pair in value] if field == "char_filters" else value)


@pytest.mark.parametrize(("field", "value"), REFUSED, ids=map(name_of, REFUSED))
def test_a_value_that_no_model_can_have_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ValueError) as error:
        ElmoConfig(**{**TINY, field: value})
    assert f"{field} is {value!r}, but " in str(error.value)


LATER = [pair for pair in REFUSED if pair[0] not in TOKEN_IDS]


@pytest.mark.parametrize(("field", "value"), LATER, ids=map(name_of, LATER))
def test_a_value_that_no_model_can_have_is_refused_where_it_was_set_later(field: str, value: object) -> None:
    def make() -> None:
        config = ElmoConfig(**TINY)
        setattr(config, field, value)
        ElmoModel(config)

    with pytest.raises(ValueError, match=re.escape(f"{field} is {value!r}, but ")):
        make()


@pytest.mark.parametrize("field", TOKEN_IDS)
def test_ids_of_the_format_that_were_set_later_stay_and_are_said(field: str, caplog) -> None:
    config = ElmoConfig(**TINY)
    setattr(config, field, 7)
    said = warnings_of(caplog, lambda: ElmoModel(config))
    assert f"{field} stays {TOKEN_IDS[field]}, 7 has no effect" in said
    assert getattr(config, field) == TOKEN_IDS[field]


def test_a_field_that_was_set_later_is_completed_and_names_of_labels_are_left_as_they_are() -> None:
    config = ElmoConfig(**TINY)
    config.layer_weights, config.id2label = -1, {0: "no", 1: "yes", 2: "perhaps"}
    assert ElmoModel(config).scalar_mix.fixed is not None
    assert config.layer_weights == [0.0, 0.0, 1.0]
    assert config.num_labels == 3


@pytest.mark.parametrize(("field", "value"), OF_ANOTHER_TYPE, ids=map(name_of, OF_ANOTHER_TYPE))
def test_a_value_of_another_type_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises((StrictDataclassError, TypeError, ValueError)) as error:
        ElmoConfig(**{**TINY, field: value})
    assert field in str(error.value)
    assert repr(value) in str(error.value) or str(value) in str(error.value)


def warnings_of(caplog: pytest.LogCaptureFixture, make: Callable) -> str:
    caplog.clear()
    make()
    return caplog.text


@pytest.mark.parametrize(
    ("field", "value", "nearest"),
    [("freeze_bilms", False, "freeze_bilm"), ("cell_sizes", 3, "cell_size"), ("qqqq", 1, None)],
)
def test_an_unknown_field_is_warned_of(tmp_path: Path, caplog, field: str, value: object, nearest: str | None) -> None:
    expected = f"ElmoConfig has no field {field} ({value!r} has no effect)"
    expected += f"; did you mean {nearest}?" if nearest else "."
    assert expected in warnings_of(caplog, lambda: ElmoConfig(**TINY, **{field: value}))
    ElmoModel(ElmoConfig(**TINY)).save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**ElmoConfig(**TINY).to_dict(), field: value}))
    assert expected in warnings_of(caplog, lambda: ElmoModel.from_pretrained(tmp_path))


MISSPELT = [("cell_sizes", 3, "cell_size"), ("layer_weight", -1, "layer_weights"), ("qqqq", 1, None)]


@pytest.mark.parametrize(("field", "value", "nearest"), MISSPELT, ids=[field for field, _, _ in MISSPELT])
@pytest.mark.parametrize("auto", [AutoConfig, ElmoConfig], ids=lambda auto: auto.__name__)
def test_an_unknown_field_that_loading_is_to_change_is_warned_of(
    tmp_path: Path, caplog, auto: type, field: str, value: object, nearest: str | None
) -> None:
    ElmoConfig(**TINY).save_pretrained(tmp_path)
    expected = f"ElmoConfig has no field {field} ({value!r} has no effect)"
    expected += f"; did you mean {nearest}?" if nearest else "."
    said = warnings_of(caplog, lambda: auto.from_pretrained(tmp_path, cell_clip=2.0, **{field: value}))
    assert said.count("has no field") == 1
    assert expected in said


@pytest.mark.parametrize(("field", "value", "nearest"), MISSPELT, ids=[field for field, _, _ in MISSPELT])
@pytest.mark.parametrize("auto", [AutoModel, ElmoModel], ids=lambda auto: auto.__name__)
def test_an_unknown_field_given_to_a_model_is_refused_and_warned_of(
    tmp_path: Path, caplog, auto: type, field: str, value: object, nearest: str | None
) -> None:
    """transformers gives it to the constructor, which refuses it, but knows no fields."""
    ElmoModel(ElmoConfig(**TINY)).save_pretrained(tmp_path)

    def load() -> None:
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{field}'"):
            auto.from_pretrained(tmp_path, cell_clip=2.0, **{field: value})

    said = warnings_of(caplog, load)
    assert said.count("has no field") == 1
    assert f"ElmoConfig has no field {field}" in said
    assert nearest is None or f"; did you mean {nearest}?" in said


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("do_layer_norm", "scalar_mix_layer_norm"),
        ("dropout", "classifier_dropout"),
        ("num_output_representations", "num_scalar_mixes"),
        ("requires_grad", "freeze_bilm"),
        ("scalar_mix_parameters", "layer_weights"),
    ],
)
def test_what_a_field_is_called_that_allennlp_calls_otherwise(caplog, name: str, field: str) -> None:
    assert f"did you mean {field}" in warnings_of(caplog, lambda: ElmoConfig(**TINY, **{name: 1}))
    assert field in vars(ElmoConfig())


def test_a_name_without_effect_is_not_proposed(caplog) -> None:
    assert "do_lower_case" not in warnings_of(caplog, lambda: ElmoConfig(**TINY, lower_case=True))


def test_no_private_name_is_proposed(caplog) -> None:
    assert "did you mean" not in warnings_of(caplog, lambda: ElmoConfig(**TINY, _commit_hashes="0"))


def test_what_is_left_for_a_model_is_not_warned_of(tmp_path: Path, caplog) -> None:
    ElmoConfig(**TINY).save_pretrained(tmp_path)

    def load() -> None:
        _, rest = ElmoConfig.from_pretrained(tmp_path, return_unused_kwargs=True, cell_sizes=3)
        assert rest == {"cell_sizes": 3}

    assert "has no field" not in warnings_of(caplog, load)


def test_what_transformers_writes_into_a_configuration_is_not_warned_of(tmp_path: Path, caplog) -> None:
    ElmoModel(ElmoConfig(**TINY)).save_pretrained(tmp_path)
    how = {"dtype": torch.bfloat16, "num_labels": 4, "id2label": {0: "a", 1: "b"}, "output_hidden_states": True}

    def load() -> None:
        ElmoModel.from_pretrained(tmp_path, **how)
        AutoConfig.from_pretrained(tmp_path, problem_type="regression")
        # As scripts for every model do, whatever its attention is.
        AutoConfig.from_pretrained(tmp_path, attn_implementation="eager", trust_remote_code=False)
        ElmoConfig.from_pretrained(tmp_path, attn_implementation="eager", return_unused_kwargs=True)
        AutoModel.from_pretrained(tmp_path, attn_implementation="eager")
        ElmoConfig.from_dict(ElmoConfig.from_pretrained(tmp_path).to_dict())

    assert "has no field" not in warnings_of(caplog, load)


def test_what_auto_tokenizer_hands_on_is_not_warned_of(tmp_path: Path, caplog) -> None:
    ElmoModel(ElmoConfig(**TINY)).save_pretrained(tmp_path)
    ElmoTokenizer().save_pretrained(tmp_path)
    how = {"word_splitting": "whitespace", "padding_side": "left", "model_max_length": 9, "split_special_tokens": True}

    def load() -> None:
        tokenizer = AutoTokenizer.from_pretrained(tmp_path, **how, truncation_side="left", use_fast=True)
        assert {name: getattr(tokenizer, name) for name in how} == how

    assert "has no field" not in warnings_of(caplog, load)


def test_every_field_is_in_one_of_the_two_lists() -> None:
    own = set(ElmoConfig().to_dict()) - set(PreTrainedConfig().to_dict()) - {"model_type", "hf_elmo_version"}
    assert own <= {field for field, _ in OF_ANOTHER_TYPE}
    flags = {"use_skip_connections", "scalar_mix_layer_norm", "freeze_bilm", "classifier_text_pairs"}
    flags |= {"freeze_word_vectors", "coreference_speakers", "tagging_crf", "allow_no_answer", "settled_start"}
    assert own - {field for field, _ in REFUSED} == flags


def test_words_with_vectors_of_their_own_need_a_projection() -> None:
    words = {"word_vocab_size": 9, "word_embedding_size": 4, "char_filters": [[1, 512]]}
    assert ElmoConfig(**words).char_projection
    assert ElmoConfig(**words).row_length == 51
    with pytest.raises(ValueError, match="char_projection is False, but words with vectors of their own"):
        ElmoConfig(**words, char_projection=False)
    with pytest.raises(ValueError, match="word_vocab_size is 9: give both or neither"):
        ElmoConfig(word_vocab_size=9)


def test_fixed_weights_come_with_one_mix_only() -> None:
    with pytest.raises(ValueError, match="num_scalar_mixes is 2"):
        ElmoConfig(**TINY, layer_weights=[1, 0, 0], num_scalar_mixes=2)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"elmo_at_output": True, "encoder_type": "bilstm", "num_scalar_mixes": 2}, "num_scalar_mixes is 2"),
        ({"classifier_pooling": "last", "word_vectors_vocab_size": 9}, "classifier_pooling is 'last'"),
        ({"classifier_pooling": "max", "encoder_type": "biattentive"}, "classifier_pooling is 'max'.*pools in its own"),
        ({"scalar_mix_l2": 0.1, "layer_weights": 0}, "scalar_mix_l2 is 0.1, but layer_weights are fixed"),
        ({"freeze_word_vectors": True}, "freeze_word_vectors is True, but word_vectors_vocab_size is None"),
    ],
)
def test_fields_of_tasks_that_do_not_fit_each_other(changes: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ElmoConfig(**TINY, **changes)


def test_a_filter_wider_than_a_word_is_refused() -> None:
    with pytest.raises(ValueError, match="max_word_length, 4"):
        ElmoConfig(**{**TINY, "char_filters": [[1, 3], [5, 2]]}, max_word_length=4)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"layer_weights": -1},
        {"layer_weights": [0.25, 0.5, 0.25]},
        {"cell_clip": None, "proj_clip": 2},
        {"num_scalar_mixes": 2, "scalar_mix_layer_norm": True},
        {"classifier_hidden_size": 9, "num_labels": 5, "problem_type": "multi_label_classification"},
        {"vocab_size": 31, "hidden_dropout": 0.1},
        {"encoder_type": "bilstm", "elmo_at_output": True, "word_vectors_vocab_size": 9, "use_elmo": False},
        {"tagging_crf": True, "tagging_scheme": "BIOES", "scalar_mix_l2": 0.01},
        {"tagging_scheme": "IOB1"},
    ],
    ids=lambda changes: ", ".join(changes) or "as it is",
)
def test_a_configuration_comes_back_from_its_file(tmp_path, changes: dict) -> None:
    config = ElmoConfig(**TINY, **changes)
    config.save_pretrained(tmp_path)
    again = ElmoConfig.from_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    assert again.to_dict() == config.to_dict()
    assert saved["model_type"] == "elmo"
    assert all(saved[name] == value for name, value in TINY.items())


def test_a_field_changed_on_loading_is_completed(tmp_path) -> None:
    ElmoConfig(**TINY).save_pretrained(tmp_path)
    config = ElmoConfig.from_pretrained(tmp_path, layer_weights=-1, cell_clip=None, num_labels=5)
    assert config.layer_weights == [0.0, 0.0, 1.0]
    assert config.cell_clip is None
    assert config.num_labels == 5
    config, rest = ElmoConfig.from_pretrained(tmp_path, cell_clip=2.0, other=7, return_unused_kwargs=True)
    assert config.cell_clip == 2.0
    assert rest == {"other": 7}


@pytest.mark.parametrize(
    "given", [{"id2label": {0: "no", 1: "yes"}}, {"label2id": {"no": 0, "yes": 1}}, {"label2id": {"a": 1, "b": 0}}]
)
def test_names_of_labels_given_by_number_or_by_name_are_both(tmp_path, given: dict) -> None:
    ElmoConfig(id2label={0: "yes", 1: "no"}, label2id={"yes": 0, "no": 1}).save_pretrained(tmp_path)
    for config in (ElmoConfig(**given), ElmoConfig.from_pretrained(tmp_path, **given)):
        assert config.label2id == {name: number for number, name in config.id2label.items()}
        assert all(getattr(config, field) == value for field, value in given.items())
        config.save_pretrained(tmp_path / "again")
        again = ElmoConfig.from_pretrained(tmp_path / "again")
        assert (again.id2label, again.label2id) == (config.id2label, config.label2id)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"id2label": {0: "no", 1: "yes"}, "label2id": {"yes": 0, "no": 1}}, "label2id is .* give both alike"),
        ({"id2label": {0: "no", 1: "no"}}, "id2label is .* each label must have a name of its own"),
    ],
)
def test_names_of_labels_that_contradict_each_other_are_refused(given: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ElmoConfig(**given)


def test_names_of_labels_that_were_changed_by_number_alone_are_those_of_the_file(tmp_path) -> None:
    """transformers saves `label2id` as it was."""
    config = ElmoConfig(id2label={0: "a", 1: "b"})
    config.id2label = {0: "neg", 1: "pos"}
    config.save_pretrained(tmp_path)
    again = ElmoConfig.from_pretrained(tmp_path)
    assert (again.id2label, again.label2id) == ({0: "neg", 1: "pos"}, {"neg": 0, "pos": 1})
    assert ElmoConfig(id2label={0: "a", 1: "b"}, label2id={"a": "0", "b": "1"}).label2id == {"a": 0, "b": 1}
    assert ElmoConfig(label2id={"a": "0", "b": "1"}).id2label == {0: "a", 1: "b"}


def test_a_field_changed_on_loading_is_validated(tmp_path) -> None:
    ElmoConfig(**TINY).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="cell_clip is -1"):
        ElmoConfig.from_pretrained(tmp_path, cell_clip=-1)


def test_two_configurations_share_nothing() -> None:
    one, other = ElmoConfig(), ElmoConfig()
    one.char_filters.append([9, 9])
    assert other.char_filters == ORIGINAL["char_filters"]


def test_a_word_vocabulary_smaller_than_the_characters_is_no_error() -> None:
    config = ElmoConfig(**TINY, vocab_size=7)
    assert (config.vocab_size, config.eos_token_id) == (7, 258)


def test_trainer_and_pipelines_are_told_what_to_leave_out_at_inference() -> None:
    assert {"hidden_states", "state"} <= set(ElmoConfig.keys_to_ignore_at_inference)
