"""The model that ships: how it is loaded, whatever its weights."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from transformers import AutoTokenizer

import hf_elmo
from hf_elmo import shipped
from tests.conftest import TINY, random_model


@pytest.fixture
def folder(config, tmp_path, monkeypatch) -> Path:
    """A random language model in bfloat16 in the place of the one that ships."""
    vocabulary = tmp_path / "words.txt"
    vocabulary.write_text("<S>\n</S>\n<UNK>\nthe\nriver\n", encoding="utf-8")
    config.vocab_size = 5
    place = tmp_path / "checkpoint"
    random_model(config, hf_elmo.ElmoForPreTraining).to(torch.bfloat16).save_pretrained(place)
    hf_elmo.ElmoTokenizer(vocab_file=str(vocabulary)).save_pretrained(place)
    monkeypatch.setattr(shipped, "FOLDER", place)
    return place


def test_default_is_a_model_and_its_tokenizer(folder):
    model, tokenizer = hf_elmo.load_default()
    assert type(model) is hf_elmo.ElmoModel
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    expected = hf_elmo.ElmoModel.from_pretrained(folder, dtype=torch.float32)
    inputs = tokenizer("the river", return_tensors="pt")
    assert torch.equal(model(**inputs).last_hidden_state, expected(**inputs).last_hidden_state)


def test_default_as_language_model_has_its_softmax_and_vocabulary(folder):
    model, tokenizer = hf_elmo.load_default(language_model=True)
    assert model.lm_head.weight.shape == (5, 11)
    assert model.lm_head.weight.dtype == torch.float32
    (score,) = hf_elmo.score(model, tokenizer, ["the river"])
    assert score.words == ["<S>", "the", "river", "</S>"]


@pytest.mark.parametrize("name", [None, "a folder"])
def test_a_name_or_none_loads_what_it_says(folder, name):
    model, tokenizer = shipped.load_model(folder if name else None)
    assert model.dtype == (torch.bfloat16 if name else torch.float32)
    assert tokenizer.vocabulary == ["<S>", "</S>", "<UNK>", "the", "river"]


@pytest.mark.parametrize("name", sorted(path.name for path in shipped.CHECKPOINTS.iterdir()))
def test_what_ships_is_loaded_in_float32_and_gives_the_same_bits_in_another_process(name: str):
    code = (
        "import hashlib, torch, hf_elmo, hf_elmo.shipped as shipped\n"
        f"name = {name!r}\n"
        f"torch.set_num_threads({torch.get_num_threads()})\n"  # without the C kernels they are part of the environment
        "from transformers import AutoModel, AutoTokenizer\n"
        "model, tokenizer = (kind.from_pretrained(shipped.CHECKPOINTS / name) for kind in (AutoModel, AutoTokenizer))\n"
        "vectors = model(**tokenizer(['A river bank.', 'Two banks!'] * 5, padding=True, return_tensors='pt'))[0]\n"
        "found = vectors.dtype, hashlib.sha256(vectors.detach().numpy().tobytes()).hexdigest()\n"
    )
    here: dict = {}
    exec(code, here)
    assert here["found"][0] == torch.float32
    done = subprocess.run([sys.executable, "-c", code + "print(found[1])"], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == here["found"][1]


@pytest.mark.parametrize("name", sorted(path.name for path in shipped.CHECKPOINTS.iterdir()))
def test_each_that_ships_is_loaded_by_its_name(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, tokenizer = hf_elmo.load_model(name, language_model=True)
    assert Path(model.name_or_path) == shipped.CHECKPOINTS / name
    assert (model.dtype, len(tokenizer.vocabulary)) == (torch.float32, model.config.vocab_size)
    assert hf_elmo.Embedder(name).fingerprint == hf_elmo.Embedder(shipped.CHECKPOINTS / name).fingerprint
    random_model(hf_elmo.ElmoConfig(**TINY)).save_pretrained(name)
    hf_elmo.ElmoTokenizer().save_pretrained(name)
    model, _ = hf_elmo.load_model(name)  # a folder here comes first
    assert model.config.cell_size == TINY["cell_size"]


def test_a_package_without_its_checkpoint_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "FOLDER", tmp_path / "nothing")
    with pytest.raises(OSError, match="install it again"):
        hf_elmo.load_default()


@pytest.mark.parametrize("name", [None, "a folder"])
def test_a_language_model_in_the_type_and_on_the_device_asked_for(folder, name):
    how = {"language_model": True, "dtype": "float16", "device": "meta"}
    model, _ = shipped.load_model(folder if name else None, **how)
    assert type(model) is hf_elmo.ElmoForPreTraining
    assert (model.dtype, model.device.type) == (torch.float16, "meta")


def test_a_folder_that_is_no_checkpoint_is_named(tmp_path: Path) -> None:
    (tmp_path / "encoder.pkl").touch()
    (tmp_path / "token_embedder.pkl").touch()
    with pytest.raises(ValueError, match=r"no folder of a checkpoint.*is not converted yet"):
        shipped.load_model(tmp_path)
    (tmp_path / "weights.hdf5").touch()
    (tmp_path / "options.json").touch()
    (tmp_path / "encoder.pkl").unlink()
    with pytest.raises(ValueError, match="is not converted yet: hf-elmo convert makes a checkpoint of it"):
        shipped.load_model(tmp_path)
    with pytest.raises(ValueError, match="no file of a model"):
        shipped.load_model(tmp_path / "token_embedder.pkl")


def test_a_path_that_does_not_exist_is_not_looked_for_on_the_hub(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere' does not exist: give the folder of a checkpoint"):
        shipped.load_model(tmp_path / "nowhere")


def test_without_network_the_name_and_the_reason_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    message = r"'someone/elmo' does not exist as a folder, nor .*: HF_HUB_OFFLINE is set, and it is not cached"
    with pytest.raises(OSError, match=message):
        shipped.load_model("someone/elmo")


def test_what_a_library_raises_without_network_is_no_damage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """huggingface-hub before 2 sends its second request to a client that it closed after the first one."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    closed = "Cannot send a request, as the client has been closed."
    absent = f"'some/model' does not exist as a folder, nor could it be had from the Hub: RuntimeError: {closed}"
    with pytest.raises(OSError, match=absent), shipped.named("some/model"):
        raise RuntimeError(closed)
    (tmp_path / "models--some--model" / "snapshots" / "a").mkdir(parents=True)
    (tmp_path / "models--some--model" / "snapshots" / "a" / "config.json").touch()
    (tmp_path / "models--some--model" / "refs").mkdir()
    (tmp_path / "models--some--model" / "refs" / "main").write_text("a")
    damaged = "some/model cannot be loaded, a file of it is damaged"
    with pytest.raises(ValueError, match=damaged), shipped.named("some/model"):
        raise SafetensorError("header too large")


