"""The notebooks run from their first cell to their last, with small budgets."""

import json
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))


def code_cells(notebook: Path) -> list[str]:
    body = json.loads(notebook.read_text(encoding="utf-8"))
    assert (body["nbformat"], body["metadata"]["language_info"]["name"]) == (4, "python")
    return ["".join(cell["source"]) for cell in body["cells"] if cell["cell_type"] == "code"]


def test_there_are_two():
    assert [notebook.stem for notebook in NOTEBOOKS] == ["marble_maze", "own_environment"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda n: n.stem)
def test_cells_are_python_and_hold_no_output(notebook):
    for number, cell in enumerate(code_cells(notebook)):
        compile(cell, f"{notebook.stem}, cell {number}", "exec")
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    assert not [cell for cell in cells if cell.get("outputs")]  # what a machine printed once is not kept


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda n: n.stem)
def test_a_notebook_runs(notebook, tmp_path, monkeypatch):
    for needed in ("matplotlib", "onnx"):
        pytest.importorskip(needed)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCOPIL_STEPS", "500")
    namespace: dict[str, object] = {}
    for number, cell in enumerate(code_cells(notebook)):
        exec(compile(cell, f"{notebook.stem}, cell {number}", "exec"), namespace)
