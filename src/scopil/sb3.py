"""Names of Stable-Baselines3: settings with another name here, and what to use instead of those that scopil lacks."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from scopil.errors import ConfigError

SAME = {
    "buffer_size": "replay_size",
    "clip_range": "clip",
    "gamma": "discount",
    "gradient_steps": "grad_steps",
    "n_envs": "num_envs",
    "n_epochs": "epochs",
    "n_steps": "rollout_steps",
    "tau": "polyak",
    "vf_coef": "value_weight",
}
INSTEAD = {
    "action_noise": "the policy samples its actions; target_entropy sets how much",
    "device": "JAX chooses the device; set the environment variable JAX_PLATFORMS=cpu",
    "learning_starts": "updates begin when the replay holds one batch, of batch_size steps",
    "optimize_memory_usage": "replay_size sets the memory",
    "policy": "the observations determine the kind of network; hidden sets its layers",
    "tensorboard_log": "a run folder has such a log (scopil.Run, scopil train)",
    "train_freq": "num_envs and grad_steps set the updates per step",
    "target_update_interval": "polyak sets the speed of the targets",
    "use_sde": "the policy samples an action at every step",
    "log_interval": "progress_bar=True prints rows of metrics",
    "tb_log_name": "a run folder has a log for TensorBoard (scopil.Run, scopil train)",
    "eval_env": "the agent opens its own environments for evaluation",
    "eval_log_path": "EvalCallback.history has all evaluations",
    "best_model_save_path": "best= names the file of the best agent",
    "callback_on_new_best": "best= names the file of the best agent",
    "callback_after_eval": "until= is a function that stops training",
    "render": "scopil render RUN --out film.mp4 draws episodes",
}


def refuse(names: Iterable[str], what: str) -> None:
    """Raise for the first of these names, which `what` does not take."""
    for name in names:
        ours = SAME.get(name)
        advice = INSTEAD.get(name) or (f"its name here is {ours}" if ours else "see its documentation")
        raise ConfigError(f"{what} has no argument {name}; {advice}.")


def translated(values: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """Settings with our names. Names that are `known` or of neither library are unchanged. Raises for a setting of
    Stable-Baselines3 that has no equal here."""
    known, made = set(known), {}
    for name, value in values.items():
        found = {name: value} if name in known else _ours(name, value, known, values)
        if twice := sorted(found.keys() & made.keys()):
            raise ConfigError(f"{twice[0]} is given twice, once as {name}; remove one.", setting=twice[0])
        made |= found
    return made


def _ours(name: str, value: Any, known: set[str], others: Mapping[str, Any]) -> dict[str, Any]:
    if SAME.get(name) in known:
        return {SAME[name]: value}
    if name == "ent_coef":
        return _entropy(value, known)
    if name == "policy_kwargs":
        return _network(value)
    if name in ("train_freq", "target_update_interval") and value in (1, (1, "step")):
        return {}
    if name == "learning_starts" and value == others.get("batch_size"):
        return {}
    if name in INSTEAD:
        raise ConfigError(f"no setting is called {name}; {INSTEAD[name]}.")
    return {name: value}


def _entropy(value: Any, known: set[str]) -> dict[str, Any]:
    """PPO's weight of the entropy, or SAC's α: "auto", "auto_0.1" or a fixed number."""
    if "entropy_weight" in known:
        return {"entropy_weight": value}
    learned, _, first = str(value).partition("_")
    try:
        alpha = float(first or 1) if learned == "auto" else float(value)
    except (TypeError, ValueError):
        alpha = 0.0
    if not 0 < alpha < math.inf:
        raise ConfigError(f'ent_coef = {value!r}; want "auto", "auto_0.1" or a positive number.', setting="ent_coef")
    if learned == "auto" and not first:
        return {}
    return {"log_alpha_init": math.log(alpha)} | ({} if learned == "auto" else {"alpha_lr": 0.0})


def _network(value: Any) -> dict[str, Any]:
    layers = value.get("net_arch") if isinstance(value, Mapping) else None
    if layers is None or len(value) > 1:
        raise ConfigError(f"policy_kwargs = {value!r}; want dict(net_arch=[64, 64]), or our hidden=(64, 64).")
    if isinstance(layers, Mapping):
        layers, *others = layers.values()
        if any(list(each) != list(layers) for each in others):
            raise ConfigError(f"net_arch = {value['net_arch']}; want the same layers for all networks, as in hidden.")
    return {"hidden": tuple(layers)}
