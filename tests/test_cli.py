"""The command `hf-elmo` as a whole: its help, its exit statuses, its errors and its completion."""

import io
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
import typer

import hf_elmo
import hf_elmo_cli
from hf_elmo import kernels
from hf_elmo_cli import main
from hf_elmo_cli.pretrain import settings
from tests.factories import small_checkpoint, write_lines

ROOT = Path(__file__).parent.parent
COMMANDS = typer.main.get_command(hf_elmo_cli.app).commands
VALUES = {"false": False, "False": False, "true": True, "null": None, "None": None, "12": 12, ".5": 0.5, "1e-3": 0.001}
VALUES |= {"adagrad": "adagrad", "a=b": "a=b", "": "", "'1'": "1", '{"a": [1]}': {"a": [1]}, "{'a': (1,)}": {"a": (1,)}}
VALUES["__import__('os')"] = "__import__('os')"
MISSING = ["embed missing.txt new/out.npz", "neighbors 'A word.' word missing.txt", "convert missing.json m.hdf5 out"]
MISSING += ["pretrain text.txt out --held-out missing.txt", "predict text.txt out.jsonl --model ./missing"]


@pytest.mark.parametrize("arguments", [["--version"], ["embed", "a"], ["pretrain", "--help"]], ids=" ".join)
def test_what_runs_nothing_imports_nothing(arguments: list[str]) -> None:
    code = "import sys\ntry:\n    import hf_elmo_cli; sys.exit(hf_elmo_cli.main(sys.argv[1:]))\nfinally:\n    "
    command = [sys.executable, "-c", code + "print(*sys.modules)", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == (0 if arguments[-1].startswith("--") else 2)
    *printed, last = done.stdout.splitlines()
    assert arguments != ["--version"] or printed == [f"hf-elmo {hf_elmo.__version__}"]
    assert "hf_elmo_cli" in last.split()
    assert not {"hf_elmo", "torch", "transformers", "numpy", "huggingface_hub", "rich"} & set(last.split())


def test_as_a_module(monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["hf_elmo", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("hf_elmo", run_name="__main__")
    assert (ended.value.code, capsys.readouterr().out) == (0, f"hf-elmo {hf_elmo.__version__}\n")


def test_the_commands_of_the_pages_and_of_help_are_taken(capsys) -> None:
    for name in COMMANDS:
        assert main([name, "--help"]) == 0
    pages = [ROOT / "README.md", ROOT / "examples/README.md", *ROOT.glob("docs/**/*.md")]
    text = "\n".join([capsys.readouterr().out, *(page.read_text(encoding="utf-8") for page in pages)])
    lines = re.findall(r"^[ $]*hf-elmo ([a-z]+ [^|&`\n]*)$", text.replace("\\\n", " "), re.MULTILINE)
    commands = [shlex.split(line, comments=True) for line in lines if "--list" not in line and "COMMAND" not in line]
    assert {name for name, *_ in commands} == COMMANDS.keys()
    for name, *arguments in commands:
        COMMANDS[name].make_context(name, arguments)


def test_errors_have_a_message_a_status_and_no_traceback_unless_asked(monkeypatch, capsys) -> None:
    monkeypatch.setattr("hf_elmo.cli.environment.describe_environment", describe := Mock())
    for describe.side_effect, status, says in (
        (ValueError("size is 0"), 1, "hf-elmo: error: size is 0\n"),
        (RuntimeError("boom"), 1, "hf-elmo: error: RuntimeError: boom\n"),
        (EOFError("cut"), 1, "\nhf-elmo: error: EOFError: cut\n"),
        (KeyboardInterrupt(), 130, "hf-elmo: stopped\n"),
    ):
        assert main(["env"]) == status
        assert capsys.readouterr() == ("", says)
    describe.side_effect = OSError("no disk")
    with pytest.raises(OSError, match="no disk"):
        main(["--traceback", "env"])


def test_errors_name_options_instead_of_arguments(tmp_path, capsys) -> None:
    table, latin, old = tmp_path / "a.csv", tmp_path / "b.txt", write_lines(tmp_path / "old.npz", [])
    table.write_text("id,body\n1,a\n")
    latin.write_bytes(b"na\xefve\n")
    for arguments, says in (
        ([table, "out.npz"], r"--text-column must be one of the columns \['id', 'body'\]"),
        ([latin, "out.npz"], "b.txt, line 1: not valid utf-8 .*: pass its --encoding"),
        ([latin, old], "choose another name or --overwrite"),
        ([write_lines(tmp_path / "a.tex", []), "out.npz"], "pass --input-format text"),
        ([latin, "out.npz", "--layers", "9"], "--layers is 9, but must be .*"),
    ):
        assert main(["embed", *map(str, arguments)]) == 1
        assert re.search(f"hf-elmo: error: .*{says}$", capsys.readouterr().err.rstrip(), re.DOTALL)


def test_words_are_printed_in_any_encoding(monkeypatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr("hf_elmo.cli.environment.describe_environment", lambda: {"왕 é": ""})
    assert main(["env"]) == 0
    stream.flush()
    assert stream.buffer.getvalue().decode("cp1252").startswith("\\uc655 é")


def test_env_names_the_backend_of_each_operation_of_a_model(tmp_path, capsys, monkeypatch) -> None:
    for name in ("torch_audio", "scikit_learn"):
        (tmp_path / f"{name}-1.0.dist-info").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    folder = small_checkpoint(tmp_path / "model")
    with kernels.use("fused"):
        assert main(["env", "--model", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert re.search(rf"^libraries +hf-elmo \S+, torch {re.escape(torch.__version__)}, transformers", printed, re.M)
    assert "\none sentence, word-vectors: plain PyTorch\n    not word-cache: switched off\n" in printed


@pytest.mark.parametrize("command", MISSING)
def test_what_does_not_exist_is_named_and_nothing_is_written(command, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("A word is a word .\n" * 50)
    assert main(shlex.split(command)) == 1
    assert re.search("hf-elmo: error: .*missing", capsys.readouterr().err)
    assert os.listdir() == ["text.txt"]


def test_settings_are_numbers_and_booleans_as_people_write_them() -> None:
    assert {text: settings([f"name={text}"])["name"] for text in VALUES} == VALUES
    with pytest.raises(typer.BadParameter, match="NAME=VALUE"):
        settings(["name"])
