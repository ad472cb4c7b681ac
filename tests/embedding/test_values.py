"""The vectors are the model's own, whatever the batches, and however long a document is."""

import copy

import numpy as np
import pytest
import torch

from hf_elmo import ElmoConfig, ElmoForSequenceClassification, ElmoModel, ElmoTokenizer, Embedder, embed
from hf_elmo.embedding.corpus import _batch_tokens
from hf_elmo.embedding.engine import CorpusEncoder

from ..conftest import TINY, random_model
from .helpers import ROWS, close, expected, initial_model


@pytest.mark.parametrize("pooling", ["none", "mean", "max"])
@pytest.mark.parametrize("layers", ["mix", "all", 0, 3])
@pytest.mark.parametrize("batch_tokens", [None, 60, 11], ids=["one-batch", "batches", "pieces"])
def test_vectors_are_those_of_one_pass_over_each_row(model, tokenizer, layers, pooling, batch_tokens):
    found = embed(model, ROWS, tokenizer=tokenizer, layers=layers, pooling=pooling, batch_tokens=batch_tokens)
    assert isinstance(found, list if pooling == "none" else np.ndarray)
    close(found, [expected(model, tokenizer, row, layers, pooling) for row in ROWS])


def test_shapes_of_blank_rows(model):
    assert [array.shape for array in embed(model, ["", " "])] == [(0, 22), (0, 22)]
    assert embed(model, ["", " "], layers="all")[0].shape == (4, 0, 22)
    pooled = embed(model, ["", "a"], pooling="max", layers="all")
    assert pooled.shape == (2, 4, 22)
    assert not pooled[0].any()
    assert pooled[1].any()


def test_no_rows(model):
    assert embed(model, []) == []
    assert embed(model, [], pooling="mean").shape == (0, 22)


def test_a_repeated_line_has_the_same_vectors(model, tokenizer):
    first, second = (number for number, row in enumerate(ROWS) if row == "Don't panic!")
    for batch_tokens in (None, 12):
        found = embed(model, ROWS, tokenizer=tokenizer, batch_tokens=batch_tokens)
        close([found[first]], [found[second]])


def test_twice_the_same_is_bit_equal(model):
    for one, other in zip(embed(model, ROWS, batch_tokens=30), embed(model, ROWS, batch_tokens=30), strict=True):
        np.testing.assert_array_equal(one, other, strict=True)


def test_words_already_split_are_never_split_again(model, tokenizer):
    rows = [["New York", "isn't", "", "<S>"], []]
    found = embed(model, rows, tokenizer=tokenizer)
    assert found[0].shape == (4, 22)
    close(found, [expected(model, tokenizer, row) for row in rows])


def test_pretokenized_text_is_split_at_whitespace_only(model, tokenizer):
    found = embed(model, ["isn't  split\u2003up."], pretokenized=True)
    close(found, [expected(model, tokenizer, ["isn't", "split", "up."])])


def test_boundaries_in_the_text_count_where_the_tokenizer_allows_them(model):
    asked = ElmoTokenizer(word_splitting="whitespace", split_special_tokens=False)
    plain = ElmoTokenizer(word_splitting="whitespace")
    row = "one </S> <S> <pad> two"
    for tokenizer in (asked, plain):
        close(embed(model, [row], tokenizer=tokenizer), [expected(model, tokenizer, row)])
    assert not np.allclose(embed(model, [row], tokenizer=asked)[0], embed(model, [row], tokenizer=plain)[0])


def test_an_earlier_truncation_of_the_tokenizer_plays_no_part(model):
    tokenizer = ElmoTokenizer()
    tokenizer(ROWS, truncation=True, max_length=4, padding="max_length")
    assert [len(row) for row in embed(model, ROWS, tokenizer=tokenizer)] == [len(row) for row in embed(model, ROWS)]


def test_lone_surrogates_are_dropped_as_the_tokenizer_does(model, tokenizer):
    close(embed(model, ["a\ud800b c"]), [expected(model, tokenizer, "ab c")])
    close(embed(model, ["a \ud800 b"]), [expected(model, tokenizer, "a \ud800 b")])


def test_output_dtype_and_compute_dtype(model):
    half = embed(model, ROWS, output_dtype="float16")
    assert {array.dtype for array in half} == {np.dtype("float16")}
    brain = embed(model, ROWS, dtype="bfloat16")
    assert {array.dtype for array in brain} == {np.dtype("float32")}
    assert model.dtype == torch.float32  # the caller's model stays as it was
    exact = embed(model, ROWS)
    close(half, exact, 5e-3)
    assert 0 < abs(brain[0] - exact[0]).max() < 0.2


def test_a_model_in_training_gives_the_same_and_goes_on_training(tokenizer):
    model = initial_model(hidden_dropout=0.5, freeze_bilm=False)
    calm = embed(model, ROWS, tokenizer=tokenizer)
    model.train()
    modes = {name: module.training for name, module in model.named_modules()}
    close(embed(model, ROWS, tokenizer=tokenizer), calm)
    assert {name: module.training for name, module in model.named_modules()} == modes
    assert modes["bilm.dropout"]


