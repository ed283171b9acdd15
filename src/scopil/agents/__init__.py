"""The Python API, in the habits of Stable-Baselines3:

agent = scopil.SCOPIL("scopil/MarbleMaze-Simple-v0", "marble-maze/simple-v1", seed=0)
agent.learn(100_000, progress_bar=True)
action, _ = agent.predict(obs, deterministic=True)
agent.save("policy.safetensors");  agent = scopil.load("policy.safetensors")

`scopil.Agent(algorithm, env, demos)` is the same for an algorithm of your own.
"""

from scopil.agents.agent import Agent
from scopil.agents.loading import load, monitor_of, policy_of
from scopil.agents.named import (
    BC,
    ICRL,
    PPO,
    PPODGD,
    SAC,
    SCOPIL,
    SDGD,
    OraclePPOLagrangian,
    OracleSACLagrangian,
    SCOPILRho,
    SDGDEiC,
    SEiC,
)

__all__ = [
    "BC",
    "ICRL",
    "PPO",
    "PPODGD",
    "SAC",
    "SCOPIL",
    "SDGD",
    "Agent",
    "OraclePPOLagrangian",
    "OracleSACLagrangian",
    "SCOPILRho",
    "SDGDEiC",
    "SEiC",
    "load",
    "monitor_of",
    "policy_of",
]
