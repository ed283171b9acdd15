"""A policy: observation statistics, a network, and a head that turns the network's outputs into a distribution.

Training, evaluation, `predict` and export share this object. It is a pytree, so it can be jitted, vmapped and saved.
`Policy.load` reads the policy from the file of a policy, agent or run, without needing the algorithm.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, get_args

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from scopil.errors import CheckpointError
from scopil.losses.familiarity import Monitor
from scopil.nn.distributions import Categorical, SquashedGaussian
from scopil.nn.heads import BoxHead, DiscreteHead, Head
from scopil.nn.nets import MLP, Activation, GaussianNet, Image, Network, convolves, image_of, network, top, width_of
from scopil.nn.normalise import RunningStats, new_stats, normalise, normalise_in_numpy
from scopil.nn.shield import Shield
from scopil.serialization import as_tree, branch, read_arrays, save_tree
from scopil.types import PRNGKey

NumpyPolicy = Callable[[np.ndarray, np.random.Generator | None], np.ndarray]


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
        action = pi.mode() if key is None else pi.sample(key)
        if self.shield is not None and self.head.continuous:
            action = self.shield.moved(action, normalise(self.normaliser, obs))
        return self.head.to_env(action)

    def in_numpy(self) -> NumpyPolicy:
        """`act` without JAX: (observations, generator or None) → actions in the environment's own numbering or box. For
        a single observation it is ten times faster than a compiled call."""
        arrays: Policy = jax.tree.map(np.asarray, self)
        network = self.network.in_numpy()
        return lambda obs, rng: arrays.head.act_numpy(network(normalise_in_numpy(arrays.normaliser, obs)), rng)

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
        mlp, image = top(self.network), image_of(self.network)
        sizes = [width_of(self.network), *(len(b) for b in mlp.biases)]
        made: dict[str, Any] = {"sizes": sizes, "activation": mlp.activation}
        made |= {"fixed_std": isinstance(self.network, GaussianNet), "normalises": self.normaliser is not None}
        if image is not None:
            made["image"] = list(image)
        if isinstance(self.head, DiscreteHead):
            made["start"] = self.head.start
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
    sizes = tuple(int(n) for n in form["sizes"])
    if not 2 <= len(sizes) <= 64 or not all(0 < n <= 1 << 20 for n in sizes):
        raise ValueError(f"a network of sizes {sizes}")
    if form["activation"] not in get_args(Activation):
        raise ValueError(f"activation {form['activation']!r}")
    image: Image | None = None
    if "image" in form:
        a, b, c = (int(n) for n in form["image"])
        image = a, b, c
        if min(a, b, c) < 1 or a * b * c != sizes[0] or not convolves(image):
            raise ValueError(f"an image of {image} in rows of {sizes[0]}")
    mean = network(sizes, key, image, partial(MLP, activation=form["activation"]))
    head: Head
    if "start" in form and not form["fixed_std"]:
        head = DiscreteHead(sizes[-1], int(form["start"]))
    else:
        width = sizes[-1] if form["fixed_std"] else sizes[-1] // 2
        head = BoxHead(*jax.numpy.zeros((2, width), jax.numpy.float32))
    net = GaussianNet(mean, jax.numpy.zeros(sizes[-1])) if form["fixed_std"] else mean
    return Policy(new_stats((sizes[0],)) if form["normalises"] else None, net, head)
