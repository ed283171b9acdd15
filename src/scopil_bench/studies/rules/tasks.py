"""Six compiled tasks. Lengths are in metres. Speeds are in metres per second, or in metres per step where stated."""

from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from scopil.types import PRNGKey
from scopil_bench.studies.rules.base import SPREAD, Bounds, RuleTask, box

MARGIN = 0.97  # demonstrators stay below this fraction of a speed limit
ANGLES = np.arange(16) * (np.pi / 8)


def uniform(key: PRNGKey, *bounds: Bounds) -> Array:
    """A vector with components uniform in (low, high)."""
    low, high = np.array(bounds, np.float32).T
    return jax.random.uniform(key, (len(bounds),), minval=low, maxval=high)


def distance(place: Array, goal: Any) -> Float[Array, ""]:
    return jnp.sqrt(jnp.sum((place - jnp.array(goal)) ** 2))


# --- carts: position and velocity, pushed along an axis ---------------------------------------------------------------


class Cart(RuleTask):
    """[x, y, vx, vy]. Actions: none, +x, −x, +y, −y; a push changes the velocity by a random 0.2 to 0.25 m/s."""

    observation_space = box((-5, 5), (-5, 5), (-3, 3), (-3, 3))
    action_space = gym.spaces.Discrete(5)
    pushes = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]], np.float32)
    goal, radius = (4.0, 0.0), 1.0
    seconds = 0.5  # per step
    least, most = 0.2, 0.25  # m/s per push
    fastest = 3.0  # m/s along an axis
    cruise = 1.0  # m/s, the demonstrator's preferred speed
    noise = 0.25  # at the speed limit, most varied actions violate the rule

    def initial(self, rng: Any, params: Any = None) -> Array:
        return uniform(rng, (-4.5, -2), (-4, 4), (-0.3, 0.3), (-0.3, 0.3))

    def transition(self, state: Array, action: Array, rng: Any, params: Any = None) -> Array:
        push = jnp.array(self.pushes)[action] * jax.random.uniform(rng, minval=self.least, maxval=self.most)
        velocity = jnp.clip(state[2:] + push, -self.fastest, self.fastest)
        return jnp.concatenate([jnp.clip(state[:2] + self.seconds * velocity, -5.0, 5.0), velocity])

    def arrived(self, state: Array) -> Bool[Array, ""]:
        return distance(state[:2], self.goal) < self.radius

    def score(self, state: Array, action: Array) -> Float[Array, ""]:
        """The distance between the next velocity and the wanted velocity, which points to the goal."""
        way = jnp.array(self.goal) - state[:2]
        wanted = self.cruise * way / jnp.maximum(jnp.sqrt(jnp.sum(way**2)), 1e-6)
        return distance(self.pushed(state, action), wanted)

    def pushed(self, state: Array, action: Array) -> Float[Array, "2"]:
        """The velocity after the strongest push."""
        return state[2:] + self.most * jnp.array(self.pushes)[action]


class Speed(Cart):
    """Keep a speed limit everywhere. The reward is −10 times the distance to the goal."""

    title = "A speed limit everywhere"
    rule = "speed ≤ 1 m/s"
    limit = 1.0

    def reward(self, state: Array, action: Array, next_state: Array, rng: Any = None, params: Any = None) -> Array:
        return -10.0 * distance(next_state[:2], self.goal)

    def violated(self, before: Array, action: Array, after: Array) -> Bool[Array, ""]:
        return jnp.sum(after[2:] ** 2) > self.limit**2

    def lawful(self, state: Array, action: Array) -> Bool[Array, ""]:
        return jnp.sum(self.pushed(state, action) ** 2) <= (MARGIN * self.limit) ** 2


class Zone(Cart):
    """Cross a slow zone. The reward is −1 per step, +2 per metre towards the goal and +14 at the goal. In
    demonstrations, positive and negative rewards cancel."""

    title = "A speed limit in a part of the space"
    rule = "|vx| ≤ 0.5 m/s where −1 ≤ x ≤ 1"
    limit, edge = 0.5, 1.0
    fastest = cruise = 1.25

    def initial(self, rng: Any, params: Any = None) -> Array:
        return uniform(rng, (-4.5, -3), (-3, 3), (0, 0.5), (-0.3, 0.3))

    def reward(self, state: Array, action: Array, next_state: Array, rng: Any = None, params: Any = None) -> Array:
        nearer = distance(state[:2], self.goal) - distance(next_state[:2], self.goal)
        return 2.0 * nearer - 1.0 + 14.0 * self.arrived(next_state)

    def violated(self, before: Array, action: Array, after: Array) -> Bool[Array, ""]:
        return (jnp.abs(after[0]) <= self.edge) & (jnp.abs(after[2]) > self.limit)

    def lawful(self, state: Array, action: Array) -> Bool[Array, ""]:
        """Whether the cart is slow enough to brake before the zone with the weakest pushes."""
        speed, slow = self.pushed(state, action)[0], MARGIN * self.limit
        x = state[0] + self.seconds * speed
        room = jnp.maximum(-self.edge - x, 0.0)
        braking = (jnp.maximum(speed, 0.0) ** 2 - slow**2) * self.seconds / (2 * self.least)
        return (x > self.edge) & (state[0] > self.edge) | (braking <= room) & (speed > -slow)


