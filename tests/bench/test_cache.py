"""What is kept of an evaluation is read again as it was."""

import numpy as np

from scopil.data.dataset import Episode
from scopil_bench.cache import read_episodes, write_evaluation


def episode(steps: int, **info: np.ndarray) -> Episode:
    return Episode(observations=np.zeros((steps + 1, 2)), actions=np.zeros(steps), info=info)


def test_an_episode_need_not_report_what_another_does(tmp_path):
    """A rule that names its costs itself says nothing of those that an episode did not break."""
    far, low, places = np.array([0.0, 1, 1]), np.array([1, 0], np.int8), np.ones((3, 2), np.float32)
    given = [episode(2, cost_far=far, position=places), episode(1, cost_low=low), episode(3)]
    write_evaluation(tmp_path, {}, {"measures": {}, "extra": {}}, {"greedy/unseen": given})
    first, second, third = (e.info for e in read_episodes(tmp_path)["greedy/unseen"])
    assert list(first) == list(second) == list(third) == ["cost_far", "position", "cost_low"]
    np.testing.assert_array_equal(first["cost_far"], far)
    np.testing.assert_array_equal(first["position"], places)
    np.testing.assert_array_equal(first["cost_low"], [0, 0, 0])
    np.testing.assert_array_equal(second["cost_low"], low)
    np.testing.assert_array_equal(third["position"], np.zeros((4, 2)))
    assert (third["position"].dtype, third["cost_low"].dtype) == (np.float32, np.int8)
