"""A policy as a serialised StableHLO program (`jax.export`): JAX alone runs it, whatever becomes of our code."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import export

from scopil.export.interface import checked_path, description, outputs
from scopil.files import write_atomically
from scopil.losses.density_ratio import Monitor, familiarity
from scopil.nn.gaussian import SquashedGaussian
from scopil.nn.heads import DiscreteHead
from scopil.nn.nets import width_of
from scopil.policy import Policy

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


def export_jax(
    policy: Policy, path: str | Path, note: dict[str, str] | None = None, monitor: Monitor | None = None
) -> Path:
    """Write a policy as a `jax.export` artefact for CPUs, GPUs and TPUs, for any batch size, and beside it
    `<path>.json`, which describes it. Returns the path. See docs/deploy.md."""
    path = checked_path(path, ".jaxexport")
    (batch,) = export.symbolic_shape("batch")
    widths = (width_of(policy.network), policy.head.num_actions)
    inputs = [jax.ShapeDtypeStruct((batch, n), jnp.float32) for n in widths]
    exported = export.export(jax.jit(_program(policy, monitor)), platforms=PLATFORMS)(*inputs)
    about: dict[str, Any] = dict(description(policy, note))
    about |= {
        "inputs": ["obs", "noise"],
        "outputs": list(outputs(policy.head, monitor)),
        "platforms": list(exported.platforms),
        "jax_version": jax.__version__,
        "calling_convention": exported.calling_convention_version,
    }
    write_atomically(path, memoryview(exported.serialize()))
    write_atomically(path.with_name(path.name + ".json"), json.dumps(about, indent=2).encode() + b"\n")
    return path


def _program(policy: Policy, monitor: Monitor | None) -> Any:
    head = policy.head

    def scopil_policy(obs: jax.Array, noise: jax.Array) -> dict[str, jax.Array]:
        return act(obs, noise) | ({} if monitor is None else {"familiarity": familiarity(monitor, obs)})

    def act(obs: jax.Array, noise: jax.Array) -> dict[str, jax.Array]:
        pi = policy.distribution(obs)
        if isinstance(pi, SquashedGaussian):
            actions = {"action": head.to_env(pi.mode()), "sampled_action": head.to_env(pi.at(noise)[0])}
            return actions | {"mean": pi.mean, "std": jnp.exp(pi.log_std)}
        assert isinstance(head, DiscreteHead)
        sampled = jnp.argmax(pi.log_probs + noise, axis=-1)
        return {"action": pi.mode() + head.start, "sampled_action": sampled + head.start, "logits": pi.log_probs}

    return scopil_policy
