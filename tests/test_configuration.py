"""ElmoConfig: its defaults, the fields that it derives, and saving and loading."""

import pytest
import torch
from transformers import AutoConfig

from hf_elmo import ElmoConfig
from tests.factories import TINY

# The published "original" model: options.json of elmo_2x4096_512_2048cnn_2xhighway, in the words of this configuration.
ORIGINAL = {"char_vocab_size": 262, "char_embedding_size": 16, "char_activation": "relu", "num_highway_layers": 2}
ORIGINAL |= {"char_filters": [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]]}
ORIGINAL |= {"hidden_size": 1024, "projection_size": 512, "cell_size": 4096, "num_hidden_layers": 2, "cell_clip": 3.0}
ORIGINAL |= {"proj_clip": 3.0, "max_word_length": 50, "row_length": 50, "use_skip_connections": True}
DERIVED = [
    ({"hidden_size": 74}, {"char_projection": False, "cell_projection": True}),
    ({"cell_size": 11}, {"char_projection": True, "cell_projection": False}),
    ({"layer_weights": -2}, {"layer_weights": [0.0, 1.0, 0.0]}),
    ({"label2id": {"a": 0, "b": 1}}, {"id2label": {0: "a", 1: "b"}, "num_labels": 2}),
    ({"id2label": {0: "a", 1: "b"}}, {"label2id": {"a": 0, "b": 1}, "num_labels": 2}),
]
# The first field is named.
CONTRADICTIONS = [{"hidden_size": 21}, {"word_embedding_size": None, "word_vocab_size": 9}, {"num_scalar_mixes": 0}]
CONTRADICTIONS += [{"id2label": {0: "neg", 1: "neg", 2: "pos"}}, {"label2id": {"neg": 0, "bad": 0, "pos": 1}}]
CONTRADICTIONS += [{"word_vectors_vocab_size": 0, "use_elmo": False}, {"layer_weights": [0.5, 0.5]}]
CONTRADICTIONS += [{"layer_weights": 3}, {"char_filters": TINY["char_filters"], "max_word_length": 2}]
CONTRADICTIONS += [{"encoder_num_layers": 0, "encoder_type": "alternating"}, {"coreference_spans_per_word": -0.4}]
CHANGED = {"cell_clip": None, "proj_clip": None, "use_skip_connections": False, "char_activation": "tanh"}
CHANGED |= {"word_vocab_size": 9, "word_embedding_size": 4, "char_units": "unicode", "char_vocab_size": 300}
CHANGED |= {"encoder_type": "bilstm", "tagging_crf": True, "tagging_scheme": "IOB2", "id2label": {0: "O", 1: "B-x"}}


def test_the_defaults_are_the_published_original_model() -> None:
    config = ElmoConfig()
    assert {name: getattr(config, name) for name in ORIGINAL} == ORIGINAL


@pytest.mark.parametrize(("changes", "derived"), DERIVED, ids=str)
def test_fields_that_others_decide(tmp_path, changes: dict, derived: dict) -> None:
    ElmoConfig(**TINY, id2label={0: "x", 1: "y", 2: "z"}).save_pretrained(tmp_path)
    loaded = ElmoConfig.from_pretrained(tmp_path, **{k: v for k, v in changes.items() if "size" not in k})
    for config in (ElmoConfig(**{**TINY, **changes}), *([] if "_size" in str(changes) else [loaded])):
        assert {name: getattr(config, name) for name in derived} == derived


@pytest.mark.parametrize("changes", CONTRADICTIONS, ids=str)
def test_fields_that_contradict_each_other(changes: dict) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(changes))} is "):
        ElmoConfig(**{**TINY, **changes})


def test_a_misspelled_field_is_an_error_but_not_in_a_file(caplog) -> None:
    with pytest.raises(TypeError, match="hidden_sise"):
        ElmoConfig(hidden_sise=1)
    loaded = ElmoConfig.from_dict({**TINY, "hidden_sise": 1})  # of a later version
    assert loaded.to_dict()["hidden_sise"] == 1
    assert "hidden_sise" in caplog.text
    assert ElmoConfig(**TINY, max_length=7, my_own=4).my_own == 4  # a setting of transformers, and one of the user


def test_a_configuration_is_loaded_as_it_was_saved(tmp_path) -> None:
    config = ElmoConfig(**TINY, **CHANGED)
    config.save_pretrained(tmp_path)
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert type(loaded) is ElmoConfig
    assert loaded.to_dict() | {"_name_or_path": ""} == config.to_dict()
    assert '"hidden_size": ' in repr(config)


def test_a_type_is_read_as_transformers_does(tmp_path) -> None:
    ElmoConfig(**TINY).save_pretrained(tmp_path)
    for dtype in ("auto", "float16", torch.float16):
        config = AutoConfig.from_pretrained(tmp_path, dtype=dtype, hidden_dropout=0.1)
        assert (config.dtype, config.hidden_dropout) == (dtype, 0.1)
