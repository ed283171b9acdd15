"""A policy: observation statistics, a network, and a head that turns the network's outputs into a distribution.

Training, evaluation, `predict` and export share this object. It is a pytree, so it can be jitted, vmapped and saved.
`Policy.load` reads the policy from the file of a policy, agent or run, without needing the algorithm.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from scopil.errors import CheckpointError, ConfigError
from scopil.losses.familiarity import Monitor
from scopil.nn.distributions import Categorical, SquashedGaussian
from scopil.nn.heads import BoxHead, DiscreteHead, Head
from scopil.nn.nets import GaussianNet, Network, form_of, net_from
from scopil.nn.normalise import RunningStats, new_stats, normalise, normalise_in_numpy
from scopil.nn.shield import Shield
from scopil.serialization import as_tree, branch, read_arrays, save_tree
from scopil.types import PRNGKey

NumpyPolicy = Callable[[np.ndarray, np.random.Generator | None], np.ndarray]
NumpyShielded = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, bool]]


class Policy(eqx.Module):
    """π(·|s). Observations may have any leading axes."""

    normaliser: RunningStats | None  # None: observations are not normalised
    network: Network
    head: Head
    shield: Shield | None = None  # None: every action may be taken

    def distribution(self, obs: Float[Array, "*B D"]) -> Categorical | SquashedGaussian:
        """The distribution over actions in the learner's units: integers from 0, or vectors in [−1, 1]."""
        s = normalise(self.normaliser, obs)
        pi = self.head(self.network(s))
        return self.shield.masked(pi, s) if self.shield is not None and isinstance(pi, Categorical) else pi

    def act(self, obs: Float[Array, "*B D"], key: PRNGKey | None = None) -> Array:
        """The most likely action or, if a key is given, a sampled one. Actions are in the form that batch environments
        take: integers from 0, or vectors in the environment's box."""
        pi = self.distribution(obs)
        return self.head.to_env(self.shielded(obs, pi.mode() if key is None else pi.sample(key)))

    def shielded(self, obs: Float[Array, "*B D"], action: Array) -> Array:
        """An action of `distribution` after the shield: a continuous action may be moved. For discrete actions the
        distribution has the shield."""
        if self.shield is None or not self.head.continuous:
            return action
        return self.shield.moved(action, normalise(self.normaliser, obs))

    def in_numpy(self) -> NumpyPolicy:
        """`act` without JAX: (observations, generator or None) → actions in the environment's own numbering or box. For
        a single observation it is ten times faster than a compiled call."""
        arrays: Policy = jax.tree.map(np.asarray, self)
        network, stats, head = self.network.in_numpy(), arrays.normaliser, arrays.head
        shield = None if self.shield is None else self.shield.in_numpy()
        if isinstance(head, BoxHead):
            unit, to_env = head.unit_numpy, head.to_env_numpy  # bound once: for equinox that takes longer than a call

            def act_in_box(obs: np.ndarray, rng: np.random.Generator | None) -> np.ndarray:
                s = normalise_in_numpy(stats, obs)
                action = unit(network(s), rng)
                return to_env(action if shield is None else shield.moved(action, s)[0])

            return act_in_box
        choose = head.act_numpy

        def act(obs: np.ndarray, rng: np.random.Generator | None) -> np.ndarray:
            s = normalise_in_numpy(stats, obs)
            outputs = network(s)
            return choose(outputs if shield is None else np.where(shield.kept(s)[0], outputs, -np.inf), rng)

        return act

    def shield_in_numpy(self) -> NumpyShielded:
        """The shield alone: (one observation, an action) → the action that may be taken, and whether any action is
        within the limit. Actions are in the environment's own numbering or box. A discrete action that is left out is
        replaced by the policy's most likely one. Raises ConfigError if the policy has no shield."""
        if self.shield is None:
            raise ConfigError("the policy has no shield; want one that was trained with a shield.")
        arrays: Policy = jax.tree.map(np.asarray, self)
        shield, stats, head, act = self.shield.in_numpy(), arrays.normaliser, arrays.head, self.in_numpy()

        def shielded(obs: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, bool]:
            s = normalise_in_numpy(stats, obs)
            if isinstance(head, BoxHead):
                unit = head.to_learner_numpy(np.asarray(action, np.float32))
                moved, within = shield.moved(unit, s)
                return action if (moved == unit).all() else head.to_env_numpy(moved), bool(within)
            kept, within = shield.kept(s)
            return action if kept[int(action) - head.start] else act(obs, None), bool(within)

        return shielded

    def unshielded(self) -> "Policy":
        """The policy without its shield."""
        return Policy(self.normaliser, self.network, self.head)

    def act_numpy(self, obs: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
        """Call the function that `in_numpy` returns. For many calls, store that function instead."""
        return self.in_numpy()(np.asarray(obs, np.float32), rng)

    def to_onnx(self, path: str | Path, note: dict[str, str] | None = None, monitor: Monitor | None = None) -> Path:
        """Write the policy as an ONNX graph (docs/deploy.md). `note` is added to the graph's metadata; a monitor
        (`agent.monitor()`) adds the output `familiarity`."""
        from scopil.export import export_onnx

        return export_onnx(self, path, note, monitor)

    def to_jax(self, path: str | Path, note: dict[str, str] | None = None, monitor: Monitor | None = None) -> Path:
        """Write the policy as a `jax.export` program (docs/deploy.md), with `note` in its description."""
        from scopil.export import export_jax

        return export_jax(self, path, note, monitor)

    def save(self, path: str | Path, note: dict[str, Any] | None = None) -> None:
        """Write the policy, without a learner's state."""
        save_tree(Path(path), {"policy": self}, (note or {}) | {"form": self.form()})

    @classmethod
    def load(cls, path: str | Path) -> "Policy":
        """The policy in a file of `save` or `agent.save`, or in a run's `policy.safetensors`."""
        return read_policy(Path(path))[0]

    def form(self) -> dict[str, Any]:
        """The structure of the policy as JSON, without its arrays. `_blank` rebuilds the structure."""
        made = form_of(self.network)
        made |= {"fixed_std": isinstance(self.network, GaussianNet), "normalises": self.normaliser is not None}
        if isinstance(self.head, DiscreteHead):
            made["start"] = self.head.start
        if self.shield is not None:
            made["shield"] = form_of(self.shield.critics[0])
        return made


def read_policy(path: Path) -> tuple[Policy, dict[str, Any]]:
    """The policy in a file, and the file's note. Raises CheckpointError."""
    arrays, note = read_arrays(path)
    return policy_from(arrays, note, path), note


def policy_from(arrays: dict[str, np.ndarray], note: dict[str, Any], path: Path) -> Policy:
    """Build the policy from the arrays of a file. Raises CheckpointError if the file has no policy."""
    try:
        like = jax.eval_shape(partial(_blank, note["form"]), jax.random.key(0))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CheckpointError(f"{path} holds no policy; want a policy.safetensors, or a file of agent.save.") from error
    return as_tree(branch(arrays, "policy"), like, path)


def _blank(form: dict[str, Any], key: PRNGKey) -> Policy:
    k_net, *k_critics = jax.random.split(key, 3)
    mean, sizes = net_from(form, k_net)
    head: Head
    if "start" in form and not form["fixed_std"]:
        head = DiscreteHead(sizes[-1], int(form["start"]))
    else:
        width = sizes[-1] if form["fixed_std"] else sizes[-1] // 2
        head = BoxHead(*jax.numpy.zeros((2, width), jax.numpy.float32))
    net = GaussianNet(mean, jax.numpy.zeros(sizes[-1])) if form["fixed_std"] else mean
    stats, shield = new_stats((sizes[0],)) if form["normalises"] else None, None
    if "shield" in form:
        given, outputs = (head.num_actions, 1) if head.continuous else (0, head.num_actions)
        (one, found), (two, _) = (net_from(form["shield"], k, given) for k in k_critics)
        if (found[0], found[-1]) != (sizes[0] + given, outputs):
            raise ValueError(f"a shield of sizes {found} for a policy of sizes {sizes}")
        shield = Shield((one, two), jax.numpy.zeros(()))
    return Policy(stats, net, head, shield)
