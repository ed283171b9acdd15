"""The test of initial observations: its level is exact, and the distances are those of the definition."""

import numpy as np
import pytest

from scopil.eval import shift as module
from scopil.eval.shift import TOGETHER, shift_of

NAMES = ("a", "b")


def compare(played, shown, seed=0):
    return shift_of(np.asarray(played), np.asarray(shown), NAMES, np.random.default_rng(seed))


def test_the_distance_of_a_component_is_the_energy_distance():
    """Against the double sum, with ties."""
    rng = np.random.default_rng(100)
    x, a = rng.integers(0, 5, 12) / 4, np.repeat([1 / 5, -1 / 7], [5, 7])
    wanted = -sum(a[i] * a[j] * abs(x[i] - x[j]) for i in range(12) for j in range(12))
    assert module._along(x, a[None])[0] == pytest.approx(wanted)


@pytest.fixture
def few_exchanges(monkeypatch):
    monkeypatch.setattr(module, "EXCHANGES", 99)


def test_the_level_is_exact(few_exchanges):
    """1 000 pairs of sets of one distribution, with a component of few values: p ≤ 0.1 in a tenth of them."""
    rng = np.random.default_rng(100)

    def draw(count):
        return np.stack([rng.normal(size=count), rng.integers(0, 3, count)], axis=1)

    p = np.array([compare(draw(30), draw(12), i).p for i in range(1000)])
    for level in (0.05, 0.1, 0.5):
        assert (p <= level).mean() == pytest.approx(level, abs=4 * np.sqrt(level * (1 - level) / 1000))


def test_a_shifted_component_is_named():
    rng = np.random.default_rng(100)
    played, shown = rng.normal(size=(60, 2)), rng.normal(size=(60, 2))
    shown[:, 0] = played[:, 0]
    found = compare(played + np.array([0, 1]), shown)
    first = found.components[0]
    assert found.p == first.p == 0.001
    assert first.component == "b"
    assert first.demonstrated is not None
    assert first.played is not None
    assert first.played - first.demonstrated == pytest.approx(1, abs=0.5)
    (other,) = [c for c in found.components if c.component == "a"]
    assert other.p == 1.0


def test_other_dependence_is_found_by_all_components_together():
    rng = np.random.default_rng(100)
    line = rng.normal(size=(300, 1))
    found = compare(np.concatenate([line, line], axis=1), rng.normal(size=(300, 2)))
    assert found.p == 0.001
    assert found.components[0].component == TOGETHER


def test_equal_starts_do_not_differ():
    assert compare(np.ones((20, 2)), np.ones((10, 2))).p == 1.0
    assert compare(np.zeros((20, 2)), np.ones((10, 2))).p == 0.001


def test_units_do_not_matter():
    rng = np.random.default_rng(100)
    played, shown = rng.normal(size=(50, 2)), rng.normal(size=(20, 2)) + 0.3
    assert compare(played, shown).p == compare(1e6 * played, 1e6 * shown).p
