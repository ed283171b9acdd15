"""A policy as a serialised StableHLO program (`jax.export`): JAX alone runs it, whatever becomes of our code."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import export

from scopil.agents import Agent
from scopil.core import squashed
from scopil.export.acting import Acting, acting, checked_path, description
from scopil.files import write_atomically

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


def export_jax(agent: Agent, path: str | Path) -> Path:
    """Write an agent's policy as a `jax.export` artefact for CPUs, GPUs and TPUs, for any batch size, and beside it
    `<path>.json`, which says what it is. Returns the path. See docs/deploy.md."""
    path = Path(checked_path(path, ".jaxexport"))
    parts = acting(agent)
    (batch,) = export.symbolic_shape("batch")
    inputs = [jax.ShapeDtypeStruct((batch, n), jnp.float32) for n in (parts.obs_dim, parts.width)]
    exported = export.export(jax.jit(_program(agent, parts)), platforms=PLATFORMS)(*inputs)
    said: dict[str, Any] = dict(description(agent, parts))
    said |= {
        "inputs": ["obs", "noise"],
        "outputs": list(parts.outputs),
        "platforms": list(exported.platforms),
    }
    said |= {"jax_version": jax.__version__, "calling_convention": exported.calling_convention_version}
    write_atomically(path, memoryview(exported.serialize()))
    write_atomically(path.with_name(path.name + ".json"), json.dumps(said, indent=2).encode() + b"\n")
    return path


def _program(agent: Agent, parts: Acting) -> Any:
    learner = agent.learner

    def policy(obs: jax.Array, noise: jax.Array) -> dict[str, jax.Array]:
        pi = agent.algorithm.policy(learner, obs)
        if isinstance(pi, squashed.Acting):
            sampled = pi.frame.out(pi.pi.at(noise)[0])
            shape = {"mean": pi.pi.mean, "std": jnp.exp(pi.pi.log_std)}
            return {"action": pi.mode(), "sampled_action": sampled} | shape
        sampled = jnp.argmax(pi.log_probs + noise, axis=-1)
        return {
            "action": pi.mode() + parts.first,
            "sampled_action": sampled + parts.first,
            "logits": pi.log_probs,
        }

    policy.__name__ = f"scopil_{agent.algorithm.name.replace('-', '_')}"
    return policy
