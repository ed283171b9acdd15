"""Export of policies to programs without scopil, as an ONNX graph or a `jax.export` program.

inputs    obs (batch, D): flat float32 observations, as learners receive them
          noise (batch, A): standard Gumbel for discrete actions, standard normal for continuous ones; 0 is greedy
outputs   action, sampled_action: (batch,) in the environment's numbering, or (batch, A) in its box
          raw_action, raw_sampled_action, if the policy has a shield: the same without the shield
          intervened (batch,), if the policy has a shield: whether `action` is not `raw_action`
          logits (batch, A): log π(a|s), with the shield; or mean, std (batch, A) of the Gaussian before tanh
          familiarity (batch,), if a monitor is given
"""

import json
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from scopil._version import __version__
from scopil.errors import ConfigError, ScopilError
from scopil.files import write_atomically
from scopil.losses.familiarity import Monitor, familiarity
from scopil.nn import normalise
from scopil.nn.distributions import LOG_STD_MIDDLE, LOG_STD_REACH, SquashedGaussian
from scopil.nn.heads import BoxHead, DiscreteHead
from scopil.nn.nets import ConvNet, GaussianNet, Net, Network, top, width_of
from scopil.nn.shield import NEVER, Shield, points
from scopil.policy import Policy

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
OPSET, IR_VERSION = 17, 8  # versions of 2022, which old runtimes support
ACTIVATIONS = {"relu": "Relu", "tanh": "Tanh"}
ABOUT = (
    "A policy trained by scopil. Inputs: obs (batch, D) float32; noise (batch, A) float32, standard {noise}, or one "
    "row of zeros for the greedy action alone. Outputs: {outputs}. Observations are normalised inside."
)
Note = dict[str, str] | None


def export_jax(policy: Policy, path: str | Path, note: Note = None, monitor: Monitor | None = None) -> Path:
    """Write a policy as a serialised StableHLO program for CPUs, GPUs and TPUs and any batch size, with a description
    in `<path>.json`. Returns the path. See docs/deploy.md."""
    path, monitor = _checked(path, ".jaxexport"), _carried(monitor, compiled=True)
    (batch,) = jax.export.symbolic_shape("batch")
    widths = (width_of(policy.network), policy.head.num_actions)
    inputs = [jax.ShapeDtypeStruct((batch, n), jnp.float32) for n in widths]
    exported = jax.export.export(jax.jit(_program(policy, monitor)), platforms=PLATFORMS)(*inputs)
    about: dict[str, Any] = {**_description(policy, note), "inputs": ["obs", "noise"]}
    about |= {"outputs": list(_outputs(policy, monitor)), "platforms": list(exported.platforms)}
    about |= {"jax_version": jax.__version__, "calling_convention": exported.calling_convention_version}
    write_atomically(path, memoryview(exported.serialize()))
    write_atomically(path.with_name(path.name + ".json"), json.dumps(about, indent=2).encode() + b"\n")
    return path


def export_onnx(policy: Policy, path: str | Path, note: Note = None, monitor: Monitor | None = None) -> Path:
    """Write a policy as an ONNX graph and return the path. Needs `pip install "scopil[onnx]"`; any ONNX runtime reads
    the file. See docs/deploy.md."""
    path, monitor = _checked(path, ".onnx"), _carried(monitor, compiled=False)
    try:
        import_module("onnx.numpy_helper")
        onnx: Any = import_module("onnx")
    except ImportError as error:
        raise ScopilError(f'ONNX files need another package ({error}): pip install "scopil[onnx]".') from error
    graph = _Graph(onnx)
    s = _normalised(graph, policy)
    network_output = _network(graph, policy.network, s)
    if isinstance(policy.head, DiscreteHead):
        _discrete(graph, policy.head, network_output, None if policy.shield is None else _kept(graph, policy.shield, s))
    else:
        move = None if policy.shield is None else _mover(graph, policy.shield, s, policy.head.num_actions)
        _continuous(graph, policy.head, network_output, move)
    if monitor is not None:
        _familiarity(graph, monitor)
    model = graph.model(policy, _outputs(policy, monitor), _description(policy, note))
    onnx.checker.check_model(model, full_check=True)
    write_atomically(path, model.SerializeToString(deterministic=True))
    return path


def _checked(path: str | Path, ending: str) -> Path:
    path = Path(path)
    if path.is_dir():
        raise ConfigError(f"{path} is a folder; want a file name such as {path / ('policy' + ending)}.")
    return path