def test_sizes_that_were_given_and_do_not_fit_are_no_damage(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"other sizes than asked for: leave out .* not \[396\]") as refused:
        shipped.load_checkpoint(hf_elmo.ElmoModel, folder, cell_size=99)
    assert "damaged" not in str(refused.value)


@pytest.mark.parametrize("sizes", [{"vocab_size": 10**15}, {"char_filters": [[1, 10**12]]}], ids=["vocab", "filters"])
def test_what_does_not_fit_into_memory_is_no_damage(folder: Path, sizes: dict) -> None:
    with pytest.raises(MemoryError, match="does not fit into memory: free some") as refused:
        shipped.load_checkpoint(hf_elmo.ElmoForPreTraining, folder, **sizes)
    assert "damaged" not in str(refused.value)


def test_a_type_that_a_field_cannot_have_is_no_damage(folder: Path) -> None:
    with pytest.raises(
        ValueError, match=r"cannot be loaded: what was given .* StrictDataclassFieldValidationError: .*cell_size"
    ) as refused:
        shipped.load_checkpoint(hf_elmo.ElmoModel, folder, cell_size="99")
    assert "damaged" not in str(refused.value)


@pytest.mark.parametrize("loader", [AutoTokenizer, hf_elmo.ElmoTokenizer])
def test_a_tokenizer_without_its_settings_is_refused(folder: Path, loader: type) -> None:
    hf_elmo.ElmoTokenizer(word_splitting="characters").save_pretrained(folder)
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(ValueError, match=r"tokenizer\.json has no tokenizer_config\.json .*word_splitting: copy that"):
        loader.from_pretrained(folder)
    with pytest.raises(ValueError, match=r"tokenizer\.json has no tokenizer_config\.json"):
        hf_elmo.embed(folder, ["MKV"])
    given = loader.from_pretrained(folder, word_splitting="characters")
    assert given.split_into_words(["MKV"]) == [["M", "K", "V"]]


def test_a_model_without_a_tokenizer_has_the_default_one_and_a_warning(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    shipped.load_tokenizer(folder)
    assert caplog.messages == []
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    assert shipped.load_tokenizer(folder).word_splitting == "lm1b"
    (message,) = caplog.messages
    assert "has no tokenizer_config.json: its texts are split as ElmoTokenizer() splits them ('lm1b')" in message


@pytest.mark.parametrize("name", ["tokenizer_config.json", "tokenizer.json", "model.safetensors"])
def test_a_file_that_was_cut_off_is_damaged(folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="a file of it is damaged: download or copy it again"):
        shipped.load_model(folder)
