"""Modules form no import circle, and what travels with a checkpoint needs nothing else of the package."""

import ast
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import hf_elmo

PACKAGE = Path(hf_elmo.__file__).parent
FOLDERS = {"hf_elmo": PACKAGE}
FOLDERS |= {f"hf_elmo.{name}": PACKAGE.parent / name for name in ("conversion", "model_cards")}
FILES = {
    ".".join([name, *(part for part in file.relative_to(folder).with_suffix("").parts if part != "__init__")]): file
    for name, folder in FOLDERS.items()
    for file in folder.rglob("*.py")
    if "checkpoints" not in file.parts
}
TRAVELLING = {f"hf_elmo.{file.stem}" for file in PACKAGE.glob("*_elmo.py")}


def imported_names(module: str) -> set[str]:
    """What the import statements of a module name, in functions, too; without those for type checkers."""
    nodes = list(ast.walk(ast.parse(FILES[module].read_text(encoding="utf-8"))))
    checks = [node for node in nodes if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    skipped = {id(node) for check in checks for statement in check.body for node in ast.walk(statement)}
    package = (module if FILES[module].name == "__init__.py" else module.rpartition(".")[0]).split(".")
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import) and id(node) not in skipped:
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and id(node) not in skipped:
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names |= {f"{base}.{alias.name}" for alias in node.names}
    return names


def imported_modules(module: str) -> set[str]:
    """The modules of the package that a module imports."""
    names = {name if name in FILES else name.rpartition(".")[0] for name in imported_names(module)}
    return (names & FILES.keys()) - {module}


def test_modules_form_no_circle() -> None:
    graph = {module: imported_modules(module) for module in FILES}
    assert graph["hf_elmo.embedding.corpus"] >= {"hf_elmo.embedding.store", "hf_elmo.modeling_elmo"}
    assert set(TopologicalSorter(graph).static_order()) == set(FILES)  # raises CycleError where there is a circle


def test_what_travels_needs_public_libraries_alone() -> None:
    assert len(TRAVELLING) == 7
    for module in TRAVELLING:
        assert imported_modules(module) <= TRAVELLING | {"hf_elmo.kernels"}, module
        outside = {name.split(".")[0] for name in imported_names(module)} - {"hf_elmo"} - sys.stdlib_module_names
        assert outside <= {"huggingface_hub", "numpy", "tokenizers", "torch", "transformers"}, module