def _carried(monitor: Monitor | None, compiled: bool) -> Monitor | None:
    """The monitor, if a file can hold it: a StableHLO program can hold own features that are compiled, ONNX none."""
    if monitor is None or (own := monitor.features.own) is None or (compiled and own.compiled):
        return monitor
    columns = np.ravel(monitor.grid.feature).tolist()
    if not compiled and not any(map(monitor.features.is_own, columns)):
        return monitor
    form = "a StableHLO program" if compiled else "ONNX"
    warnings.warn(f"familiarity is left out: {form} cannot hold the Python function {own.call}.", stacklevel=3)
    return None


def _outputs(policy: Policy, monitor: Monitor | None) -> tuple[str, ...]:
    raw = ("raw_action", "raw_sampled_action", "intervened") if policy.shield is not None else ()
    pi = ("mean", "std") if policy.head.continuous else ("logits",)
    return ("action", "sampled_action", *raw, *pi, *(() if monitor is None else ("familiarity",)))


def _description(policy: Policy, note: Note) -> dict[str, str]:
    return {str(k): str(v) for k, v in (note or {}).items()} | {
        "scopil_version": __version__,
        "noise": "normal" if policy.head.continuous else "gumbel",
        "normalises_observations": str(policy.normaliser is not None).lower(),
        **({} if policy.shield is None else {"shield_limit": str(float(policy.shield.limit))}),
    }


def _program(policy: Policy, monitor: Monitor | None) -> Any:
    head = policy.head

    def scopil_policy(obs: jax.Array, noise: jax.Array) -> dict[str, jax.Array]:
        found = act(policy, obs, noise)
        if policy.shield is not None:
            raw = act(policy.unshielded(), obs, noise)
            changed = found["action"] != raw["action"]
            found |= {f"raw_{key}": raw[key] for key in ("action", "sampled_action")}
            found["intervened"] = changed.any(-1) if head.continuous else changed
        return found | ({} if monitor is None else {"familiarity": familiarity(monitor, obs)})

    def act(policy: Policy, obs: jax.Array, noise: jax.Array) -> dict[str, jax.Array]:
        pi = policy.distribution(obs)
        if isinstance(pi, SquashedGaussian):
            chosen = {"action": pi.mode(), "sampled_action": pi.at(noise)[0]}
            actions = {key: head.to_env(policy.shielded(obs, action)) for key, action in chosen.items()}
            return actions | {"mean": pi.mean, "std": jnp.exp(pi.log_std)}
        assert isinstance(head, DiscreteHead)
        sampled = jnp.argmax(pi.log_probs + noise, axis=-1)
        return {"action": pi.mode() + head.start, "sampled_action": sampled + head.start, "logits": pi.log_probs}

    return scopil_policy


class _Graph:
    """Nodes and constants of a graph, built from the weights node by node, without tracing."""

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

    def model(self, policy: Policy, names: tuple[str, ...], about: dict[str, str]) -> Any:
        helper, types = self.onnx.helper, self.onnx.TensorProto
        width, numbered = policy.head.num_actions, not policy.head.continuous
        rows, kind = {key: ["batch", width] for key in names}, dict.fromkeys(names, types.FLOAT)
        if numbered:
            actions = [key for key in names if key.endswith("action")]
            rows |= {key: ["batch"] for key in actions}
            kind |= dict.fromkeys(actions, types.INT64)
        rows |= {"familiarity": ["batch"], "intervened": ["batch"]}
        kind["intervened"] = types.BOOL
        given = [helper.make_tensor_value_info(key, kind[key], rows[key]) for key in names]
        inputs = [
            helper.make_tensor_value_info("obs", types.FLOAT, ["batch", width_of(policy.network)]),
            helper.make_tensor_value_info("noise", types.FLOAT, ["noise_batch", width]),
        ]
        text = ABOUT.format(noise=about["noise"], outputs=", ".join(names))
        model = helper.make_model(
            helper.make_graph(self.nodes, "scopil_policy", inputs, given, self.constants, doc_string=text),
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="scopil",
            producer_version=about["scopil_version"],
            doc_string=text,
        )
        helper.set_model_props(model, about)
        return model


