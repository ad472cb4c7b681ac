"""The command `hf-elmo` as a whole: its help, its exit statuses, its errors and its completion."""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

import hf_elmo
import hf_elmo_cli
from hf_elmo.conversion.checkpoint import DTYPES
from hf_elmo.pretraining.recipe import LAYOUTS
from hf_elmo.tokenization_elmo import WORD_SPLITTINGS
from hf_elmo_cli import main, make_parser

ROOT = Path(__file__).parent.parent
COMMANDS = (
    "convert",
    "export",
    "push",
    "embed",
    "predict",
    "neighbors",
    "vocab",
    "pretrain",
    "perplexity",
    "substitutes",
    "next",
    "explore",
    "env",
)
SUBPARSERS = {one.prog.split()[1]: one for one in hf_elmo_cli._subparsers(make_parser())}


def written_in(text: str) -> list[str]:
    """The lines of a text that are commands of hf-elmo, without comments."""
    return [line.strip() for line in text.splitlines() if re.match(r" *hf-elmo [a-z]+ [^|]*$", line)]


def test_every_command_is_known() -> None:
    assert tuple(SUBPARSERS) == COMMANDS


def test_options_stand_anywhere_among_the_paths() -> None:
    rest = ["--layers", "all", "--pretokenized"]
    for given in ([*rest, "m", "i", "o"], ["m", *rest, "i", "o"], ["m", "i", *rest, "o"], ["m", "i", "o", *rest]):
        options = make_parser().parse_args(["embed", *given])
        assert (options.paths, options.layers, options.pretokenized) == (["m", "i", "o"], "all", True)
    options = make_parser().parse_args(["next", "--top", "3", "the cat", "--before"])
    assert (options.top, options.before) == (3, True)


def test_what_no_command_knows_is_named(capsys: pytest.CaptureFixture) -> None:
    for given, named in ((["embed", "--poling", "mean", "a", "b"], "--poling"), (["next", "a", "b"], "b")):
        with pytest.raises(SystemExit):
            make_parser().parse_args(given)
        assert f"unrecognized arguments: {named}" in capsys.readouterr().err


# Neither torch nor transformers, which take seconds, and no NumPy.
@pytest.mark.parametrize(
    "arguments", [["--version"], ["--help"], [], ["embed", "a"], *([name, "--help"] for name in COMMANDS)], ids=str
)
def test_what_runs_nothing_imports_nothing(arguments: list[str]) -> None:
    code = "import sys\ntry:\n    import hf_elmo_cli; hf_elmo_cli.main(sys.argv[1:])\nfinally:\n    print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert done.returncode == (0 if arguments and arguments[-1].startswith("--") else 2)
    modules = done.stdout.splitlines()[-1].split()
    assert "hf_elmo_cli" in modules
    assert not {"hf_elmo", "torch", "transformers", "numpy", "huggingface_hub"} & set(modules)


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out == f"hf-elmo {hf_elmo.__version__}\n"


def test_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "hf_elmo", "--version"], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, f"hf-elmo {hf_elmo.__version__}\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_has_the_same_parts(name: str) -> None:
    text = SUBPARSERS[name].format_help()
    parts = ["usage: hf-elmo " + name, "\n\n", "positional arguments:", "options:", "\nexample"]
    positions = [text.index(part) for part in parts]
    assert positions == sorted(positions)
    assert "(default)" not in text  # a default is in brackets
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("name", sorted({*COMMANDS} - {"convert", "embed"}))  # whose first path may be left out
def test_every_usage_names_the_arguments_and_the_options_as_one(name: str) -> None:
    usage = SUBPARSERS[name].format_usage().removeprefix(f"usage: hf-elmo {name}")
    assert usage.count("[options]") == 1
    found = {"+": "{0} [{0} ...]", "?": "[{0}]", None: "{0}"}
    arguments = (found[action.nargs].format(action.metavar) for action in SUBPARSERS[name]._get_positional_actions())
    assert " ".join(usage.replace("[options]", "").split()) == " ".join(arguments)


@pytest.mark.parametrize("name", ["convert", "embed"])
def test_each_of_several_usages_has_options(name: str) -> None:
    lines = SUBPARSERS[name].format_usage().removeprefix("usage:").strip().splitlines()
    assert all(line.split()[:3] == ["hf-elmo", name, "[options]"] for line in lines)


