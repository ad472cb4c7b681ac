"""`python -m tests.parity [LIBRARY...]` writes the stored vectors; ELMO_ALLENNLP_PYTHON ... name the Pythons."""

import os
import sys
import tempfile
from pathlib import Path

import numpy as np

from tests.parity import CASES, FOLDER, SENTENCES, run_peer, write_source

for library, cases in CASES.items():
    python = os.environ[f"ELMO_{library.partition('-')[0].removeprefix('elmofor').upper()}_PYTHON"]
    if sys.argv[1:] and library not in sys.argv[1:]:
        continue
    arrays = {}
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            source = write_source(library, case, Path(folder, "source"))
            arrays[case] = np.concatenate(run_peer(python, library, source, SENTENCES), axis=1)
    np.savez_compressed(FOLDER / f"{library}.npz", **arrays)
    print(FOLDER / f"{library}.npz", {case: array.shape for case, array in arrays.items()})
