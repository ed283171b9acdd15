"""The keyword arguments of the agents' constructors, for type checkers and completion.

Meaning, defaults and ranges stand in each algorithm's Config; a test holds these lists to them.
"""

from typing import TypedDict

Widths = tuple[int, ...] | list[int]


class SacSettings(TypedDict, total=False):
    discount: float
    learning_rate: float
    alpha_lr: float
    polyak: float
    target_entropy: float | None
    log_alpha_init: float
    hidden: Widths
    batch_size: int
    replay_size: int
    num_envs: int
    grad_steps: int
    normalise_obs: bool


class SharedSettings(SacSettings, total=False):
    demo_batch_size: int
    multiplier_init: float
    multiplier_lr: float
    slack: float | None
    entropy_split: float
    action_resolution: float
    slack_from_demos: bool
    from_cloning: bool
    average_over: int


class ScopilSettings(SharedSettings, total=False):
    as_printed: bool


class ScopilRhoSettings(SharedSettings, total=False):
    occupancy_init: float
    occupancy_lr: float
    occupancy_share: float
    features: Widths | None
    blur: float
    quantile: float
    contrast_width: int
    contrast_lr: float
    contrast_batch_size: int


class SacLagrangianSettings(SacSettings, total=False):
    cost_discount: float
    multiplier_init: float
    multiplier_lr: float
    budget: float


class BcSettings(TypedDict, total=False):
    learning_rate: float
    hidden: Widths
    demo_batch_size: int
    normalise_obs: bool
    action_resolution: float


class PpoSettings(TypedDict, total=False):
    discount: float
    gae_lambda: float
    learning_rate: float
    clip: float
    target_kl: float
    entropy_weight: float
    value_weight: float
    max_grad_norm: float
    hidden: Widths
    batch_size: int
    num_envs: int
    rollout_steps: int
    epochs: int
    normalise_obs: bool
    normalise_reward: bool


class PpoDgdSettings(PpoSettings, total=False):
    demo_batch_size: int
    multiplier_init: float
    multiplier_lr: float
    slack: float | None
    slack_from_demos: bool
    action_resolution: float


class PpoLagrangianSettings(PpoSettings, total=False):
    cost_discount: float
    cost_gae_lambda: float
    multiplier_init: float
    multiplier_lr: float
    budget: float
    normalise_cost: bool


class IcrlSettings(PpoLagrangianSettings, total=False):
    forward_steps: int
    rollouts: int
    constraint_hidden: Widths
    constraint_lr: float
    constraint_lr_decay: float
    backward_iters: int
    regulariser: float
    max_forward_kl: float
    max_reverse_kl: float
