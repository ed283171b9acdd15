"""Types shared by all modules. Axis letters: B batch, T time, N environments, K critics, A actions, D features."""

from typing import NamedTuple

from jaxtyping import Array, Key

PRNGKey = Key[Array, ""]


class Transition(NamedTuple):
    """One step, as learners receive it. There is no cost field, so that no true cost can reach a learner."""

    obs: Array
    action: Array
    reward: Array
    next_obs: Array  # the true successor, never the observation after a reset
    terminated: Array  # the episode ended in a final state, so there is no future value
    truncated: Array  # the time limit ended the episode, so the future value counts
