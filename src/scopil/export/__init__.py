"""Policies for places where scopil is not installed: an ONNX graph, or a program of `jax.export`.

inputs    obs (batch, D), as a learner sees it: one flat row of float32 each
          noise (batch, A): standard Gumbel for discrete actions, standard normal for continuous ones; zeros are greedy
outputs   action, sampled_action: (batch,) numbers as the environment counts them, or (batch, A) in its box
          logits (batch, A): log π(a|s) · or mean, std (batch, A): of the Gaussian before tanh
"""

from scopil.export.jax_program import export_jax
from scopil.export.onnx_graph import export_onnx

__all__ = ["export_jax", "export_onnx"]
