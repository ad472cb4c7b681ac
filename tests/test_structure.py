"""Which package may import which, and that there is no import cycle: read from the syntax trees."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import hf_elmo

PACKAGE = Path(hf_elmo.__file__).parent
ROOT = PACKAGE.parent
ROOMS = ("kernels", "embedding", "pretraining", "analysis", "tasks", "explore")
INSTALLED = {"conversion": ROOT / "conversion", "model_cards": ROOT / "model_cards"}  # at the top level of the checkout

# What each room may import of the package, itself aside. "travelling" are the flat *_elmo.py files; "home" the other
# flat ones.
ALLOWED = {
    "travelling": set(),  # but for the guarded look for hf_elmo.kernels in backends_elmo.py
    "kernels": {"travelling"},
    "home": {"travelling", "embedding", "pretraining", "analysis", "tasks", "kernels", "conversion", "model_cards"},
    "embedding": {"travelling", "kernels", "home"},
    "pretraining": {"travelling", "home"},
    "analysis": {"travelling", "home", "embedding", "pretraining"},
    "tasks": {"travelling", "home", "embedding"},
    "explore": {"travelling", "home", "analysis"},
    "model_cards": {"travelling", "home"},
    "conversion": {"travelling", "home", "model_cards", "pretraining"},
}


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name below hf_elmo."""
    found = {}
    for folder, prefix in [(PACKAGE, ""), *((path, f"{name}.") for name, path in INSTALLED.items())]:
        for file in folder.rglob("*.py"):
            parts = file.relative_to(folder).with_suffix("").parts
            if parts[0] != "checkpoints":
                found[prefix + ".".join(part for part in parts if part != "__init__")] = file
    return {name.rstrip("."): file for name, file in found.items()}


MODULES = modules()


def room(module: str) -> str:
    first, _, rest = module.partition(".")
    if first in (*ROOMS, *INSTALLED):
        return first
    assert not rest
    return "travelling" if first.endswith("_elmo") else "home"


def resolve(module: str, node: ast.Import | ast.ImportFrom) -> set[str]:
    """The modules of the package that an import statement names, below hf_elmo."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        base = node.module or ""
        if node.level:
            package = module.split(".") if MODULES[module].name == "__init__.py" else module.split(".")[:-1]
            package = package[: len(package) - (node.level - 1)] if node.level > 1 else package
            base = ".".join(["hf_elmo", *package, *filter(None, [base])])
        within = [f"{base}.{alias.name}" for alias in node.names]
        names = [name if name.removeprefix("hf_elmo.") in MODULES else base for name in within]
    below = {name.removeprefix("hf_elmo").removeprefix(".") for name in names if name.split(".")[0] == "hf_elmo"}
    return {name for name in below if name in MODULES} - {module}


def imports(module: str, top_level_only: bool = False) -> set[str]:
    """What a module imports of the package; `top_level_only`: when it is itself imported."""
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= resolve(module, node)
    return found


@pytest.mark.parametrize("module", sorted(set(MODULES) - {"", "cli", "__main__"}))
def test_a_room_looks_only_into_those_below_it(module: str) -> None:
    own = room(module)
    for imported in imports(module) - {""}:  # "": the package itself, for its version
        if (module, imported) == ("backends_elmo", "kernels"):
            continue
        assert room(imported) in ALLOWED[own] | {own}, f"{module} imports {imported}"


def test_rooms_form_no_circle() -> None:
    graph: dict[str, set[str]] = {}
    for module in set(MODULES) - {""}:
        for imported in imports(module) - {"", module}:
            if "home" not in (room(module), room(imported)) and (module, imported) != ("backends_elmo", "kernels"):
                graph.setdefault(room(module), set()).add(room(imported))
    graph = {name: below - {name} for name, below in graph.items()}
    assert list(TopologicalSorter(graph).static_order())  # raises CycleError where there is one


def packages(module: str) -> set[str]:
    """The packages that a module is in: Python imports them before it."""
    parts = module.split(".")
    return {".".join(parts[:end]) for end in range(1, len(parts))}


def test_modules_form_no_circle() -> None:
    """When modules are imported, and also where functions import."""
    for top_level_only in (True, False):
        graph = {module: imports(module, top_level_only) - {""} for module in set(MODULES) - {""}}
        graph["backends_elmo"] = graph["backends_elmo"] - {"kernels"}
        graph["shipped"] = graph["shipped"] - {"conversion.recognize"}  # in an error, for what it says of the folder
        with_packages = {
            module: below.union(*map(packages, below)) - packages(module) - {module} for module, below in graph.items()
        }
        assert list(TopologicalSorter(with_packages).static_order())  # raises CycleError where there is one


def test_what_travels_is_small_enough_to_be_read() -> None:
    lines = {name: len(MODULES[name].read_text().splitlines()) for name in MODULES if room(name) == "travelling"}
    assert lines["modeling_elmo"] <= 500
    before_heads = [name for name in lines if name in BEFORE_HEADS]
    assert sorted(before_heads) == sorted(BEFORE_HEADS)
    # 2,600 when the rooms were made; then came pairs of texts, the switch on every class and the unknown fields (100),
    # the export of ElmoForPreTraining (14), what the tokenizer refuses or reads as pairs (36), arrays and forks (10),
    # its vocabulary by name, with boundaries and padding that stay what they are (45), other characters than bytes and
    # words with vectors (75), words' numbers and labels in the tokenizer (45), words at the left of their rows (16),
    # vectors without boundaries and mixes of another number than the checkpoint's (34), lone surrogates among
    # characters, scripts that were never read and the version of the code (35), what from_pretrained is given and is no
    # field (8), the tokenizer's files among its arguments (2). Less the classifier (155), as it is a head and grows
    # with its encoders.
    assert sum(lines[name] for name in BEFORE_HEADS) <= 2854


BEFORE_HEADS = (
    "backends_elmo",
    "characters_elmo",
    "configuration_elmo",
    "lstm_elmo",
    "modeling_elmo",
    "modeling_pretraining_elmo",
    "packing_elmo",
    "scalar_mix_elmo",
    "softmax_elmo",
    "tokenization_elmo",
)


def test_what_travels_starts_no_process_and_compiles_nothing() -> None:
    for name, file in MODULES.items():
        if room(name) == "travelling":
            text = file.read_text()
            for word in ("ctypes", "subprocess", "tempfile", "#include"):
                assert word not in text, (name, word)
