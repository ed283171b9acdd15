"""A policy as an ONNX graph, node by node from its weights: no tracing, nothing that a runtime may lack."""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from scopil.agents import Agent
from scopil.core import normalise
from scopil.core.squashed import LOG_STD_MAX, LOG_STD_MIN
from scopil.errors import ScopilError
from scopil.export.acting import Acting, acting, checked_path, description
from scopil.files import write_atomically

OPSET, IR_VERSION = 17, 8  # of 2022: old runtimes read them too
ACTIVATIONS = {"relu": "Relu", "tanh": "Tanh"}
ABOUT = (
    "A policy trained by scopil. Inputs: obs (batch, D) float32; noise (batch, A) float32, standard {noise}, or one "
    "row of zeros for the greedy action alone. Outputs: {outputs}. Observations are normalised inside."
)


def export_onnx(agent: Agent, path: str | Path) -> Path:
    """Write an agent's policy as ONNX and return the path. Needs `pip install "scopil[onnx]"`; reading the file needs
    an ONNX runtime and nothing of ours. See docs/deploy.md."""
    path = Path(checked_path(path, ".onnx"))
    onnx = _onnx()
    parts = acting(agent)
    said = description(agent, parts)
    graph = _Graph(onnx)
    (_discrete if parts.frame is None else _continuous)(graph, parts, _network(graph, parts))
    model = graph.model(parts, said, f"scopil_{said['algorithm'].replace('-', '_')}")
    onnx.checker.check_model(model, full_check=True)
    write_atomically(path, model.SerializeToString(deterministic=True))
    return path


class _Graph:
    """Nodes and constants as they are added."""

    def __init__(self, onnx: Any):
        self.onnx, self.nodes, self.constants = onnx, [], []

    def node(self, kind: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        out = out or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, inputs, [out], **attributes))
        return out

    def constant(self, name: str, value: Any, dtype: Any = np.float32) -> str:
        self.constants.append(self.onnx.numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def model(self, parts: Acting, said: dict[str, str], name: str) -> Any:
        helper, types = self.onnx.helper, self.onnx.TensorProto
        rows = {key: ["batch", parts.width] for key in ("logits", "mean", "std")}
        numbered = parts.frame is None
        for key in ("action", "sampled_action"):
            rows[key] = ["batch"] if numbered else ["batch", parts.width]
        outputs = [
            helper.make_tensor_value_info(
                key, types.INT64 if numbered and key != "logits" else types.FLOAT, rows[key]
            )
            for key in parts.outputs
        ]
        inputs = [
            helper.make_tensor_value_info("obs", types.FLOAT, ["batch", parts.obs_dim]),
            helper.make_tensor_value_info("noise", types.FLOAT, ["noise_batch", parts.width]),
        ]
        about = ABOUT.format(noise=said["noise"], outputs=", ".join(parts.outputs))
        model = helper.make_model(
            helper.make_graph(self.nodes, name, inputs, outputs, self.constants, doc_string=about),
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="scopil",
            producer_version=said["scopil_version"],
            doc_string=about,
        )
        helper.set_model_props(model, said)
        return model


def _network(graph: _Graph, parts: Acting) -> str:
    """From `obs` to what the network puts out."""
    x = "obs"
    if parts.stats is not None:
        scale = 1.0 / np.sqrt(np.asarray(parts.stats.var) + np.float32(normalise.EPS))
        x = graph.node("Sub", x, graph.constant("obs_mean", parts.stats.mean))
        x = graph.node("Mul", x, graph.constant("obs_scale", scale))
        x = _clip(graph, x, "obs_limit", -normalise.LIMIT, normalise.LIMIT)
    layers = list(zip(parts.actor.weights, parts.actor.biases))
    for i, (weight, bias) in enumerate(layers):
        names = graph.constant(f"weight_{i}", weight), graph.constant(f"bias_{i}", bias)
        x = graph.node("Gemm", x, *names, transB=1)
        if i < len(layers) - 1:
            x = graph.node(ACTIVATIONS[parts.actor.activation], x)
    return x


def _discrete(graph: _Graph, parts: Acting, head: str) -> None:
    """argmax log π, and by Gumbel's trick a sample: argmax (log π + noise)."""
    first = graph.constant("first_action", parts.first, np.int64)
    logits = graph.node("LogSoftmax", head, axis=-1, out="logits")
    noisy = graph.node("Add", logits, "noise")
    for scores, out in ((logits, "action"), (noisy, "sampled_action")):
        graph.node("Add", graph.node("ArgMax", scores, axis=-1, keepdims=0), first, out=out)


def _continuous(graph: _Graph, parts: Acting, head: str) -> None:
    """tanh μ and tanh(μ + σ noise) in the environment's box; log σ is bent into its range as `squashed.bent` does."""
    assert parts.frame is not None
    middle, reach = 0.5 * (LOG_STD_MAX + LOG_STD_MIN), 0.5 * (LOG_STD_MAX - LOG_STD_MIN)
    halves = graph.constant("halves", [parts.width, parts.width], np.int64)
    graph.nodes.append(graph.onnx.helper.make_node("Split", [head, halves], ["mean", "raw_log_std"], axis=-1))
    for name, value in (("log_std_middle", middle), ("log_std_reach", reach)):
        graph.constant(name, value)
    bent = graph.node("Div", graph.node("Sub", "raw_log_std", "log_std_middle"), "log_std_reach")
    bent = graph.node("Mul", graph.node("Tanh", bent), "log_std_reach")
    std = graph.node("Exp", graph.node("Add", bent, "log_std_middle"), out="std")
    low, high = (np.asarray(bound, np.float32) for bound in (parts.frame.low, parts.frame.high))
    centre, half = (
        graph.constant("centre", 0.5 * low + 0.5 * high),
        graph.constant("half", 0.5 * high - 0.5 * low),
    )
    low, high = graph.constant("low", low), graph.constant("high", high)
    noisy = graph.node("Add", "mean", graph.node("Mul", std, "noise"))
    for u, out in (("mean", "action"), (noisy, "sampled_action")):
        inside = graph.node("Add", graph.node("Mul", graph.node("Tanh", u), half), centre)
        graph.node("Min", graph.node("Max", inside, low), high, out=out)  # never a rounding error outside


def _clip(graph: _Graph, x: str, name: str, low: float, high: float) -> str:
    return graph.node("Clip", x, graph.constant(f"{name}_low", low), graph.constant(f"{name}_high", high))


def _onnx() -> Any:
    try:
        import_module("onnx.numpy_helper")
        return import_module("onnx")
    except ImportError as error:
        raise ScopilError(
            f'ONNX files need another package ({error}): pip install "scopil[onnx]".'
        ) from error
