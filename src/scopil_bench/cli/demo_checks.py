"""The checks of `scopil demos check` and `scopil demos show`."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import gymnasium as gym
import numpy as np

from scopil.data import storage
from scopil.data.dataset import Demonstrations, Episode, describe_space
from scopil.envs.naming import names_code
from scopil.errors import DatasetError, EnvError

if TYPE_CHECKING:  # these import JAX, which takes a second
    from scopil.eval.measures import Measures
    from scopil.eval.rules import Rules

SAME = 1e-4  # tolerance of a replay: rounding differs between machines, and observations are of order one
JUMP = 5.0  # a last step is suspicious if it exceeds the episode's largest other step by this factor
RANDOM_STEPS, RANDOM_EPISODES = 100, 20  # random episodes to estimate the effect of actions
MAX_COLUMNS = 50  # most columns of an observation listed
MAX_NAMED = 8  # most constant columns listed


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    what: str
    text: str
    ok: bool = True
    warning: bool = False  # suspicious, but the set is still accepted

    @property
    def mark(self) -> str:
        return "FAIL" if not self.ok else "warn" if self.warning else "ok"


def run_checks(
    source: str, env_id: str | None = None, trust_env: bool = False, rules: "Rules | None" = None
) -> Iterator[Check]:
    """All checks of a set, in order. Raises `DatasetError` if the set cannot be read."""
    demos = storage.load_demos(source)
    yield Check("format", storage.format_of(source).about(source))
    for sentence in demos.about.get("assumed", []):
        yield Check("assumed", sentence, warning=True)
    yield Check("name", f"{demos.name}, environment {demos.env_id or 'not named'}")
    steps = [len(e) for e in demos]
    yield Check("episodes", f"{len(demos)} with {demos.pairs} pairs, {min(steps)} to {max(steps)} steps each")
    obs, actions = describe_space(demos.observation_space), describe_space(demos.action_space)
    yield Check("observations", f"{obs}, {_range(demos.observations)}, all finite and inside")
    yield Check("actions", f"{actions}, {_actions(demos)}, all finite and inside")
    yield from _columns(demos.flattened_from)
    yield from _constant_columns(demos)
    yield _copies(demos)
    yield from _jumps(demos)
    rewards = demos.transitions().reward
    yield Check("rewards", "none given" if rewards is None else f"{_range(rewards)}, all finite")
    terminated, truncated = sum(e.terminated for e in demos), sum(e.truncated for e in demos)
    neither = sum(not e.terminated and not e.truncated for e in demos)
    ends = f"{terminated} terminated by the task, {truncated} truncated by a time limit, {neither} cut off"
    yield Check("ends", ends)
    fits = True
    if env_id is not None:
        for found in _check_fit(demos, env_id):
            fits &= found.ok
            yield found
        from scopil.data.fit_to_env import recorded_elsewhere

        for sentence in recorded_elsewhere(demos, env_id):
            yield Check("environment", sentence, warning=True)
    yield from _check_alignment(demos, env_id)
    trusted = trust_env or (env_id is not None and env_id == demos.env_id)
    yield from _check_replay(demos, trusted)
    if rules is not None and fits:  # violations in demonstrations are a warning, not an error
        broken = judge(demos, known_env(demos, env_id, trusted), rules)
        text = rule_counts(broken, rules)
        yield Check("rules", text, warning=broken.get("violations", 0.0) > 0 or UNJUDGED in text)


# --- numbers ----------------------------------------------------------------------------------------------------------


def _range(array: np.ndarray) -> str:
    return f"from {array.min():.6g} to {array.max():.6g}"


def _actions(demos: Demonstrations) -> str:
    space, actions = demos.action_space, demos.actions
    if isinstance(space, gym.spaces.Discrete):
        return f"{_range(actions)}, {len(np.unique(actions))} of {space.n} used"
    at_bound = (actions == space.low) | (actions == space.high)
    return f"{_range(actions)}, {100 * at_bound.mean():.3g} % of components exactly at a bound"


def _columns(space: gym.Space | None) -> Iterator[Check]:
    """The names of the columns of flat rows, in their order."""
    from scopil.envs.spaces import column_names
    from scopil.losses.features import grouped

    if space is not None:
        yield Check("columns", f"in this order: {_some(grouped(column_names(space)), MAX_COLUMNS)}")


def _some(names: Sequence[str], most: int) -> str:
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")


def _constant_columns(demos: Demonstrations) -> Iterator[Check]:
    """Columns that never change."""
    from scopil.envs.spaces import column_names

    rows = demos.observations.reshape(demos.pairs, -1)
    constant = np.flatnonzero((rows == rows[0]).all(axis=0))
    if len(constant) and demos.pairs > 1:
        names = column_names(demos.flattened_from or demos.observation_space)
        names = names if len(names) == rows.shape[1] else range(rows.shape[1])  # state numbers are one column
        which = _some(_constants({str(names[i]): float(rows[0, i]) for i in constant}), MAX_NAMED)
        yield Check("columns", f"{len(constant)} of {rows.shape[1]} never change: {which}", warning=True)


def _constants(values: Mapping[str, float]) -> list[str]:
    """Names of constant columns; of one-hot numbers, the value that they always or never have."""
    said, parts = [], {name: name.rpartition("=") for name in values}
    always = {part for name, (part, *_) in parts.items() if part and values[name] == 1}
    for name, (part, _, value) in parts.items():
        if part and values[name] == 1:
            said.append(f"{part} is always {value}")
        elif part not in always:
            said.append(f"{part} is never {value}" if part else name)
    return said


def _copies(demos: Demonstrations) -> Check:
    episodes = len(demos) - len({(e.observations.tobytes(), e.actions.tobytes()) for e in demos})
    pairs = demos.pairs - len({(o.tobytes(), a.tobytes()) for o, a in zip(demos.observations, demos.actions)})
    text = f"{episodes} episodes are copies of others" if episodes else "no two episodes are equal"
    return Check("duplicates", f"{text}; {pairs} of {demos.pairs} pairs are repeated", warning=episodes > 0)


def _jumps(demos: Demonstrations) -> Iterator[Check]:
    """A recorder that resets too early stores the next episode's first observation as this episode's last one. This
    appears as a large step in columns that change slowly."""
    factors = []
    for e in demos:
        rows = e.observations.reshape(len(e) + 1, -1).astype(np.float64)
        if np.array_equal(rows[-1], rows[-2]):
            rows = rows[:-1]  # the last observation was not recorded and is a copy
        moved = np.abs(np.diff(rows, axis=0))
        if len(moved) > 2:
            usual = moved[:-1].max(axis=0)
            factors.append(np.max(moved[-1][usual > 0] / usual[usual > 0], initial=0.0))
    far = sum(f > JUMP for f in factors)
    if 2 * far > len(factors):
        larger = f"in {far} of {len(demos)} episodes the last step is about {np.median(factors):.2g} times larger"
        text = f"{larger} than any other: the last observation may be the first of the next episode"
        yield Check("last step", text, warning=True)


# --- environments -----------------------------------------------------------------------------------------------------


def _check_fit(demos: Demonstrations, env_id: str) -> Iterator[Check]:
    """Whether training would accept the set, and the names of the columns if only the environment has them."""
    from scopil.data.fit_to_env import fit_to_env
    from scopil.envs.gym_env import open_env
    from scopil.train.demo_data import demo_data

    env = open_env(env_id)
    try:
        demo_data(fit_to_env(demos, env), env)
    except DatasetError as error:
        yield Check("environment", str(error), ok=False)
    else:
        yield Check("environment", f"fits {env_id}")
        if demos.flattened_from is None:
            yield from _columns(env.spaces.flattened_from)
    finally:
        env.close()


def _check_alignment(demos: Demonstrations, env_id: str | None) -> Iterator[Check]:
    """Whether each action is stored with the observation at which it was taken. A misalignment is an error if random
    episodes in the environment show it, and a warning if only the set shows it."""
    from scopil.data.alignment import MIN_Z, likeliest_shift, too_wide
    from scopil.data.fit_to_env import fit_to_env
    from scopil.envs.gym_env import open_env
    from scopil.train.demo_data import flattened

    played = None
    if env_id is not None:
        env = open_env(env_id)
        try:
            demos = flattened(fit_to_env(demos, env), env)
            if not too_wide(demos):
                played = flattened(fit_to_env(_random_play(env_id), env), env)
        except (DatasetError, EnvError):
            return  # the set does not fit, as reported above, or random play is impossible
        finally:
            env.close()
    shift = likeliest_shift(demos, played)
    if shift is None:
        why = "the actions hardly ever change from step to step"
        if too_wide(demos):
            size = math.prod(demos.observation_space.shape or ())
            why = f"observations of {size:,} numbers each are too many for this check"
        yield Check("alignment", f"unknown: {why}")
        return
    judged = "random play in the environment" if played is not None else "the set itself"
    evidence = f"by {judged}, over {shift.steps} steps where they differ (z = {abs(shift.z):.1f})"
    if not shift.found:
        clear = -shift.z > MIN_Z
        which = "action k predicts the step from observation k better than its neighbours"
        yield Check(
            "alignment", f"{which if clear else 'no neighbour of an action predicts its step better'}, {evidence}"
        )
        return
    text = f"action k{shift.lag:+d} predicts the step from observation k better than action k, {evidence}"
    words, want = "an observation after its own", "observations[1:] with actions[:-1]"
    if shift.lag > 0:
        words, want = "its next observation", "observations[:-1] with actions[1:]"
    text = f"{text}: an action seems to be stored with {words}; want {want}"
    yield Check("alignment", text, ok=played is None, warning=True)


def _random_play(env_id: str) -> Demonstrations:
    from scopil.data.record import record
    from scopil.envs.jax_env import make_env
    from scopil.envs.naming import with_options

    env = make_env(with_options(env_id, {"max_episode_steps": RANDOM_STEPS}))
    env.action_space.seed(0)
    try:
        return record(env, lambda obs: env.action_space.sample(), RANDOM_EPISODES)
    finally:
        env.close()


def replay_env(demos: Demonstrations, trust_env: bool = False):
    """The compiled environment to replay `demos` in; None if it cannot start at a given state, or if the set's
    environment name refers to untrusted code."""
    from scopil.envs.gym_env import compile_env

    if demos.env_id is None or demos.starts is None or (names_code(demos.env_id) and not trust_env):
        return None
    try:
        env = compile_env(demos.env_id)
    except EnvError:
        return None
    return env if env.can_start_at else None


def why_no_replay(demos: Demonstrations, trust_env: bool) -> str:
    if demos.starts is not None and names_code(demos.env_id) and not trust_env:
        return f"{demos.env_id} names code to import; if you trust it, add --trust-env"
    return "the environment cannot start at a given state, or the set has no starts; learning does not need them"


def _check_replay(demos: Demonstrations, trust_env: bool) -> Iterator[Check]:
    from scopil.eval.episodes import replay

    env = replay_env(demos, trust_env)
    starts = "none given" if demos.starts is None else f"{len(np.unique(demos.starts, axis=0))} different ones"
    yield Check("starts", starts)
    if env is None:
        yield Check("replay", f"not possible: {why_no_replay(demos, trust_env)}")
        return
    for what in ("observation_space", "action_space"):
        found, wanted = getattr(demos, what), getattr(env, what)
        if found != wanted:
            yield Check("spaces", f"{what} {found}; the environment has {wanted}", ok=False)
            return
    try:
        episodes = replay(env, demos)
    except EnvError as error:
        yield Check("replay", str(error), ok=False)
        return
    yield compare(demos, episodes)
    yield Check("violations", count_violations(episodes))


def known_env(demos: Demonstrations, env_id: str | None, trusted: bool) -> str | None:
    """The given environment, or else the set's environment unless its name refers to untrusted code."""
    own = None if names_code(demos.env_id) and not trusted else demos.env_id
    return env_id or own