def _normalised(graph: _Graph, policy: Policy) -> str:
    """From `obs` to the inputs of the networks."""
    stats = policy.normaliser
    if stats is None:
        return "obs"
    scale = 1.0 / np.sqrt(np.asarray(stats.var) + np.float32(normalise.EPS))
    x = graph.node("Sub", "obs", graph.constant("obs_mean", stats.mean))
    x = graph.node("Mul", x, graph.constant("obs_scale", scale))
    limits = (("obs_limit_low", -normalise.LIMIT), ("obs_limit_high", normalise.LIMIT))
    return graph.node("Clip", x, *(graph.constant(*limit) for limit in limits))


def _network(graph: _Graph, network: Network, x: str, name: str = "") -> str:
    """The network's outputs: logits, or means and raw log σ. Names of constants begin with `name`."""
    x, mlp = _features(graph, network.mlp if isinstance(network, GaussianNet) else network, x, name), top(network)
    layers = list(zip(mlp.weights, mlp.biases))
    for i, (weight, bias) in enumerate(layers):
        names = graph.constant(f"{name}weight_{i}", weight), graph.constant(f"{name}bias_{i}", bias)
        x = graph.node("Gemm", x, *names, transB=1)
        if i < len(layers) - 1:
            x = graph.node(ACTIVATIONS[mlp.activation], x)
    if not isinstance(network, GaussianNet):
        return x
    # log σ is the same for all states. Adding it to zeros repeats it for each observation.
    zeros = graph.node("Mul", x, graph.constant("zero", 0.0))
    rows = graph.node("Add", zeros, graph.constant("free_log_std", network.log_std))
    return graph.node("Concat", x, rows, axis=-1)


def _features(graph: _Graph, net: Net, x: str, name: str) -> str:
    """From rows of pixels to the inputs of the MLP; other rows are unchanged. ONNX puts channels before height and
    width."""
    if not isinstance(net, ConvNet):
        return x
    x = graph.node("Mul", x, graph.constant(f"{name}pixel_scale", 1 / 255))
    x = graph.node("Reshape", x, graph.constant(f"{name}image", [-1, *net.image], np.int64))
    if not net.channels_first:
        x = graph.node("Transpose", x, perm=[0, 3, 1, 2])
    for i, (kernel, offset, stride) in enumerate(zip(net.kernels, net.offsets, net.strides)):
        parts = ("kernel", kernel.transpose(3, 2, 0, 1)), ("offset", offset)
        names = (graph.constant(f"{name}{part}_{i}", value) for part, value in parts)
        x = graph.node("Relu", graph.node("Conv", x, *names, strides=[stride, stride]))
    return graph.node("Flatten", graph.node("Transpose", x, perm=[0, 2, 3, 1]))


def _within(graph: _Graph, q: str, least: str) -> str:
    """Whether Q is within the shield's limit, or the least of all (`nn.shield.within`)."""
    return graph.node("Or", graph.node("LessOrEqual", q, "shield_limit"), graph.node("LessOrEqual", q, least))


def _kept(graph: _Graph, shield: Shield, s: str) -> str:
    """The discrete actions that the shield keeps, (batch, A)."""
    graph.constant("shield_limit", shield.limit)
    q = graph.node("Max", *(_network(graph, critic, s, f"critic_{i}_") for i, critic in enumerate(shield.critics)))
    return _within(graph, q, graph.node("ReduceMin", q, axes=[-1]))


def _mover(graph: _Graph, shield: Shield, s: str, width: int) -> Callable[[str], tuple[str, str]]:
    """A function of actions in [−1, 1], (batch, A): the actions that replace them, and their numbers among the points
    that are tried; the number of the action itself is 0 (`nn.shield.nearest`)."""
    for name, value in zip(("targets", "way"), points(width)):
        graph.constant(name, value)  # (P, A) and (P, 1)
    graph.constant("shield_limit", shield.limit)
    graph.constant("too_far", np.inf)
    middle, last = (graph.constant(f"axis_{i}", [i], np.int64) for i in (1, 2))
    critics = [_critic(graph, critic, s, width, f"critic_{i}_") for i, critic in enumerate(shield.critics)]

    def move(action: str) -> tuple[str, str]:
        a = graph.node("Unsqueeze", action, middle)
        others = graph.node("Add", a, graph.node("Mul", "way", graph.node("Sub", "targets", a)))
        tried = graph.node("Concat", a, others, axis=1)  # (batch, 1 + P, A)
        q = graph.node("Squeeze", graph.node("Max", *(critic(tried) for critic in critics)), last)
        apart = graph.node("Sub", tried, a)
        away = graph.node("ReduceSum", graph.node("Mul", apart, apart), last, keepdims=0)
        away = graph.node("Where", _within(graph, q, graph.node("ReduceMin", q, axes=[1])), away, "too_far")
        best = graph.node("ArgMin", away, axis=1)  # (batch, 1)
        return graph.node("GatherND", tried, best, batch_dims=1), graph.node("Squeeze", best, middle)

    return move