# --- a lap: the rule is about an action -------------------------------------------------------------------------------


class Action(RuleTask):
    """[x, y]: the position on a 20 m loop, and the offset from the middle of the road. Actions: walk 1 m, left or right
    (0.8 m), run 2 m.

    Demonstrators never run in the village. The reward is the progress in metres; an episode has 60 steps.
    """

    title = "An action that is never taken in some states"
    rule = "no running (action 3) where 8 ≤ x ≤ 14"
    observation_space = box((0, 20), (-1.5, 1.5))
    action_space = gym.spaces.Discrete(4)
    village = (8.0, 14.0)
    pace = np.array([1.0, 0.8, 0.8, 2.0], np.float32)
    steer = np.array([0.0, 0.3, -0.3, 0.0], np.float32)
    max_steps, has_goal = 60, False

    def initial(self, rng: Any, params: Any = None) -> Array:
        return uniform(rng, (0, 20), (-0.8, 0.8))

    def progress(self, state: Array, action: Array) -> Float[Array, ""]:
        """Progress in metres. Off the road, it is a third of the pace."""
        return jnp.array(self.pace)[action] * jnp.where(jnp.abs(state[1]) > 1.0, 1 / 3, 1.0)

    def transition(self, state: Array, action: Array, rng: Any, params: Any = None) -> Array:
        drift = jax.random.uniform(rng, minval=-0.2, maxval=0.2)
        y = jnp.clip(state[1] + jnp.array(self.steer)[action] + drift, -1.5, 1.5)
        return jnp.stack([(state[0] + self.progress(state, action)) % 20.0, y])

    def reward(self, state: Array, action: Array, next_state: Array, rng: Any = None, params: Any = None) -> Array:
        return self.progress(state, action)

    def violated(self, before: Array, action: Array, after: Array) -> Bool[Array, ""]:
        return (action == 3) & (before[0] >= self.village[0]) & (before[0] <= self.village[1])

    def lawful(self, state: Array, action: Array) -> Bool[Array, ""]:
        return ~self.violated(state, action, state)

    def score(self, state: Array, action: Array) -> Float[Array, ""]:
        """Prefers a high pace and an offset of at most 0.7 m from the middle."""
        y = jnp.abs(state[1] + jnp.array(self.steer)[action])
        return 10.0 * jnp.maximum(y - 0.7, 0.0) - jnp.array(self.pace)[action]


# --- walkers: a position, moved in any direction ----------------------------------------------------------------------


class Walker(RuleTask):
    """[x, y, …]. The action is a step in units of 0.4 m; longer steps are shortened to length 1."""

    observation_space = box((-4, 4), (-4, 4))
    action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    goal, radius, stride = (3.0, 0.0), 0.5, 0.4
    noise = 1.0

    def moved(self, state: Array, action: Array) -> Float[Array, "2"]:
        length = jnp.sqrt(jnp.sum(action**2))
        return jnp.clip(state[:2] + self.stride * action / jnp.maximum(length, 1.0), -4.0, 4.0)

    def arrived(self, state: Array) -> Bool[Array, ""]:
        return distance(state[:2], self.goal) < self.radius

    def score(self, state: Array, action: Array) -> Float[Array, ""]:
        return distance(self.moved(state, action), self.goal)

    def candidates(self, state: Array) -> Array:
        """Sixteen directions, one of them towards the goal, and standing still."""
        way = jnp.array(self.goal) - state[:2]
        angles = jnp.arctan2(way[1], way[0]) + ANGLES
        return jnp.concatenate([jnp.stack([jnp.cos(angles), jnp.sin(angles)], 1), jnp.zeros((1, 2))])

    def varied(self, action: Array, key: PRNGKey) -> Array:
        """The action with a varied direction, scaled by 0.9 to 1.4. All lengths above 1 have the same effect."""
        k_length, k_way = jax.random.split(key)
        longer = action * jax.random.uniform(k_length, minval=0.9, maxval=1.4)
        return jnp.clip(longer + SPREAD * jax.random.normal(k_way, (2,)), -1.0, 1.0)


class Free(Walker):
    """The reward is minus the distance to the goal; the demonstrator takes the straight line, which is optimal."""

    title = "No rule"
    rule = ""

    def initial(self, rng: Any, params: Any = None) -> Array:
        return uniform(rng, (-4, -1), (-4, 4))

    def transition(self, state: Array, action: Array, rng: Any, params: Any = None) -> Array:
        return self.moved(state, action)

    def reward(self, state: Array, action: Array, next_state: Array, rng: Any = None, params: Any = None) -> Array:
        return -distance(next_state[:2], self.goal)