def judge(demos: Demonstrations, env_id: str | None, rules: "Rules") -> "Measures":
    """Means over the demonstrated episodes, with violations of the caller's rules. The environment, if known, converts
    observations to the form that rules expect."""
    from scopil.envs.gym_env import open_env
    from scopil.eval.episodes import measure_demonstrations
    from scopil.eval.measures import average

    env = None if env_id is None else open_env(env_id)
    try:
        return average(measure_demonstrations(demos, env, rules))
    finally:
        if env is not None:
            env.close()


UNJUDGED = "not recorded"  # of rules on an `info` key that the demonstrations do not have


def rule_counts(means: "Measures", rules: "Rules") -> str:
    """One line: violations of each rule per episode, and the rules whose `info` key was not recorded."""
    counts = {name.partition("/")[2]: v for name, v in means.items() if name.startswith("violations/")}
    counts = counts or {"all": means["violations"]} if "violations" in means else {}
    each = ", ".join(f"{name} = {count:.3g}" for name, count in counts.items())
    unknown = [name for name, rule in rules.by_name.items() if isinstance(rule, str) and name not in counts]
    missing = f"; {UNJUDGED}: {', '.join(unknown)}" if unknown else ""
    return f"violations per episode: {each or 'no rule can be judged'}{missing}"


