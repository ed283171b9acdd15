"""Names shared by every layer. Axis letters: B batch, T time, N environments, K critics, A actions, D features."""

from typing import NamedTuple

from jaxtyping import Array, Key

PRNGKey = Key[Array, ""]


class Transition(NamedTuple):
    """What a learner may see of one step. There is no cost field: costs cannot leak where they do not exist."""

    obs: Array
    action: Array
    reward: Array
    next_obs: Array  # the true successor, never the observation after a reset
    terminated: Array  # the task is over: no future value
    truncated: Array  # the clock ran out: future value remains
