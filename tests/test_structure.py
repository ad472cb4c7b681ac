"""What travels with a checkpoint needs nothing else of the package, and public libraries alone."""

import ast
import sys
from pathlib import Path

import hf_elmo

TRAVELLING = {file.stem: file for file in Path(hf_elmo.__file__).parent.glob("*_elmo.py")}
LIBRARIES = {"huggingface_hub", "numpy", "tokenizers", "torch", "transformers"}


def test_what_travels_needs_public_libraries_alone() -> None:
    assert len(TRAVELLING) == 7
    for file in TRAVELLING.values():
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):  # also imports in functions
            if isinstance(node, ast.ImportFrom) and node.level:
                assert (node.level, node.module in TRAVELLING) == (1, True), (file, node.module)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                names = [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
                for name in names:
                    library = name.split(".")[0]
                    assert name == "hf_elmo.kernels" or library in LIBRARIES | sys.stdlib_module_names, (file, name)