def test_the_help_says_the_exit_statuses(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith("usage: hf-elmo [options] COMMAND ...")
    assert "exit status: 0, 1 after an error, 2 where the command line is wrong, 130 after Ctrl-C" in text


CLOSED = {
    ("convert", "--dtype"): DTYPES,
    ("env", "--dtype"): DTYPES,
    ("embed", "--dtype"): DTYPES,
    ("convert", "--word-splitting"): WORD_SPLITTINGS,
    ("pretrain", "--word-splitting"): WORD_SPLITTINGS,
    ("pretrain", "--layout"): LAYOUTS,
}


@pytest.mark.parametrize(("name", "option"), CLOSED, ids=lambda value: value)
def test_what_is_one_of_a_few_is_shown_and_nothing_else_is_taken(
    name: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    values = CLOSED[name, option]
    (shown,) = re.findall(rf"{option} \{{(.*?)\}}", SUBPARSERS[name].format_help())
    assert sorted(shown.split(",")) == sorted(values)
    paths = ["x"] * len(SUBPARSERS[name]._get_positional_actions())
    for value in values:
        assert value in vars(make_parser().parse_args([name, *paths, option, value])).values()
    with pytest.raises(SystemExit) as stopped:
        main([name, *paths, option, "another"])
    assert stopped.value.code == 2
    assert f"{option}: invalid choice: 'another'" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_example_is_one_that_the_parser_takes(name: str) -> None:
    examples = written_in(SUBPARSERS[name].epilog)
    assert examples
    for line in examples:
        options = make_parser().parse_args(shlex.split(line)[1:])
        assert options.run is getattr(hf_elmo_cli, f"_{name}")


@pytest.mark.parametrize("page", ["README.md", "examples/README.md"])
def test_every_command_in_the_pages_is_one_that_the_parser_takes(page: str) -> None:
    commands = written_in((ROOT / page).read_text(encoding="utf-8"))
    assert commands
    for line in commands:
        assert make_parser().parse_args(shlex.split(line)[1:]).run


def test_of_every_command_some_failure_is_tested() -> None:
    assert {case.partition(",")[0] for case in MISSING} == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unknown_option_is_named(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([name, *("x" for action in SUBPARSERS[name]._get_positional_actions()), "x", "--no-such-option"])
    assert stopped.value.code == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("usage: hf-elmo")
    assert "--no-such-option" in error.splitlines()[-1]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_described_in_one_style(name: str) -> None:
    for action in SUBPARSERS[name]._actions:
        if action.help == argparse.SUPPRESS or "--help" in action.option_strings:
            continue
        assert action.help, action.dest
        assert not action.help.endswith("."), action.help
        assert not re.match("[A-Z][a-z]", action.help), action.help  # no sentence, but FILE and OPTIONS may begin it
        takes_value = action.option_strings and action.nargs != 0 and action.choices is None
        shown = action.metavar or action.dest.upper()
        assert not takes_value or re.fullmatch(r"[A-Z_]+(=[A-Z]+)?", shown), shown
        if action.option_strings and action.default not in (None, False, []):
            assert f"[{action.default}" in action.help or f"{action.default}]" in action.help, action.help


def failing(error: BaseException) -> types.SimpleNamespace:
    def run(_: argparse.Namespace) -> None:
        raise error

    return types.SimpleNamespace(parse_args=lambda _: argparse.Namespace(run=run, traceback=False))


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (ValueError("size is 0, but must be 1 or more"), 1, "hf-elmo: error: size is 0, but must be 1 or more\n"),
        (FileNotFoundError(2, "No such file or directory", "a.txt"), 1, "No such file or directory: 'a.txt'\n"),
        (RuntimeError("boom"), 1, "hf-elmo: error: RuntimeError: boom\n"),
        (KeyError("field"), 1, "hf-elmo: error: KeyError: 'field'\n"),
        (MemoryError(), 1, "hf-elmo: error: MemoryError\n"),
        (KeyboardInterrupt(), 130, "hf-elmo: stopped\n"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_errors_have_a_message_a_status_and_no_traceback(
    error: BaseException,
    status: int,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(hf_elmo_cli, "make_parser", lambda: failing(error))
    assert main([]) == status
    out, err = capsys.readouterr()
    assert says in err
    assert out == ""
    assert "Traceback" not in err
    foreseen = isinstance(error, (*hf_elmo_cli.EXPECTED, KeyboardInterrupt))
    assert ("hf-elmo --traceback" in err) is not foreseen


def test_a_traceback_on_request(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        main(["--traceback", "env", str(tmp_path / "missing")])


MISSING = {
    "export, model": ["export", "missing/model", "out"],
    "push, folder": ["push", "missing/elmo", "somebody/elmo"],
    "embed, model": ["embed", "./missing", "text.txt", "out.npz"],
    "embed, input": ["embed", "missing.txt", "new/out.npz"],
    "neighbors, model": ["neighbors", "A word.", "word", "text.txt", "--model", "missing/a/model"],
    "neighbors, corpus": ["neighbors", "A word.", "word", "missing.txt"],
    "vocab, text": ["vocab", "out.txt", "missing/*.txt"],
    "pretrain, text": ["pretrain", "out", "missing.txt"],
    "pretrain, vocabulary": ["pretrain", "out", "text.txt", "--vocab", "missing.txt"],
    "pretrain, held-out text": ["pretrain", "out", "text.txt", "--held-out", "missing.txt"],
    "pretrain, model": ["pretrain", "out", "text.txt", "--init", "./missing"],
    "perplexity, model": ["perplexity", "/missing/model", "text.txt"],
    "substitutes, model": ["substitutes", "./missing", "A word."],
    "convert, source": ["convert", "missing.json", "missing.hdf5", "out"],
    "predict, model": ["predict", "./missing", "text.txt", "out.jsonl"],
    "next, model": ["next", "A word.", "--model", "missing/model"],
    "explore, model": ["explore", "./missing"],
    "explore, corpus": ["explore", "--corpus", "missing.txt"],
    "env, model": ["env", "../missing/model"],
}


@pytest.mark.parametrize("arguments", MISSING.values(), ids=MISSING)
def test_what_does_not_exist_is_named_and_nothing_is_written(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("gradio" if arguments[0] == "explore" else "accelerate")
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("A word is a word .\n" * 50)
    assert main(arguments) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    named = next(one for one in arguments if "missing" in one)
    assert error.startswith("hf-elmo: error: ")
    assert named in error
    assert re.search("does not exist|no file matches|No such file", error)
    assert os.listdir() == ["text.txt"]


def test_the_folder_of_an_output_is_made(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("A word is a word .\n")
    assert main(["vocab", str(tmp_path / "new" / "folder" / "vocab.txt"), str(tmp_path / "text.txt")]) == 0
    assert "word" in (tmp_path / "new" / "folder" / "vocab.txt").read_text().split()
    assert main(["vocab", str(tmp_path / "text.txt" / "vocab.txt"), str(tmp_path / "text.txt")]) == 1


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("shtab")
    with pytest.raises(SystemExit) as stopped:
        main(["--print-completion", shell])
    assert stopped.value.code == 0
    script = capsys.readouterr().out
    assert {*COMMANDS, "--output-dtype", "--held-out"} <= set(re.findall(r"[\w-]+", script))
    if shell == "bash" and shutil.which("bash"):
        (tmp_path / "script").write_text(script)
        complete = f"source {tmp_path}/script; COMP_WORDS=(hf-elmo pe); COMP_CWORD=1; _shtab_hf_elmo; echo $COMPREPLY"
        done = subprocess.run(["bash", "-c", complete], capture_output=True, text=True)
        assert done.stdout == "perplexity\n"


def test_completion_needs_its_library(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    with pytest.raises(SystemExit) as stopped:
        main(["--print-completion", "bash"])
    assert stopped.value.code == 1
    assert 'pip install "hf-elmo[completion]"' in capsys.readouterr().err


def test_completion_of_an_unknown_shell(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("shtab")
    with pytest.raises(SystemExit) as stopped:
        main(["--print-completion", "cmd"])
    assert stopped.value.code == 2
    assert "known are bash, zsh" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("false", False), ("False", False), ("true", True), ("True", True), ("null", None), ("None", None)),
        *((".5", 0.5), ("1e-3", 0.001), ("adagrad", "adagrad"), ("a=b", "a=b"), ("", ""), ("1-2", "1-2")),
        *(('{"a": [1]}', {"a": [1]}), ("{'a': (1,)}", {"a": (1,)}), ("__import__('os')", "__import__('os')")),
        *(("1_000", "1_000"), ("0x10", "0x10"), ("...", "..."), ("b'1'", "b'1'"), ("'1'", "1"), ("12", 12)),
    ],
)
def test_settings_are_numbers_and_booleans_as_people_write_them(text: str, value: object) -> None:
    assert hf_elmo_cli._setting(f"name={text}") == ("name", value)
