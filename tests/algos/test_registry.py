"""Algorithms by name: built-in ones, those of other packages, and what is refused."""

from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest

from scopil import registry
from scopil.algos import bc, icrl, ppo, sac, scopil
from scopil.algos.base import Algorithm
from scopil.errors import ConfigError
from scopil.registry import find, registered


@pytest.fixture
def installed(monkeypatch):
    """`installed(name=object, …)`: entry points of another package."""
    registered.cache_clear()

    def install(**found: object) -> None:
        points = [EntryPoint(name, f"other.package:{name}", "scopil.algorithms") for name in found]
        monkeypatch.setattr(EntryPoint, "load", lambda point: found[point.name])
        monkeypatch.setattr(registry, "entry_points", lambda group: points if group == "scopil.algorithms" else [])
        registered.cache_clear()

    yield install
    registered.cache_clear()


def test_built_in_algorithms_are_found_by_their_command():
    assert list(registered()) == list(registry.BUILT_IN)
    assert find("scopil") is scopil.ALGORITHM
    for name, algorithm in registered().items():
        assert algorithm.name == name
        assert algorithm.title
        assert algorithm.summary


def test_an_unknown_name_is_refused_with_a_suggestion():
    with pytest.raises(ConfigError, match=r"Did you mean scopil\?"):
        find("scopill")
    with pytest.raises(ConfigError, match="oracle-sac-lagrangian"):
        find("zzz")


def test_an_algorithm_of_another_package_is_found(installed):
    mine = replace(ppo.ALGORITHM, name="mine", title="Mine")
    installed(mine=mine)
    assert find("mine") is mine
    assert find("ppo") is ppo.ALGORITHM
    assert list(registered())[-1] == "mine"


def test_another_package_cannot_replace_a_built_in_algorithm(installed):
    installed(sac=replace(ppo.ALGORITHM, name="sac"))
    assert find("sac") is sac.ALGORITHM


def test_an_entry_point_of_another_type_is_refused(installed):
    installed(mine=ppo)
    with pytest.raises(ConfigError, match=r"other\.package:mine"):
        find("mine")


@pytest.mark.parametrize("wants", [{"replay", "rollout"}, {"rollout", "newest"}, {"demos", "true_cost"}])
def test_contradictory_wants_are_refused(wants):
    with pytest.raises(ConfigError, match="odd wants"):
        replace(ppo.ALGORITHM, name="odd", wants=frozenset(wants))


@pytest.mark.parametrize(
    ("algorithm", "demos", "steps"),
    [
        (scopil.ALGORITHM, True, True),
        (sac.ALGORITHM, False, True),
        (ppo.ALGORITHM, False, True),
        (icrl.ALGORITHM, True, True),
        (bc.ALGORITHM, True, False),
    ],
)
def test_what_an_algorithm_needs_follows_from_what_it_wants(algorithm: Algorithm, demos: bool, steps: bool):
    assert algorithm.needs_demos == demos
    assert algorithm.steps_environment == steps
