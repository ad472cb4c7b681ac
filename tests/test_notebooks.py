"""The notebooks of examples/notebooks, each run from its first cell to its last, where a reader starts it."""

from pathlib import Path

import pytest

nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
NOTEBOOKS = sorted((Path(__file__).parent.parent / "examples" / "notebooks").glob("*.ipynb"))
DOWNLOADS = ("names", "own_language", "spam")


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if path.stem in DOWNLOADS:  # from a folder here
        monkeypatch.setenv("ELMO_DATA", str(request.getfixturevalue("shared") / "data"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # tests run side by side
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=None, resources={"metadata": {"path": str(path.parent)}}).execute()
