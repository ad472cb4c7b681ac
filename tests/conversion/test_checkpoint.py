"""Checkpoints: what is in the folder, that it appears whole or not at all, and the way back."""

import hashlib
import re
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel

from hf_elmo import ElmoForSequenceClassification, ElmoModel, ElmoTokenizer
from hf_elmo.conversion import checkpoint, convert, convert_published, export, load
from hf_elmo.conversion.allennlp import read_weights
from hf_elmo.conversion.download import PUBLISHED_MODELS
from hf_elmo.model_cards import published_card
from hf_elmo.remote_code import FILES

from ..allennlp_files import make_arrays, make_options, write_files
from ..harness.kills import KILLS, Command, run_with_kills

CODE = {*FILES["ElmoModel"], *FILES["ElmoTokenizer"]}


@pytest.fixture
def source(tmp_path: Path) -> tuple[Path, Path]:
    options = make_options(char_cnn={"max_characters_per_token": 40})
    return write_files(tmp_path / "source", options, make_arrays(options))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "results" / "elmo-test"


def assert_nothing_left(out: Path) -> None:
    assert not out.parent.exists() or not list(out.parent.iterdir())


class TestConvert:
    def test_files(self, source: tuple[Path, Path], out: Path) -> None:
        assert convert(*source, out) == out
        files = {"README.md", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", *CODE}
        files.add("conversion.json")
        assert {path.name for path in out.iterdir()} == files
        assert [path.name for path in out.parent.iterdir()] == [out.name]

    def test_auto_classes_load_it(self, source: tuple[Path, Path], out: Path) -> None:
        convert(*source, out)
        model, tokenizer = AutoModel.from_pretrained(out), AutoTokenizer.from_pretrained(out)
        assert (type(model), type(tokenizer)) == (ElmoModel, ElmoTokenizer)
        expected = load(*source)
        words = tokenizer(["One sentence .", "Another"], padding=True, return_tensors="pt")
        assert words["input_ids"].shape == (2, 5, 40)
        with torch.no_grad():
            assert torch.equal(model(**words).last_hidden_state, expected(**words).last_hidden_state)

    @pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
    def test_dtype(self, source: tuple[Path, Path], out: Path, dtype: str) -> None:
        convert(*source, out, dtype=dtype)
        stored = load_file(out / "model.safetensors")
        for key, array in read_weights(*source)[1].items():
            assert torch.equal(stored[key], torch.from_numpy(array.copy()).to(getattr(torch, dtype))), key
        assert AutoModel.from_pretrained(out, dtype="auto").dtype == getattr(torch, dtype)

    @pytest.mark.parametrize(("splitting", "words"), [("lm1b", 4), ("whitespace", 3)])
    def test_word_splitting_is_saved(self, source: tuple[Path, Path], out: Path, splitting: str, words: int) -> None:
        convert(*source, out, word_splitting=splitting)
        assert len(AutoTokenizer.from_pretrained(out)("Stop!")["input_ids"]) == words  # boundaries included

    def test_load_in_memory(self, source: tuple[Path, Path]) -> None:
        model = load(*source, dtype="bfloat16")
        assert (model.dtype, model.training, model.config.max_word_length) == (torch.bfloat16, False, 40)
        assert torch.equal(model.scalar_mix.scalars, torch.zeros(1, 3, dtype=torch.bfloat16))
        assert torch.equal(model.scalar_mix.gamma, torch.ones(1, dtype=torch.bfloat16))


class TestCard:
    def test_card_of_files(self, source: tuple[Path, Path], out: Path) -> None:
        convert(*source, out, dtype="bfloat16")
        card = ModelCard.load(out / "README.md")
        assert card.data.library_name == "transformers"
        assert card.data.pipeline_tag == "feature-extraction"
        assert card.text.strip().startswith("# elmo-test\n")
        for fact in ("`weights.hdf5`, SHA-256 `", "4 of width 1, 5 of width 2, 8 of width 3; relu", "bfloat16", "40"):
            assert fact in card.text
        assert "{{" not in card.content
        assert "{%" not in card.content

    @pytest.mark.usefixtures("any_sizes")
    @pytest.mark.parametrize("name", PUBLISHED_MODELS)
    def test_card_of_a_published_model(
        self, source: tuple[Path, Path], out: Path, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = []
        monkeypatch.setattr(checkpoint, "download_published", lambda *a: asked.append(a) or source)
        assert convert_published(name, out, cache_dir="kept") == out
        assert asked == [(name, "kept")]
        card = ModelCard.load(out / "README.md")
        for part in re.split(r"^(?=## )", published_card(name).text, flags=re.MULTILINE):
            assert part.removeprefix("## Citation").strip() in card.text
        assert card.data.language == {"portuguese": "pt", "seqvec": None}.get(name, "en")
        expected = "characters" if name == "seqvec" else "lm1b"
        assert ElmoTokenizer.from_pretrained(out).word_splitting == expected


class TestDigest:
    def test_a_digest_that_is_given_is_compared(self, source: tuple[Path, Path], out: Path) -> None:
        right = hashlib.sha256(source[1].read_bytes()).hexdigest()
        with pytest.raises(ValueError, match=rf"weights\.hdf5 has the SHA-256 {right}, not 00ff"):
            convert(*source, out, digest="00ff")
        assert_nothing_left(out)
        convert(*source, out, digest=right.upper())
        assert "The digest of the weights is the one that was asked for." in (out / "README.md").read_text()

    def test_without_a_digest_the_card_says_so(self, source: tuple[Path, Path], out: Path) -> None:
        convert(*source, out)
        card = (out / "README.md").read_text()
        assert hashlib.sha256(source[1].read_bytes()).hexdigest() in card
        assert "No digest was known to compare these with" in card

    def test_the_known_digest_of_a_published_model(
        self, source: tuple[Path, Path], out: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(checkpoint, "download_published", lambda *_: source)
        monkeypatch.setitem(checkpoint.SHA256, PUBLISHED_MODELS["small"].weights, "0" * 64)
        with pytest.raises(ValueError, match="not 0000"):
            convert_published("small", out)


class TestKilled:
    def test_a_killed_conversion_leaves_all_or_nothing(self, source: tuple[Path, Path], tmp_path: Path) -> None:
        command = Command(["convert", *map(str, source), "OUT/elmo"], "elmo")
        counts = run_with_kills(command, tmp_path, KILLS)
        assert counts["kills"], "nothing was killed: the test would prove too little"

    def test_what_a_killed_conversion_left_is_removed(self, source: tuple[Path, Path], out: Path) -> None:
        for name in ("0123abcd", "89efffff"):
            (out.parent / f".{out.name}.{name}.partial").mkdir(parents=True)
            (out.parent / f".{out.name}.{name}.partial" / "model.safetensors").write_bytes(b"half of it")
        (out.parent / f".{out.name}.01234567.partial").write_bytes(b"half of an ONNX file")
        (out.parent / f".{out.name}.lock").touch()
        others = [f".{out.name}.notes.partial", ".elmo.01234567.partial", f"{out.name}.01234567.partial"]
        for name in others:
            (out.parent / name).touch()
        convert(*source, out)
        assert {path.name for path in out.parent.iterdir()} == {out.name, *others}

    def test_two_conversions_at_a_time_do_not_meet(
        self, source: tuple[Path, Path], out: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The second would remove what the first has written; it waits, and finds the name taken."""
        begun, compare = threading.Event(), checkpoint._compare_with_source

        def slowly(*arguments: Any) -> None:
            begun.set()
            time.sleep(0.2)
            compare(*arguments)

        monkeypatch.setattr(checkpoint, "_compare_with_source", slowly)
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(convert, *source, out)
            assert begun.wait(60)
            with pytest.raises(FileExistsError, match="exists already"):
                convert(*source, out)
            assert first.result() == out
        assert [path.name for path in out.parent.iterdir()] == [out.name]


class TestFailures:
    @pytest.mark.parametrize("kind", ["folder", "file", "dangling link"])
    def test_out_exists(self, source: tuple[Path, Path], out: Path, kind: str) -> None:
        out.parent.mkdir()
        {"folder": out.mkdir, "file": out.touch, "dangling link": lambda: out.symlink_to("nowhere")}[kind]()
        for write in (lambda: convert(*source, out), lambda: export(load(*source), out)):
            with pytest.raises(FileExistsError, match=r"elmo-test exists already: remove it"):
                write()
        assert [path.name for path in out.parent.iterdir()] == [out.name]

    def test_bad_source(self, source: tuple[Path, Path], out: Path) -> None:
        with h5py.File(source[1], "r+") as file:
            file["char_embed"][3, 1] = np.nan
        with pytest.raises(ValueError, match="char_embed"):
            convert(*source, out)
        assert_nothing_left(out)

    @pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, OSError])
    def test_error_while_writing(
        self, source: tuple[Path, Path], out: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
    ) -> None:
        def fail(*_: Any) -> None:
            raise error("no space left")

        monkeypatch.setattr(checkpoint, "write_card", fail)
        with pytest.raises(error, match="no space left"):
            convert(*source, out)
        assert_nothing_left(out)

    def test_somebody_else_takes_the_name_meanwhile(
        self, source: tuple[Path, Path], out: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def take(*_: Any) -> None:
            out.mkdir()
            (out / "theirs").touch()

        monkeypatch.setattr(checkpoint, "write_card", take)
        with pytest.raises(OSError):
            convert(*source, out)
        assert [path.name for path in out.parent.iterdir()] == [out.name]
        assert [path.name for path in out.iterdir()] == ["theirs"]

    @pytest.mark.parametrize("key", ["char_encoder.convolutions.1.bias", "bilm.backward_layers.0.weight_hr"])
    def test_check_after_writing_finds_a_changed_tensor(
        self, source: tuple[Path, Path], out: Path, monkeypatch: pytest.MonkeyPatch, key: str
    ) -> None:
        def damage(folder: Path, _: Any) -> None:
            tensors = load_file(folder / "model.safetensors")
            tensors[key].view(-1)[-1] += 1e-4
            save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

        monkeypatch.setattr(checkpoint, "write_card", damage)
        with pytest.raises(ValueError, match=f"The check after writing found {key} to differ"):
            convert(*source, out)
        assert_nothing_left(out)

    def test_check_after_writing_finds_a_changed_configuration(
        self, source: tuple[Path, Path], out: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def damage(folder: Path, _: Any) -> None:
            config = folder / "config.json"
            config.write_text(config.read_text().replace('"cell_clip": 3.0', '"cell_clip": 2.0'))

        monkeypatch.setattr(checkpoint, "write_card", damage)
        with pytest.raises(ValueError, match=r"found config\.cell_clip to differ"):
            convert(*source, out)
        assert_nothing_left(out)

    def test_too_large_for_half_precision(self, source: tuple[Path, Path], out: Path) -> None:
        with h5py.File(source[1], "r+") as file:
            file["CNN/b_cnn_1"][2] = 1e5
        with pytest.raises(ValueError, match=r"convolutions\.1\.bias has a value of 100000, too large for float16"):
            convert(*source, out, dtype="float16")
        assert_nothing_left(out)

    def test_unknown_dtype(self, source: tuple[Path, Path], out: Path) -> None:
        with pytest.raises(ValueError, match="dtype is 'int8', but must be one of float32, bfloat16, float16"):
            convert(*source, out, dtype="int8")

    def test_without_h5py(self, source: tuple[Path, Path], out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        model = load(*source)
        monkeypatch.setitem(sys.modules, "h5py", None)
        for write in (
            lambda: convert(*source, out),
            lambda: convert_published("small", out),
            lambda: export(model, out),
        ):
            with pytest.raises(ImportError, match=r"pip install 'hf-elmo\[convert\]'"):
                write()
            assert_nothing_left(out)


class TestExport:
    def test_from_a_folder(self, source: tuple[Path, Path], out: Path, tmp_path: Path) -> None:
        convert(*source, out)
        folder = export(out, tmp_path / "back")
        assert sorted(path.name for path in folder.iterdir()) == ["options.json", "weights.hdf5"]
        with h5py.File(source[1]) as first, h5py.File(folder / "weights.hdf5") as second:
            names: list[str] = []
            first.visit(names.append)
            back: list[str] = []
            second.visit(back.append)
            assert names == back
            for name in names:
                if isinstance(first[name], h5py.Dataset):
                    assert second[name].dtype == np.float32
                    # The forget bias was stored as b + 1, whose last digit (1.2e-7 from 1 to 2) may round.
                    np.testing.assert_allclose(
                        first[name][...], second[name][...], rtol=0, atol=2.5e-7 * name.endswith("/B")
                    )

    def test_heads_and_mix_stay_behind(self, source: tuple[Path, Path], out: Path, tmp_path: Path) -> None:
        convert(*source, out)
        head = ElmoForSequenceClassification.from_pretrained(out, num_labels=3)
        torch.nn.init.normal_(head.elmo.scalar_mix.scalars)
        folder = export(head, tmp_path / "back")
        assert torch.equal(
            load(folder / "options.json", folder / "weights.hdf5").bilm.forward_layers[1].bias,
            head.elmo.bilm.forward_layers[1].bias,
        )

    def test_half_precision_keeps_its_values(self, source: tuple[Path, Path], tmp_path: Path) -> None:
        model = load(*source, dtype="bfloat16")
        folder = export(model, tmp_path / "back")
        back = load(folder / "options.json", folder / "weights.hdf5").state_dict()
        for key, tensor in model.state_dict().items():
            assert torch.equal(back[key], tensor.float()), key

    def test_failure_leaves_nothing(self, source: tuple[Path, Path], out: Path) -> None:
        model = load(*source)
        torch.nn.init.constant_(model.bilm.backward_layers[1].bias, float("nan"))
        with pytest.raises(ValueError, match="Cell1/LSTMCell/B' would get NaN or infinity"):
            export(model, out)
        assert_nothing_left(out)

    def test_other_models_are_refused(self, out: Path) -> None:
        sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 9}
        with pytest.raises(ValueError, match="model is a BertModel"):
            export(BertModel(BertConfig(vocab_size=7, **sizes)), out)
