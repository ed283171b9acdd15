"""Programs that one process compiled are found by the next one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scopil import compile_cache
from scopil.files import lock

COMPILE = """
import jax
from scopil import compile_cache
found = []
jax.monitoring.register_event_listener(lambda name, **_: found.append(name))
compile_cache.use()
jax.jit(lambda x: x + 1)(1.0)
print(found.count("/jax/compilation_cache/cache_hits"), jax.config.jax_compilation_cache_dir)
"""


def compile_there(home: Path, **environment: str) -> list[str]:
    """(number of programs found, JAX's folder) of a process with its cache in `home`."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_COMPILATION", "JAX_PERSISTENT"))}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE],
        env=kept | {"XDG_CACHE_HOME": str(home)} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert not done.stderr, done.stderr
    return done.stdout.split()


def test_the_second_process_compiles_nothing_and_leaves_no_folder(tmp_path):
    assert compile_there(tmp_path)[0] == "0"
    place = tmp_path / "scopil" / "programs"
    (kept,) = place.iterdir()
    programs = {file.name: file.read_bytes() for file in kept.iterdir()}
    assert programs
    found, folder = compile_there(tmp_path)
    assert int(found) == len(programs)
    assert folder.startswith(str(place))
    assert [*place.iterdir()] == [kept]
    assert {file.name: file.read_bytes() for file in kept.iterdir()} == programs
    assert all(not path.stat().st_mode & 0o077 for path in (place, kept))
    assert compile_there(tmp_path, JAX_ENABLE_COMPILATION_CACHE="false") == ["0", "None"]
    assert compile_there(tmp_path, JAX_COMPILATION_CACHE_DIR=str(tmp_path / "mine"))[1] == str(tmp_path / "mine")
    kept.chmod(0o777)  # another user may have put programs there
    assert compile_there(tmp_path) == ["0", "None"]


def test_only_folders_that_no_process_holds_are_removed(tmp_path):
    used, abandoned = tmp_path / "used", tmp_path / "abandoned"
    for folder in (used, abandoned):
        folder.mkdir(mode=0o700)
        (folder / compile_cache.LOCK).touch()
    with lock(used / compile_cache.LOCK):
        compile_cache._remove_abandoned(tmp_path)
    assert [*tmp_path.iterdir()] == [used]


def test_programs_that_were_not_used_for_longest_are_removed(tmp_path, monkeypatch):
    folder = tmp_path / f"{compile_cache.KEPT}here"
    folder.mkdir()
    for age, name in enumerate(["newest", "newer", "old", "oldest"]):
        (folder / name).write_bytes(bytes(100))
        os.utime(folder / name, (1e9 - age, 1e9 - age))
    monkeypatch.setattr(compile_cache, "LARGEST", 250)
    compile_cache._trim(tmp_path)
    assert {file.name for file in folder.iterdir()} == {"newest", "newer"}


def test_a_folder_that_others_can_write_is_not_used(tmp_path):
    place = tmp_path / "scopil" / "programs"
    place.mkdir(parents=True)
    place.chmod(0o777)
    with pytest.raises(PermissionError, match="programs is not private"):
        compile_cache._begin(place)
    assert compile_there(tmp_path) == ["0", "None"]
    assert not [*place.iterdir()]


def test_without_a_place_there_is_no_cache(tmp_path):
    (tmp_path / "scopil").write_text("a file in the way")
    with pytest.raises(OSError, match="scopil"):
        compile_cache._begin(tmp_path / "scopil" / "programs")
    assert compile_there(tmp_path) == ["0", "None"]