def compare(demos: Demonstrations, episodes: Sequence[Episode]) -> Check:
    """Compare a replay with the set: the same actions from the same starts must give the same states, rewards and
    ends."""
    worst = 0.0
    for i, (shown, played) in enumerate(zip(demos, episodes)):
        steps = len(played.actions)
        if steps != len(shown):
            return Check("replay", f"episode {i} ends after {steps} steps; the set has {len(shown)}", ok=False)
        if (played.terminated, played.truncated) != (shown.terminated, shown.truncated):
            return Check("replay", f"the end of episode {i} differs from what the set records", ok=False)
        apart = float(np.abs(played.observations - shown.observations).max())
        if shown.rewards is not None:
            apart = max(apart, float(np.abs(np.asarray(played.rewards) - shown.rewards).max()))
        if apart > SAME:
            return Check("replay", f"episode {i} differs by {apart:.2g}; want at most {SAME:g}", ok=False)
        worst = max(worst, apart)
    return Check("replay", "equal, bit for bit" if worst == 0 else f"equal within {worst:.1g}")


def count_violations(episodes: Sequence[Episode]) -> str:
    """One line: violations per rule, and how many of them are in initial states."""
    from scopil.eval.measures import broken_rules

    counts: Counter[str] = Counter()
    initial = 0
    for rule, broken in (each for e in episodes for each in broken_rules(e).items()):
        counts[rule or "cost"] += int(broken.sum())
        initial += int(broken[0])
    if not counts:
        return "the environment reports no costs"
    each = ", ".join(f"{name} {count}" for name, count in counts.items())
    states = sum(len(e.observations) for e in episodes)
    return f"{each}; {initial} in initial states, {sum(counts.values()) - initial} later; {states} states visited"
