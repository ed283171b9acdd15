"""Policies for places where scopil is not: an ONNX graph, or a program of `jax.export`."""

from scopil.export.onnx_graph import export_onnx
from scopil.export.program import export_jax

__all__ = ["export_jax", "export_onnx"]