def _critic(graph: _Graph, net: Net, s: str, width: int, name: str) -> Callable[[str], str]:
    """A function of actions (batch, P, A): Q (batch, P, 1). The first layer is split, so that the part of the
    observation is computed once."""
    mlp = top(net)
    first, *weights = (np.asarray(w).T for w in mlp.weights)
    of_state, of_action = (graph.constant(f"{name}{part}", w) for part, w in zip("sa", np.split(first, [-width])))
    layers = [graph.constant(f"{name}weight_{i}", w) for i, w in enumerate(weights, 1)]
    biases = [graph.constant(f"{name}bias_{i}", b) for i, b in enumerate(mlp.biases)]
    state = graph.node("Gemm", _features(graph, net, s, name), of_state, biases[0])
    state = graph.node("Unsqueeze", state, "axis_1")

    def q(tried: str) -> str:
        x = graph.node("Add", graph.node("MatMul", tried, of_action), state)
        for weight, bias in zip(layers, biases[1:], strict=True):
            x = graph.node("Add", graph.node("MatMul", graph.node(ACTIVATIONS[mlp.activation], x), weight), bias)
        return x

    return q


def _discrete(graph: _Graph, head: DiscreteHead, network_output: str, kept: str | None) -> None:
    """The greedy action argmax log π, and a sample by the Gumbel trick: argmax (log π + noise)."""
    first = graph.constant("first_action", head.start, np.int64)

    def choose(outputs: str, raw: str = "") -> None:
        logits = graph.node("LogSoftmax", outputs, axis=-1, out=f"{raw}logits")
        for scores, out in ((logits, "action"), (graph.node("Add", logits, "noise"), "sampled_action")):
            graph.node("Add", graph.node("ArgMax", scores, axis=-1, keepdims=0), first, out=raw + out)

    if kept is None:
        return choose(network_output)
    choose(network_output, "raw_")
    choose(graph.node("Where", kept, network_output, graph.constant("never", NEVER)))
    graph.node("Not", graph.node("Equal", "action", "raw_action"), out="intervened")


def _continuous(
    graph: _Graph, head: BoxHead, network_output: str, move: Callable[[str], tuple[str, str]] | None
) -> None:
    """tanh μ and tanh(μ + σ noise), scaled to the environment's box; log σ as in `gaussian.soft_clip_log_std`."""
    width = head.num_actions
    halves = graph.constant("halves", [width, width], np.int64)
    split = graph.onnx.helper.make_node("Split", [network_output, halves], ["mean", "raw_log_std"], axis=-1)
    graph.nodes.append(split)
    for name, value in (("log_std_middle", LOG_STD_MIDDLE), ("log_std_reach", LOG_STD_REACH)):
        graph.constant(name, value)
    clipped = graph.node("Div", graph.node("Sub", "raw_log_std", "log_std_middle"), "log_std_reach")
    clipped = graph.node("Mul", graph.node("Tanh", clipped), "log_std_reach")
    std = graph.node("Exp", graph.node("Add", clipped, "log_std_middle"), out="std")
    low, high = (np.asarray(bound, np.float32) for bound in (head.low, head.high))
    centre, half = (graph.constant("centre", 0.5 * low + 0.5 * high), graph.constant("half", 0.5 * high - 0.5 * low))
    low, high = graph.constant("low", low), graph.constant("high", high)
    noisy = graph.node("Add", "mean", graph.node("Mul", std, "noise"))

    def in_box(action: str, out: str) -> None:
        inside = graph.node("Add", graph.node("Mul", action, half), centre)
        graph.node("Min", graph.node("Max", inside, low), high, out=out)  # rounding could leave the box

    chosen: dict[str, str] = {}  # the numbers of the points that replace an action
    for u, out in (("mean", "action"), (noisy, "sampled_action")):
        action = graph.node("Tanh", u)
        if move is not None:
            in_box(action, f"raw_{out}")
            action, chosen[out] = move(action)
        in_box(action, out)
    if move is not None:
        own = graph.node("Equal", chosen["action"], graph.constant("own_number", 0, np.int64))
        graph.node("Not", own, out="intervened")