class Distance(Walker):
    """[x, y, dx, dy, w]: the walker's position, the position of a person relative to it, the person's velocity along y.

    The person walks back and forth on x = 0 between y = −1.5 and 1.5, 0.2 m per step. The reward is minus the distance
    to the goal.
    """

    title = "A distance to be kept from a moving person"
    rule = "√(dx² + dy²) ≥ 1.2 m"
    observation_space = box((-4, 4), (-4, 4), (-4, 4), (-5.5, 5.5), (-0.2, 0.2))
    keep, reach, pace = 1.2, 1.5, 0.2

    def initial(self, rng: Any, params: Any = None) -> Array:
        k_place, k_way = jax.random.split(rng)
        x, y, person = uniform(k_place, (-4, -2), (-2, 2), (-self.reach, self.reach))
        return jnp.stack([x, y, -x, person - y, jnp.where(jax.random.bernoulli(k_way), self.pace, -self.pace)])

    def transition(self, state: Array, action: Array, rng: Any = None, params: Any = None) -> Array:
        place, y = self.moved(state, action), state[1] + state[3] + state[4]
        w = jnp.where(jnp.abs(y) > self.reach, -jnp.sign(y) * self.pace, state[4])
        return jnp.stack([place[0], place[1], -place[0], y - place[1], w])

    def reward(self, state: Array, action: Array, next_state: Array, rng: Any = None, params: Any = None) -> Array:
        return -distance(next_state[:2], self.goal)

    def violated(self, before: Array, action: Array, after: Array) -> Bool[Array, ""]:
        return jnp.sum(after[2:4] ** 2) < self.keep**2

    def lawful(self, state: Array, action: Array) -> Bool[Array, ""]:
        """The walker is faster than the person, so if it keeps the distance now, it can also keep it later."""
        return jnp.sum(self.transition(state, action)[2:4] ** 2) > (self.keep + 0.1) ** 2


class Flag(Walker):
    """[x, y, flag]. Nine actions: stand still, or step in one of eight directions. While the flag is set, a block in
    the middle is forbidden. In each step a set flag is cleared with probability 0.03; it is never set again. The reward
    is −0.01 times the distance to the goal."""

    title = "A flag that forbids a region while it is set"
    rule = "not where −1 ≤ x ≤ 1 and y ≤ 1.5 while flag = 1"
    observation_space = box((-4, 4), (-4, 4), (0, 1))
    action_space = gym.spaces.Discrete(9)
    steps = np.array([[0, 0], *np.stack([np.cos(2 * ANGLES[:8]), np.sin(2 * ANGLES[:8])], 1)], np.float32)
    goal, edge, top, shaken = (3.0, -1.0), 1.0, 1.5, 0.05
    noise = 0.15

    candidates, varied = RuleTask.candidates, RuleTask.varied

    def initial(self, rng: Any, params: Any = None) -> Array:
        k_place, k_flag = jax.random.split(rng)
        return jnp.append(uniform(k_place, (-4, -2), (-4, 2)), jax.random.bernoulli(k_flag, 0.7) * 1.0)

    def transition(self, state: Array, action: Array, rng: Any, params: Any = None) -> Array:
        k_place, k_flag = jax.random.split(rng)
        place = self.moved(state, jnp.array(self.steps)[action])
        place = jnp.clip(place + uniform(k_place, *[(-self.shaken, self.shaken)] * 2), -4.0, 4.0)
        return jnp.append(place, state[2] * jax.random.bernoulli(k_flag, 0.97))

    def reward(self, state: Array, action: Array, next_state: Array, rng: Any = None, params: Any = None) -> Array:
        return -0.01 * distance(next_state[:2], self.goal)

    def violated(self, before: Array, action: Array, after: Array) -> Bool[Array, ""]:
        return (after[2] > 0.5) & (jnp.abs(after[0]) <= self.edge) & (after[1] <= self.top)

    def lawful(self, state: Array, action: Array) -> Bool[Array, ""]:
        x, y = self.moved(state, jnp.array(self.steps)[action])
        inside = (jnp.abs(x) <= self.edge + self.shaken + 1e-3) & (y <= self.top + self.shaken + 1e-3)
        return ~(inside & (state[2] > 0.5))

    def score(self, state: Array, action: Array) -> Float[Array, ""]:
        """The remaining distance to the goal: around the block's upper corners while the flag is set, else straight."""
        place = self.moved(state, jnp.array(self.steps)[action])
        out = self.edge + 2 * self.shaken
        left, right = jnp.array([-out, self.top + 0.2]), jnp.array([out, self.top + 0.2])
        over = distance(right, self.goal)
        before = distance(place, left) + distance(left, right) + over
        above = distance(place, right) + over
        around = jnp.where((place[0] < -self.edge) & (place[1] <= self.top), before, above)
        return jnp.where((state[2] > 0.5) & (place[0] < self.edge), around, distance(place, self.goal))


TASKS = {"speed": Speed, "zone": Zone, "action": Action, "distance": Distance, "flag": Flag, "free": Free}
