"""Models as ONNX graphs: transforms, scores, and labels with probabilities."""

import json
from typing import Any

import numpy as np

from distls.evaluation.compatibility import check_probabilities
from distls.interchange.linear_form import class_array, expected_rows, has_sigmoids, label_threshold
from distls.interchange.raw_columns import Gaps, check_columns, features_of, has_columns
from distls.serving.fitted_model import FittedModel
from distls.storage.dataset.feature_names import unpack_names
from distls.storage.errors import ParameterError, needing
from distls.workers.ingestion.formats.table_columns import MISSING, Feature, first_columns, whole_twins
from distls.workers.ingestion.transforms import needs_digits, source_width
from distls.workers.losses.loss_registry import loss_named

_OPSET, _IR = 17, 8  # of 2022; later runtimes read them
_LARGEST = 2**31 - 2**20  # bytes of a message of protocol buffers, some left for the graph


def to_onnx(model: FittedModel) -> tuple[bytes, str]:
    """Return a serialised graph, and what rows it is for.

    Its input ``X`` is float32 of shape (n_rows, n_columns); of a table with categories or missing values each column is
    an input of its name, float32 or text of shape (n_rows, 1). Its outputs are ``scores`` and ``label`` (of a
    multi-label model 0 or 1 for each label), and ``probabilities`` where the loss has them; of a regression model
    ``prediction``. Raises ParameterError if rows are hashed text, the model is too large for the format, or onnx is
    not installed.
    """
    if model.source.get("format") == "text":
        raise ParameterError(f"{model.name}: hashing of text cannot be expressed in ONNX; --to sklearn includes it")
    if needs_digits(model.transforms):
        raise ParameterError(
            f"{model.name}: float32, as ONNX has rows here, would make values of its columns equal; --to sklearn or npz"
        )
    if model.weights.nbytes > _LARGEST:
        raise ParameterError(
            f"{model.name}: {model.weights.nbytes} bytes of weights; an ONNX file holds less than 2 GiB"
        )
    graph = _Graph(model)
    if has_columns(model):
        check_columns(model, "ONNX")
        graph.table()
    else:
        graph.array()
    graph.transforms()
    graph.scores()
    graph.predictions()
    return graph.serialised(), graph.expected


