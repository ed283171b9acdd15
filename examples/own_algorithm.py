"""A custom algorithm in one file: SAC with a discriminator (GAIL, Ho & Ermon 2016, off-policy).

    D:   minimise E_demos softplus(−D(s,a)) + E_replay softplus(D(s,a))        demonstrator or learner?
    r' = r + w log sigmoid D(s,a)                                              the reward of SAC

It trains, resumes bit for bit, evaluates, reports and exports like the built-in ones:

    python examples/own_algorithm.py [--steps 20000] [--out out/own_algorithm]

To use it by name on the command line, publish it as an entry point of the group `scopil.algorithms`.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp

import scopil
from scopil.algos import sac
from scopil.config import config, setting
from scopil.nn.gradient import Trainable, gradient_step, trainable
from scopil.nn.nets import MLP
from scopil.nn.normalise import normalise

ENV, DEMOS = "scopil/MarbleMaze-Simple-v0", "marble-maze/simple-v1"


@config
class Config(sac.Config):
    demo_batch_size: int = setting(default=256, about="Demonstrated steps per gradient step.", low=1)
    imitation: float = setting(default=0.1, about="w: the discriminator's share of the reward.", low=0)
    discriminator_lr: float = setting(default=3e-4, about="Rate of the discriminator (Adam).", low=0)


class State(NamedTuple):
    """SAC's state, and one more network."""

    sac: sac.State
    discriminator: Trainable


def init(key: jax.Array, spaces: scopil.Spaces, cfg: Config) -> State:
    k_sac, k_discriminator = jax.random.split(key)
    sizes = (spaces.obs_dim + spaces.head.num_actions, *cfg.hidden, 1)
    return State(sac.init(k_sac, spaces, cfg), trainable(MLP(sizes, k_discriminator)))


def update(state: State, data: scopil.Data, cfg: Config, key: jax.Array) -> tuple[State, dict[str, jax.Array]]:
    batch, demo = data.replay, data.demo_batch
    assert batch is not None
    assert demo is not None

    def logit(network: MLP, obs: jax.Array, action: jax.Array) -> jax.Array:
        """D(s, a)"""
        head = state.sac.head
        features = head.to_learner(action) if head.continuous else jax.nn.one_hot(action, head.num_actions)
        return network(jnp.concatenate([normalise(state.sac.obs_stats, obs), features], -1))[..., 0]

    # D: minimise E_demos softplus(−D) + E_replay softplus(D)
    def loss(network: MLP) -> tuple[jax.Array, None]:
        shown, own = logit(network, demo.obs, demo.action), logit(network, batch.obs, batch.action)
        return jax.nn.softplus(-shown).mean() + jax.nn.softplus(own).mean(), None

    discriminator, d_loss, _ = gradient_step(state.discriminator, loss, cfg.discriminator_lr)

    # SAC on r' = r + w log sigmoid D(s,a)
    bonus = jax.nn.log_sigmoid(logit(discriminator.params, batch.obs, batch.action))
    rewarded = batch._replace(reward=batch.reward + cfg.imitation * bonus)
    learner, metrics = sac.update(state.sac, scopil.Data(replay=rewarded), cfg, key)
    return State(learner, discriminator), metrics | {"discriminator/loss": d_loss, "discriminator/bonus": bonus.mean()}


ALGORITHM = scopil.Algorithm(
    name="my-gail",
    title="My GAIL",
    summary="SAC with a discriminator's reward",
    config=Config,
    init=init,
    update=update,
    policy=lambda state: sac.policy(state.sac),
    wants=frozenset({"replay", "demo_batch"}),
)


def main(steps: int, out: Path) -> scopil.Agent:
    """Train in a run folder (a stopped run continues), evaluate, export."""
    if (out / "run.json").exists():
        run = scopil.Run.open(out, ALGORITHM)
    else:
        run = scopil.Run.create(out, scopil.RunSpec(algorithm=ALGORITHM, env=ENV, demos=DEMOS, steps=steps))
    run.train(lambda status: print(f"{status.env_steps:>8,} steps", flush=True))
    agent = scopil.load(out, algorithm=ALGORITHM)
    for starts in ("demonstrated", "unseen"):
        found = agent.evaluate(starts)
        print(f"{starts} starts: reward {found['reward']:.2f}, violations per episode {found['violations']:.3f}")
    print(f"written: {agent.policy.to_onnx(out / 'policy.onnx')}; `scopil report {out}` draws its curves")
    return agent


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--out", type=Path, default=Path("out/own_algorithm"))
    main(**vars(parser.parse_args()))