def test_a_model_with_a_head_is_used_without_it(tokenizer):
    model = ElmoForSequenceClassification(ElmoConfig(**TINY)).eval()
    close(embed(model, ROWS), [expected(model.elmo, tokenizer, row) for row in ROWS])


def test_mix_with_layer_norm_is_that_of_each_row_alone(tokenizer):
    model = initial_model(scalar_mix_layer_norm=True)
    # The mix is as large as 1.3 times a normalized value, up to 4: a last digit is 4e-7 there, and divided by standard
    # deviations below 1 the roundings of two ways to compute a layer (3e-7) grow beyond it.
    close(embed(model, ROWS), [expected(model, tokenizer, row) for row in ROWS], 3e-6)
    with pytest.raises(ValueError, match=r"longer than batch_tokens=11.*layers='all'"):
        embed(model, ROWS, batch_tokens=11)


def test_fixed_weights_and_no_skip_connections_in_pieces(tokenizer):
    model = initial_model(layer_weights=[0.5, 0.0, 2.0], use_skip_connections=False, cell_clip=None)
    close(embed(model, ROWS, batch_tokens=9), [expected(model, tokenizer, row) for row in ROWS])


@pytest.mark.parametrize("batch_tokens", [1, 7, 40])
def test_long_documents_side_by_side_equal_one_pass(tokenizer, batch_tokens):
    model = random_model(ElmoConfig(**TINY)).double()  # clips take part; in float64 nothing hides behind rounding
    rows = [[f"w{n * n % 17}" for n in range(length)] for length in (9, 33, 1, 20, 9)]
    found = embed(model, rows, batch_tokens=batch_tokens, layers="all")
    close(found, [expected(model, tokenizer, row, "all").astype(np.float32) for row in rows])


def test_long_rows_go_side_by_side_only_where_that_is_faster(model, tokenizer, monkeypatch):
    groups, encode = [], CorpusEncoder._encode_long

    def noting(self, group, rows, window):
        groups.append(group)
        encode(self, group, rows, window)

    monkeypatch.setattr(CorpusEncoder, "_encode_long", noting)
    rows = ["a b c d e f g h", "i", *["k l m n o p q r"] * 4]
    for batch_tokens, expected_groups in [(9, [[0, 2, 3, 4, 5, 1]]), (21, [[0, 2, 3, 4, 5, 1]]), (30, []), (None, [])]:
        groups.clear()
        close(embed(model, rows, batch_tokens=batch_tokens), [expected(model, tokenizer, row) for row in rows])
        assert groups == expected_groups


@pytest.mark.parametrize(("projection", "tokens"), [(11, 16384), (600, 6990), (1200, 4096)])
def test_small_models_take_more_tokens_at_a_time(projection: int, tokens: int) -> None:
    model = initial_model(hidden_size=2 * projection, cell_size=13)
    assert _batch_tokens(model) == tokens
    assert _batch_tokens(model.to("meta")) == 16384  # not a CPU


@pytest.mark.parametrize("part", ["model", "bilm"])
@pytest.mark.parametrize("how", ["hook", "instance", "class"])
def test_what_stands_around_parts_that_embed_does_not_call_is_refused(model, part: str, how: str) -> None:
    """It would be in the vectors of short rows alone, or in none."""
    model = copy.deepcopy(model)
    module = model if part == "model" else model.bilm
    if how == "hook":
        module.register_forward_hook(lambda *_: None)
    elif how == "instance":
        module.forward = module.forward
    else:
        module.__class__ = type("Own", (type(module),), {"forward": lambda self, *a, **k: None})
    with pytest.raises(ValueError, match=r"has a hook or a forward of its own, which embed would pass over"):
        embed(model, ["a b"])


def test_a_class_of_ones_own_that_changes_no_forward_is_embedded(model) -> None:
    expected_rows, model = embed(model, ["a b"]), copy.deepcopy(model)
    model.__class__ = type("Own", (type(model),), {})
    close(embed(model, ["a b"]), expected_rows)


# -- numbers that are too large, or none -------------------------------------------------------------------------------


def scaled(factor: float) -> ElmoModel:
    """A model whose numbers are all about as large as the factor, in the words and between them."""
    model = random_model(ElmoConfig(**{**TINY, "layer_weights": 0}))
    with torch.no_grad():
        model.char_encoder.projection.weight.mul_(factor)
        model.char_encoder.projection.bias.zero_()
    return model


