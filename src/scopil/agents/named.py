"""One class for each algorithm, with its settings as keywords."""

import inspect
from typing import Any, Unpack

from scopil import agent_settings as accepted
from scopil.agents.agent import Agent
from scopil.algos import (
    ablations,
    bc,
    icrl,
    ppo,
    ppo_dgd,
    ppo_lagrangian,
    sac,
    sac_lagrangian,
    scopil,
    scopil_rho,
)
from scopil.algos.base import Algorithm
from scopil.config import settings
from scopil.envs.host import AnyEnv


class _Named(Agent):
    """An agent whose algorithm is fixed by its class."""

    _algorithm: Algorithm

    def __init_subclass__(cls) -> None:
        """Tools that read signatures at run time see every setting."""
        P = inspect.Parameter
        fixed = [P("env", P.POSITIONAL_OR_KEYWORD), P("demos", P.POSITIONAL_OR_KEYWORD, default=None)]
        given = [P("seed", P.KEYWORD_ONLY, default=0)]
        given += [P(s.name, P.KEYWORD_ONLY, default=s.default) for s in settings(cls._algorithm.config)]
        cls.__signature__ = inspect.Signature([*fixed, *given])


class SCOPIL(_Named):
    """Soft actor-critic under an imitation constraint (docs/algorithms/scopil.md)."""

    _algorithm = scopil.ALGORITHM

    def __init__(
        self, env: AnyEnv, demos: Any = None, *, seed: int = 0, **config: Unpack[accepted.ScopilSettings]
    ):
        super().__init__(self._algorithm, env, demos, seed=seed, **config)


class SCOPILRho(_Named):
    """SCOPIL that also stays where the demonstrator is found (docs/algorithms/scopil_rho.md)."""

    _algorithm = scopil_rho.ALGORITHM

    def __init__(
        self, env: AnyEnv, demos: Any = None, *, seed: int = 0, **config: Unpack[accepted.ScopilRhoSettings]
    ):
        super().__init__(self._algorithm, env, demos, seed=seed, **config)


class SAC(_Named):
    """Soft actor-critic: reward alone (docs/algorithms/sac.md)."""

    _algorithm = sac.ALGORITHM

    def __init__(
        self, env: AnyEnv, demos: Any = None, *, seed: int = 0, **config: Unpack[accepted.SacSettings]
    ):
        super().__init__(self._algorithm, env, demos, seed=seed, **config)


class SDGD(SCOPIL):
    """SCOPIL with a fixed multiplier."""

    _algorithm = ablations.S_DGD


class SEiC(SCOPIL):
    """SCOPIL without entropy in the constraint."""

    _algorithm = ablations.S_EIC


class SDGDEiC(SCOPIL):
    """SCOPIL with a fixed multiplier and without entropy in the constraint."""

    _algorithm = ablations.S_DGD_EIC


class PPO(_Named):
    """Proximal policy optimisation: reward alone (docs/algorithms/ppo.md)."""

    _algorithm = ppo.ALGORITHM

    def __init__(
        self, env: AnyEnv, demos: Any = None, *, seed: int = 0, **config: Unpack[accepted.PpoSettings]
    ):
        super().__init__(self._algorithm, env, demos, seed=seed, **config)


class PPODGD(_Named):
    """PPO under SCOPIL's imitation constraint (docs/algorithms/ppo_dgd.md)."""

    _algorithm = ppo_dgd.ALGORITHM

    def __init__(
        self, env: AnyEnv, demos: Any = None, *, seed: int = 0, **config: Unpack[accepted.PpoDgdSettings]
    ):
        super().__init__(self._algorithm, env, demos, seed=seed, **config)


class ICRL(_Named):
    """Inverse constrained reinforcement learning (docs/algorithms/icrl.md)."""

    _algorithm = icrl.ALGORITHM

    def __init__(
        self, env: AnyEnv, demos: Any = None, *, seed: int = 0, **config: Unpack[accepted.IcrlSettings]
    ):
        super().__init__(self._algorithm, env, demos, seed=seed, **config)


class BC(_Named):
    """Behaviour cloning: demonstrations alone (docs/algorithms/bc.md)."""

    _algorithm = bc.ALGORITHM

    def __init__(
        self, env: AnyEnv, demos: Any = None, *, seed: int = 0, **config: Unpack[accepted.BcSettings]
    ):
        super().__init__(self._algorithm, env, demos, seed=seed, **config)


class OraclePPOLagrangian(_Named):
    """PPO-Lagrangian that sees the true cost: a yardstick (docs/algorithms/ppo_lagrangian.md)."""

    _algorithm = ppo_lagrangian.ORACLE

    def __init__(
        self,
        env: AnyEnv,
        demos: Any = None,
        *,
        seed: int = 0,
        **config: Unpack[accepted.PpoLagrangianSettings],
    ):
        super().__init__(self._algorithm, env, demos, seed=seed, **config)


class OracleSACLagrangian(_Named):
    """SAC-Lagrangian that sees the true cost: a yardstick (docs/algorithms/oracles.md)."""

    _algorithm = sac_lagrangian.ORACLE

    def __init__(
        self,
        env: AnyEnv,
        demos: Any = None,
        *,
        seed: int = 0,
        **config: Unpack[accepted.SacLagrangianSettings],
    ):
        super().__init__(self._algorithm, env, demos, seed=seed, **config)