def _familiarity(graph: _Graph, monitor: Monitor) -> None:
    """The share of demonstrated states at least as novel as the observation (`losses.familiarity`)."""
    known = [k for k, count in enumerate(np.asarray(monitor.known)) if count]
    if not known:  # no table of state features: every state is familiar
        first = graph.node("ReduceSum", graph.node("Mul", "obs", graph.constant("nothing", 0.0)), keepdims=0)
        rows = graph.node("ReduceMax", graph.node("Mul", "obs", graph.constant("no_obs", 0.0)), axes=[1], keepdims=0)
        graph.node("Add", graph.node("Add", rows, first), graph.constant("all", 1.0), out="familiarity")
        return
    found = []
    for j, (columns, low, width, bins) in enumerate(
        zip(
            *(
                np.asarray(part)
                for part in (monitor.grid.feature, monitor.grid.low, monitor.grid.width, monitor.grid.bins)
            )
        )
    ):
        cell = graph.constant(f"cell_{j}", 0.0)
        for axis, column in enumerate(columns):
            if bins[axis] > 1:
                bounds = zip(("low", "width", "first", "last"), (low[axis], width[axis], 0.0, bins[axis] - 1.0))
                edge, step, first, last = (graph.constant(f"{name}_{j}_{axis}", value) for name, value in bounds)
                place = graph.node("Div", graph.node("Sub", _feature(graph, monitor, int(column)), edge), step)
                place = graph.node("Clip", graph.node("Floor", place), first, last)
                cell = graph.node("Mul", cell, graph.constant(f"bins_{j}_{axis}", float(bins[axis])))
                cell = graph.node("Add", cell, place)
        cell = graph.node("Cast", cell, to=graph.onnx.TensorProto.INT64)  # (batch,)
        table = graph.constant(f"table_{j}", np.asarray(monitor.ratio[j])[known])
        found.append(graph.node("Gather", table, cell, axis=1))  # (folds, batch)
    score = graph.node("Max", *found)
    shares = []
    for i, k in enumerate(known):
        mine = graph.node("Gather", score, graph.constant(f"fold_{k}", [i], np.int64), axis=0)  # (1, batch)
        shown = np.asarray(monitor.shown[k])[-int(monitor.known[k]) :]
        at_least = graph.node("GreaterOrEqual", graph.constant(f"shown_{k}", shown[:, None]), mine)
        counted = graph.node("Cast", at_least, to=graph.onnx.TensorProto.FLOAT)
        shares.append(graph.node("ReduceMean", counted, axes=[0], keepdims=0))
    graph.node("Mul", graph.node("Sum", *shares), graph.constant("one_of_folds", 1.0 / len(known)), out="familiarity")


def _feature(graph: _Graph, monitor: Monitor, column: int) -> str:
    """A state feature or a category of the observation, one number per row."""
    f = monitor.features

    def component(i: int) -> str:
        at = graph.constant(f"at_{len(graph.nodes)}", i, np.int64)
        return graph.node("Gather", "obs", at, axis=1)

    if column < len(f.used):
        return component(f.used[column])
    if column < f.states:
        derived = f.derived[column - len(f.used)]
        parts = [component(i) for i in derived.plus]
        if derived.minus:
            parts = [graph.node("Sub", x, component(i)) for x, i in zip(parts, derived.minus, strict=True)]
        return graph.node("Sqrt", graph.node("Sum", *(graph.node("Mul", x, x) for x in parts)))
    at = f.used[column - f.category]
    values = np.asarray(monitor.values[at])
    x, name = component(at), f"{len(graph.nodes)}"
    kind = graph.constant(f"other_{name}", float(len(values)))
    for i, value in enumerate(values):
        apart = graph.node("Abs", graph.node("Sub", x, graph.constant(f"value_{name}_{i}", value)))
        close = graph.node("Mul", graph.node("Abs", x), graph.constant(f"share_{name}_{i}", 1e-3))
        close = graph.node("Add", close, graph.constant(f"least_{name}_{i}", 1e-6))
        same = graph.node("LessOrEqual", apart, close)
        kind = graph.node("Where", same, graph.constant(f"kind_{name}_{i}", float(i)), kind)
    return kind