@pytest.mark.parametrize("pooling", ["none", "mean", "max"])
@pytest.mark.parametrize("batch_tokens", [None, 11], ids=["batch", "pieces"])
@pytest.mark.parametrize("ending", [None, "npz", "safetensors", "hdf5", "parquet"])
def test_numbers_that_float16_has_not_are_refused(tokenizer, tmp_path, pooling, batch_tokens, ending):
    model, output = scaled(1e7), None if ending is None else tmp_path / f"out.{ending}"
    options = {"tokenizer": tokenizer, "pooling": pooling, "batch_tokens": batch_tokens}
    for rows, number in ((["", *ROWS], 1), (["", "", "word " * 41], 2)):
        with pytest.raises(ValueError, match=r"row \d+ \(counted from 0\) has numbers over 65504 .*'float32'") as error:
            embed(model, rows, output, output_dtype="float16", restart=True, **options)
        if number == 2:
            assert f"row {number} " in str(error.value)
    if ending is None:
        assert max(np.abs(row).max(initial=0) for row in embed(model, ROWS, **options)) > 65504
        model = scaled(1)
        close(embed(model, ROWS, output_dtype="float16", **options), embed(model, ROWS, **options), tolerance=0.05)


def test_the_row_of_a_number_that_float16_has_not_is_counted_over_the_corpus(tokenizer, tmp_path):
    model = scaled(1)
    with torch.no_grad():
        model.char_encoder.embedding.weight[ord("#") + 1] *= 1e7
    rows = ["a word", "", "two words"] * 20
    rows[47] = "a #"
    for output in (None, tmp_path / "out.npz"):
        with pytest.raises(ValueError, match=r"^row 47 "):
            embed(model, rows, output, tokenizer=tokenizer, output_dtype="float16", batch_tokens=20, window=20)


def test_a_number_that_float16_rounds_down_is_kept_and_a_boundary_is_not_looked_at(model, tokenizer, monkeypatch):
    def layers(self, words, lengths):
        values = torch.zeros(4, sum(lengths), 22)
        values[:, [0, -1]] = 1e30  # the boundaries, which are not written
        values[:, 1:-1] = 65519
        return values

    monkeypatch.setattr(CorpusEncoder, "_whole_layers", layers)
    (found,) = embed(model, ["a b"], tokenizer=tokenizer, layers=1, output_dtype="float16")
    assert (found == 65504).all()


def test_the_embedder_refuses_numbers_that_float16_has_not(tmp_path):
    scaled(1e7).save_pretrained(tmp_path)
    ElmoTokenizer().save_pretrained(tmp_path)
    embedder = Embedder(tmp_path, output_dtype="float16")
    with pytest.raises(ValueError, match=r"column 'text', row 1 \(counted from 0\) has numbers over 65504"):
        embedder({"text": ["", "a cat"]})


@pytest.mark.parametrize("pooling", ["none", "max"])
@pytest.mark.parametrize("batch_tokens", [None, 3], ids=["batch", "pieces"])
@pytest.mark.parametrize("output_dtype", ["float32", "float16"])
@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
def test_vectors_that_are_not_finite_are_warned_of_once(
    tokenizer, tmp_path, caplog, pooling, batch_tokens, output_dtype, wrong
):
    model = scaled(1)
    options = {"tokenizer": tokenizer, "pooling": pooling, "batch_tokens": batch_tokens, "output_dtype": output_dtype}
    for output in (None, tmp_path / "sound.npz"):
        embed(model, ROWS, output, **options)
    assert not caplog.records
    with torch.no_grad():
        model.char_encoder.projection.bias[0] = wrong
    for output in (None, tmp_path / "out.npz"):
        caplog.clear()
        embed(model, ["", "a", "b", "c", "d"], output, **options)
        (record,) = (one for one in caplog.records if "not finite" in one.message)
        assert "row 1 (counted from 0) has vectors that are not finite" in record.message
        assert "load it in float32" in record.message


@pytest.mark.parametrize("batch_tokens", [None, 11], ids=["one-batch", "pieces"])
def test_layers_are_added_up_in_float32(model, tokenizer, batch_tokens):
    how = {"tokenizer": tokenizer, "dtype": "bfloat16", "batch_tokens": batch_tokens}
    found = embed(model, ROWS, layers="sum", **how)
    close(found, [layers.sum(0) for layers in embed(model, ROWS, layers="all", **how)])


def test_the_first_number_that_float16_rounds_up_is_refused(model, tokenizer, monkeypatch):
    monkeypatch.setattr(
        CorpusEncoder, "_whole_layers", lambda _, words, lengths: torch.full((4, sum(lengths), 22), 65520.0)
    )
    with pytest.raises(ValueError, match=r"row 0 .* has numbers over 65504"):
        embed(model, ["a b"], tokenizer=tokenizer, layers=1, output_dtype="float16")


@pytest.mark.parametrize("batch_tokens", [None, 11], ids=["one-batch", "pieces"])
def test_means_of_half_precision_are_made_in_float32(model, tokenizer, batch_tokens):
    how = {"tokenizer": tokenizer, "dtype": "bfloat16", "batch_tokens": batch_tokens}
    rows = [row for row in ROWS if row.strip()]
    close(embed(model, rows, pooling="mean", **how), [vectors.mean(0) for vectors in embed(model, rows, **how)])


def test_rows_that_fit_are_mixed_with_layer_norm_however_few_fit(tokenizer):
    model, rows = initial_model(scalar_mix_layer_norm=True), [f"{word} " * 10 for word in "abcdef"]
    close(embed(model, rows, batch_tokens=20), [expected(model, tokenizer, row) for row in rows], 3e-6)
