"""Models as ONNX graphs: transforms, scores, and labels with probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np

from distls.evaluation.compatibility import check_probabilities
from distls.interchange.linear_form import class_array, expected_rows, has_sigmoids, label_threshold
from distls.serving.fitted_model import FittedModel
from distls.storage.errors import ParameterError
from distls.workers.ingestion.transforms import needs_digits, source_width
from distls.workers.losses.loss_registry import loss_named

_OPSET, _IR = 17, 8  # of 2022; later runtimes read them
_LARGEST = 2**31 - 2**20  # bytes of a message of protocol buffers, some left for the graph


def to_onnx(model: FittedModel) -> tuple[bytes, str]:
    """Return a serialised graph, and what rows it is for.

    Its input ``X`` is float32 of shape (n_rows, n_columns). Its outputs are ``scores`` and ``label`` (of a
    multi-label model 0 or 1 for each label), and ``probabilities`` where the loss has them; of a regression model
    ``prediction``. Raises ParameterError if rows are hashed text, the model is too large for the format, or onnx is
    not installed.
    """
    if model.source.get("format") == "text":
        raise ParameterError(
            f"{model.name}: hashing of text cannot be expressed in ONNX; --to sklearn includes it"
        )
    if needs_digits(model.transforms):
        raise ParameterError(
            f"{model.name}: float32, as ONNX has rows here, would make values of its columns equal; --to sklearn or npz"
        )
    if model.weights.nbytes > _LARGEST:
        raise ParameterError(
            f"{model.name}: {model.weights.nbytes} bytes of weights; an ONNX file holds less than 2 GiB"
        )
    graph = _Graph(model)
    graph.transforms()
    graph.scores()
    graph.predictions()
    return graph.serialised(), expected_rows(model)


def _onnx() -> Any:
    try:
        import onnx
    except ImportError:
        raise ParameterError("--to onnx needs the package onnx; pip install 'distls[onnx]'") from None
    return onnx


class _Graph:
    """A graph that is built node after node; `last` is the name of the newest value."""

    def __init__(self, model: FittedModel) -> None:
        self.model, self.onnx = model, _onnx()
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.outputs: list[Any] = []
        self.last = "X"
        self.dtype = np.dtype(model.weights.dtype)

    def add(self, kind: str, *inputs: Any, output: str = "", **attributes: Any) -> str:
        """Add a node of the newest value and others, arrays among them as constants; return the name of its output."""
        names = [name if isinstance(name, str) else self.constant(name) for name in (self.last, *inputs)]
        self.last = output or f"v{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, names, [self.last], **attributes))
        return self.last

    def constant(self, value: Any) -> str:
        """Add an array as a constant; numbers have the type of the weights."""
        array = np.asarray(value)
        array = array.astype(self.dtype) if array.dtype.kind == "f" else array
        name = f"c{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def transforms(self) -> None:
        """Add the transforms of the rows."""
        features = self.model.features
        if self.dtype == np.float64:
            self.add("Cast", to=self.onnx.TensorProto.DOUBLE)
        for step in self.model.transforms:
            name = step["name"]
            if name == "min_count":
                self.add("Gather", features["kept"], axis=1)
            elif name == "log1p":
                self.add("Add", np.ones(1))
                self.add("Log")
            elif name == "idf":
                self.add("Mul", features["idf"])
            elif name == "scale":
                self.add("Div", np.full(1, step["divisor"]))
            elif name == "l2norm":
                self._unit_rows()
            else:
                if "mean" in features:
                    self.add("Sub", features["mean"])
                self.add("Div", features["std"])

    def _unit_rows(self) -> None:
        rows = self.last
        norms = self.add("ReduceL2", axes=[1], keepdims=1)
        empty = self.add("Equal", np.zeros(1))
        self.last = empty
        divisors = self.add("Where", np.ones(1), norms)
        self.last = rows
        self.add("Div", divisors)

    def scores(self) -> None:
        """Add the scores of the outputs."""
        output = "prediction" if self.model.target == "continuous" else "scores"
        weights, intercept = self.model.weights, self.model.intercept
        if self._one:  # for the second class, and as much against the first
            weights, intercept = np.hstack([-weights, weights]), np.hstack([-intercept, intercept])
        self.add("MatMul", weights)
        self.add("Add", intercept, output=output)
        self._publish(output, self.dtype, self.model.n_outputs)

    def predictions(self) -> None:
        """Add labels, and probabilities if there are any."""
        model = self.model
        if model.target == "continuous":
            return
        if model.target == "multilabel":
            self.add("Greater", label_threshold(model))
            self.add("Cast", to=self.onnx.TensorProto.INT64, output="label")
            self._publish("label", np.dtype(np.int64), model.n_outputs)
        else:
            self.add("ArgMax", axis=1, keepdims=0)
            codes, self.last = self.last, self._class_constant()
            self.add("Gather", codes, axis=0, output="label")
            self._publish("label", self.labels.dtype, None)
        try:
            check_probabilities(model, model.name, "")
        except ParameterError:
            return
        self.last = "scores"
        self._probabilities()
        self._publish("probabilities", self.dtype, model.n_outputs)

    def _class_constant(self) -> str:
        labels = class_array(self.model)
        self.labels = labels.astype(np.float32) if labels.dtype.kind == "f" else labels
        if self.labels.dtype.kind == "U":
            self.labels = self.labels.astype(object)
        name = f"c{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(self.labels, name))
        return name

    @property
    def _one(self) -> bool:
        return loss_named(self.model.loss).one_output

    def _probabilities(self) -> None:
        if self.model.target == "class" and self.model.calibration:  # Platt's, of scores that are -z and z
            (scale,), (offset,) = (self.model.calibration_arrays[name] for name in ("scale", "offset"))
            self.add("Mul", np.array([scale]))
            self.add("Add", np.array([-offset, offset]))
        if self.model.target == "multilabel" or self._one:
            self.add("Sigmoid", output="probabilities")
        elif not has_sigmoids(self.model):
            self.add("Softmax", axis=1, output="probabilities")
        else:
            each = self.add("Sigmoid")
            total = self.add("ReduceSum", np.array([1]), keepdims=1)
            self.last = each
            self.add("Div", total, output="probabilities")

    def _publish(self, name: str, dtype: np.dtype[Any], width: int | None) -> None:
        helper, proto = self.onnx.helper, self.onnx.TensorProto
        kind = proto.STRING if dtype.kind == "O" else helper.np_dtype_to_tensor_dtype(dtype)
        shape = ["n_rows"] if width is None else ["n_rows", width]
        self.outputs.append(helper.make_tensor_value_info(name, kind, shape))

    def serialised(self) -> bytes:
        """Return the bytes of the graph, checked."""
        helper, proto = self.onnx.helper, self.onnx.TensorProto
        width = source_width(self.model.transforms, self.model.n_features)
        rows = helper.make_tensor_value_info("X", proto.FLOAT, ["n_rows", width])
        graph = helper.make_graph(self.nodes, "distls", [rows], self.outputs, self.constants)
        made = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR, producer_name="distls"
        )
        self.onnx.checker.check_model(made)
        return bytes(made.SerializeToString())