class _Graph:
    """A graph that is built node after node; `last` is the name of the newest value."""

    def __init__(self, model: FittedModel) -> None:
        with needing("--to onnx needs the package onnx; pip install 'distls[onnx]'"):
            import onnx
        self.model = model
        self.onnx: Any = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.last, self.expected = "X", expected_rows(model)
        self.dtype = np.dtype(model.weights.dtype)
        self._type = self.onnx.helper.np_dtype_to_tensor_dtype(self.dtype)

    def add(self, kind: str, *inputs: Any, output: str = "", **attributes: Any) -> str:
        """Add a node of the newest value and others, arrays among them as constants; return the name of its output."""
        names = [name if isinstance(name, str) else self.constant(name) for name in (self.last, *inputs)]
        self.last = output or f"distls.v{len(self.nodes)}"  # a name that no column has
        self.nodes.append(self.onnx.helper.make_node(kind, names, [self.last], **attributes))
        return self.last

    def constant(self, value: Any) -> str:
        """Add an array as a constant; numbers have the type of the weights."""
        array = np.asarray(value)
        array = array.astype(self.dtype) if array.dtype.kind == "f" else array
        name = f"distls.c{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def _input(self, name: str, kind: int, width: int) -> None:
        taken = {"label", "scores", "probabilities", "prediction"}  # by outputs
        self.last = f"{name}_" if name in taken else name
        self.inputs.append(self.onnx.helper.make_tensor_value_info(self.last, kind, ["n_rows", width]))

    def array(self) -> None:
        """Add the rows as one array."""
        self._input("X", self.onnx.TensorProto.FLOAT, source_width(self.model.transforms, self.model.n_features))
        if self.dtype == np.float64:
            self.add("Cast", to=self.onnx.TensorProto.DOUBLE)

    def table(self) -> None:
        """Add the rows as columns of a table: numbers whose gaps are filled, categories as indicators."""
        features, gaps = features_of(self.model), Gaps.of(self.model)
        parts, marked = [], []
        for start, feature in zip(first_columns(features), features, strict=False):
            stand_in = gaps.stand_in(feature, start)
            if feature.categories is not None:
                self._indicators(feature, stand_in)
            else:
                self._input(feature.name, self.onnx.TensorProto.FLOAT, 1)
                number = self.add("Cast", to=self._type)
                if stand_in is not None:
                    gap = self.add("IsNaN")
                    self.add("Where", np.array(stand_in, self.dtype), number)
                    filled = self.last
                    if start in gaps.indicators:
                        self.last = gap
                        marked.append(self.add("Cast", to=self._type))
                    self.last = filled
            parts.append(self.last)
        self.last, *others = [*parts, *marked]
        self.add("Concat", *others, axis=1)
        names = ", ".join(feature.name for feature in features)
        self.expected = f"columns {names}, inputs of shape (n_rows, 1): texts of categories, float32 of numbers"

    def _indicators(self, feature: Feature, stand_in: Any) -> None:
        """Add the features of a category; a value that training did not have is none of them."""
        self._input(feature.name, self.onnx.TensorProto.STRING, 1)
        known = {text: k for k, text in enumerate(feature.categories or ())}
        spelled = {**whole_twins(feature.categories or ()), **known}
        if stand_in in known:
            spelled = {**dict.fromkeys(MISSING, known[stand_in]), **spelled}
            if feature.impute == "most_frequent":  # the empty category's own feature has no weight
                spelled[""] = known[stand_in]
        self.add(
            "LabelEncoder",
            domain="ai.onnx.ml",
            keys_strings=[*spelled],
            values_int64s=[*spelled.values()],
            default_int64=feature.size,
        )
        # numbers beyond the last indicator set none
        self.add("OneHot", np.array(feature.size), np.array([0, 1]))
        self.add("Squeeze", np.array([1]))
        self.add("Cast", to=self._type)

    def transforms(self) -> None:
        """Add the transforms of the rows."""
        features = self.model.features
        for step in self.model.transforms:
            name = step["name"]
            if name == "impute":
                continue  # of the columns
            if name == "min_count":
                self.add("Gather", features["kept"], axis=1)
            elif name == "log1p":
                self._log1p(step.get("ranges", [[0, self.model.n_features]]))
            elif name == "idf":
                self.add("Mul", features["idf"])
            elif name == "scale":
                self.add("Div", np.full(1, step["divisor"]))
            elif name == "l2norm":
                self._unit_rows()
            else:
                if "mean" in features:
                    centred = np.arange(self.model.n_features) < step.get("dense", self.model.n_features)
                    self.add("Sub", np.where(centred, features["mean"], 0.0))
                self.add("Div", features["std"])

    def _log1p(self, ranges: list[list[int]]) -> None:
        own = np.zeros(self.model.n_features)
        for start, stop in ranges:
            own[start:stop] = 1.0
        rows = self.last
        self.add("Mul", own)
        self.add("Add", np.ones(1))
        logarithms = self.add("Log")  # of other columns zero
        self.last = rows
        self.add("Mul", 1.0 - own)
        self.add("Add", logarithms)

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
        name = f"distls.c{len(self.constants)}"
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
        helper = self.onnx.helper
        graph = helper.make_graph(self.nodes, "distls", self.inputs, self.outputs, self.constants)
        sets = [helper.make_opsetid("", _OPSET), helper.make_opsetid("ai.onnx.ml", 2)]
        made = helper.make_model(graph, opset_imports=sets, ir_version=_IR, producer_name="distls")
        names = unpack_names(self.model.features, self.model.name)
        if names is not None:  # of the features that weights are for
            helper.set_model_props(made, {"features": json.dumps(list(names))})
        self.onnx.checker.check_model(made)
        return bytes(made.SerializeToString())
