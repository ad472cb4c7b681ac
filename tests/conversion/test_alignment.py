"""A matrix behind the mix: found from pairs of words, read from the files of others, applied wherever a mix is."""

import numpy as np
import pytest
import torch
from scipy.stats import ortho_group
from torch.nn.functional import cosine_similarity
from transformers import AutoModel, AutoTokenizer

from examples.alignment import find_alignment
from hf_elmo import ElmoForSequenceClassification, ElmoModel, embed
from hf_elmo.conversion import export, exportable
from hf_elmo_cli import main
from tests.factories import SENTENCES, save_checkpoint, small_model
from tests.source_files import write_files

WORDS = [format(n * 7919, "x") for n in range(1, 64)]
SIZE = 14  # of the vectors of `write_files`


def test_a_rotated_copy_is_aligned_by_50_words(tmp_path) -> None:
    rotation = ortho_group.rvs(22, random_state=0)
    models = [small_model(scalar_mix_alignment=rotated) for rotated in (False, True)]
    models[1].scalar_mix.alignment.copy_(torch.tensor(rotation))
    folders = [save_checkpoint(tmp_path / name, model) for name, model in zip("ab", models, strict=True)]
    rng = np.random.default_rng(0)
    texts = [list(rng.choice(WORDS, 7)) for _ in range(60)]
    translations = [(word, word) for word in WORDS[:50]] + [("missing", "missing")]
    matrix = find_alignment((folders[1], texts), (folders[0], texts), translations)
    with pytest.raises(ValueError, match="pair"):
        find_alignment((folders[1], texts), (folders[0], texts), translations[50:])
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(22), atol=1e-6)
    one, other = (torch.tensor(np.concatenate(embed(folder, [[word] for word in WORDS[50:]]))) for folder in folders)
    assert cosine_similarity(one, other).max() < 0.9
    assert cosine_similarity(one, other @ torch.tensor(matrix, dtype=other.dtype).T).min() > 0.99


@torch.no_grad()
def test_a_head_of_one_language_reads_another(tmp_path, inputs) -> None:
    for name, aligned in (("en", False), ("es", True)):
        model = small_model(seed=aligned, scalar_mix_alignment=aligned, layer_weights=1)
        if aligned:
            model.scalar_mix.alignment.copy_(torch.tensor(ortho_group.rvs(22, random_state=0)))
        save_checkpoint(tmp_path / name, model)
    english, spanish = (ElmoForSequenceClassification.from_pretrained(tmp_path / name) for name in ("en", "es"))
    spanish.classifier.load_state_dict(english.classifier.state_dict())
    hidden = model(**inputs, output_hidden_states=True).hidden_states[1] @ model.scalar_mix.alignment.T
    words = (inputs["attention_mask"] * (inputs["input_ids"][:, :, 1] < 257))[:, :, None]
    expected = english.classifier.out_proj((hidden * words).sum(1) / words.sum(1).clamp(min=1))
    english.elmo = model
    english.save_pretrained(tmp_path / "saved")
    saved = ElmoForSequenceClassification.from_pretrained(tmp_path / "saved")
    for head in (spanish, english, saved, exportable(spanish)):
        torch.testing.assert_close(head(**inputs).logits, expected, atol=1e-5, rtol=1e-5)
    mixes = ElmoModel.from_pretrained(tmp_path / "es", num_scalar_mixes=2)(**inputs).scalar_mixes
    torch.testing.assert_close(mixes[0], mixes[1])


@pytest.mark.parametrize("layer", [1, None])
@pytest.mark.parametrize("kind", ["matrix.npy", "matrix.pth", "tensor.pth"])
def test_a_matrix_is_kept_with_the_checkpoint(layer: int | None, kind: str, tmp_path) -> None:
    """As AllenNLP's `elmo_token_embedder_multilang` applies it: W x for each vector x of the mix."""
    files, file = write_files(tmp_path / "source"), tmp_path / kind
    matrix = np.random.default_rng(1).standard_normal((SIZE, SIZE))
    if kind == "matrix.npy":
        np.save(file, matrix)
    else:
        torch.save(torch.tensor(matrix) if kind == "tensor.pth" else matrix, file)
    options = [] if layer is None else ["--align-layer", str(layer)]
    assert main(["convert", *map(str, files), str(tmp_path / "out"), "--align", str(file), *options]) == 0
    model, tokenizer = AutoModel.from_pretrained(tmp_path / "out"), AutoTokenizer.from_pretrained(tmp_path / "out")
    assert [name for name, _ in model.named_parameters() if "mix" in name] == []  # all of it is fixed
    output = model(**tokenizer(SENTENCES, padding=True, return_tensors="pt"), output_hidden_states=True)
    mix = torch.stack(output.hidden_states).mean(0) if layer is None else output.hidden_states[layer]
    expected = mix @ torch.tensor(matrix, dtype=torch.float32).T
    torch.testing.assert_close(output.last_hidden_state, expected, rtol=1e-5, atol=1e-5)
    for row, vectors in enumerate(embed(tmp_path / "out", SENTENCES)):
        np.testing.assert_allclose(vectors, expected[row, 1 : len(vectors) + 1].detach(), rtol=1e-4, atol=1e-5)
    assert export(tmp_path / "out", tmp_path / "back").is_dir()  # without the mix and its matrix
    with pytest.raises(ValueError, match="alignment"):  # a row in parts
        embed(tmp_path / "out", ["word " * 30], batch_tokens=11)
