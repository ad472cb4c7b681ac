"""The vectors are the model's own, whatever the batches, and however long a document is."""

import numpy as np
import pytest
import torch

from hf_elmo import ElmoForSequenceClassification, ElmoTokenizer, embed, kernels
from tests.embedding.conftest import ROWS, close, expected, initial_model
from tests.factories import small_config, small_model, word_level

WAYS = [("mix", "none"), ("all", "none"), ("sum", "none"), ("mix", "mean"), ("all", "max")]
IN_PARTS = [*((*way, 11) for way in WAYS), ("mix", "none", 1), ("all", "max", 1)]  # pieces of rows; words
WHOLE = [("mix", "none", None), ("all", "mean", None), ("mix", "none", 60)]  # one batch, and several


@pytest.mark.parametrize(("layers", "pooling", "batch_tokens"), [*WHOLE, *IN_PARTS])
def test_vectors_are_those_of_one_pass_over_each_row(model, tokenizer, layers, pooling, batch_tokens):
    for rows in (ROWS, [["New York", "isn't", "", "<S>"], []]):
        found = embed(model, rows, tokenizer=tokenizer, layers=layers, pooling=pooling, batch_tokens=batch_tokens)
        assert isinstance(found, list if pooling == "none" else np.ndarray)
        wanted = [expected(model, tokenizer, row, layers, pooling) for row in rows]
        close(found, wanted, 2e-6 if layers == "sum" else 1e-6)


def test_a_model_that_reads_words(tmp_path):
    model, tokenizer = word_level(tmp_path, [word for row in ROWS for word in row.split()][::2])
    for layers, pooling, batch_tokens in WHOLE:
        found = embed(model, ROWS, tokenizer=tokenizer, layers=layers, pooling=pooling, batch_tokens=batch_tokens)
        close(found, [expected(model, tokenizer, row, layers, pooling) for row in ROWS], 5e-6)


def test_boundaries_in_the_text_count_where_the_tokenizer_allows_them(model):
    asked = ElmoTokenizer(word_splitting="whitespace", split_special_tokens=False)
    plain = ElmoTokenizer(word_splitting="whitespace")
    row = "one </S> <S> <pad> two"
    found = [embed(model, [row], tokenizer=tokenizer)[0] for tokenizer in (asked, plain)]
    close(found, [expected(model, tokenizer, row) for tokenizer in (asked, plain)])
    assert not np.allclose(*found)


def test_output_dtype_and_compute_dtype(model):
    exact, half, brain = (embed(model, ROWS, **how) for how in ({}, {"output_dtype": "float16"}, {"dtype": "bfloat16"}))
    assert (half[0].dtype, brain[0].dtype) == (np.float16, np.float32)
    assert model.dtype == torch.float32  # the caller's model stays as it was
    close(half, exact, 5e-3)
    with pytest.raises(ValueError, match="output_dtype"):  # which would round the numbers to integers
        embed(model, ROWS, output_dtype="int8")
    assert 0 < abs(brain[0] - exact[0]).max() < 0.2


def test_a_model_with_a_head_in_training_is_used_without_either(tokenizer):
    torch.manual_seed(0)  # initial weights, as in initial_model
    model = ElmoForSequenceClassification(small_config(hidden_dropout=0.5, freeze_bilm=False)).eval()
    wanted = [expected(model.elmo, tokenizer, row) for row in ROWS]
    model.train()
    close(embed(model, ROWS), wanted)
    assert all(module.training for module in model.modules())


def test_settings_of_the_caller_that_change_numbers(model):
    """Autocast is not in the fingerprint of a result, and in 8 bits a row would depend on the size of its batch."""
    wanted = embed(model, ROWS)
    with torch.autocast("cpu", torch.bfloat16):
        assert all(map(np.array_equal, embed(model, ROWS), wanted))
    with kernels.use("on", "int8"), pytest.raises(ValueError, match="int8"):
        embed(model, ROWS)


def test_mix_with_layer_norm_is_that_of_each_row_alone(tokenizer):
    model = initial_model(scalar_mix_layer_norm=True)
    # The mix is as large as 1.3 times a normalized value, up to 4: a last digit is 4e-7 there, and divided by standard
    # deviations below 1 the roundings of two ways to compute a layer (3e-7) grow beyond it.
    for batch_tokens in (None, 20):  # of which the longest row needs all
        close(embed(model, ROWS, batch_tokens=batch_tokens), [expected(model, tokenizer, row) for row in ROWS], 3e-6)
    with pytest.raises(ValueError, match="batch_tokens"):
        embed(model, ROWS, batch_tokens=11)


@pytest.mark.parametrize("batch_tokens", [None, 15], ids=["one-batch", "pieces"])
def test_sums_and_means_of_half_precision_are_made_in_float32(model, tokenizer, batch_tokens):
    options = {"tokenizer": tokenizer, "dtype": "bfloat16", "batch_tokens": batch_tokens}
    rows = [row for row in ROWS if row.strip()]
    found = embed(model, rows, layers="sum", **options)
    close(found, [layers.sum(0) for layers in embed(model, rows, layers="all", **options)])
    close(embed(model, rows, pooling="mean", **options), [vectors.mean(0) for vectors in embed(model, rows, **options)])


@pytest.mark.parametrize(("pooling", "batch_tokens"), [("none", None), ("max", 11)])
def test_numbers_that_float16_has_not_are_refused(tokenizer, tmp_path, pooling, batch_tokens):
    options = {"tokenizer": tokenizer, "pooling": pooling, "batch_tokens": batch_tokens, "shard_tokens": 50}
    rows = ["", *["a word"] * 20, "word " * 12 + "#", *["a word"] * 9]
    model = small_model(layer_weights=0)
    with torch.no_grad():
        model.char_encoder.embedding.weight[ord("#") + 1] *= 1e7
    for output in (None, tmp_path / "out.npz"):
        with pytest.raises(ValueError, match=r"row 21 .*output_dtype"):
            embed(model, rows, output, output_dtype="float16", **options)


@pytest.mark.parametrize("options", [{"output_dtype": "float16"}, {"pooling": "max", "batch_tokens": 3}])
def test_vectors_that_are_not_finite_are_warned_of_once(tokenizer, caplog, options):
    model = small_model(layer_weights=0)
    embed(model, ROWS, tokenizer=tokenizer, **options)
    assert not caplog.records
    with torch.no_grad():
        model.char_encoder.projection.bias[0] = torch.nan
    embed(model, ["", "a", "b", "c", "d"], tokenizer=tokenizer, **options)
    (record,) = (one for one in caplog.records if "not finite" in one.message)
    assert "row 1 " in record.message
