"""A format of demonstrations that another package brings is read like ours."""

from types import SimpleNamespace

import pytest

import scopil
from samples import small_set
from scopil.cli import main
from scopil.data import storage
from scopil.errors import DatasetError


@pytest.fixture
def publish(monkeypatch):
    """Pretend that a package has published something as a format."""

    def give(thing) -> None:
        points = [SimpleNamespace(load=lambda: thing)]
        monkeypatch.setattr(storage, "entry_points", lambda group: points * (group == "scopil.demo_formats"))
        storage.installed.cache_clear()

    yield give
    storage.installed.cache_clear()


def test_a_format_of_another_package_is_read_and_checked(publish, capsys):
    made = small_set()
    publish(
        storage.Format(
            name="dream",
            matches=lambda source: source.startswith("dream:"),
            read=lambda source: made,
            about=lambda source: f"dreamt at {source.removeprefix('dream:')}",
        )
    )
    assert scopil.load_demos("dream:noon") is made
    assert main(["demos", "check", "dream:noon"]) == 0
    assert "dreamt at noon" in capsys.readouterr().out
    with pytest.raises(DatasetError, match=r"no demonstrations 'nowhere\.npz'"):
        scopil.load_demos("nowhere.npz")


def test_something_else_under_the_entry_point_is_refused_by_name(publish):
    publish(print)
    with pytest.raises(DatasetError, match=r"scopil\.demo_formats is a builtin_function_or_method; want"):
        scopil.load_demos("marble-maze/simple-v1")
