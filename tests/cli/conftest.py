"""A fixture for the tests of wrong command lines, which make a `folder` with all that the lines name."""

import shutil
import sys
from pathlib import Path

import pytest


@pytest.fixture
def here(folder, monkeypatch):
    """In the folder. What a line made there, and the modules that it imported from there, are removed."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(folder / "minari"))
    before = set(sys.modules)
    yield
    shutil.rmtree("new", ignore_errors=True)
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == folder:
            del sys.modules[name]
