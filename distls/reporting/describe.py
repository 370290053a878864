"""The JSON of `distls info` for a data set, a run or a model, and its text."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from distls.facts import ShownDict, said
from distls.methods.method_registry import METHODS
from distls.reporting.strongest_features import largest_places, output_name
from distls.storage.dataset.dataset import Dataset, is_dataset, open_dataset
from distls.storage.dataset.feature_names import NAME_ARRAYS, unpack_names
from distls.storage.errors import FormatError, printable
from distls.storage.filesystem.paths import Place, place_of
from distls.storage.filesystem.safe_read import as_format_error
from distls.storage.model.model import LinearModel, load_model, used_rows
from distls.training.run_folder import Run, is_run
from distls.workers.duals.stored_duals import published_duals

MOST_CLASSES = 1000  # whose strongest features the JSON has
_SHOWN_NAMES, _SHOWN_FEATURES = 20, 10
# Fields of a run's status that are shown if present.
_OPTIONAL = ("eval_error", "eval_mse", "select_error", "select_mse", "averaging", "children", "notes", "warnings")


def describe(path: str | Place, most_classes: int | None = MOST_CLASSES) -> dict[str, Any]:
    """Return the JSON of ``info`` for a data set, a run or a model; raise FormatError for anything else.

    The strongest features are those of the first `most_classes`, of all if None.
    """
    path = place_of(path)
    if is_run(path):
        with as_format_error(str(path)):
            return _describe_run(Run.open(path), most_classes)
    if not path.exists():
        raise FormatError(f"{path}: no such data set, run or model")
    if is_dataset(path) or not (path / "bundle.json").exists():
        try:
            return _describe_dataset(open_dataset(path))
        except FormatError as error:
            # a data set of another format version keeps its own message
            if not is_dataset(path) and "version" not in str(error):
                raise FormatError(f"{path}: not a data set, run or model of distls") from None
            raise
    return _describe_model(load_model(path), most_classes)


def info(path: str | Place, *, all: bool = False) -> dict[str, Any]:
    """Return what is known of a data set, a run or a model, as ``distls info --json`` prints it.

    With `all` the strongest features of every class, else of the first 1,000. Raises FormatError for anything else.
    """
    return ShownDict(describe(path, None if all else MOST_CLASSES))


def _describe_dataset(dataset: Dataset) -> dict[str, Any]:
    meta = dataset.meta.to_json()
    first = ("n_rows", "n_features", "nnz", "classes")
    return {
        "kind": "dataset", **{name: meta[name] for name in first}, "partitions": len(dataset),
        "fingerprint": dataset.fingerprint, "stored_bytes": int(dataset.stored_bytes.sum()),
        "decoded_bytes": int(dataset.decoded_bytes.sum()), **_exchangeability(dataset), **_columns(dataset),
        **_names(dataset), **_table_columns(meta["source"], meta["transforms"]),
        **{name: value for name, value in meta.items() if name not in first},
    }  # fmt: skip


def _exchangeability(dataset: Dataset) -> dict[str, Any]:
    """Return how far partitions are from rows in random order, if that was measured."""
    measured = dataset.exchangeability
    return {} if measured is None else {"exchangeability": msgspec.to_builtins(measured)}


def _columns(dataset: Dataset) -> dict[str, Any]:
    shards = dataset.columns
    if shards is None:
        return {}
    return {
        "columns": {
            "shards": len(shards), "shard_size": shards.shard_size,
            "stored_bytes": int(shards.stored_bytes.sum()), "decoded_bytes": int(shards.decoded_bytes.sum()),
            "codec": shards.codec, "digest": shards.digest,
        }
    }  # fmt: skip


def _table_columns(source: Mapping[str, Any], transforms: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what each column of a table is, and how it is transformed, unless there is nothing but numbers."""
    recipe = source.get("recipe", {})
    features = recipe.get("features", ()) if isinstance(recipe, Mapping) else ()
    if not any({"kind", "impute", "categories", "transform"} & set(feature) for feature in features):
        return {}
    # of single numbers, the first of some columns
    single = [s for s in transforms if s["name"] == "log1p" and "ranges" in s][:1]
    logged = any(f.get("transform") == "log1p" and f.get("kind") != "text" for f in features)
    others = [step for step in transforms if not logged or step not in single]
    # what documents go through alone: others share a step of more columns than these
    alone = Counter(s for f in features if f.get("kind") == "text" for s in f.get("transform", "").split("+"))
    shared = [s for s in others if "ranges" not in s or len(s["ranges"]) > alone[s["name"]]]
    # these columns have no features, but a role
    roles = [("label", name) for name in recipe.get("labels") or [recipe.get("label")]]
    roles += [(role.removesuffix("_column"), recipe.get(role)) for role in ("weight", "id_column")]
    columns, leading = {name: role for role, name in roles if name}, True
    for feature in features:
        # numbers before all other columns, as `dense_width` counts them
        number = feature.get("kind", "") in ("", "date", "marked")
        leading = leading and number and not {"categories", "indices"} & set(feature)
        part = "ranges" if feature.get("kind") == "text" else "dense" if leading else ""
        steps = [*filter(None, feature.get("transform", "").split("+"))]
        if not steps or (part != "ranges" and steps != ["none"]):
            steps += _steps(shared, part)
        columns[feature["name"]] = "; ".join([_kind(feature), *filter(None, [", ".join(steps)])])
    return {"table": columns}


def _kind(feature: Mapping[str, Any]) -> str:
    values = feature.get("categories")
    kind = feature.get("kind") or ("number" if values is None else "category")
    size = len(values) if values is not None else max(feature.get("width", 0), 1)
    counted = f"{kind} of {size:,} features" if size > 1 else kind
    # of dates the numbers of their features say nothing to anybody
    impute = str(feature.get("impute", "")).partition(":" if feature.get("kind") == "date" else "\n")[0]
    return f"{counted}; missing: {impute}" if impute else counted


def _steps(transforms: Sequence[Mapping[str, Any]], part: str) -> list[str]:
    """Return the transforms of one part of the columns, or of all."""
    return [
        step["name"]
        for step in transforms
        # what is missing is said of each column; rare features are dropped from all
        if step["name"] not in ("impute", "min_count") and (part in step or not {"ranges", "dense"} & set(step))
    ]


def _names(dataset: Dataset) -> dict[str, Any]:
    """Return the number of feature names and the first ones, if features have names."""
    names = dataset.feature_names()
    return {} if names is None else {"feature_names": {"count": len(names), "first": names[:_SHOWN_NAMES]}}


def _describe_run(run: Run, most_classes: int | None) -> dict[str, Any]:
    config, status = run.config, run.status
    params = status.get("selected") or config.grid[0]
    return {
        "kind": "run", "method": config.method, "params": params,
        **({"as_published": True, "departures": config.departures} if config.as_published else {}),
        "status": status["status"], "passes": status["passes"], "seconds": status["seconds"],
        "objective": status.get("objective"),
        "certificate": status.get("certificate") or {"kind": "none", "value": None},
        "dataset": config.dataset, "dataset_fingerprint": config.dataset_fingerprint,
        "weights_sha256": status.get("weights_sha256"), "seed": config.seed, **_published(run, most_classes),
        **{name: status[name] for name in _OPTIONAL if name in status},
    }  # fmt: skip


def _describe_model(model: LinearModel, most_classes: int | None) -> dict[str, Any]:
    return {
        "kind": "model", "method": model.method, "loss": model.loss, "params": model.params,
        "target": model.target, "n_features": model.n_features, "classes": model.classes,
        "dtype": model.weights.dtype.name, "transforms": model.transforms, "source": model.source,
        **_table_columns(model.source, model.transforms), "dataset_fingerprint": model.dataset_fingerprint,
        "weights_sha256": model.sha256, **_calibration(model), **_top_features(model, most_classes),
    }  # fmt: skip


def _calibration(model: LinearModel) -> dict[str, Any]:
    return {"calibration": model.calibration} if model.calibration else {}


def _published(run: Run, most_classes: int | None) -> dict[str, Any]:
    """Return the features that the run's published model uses, and the duals that prove it, of methods with duals."""
    if not (run.path / "model").is_dir():
        return {}
    model = load_model(run.path)
    method, table = METHODS.get(model.method), _table_columns(model.source, model.transforms)
    shown = {**table, **_calibration(model), **_top_features(model, most_classes)}
    if method is None or not method.proves:
        return shown
    point = published_duals(str(run.path), model.dataset_fingerprint)
    kept = None if point is None else {"folder": point.folder, "files": len(point.files)}
    return {**shown, "duals": kept}


def _top_features(model: LinearModel, most_classes: int | None) -> dict[str, Any]:
    """Return the number of features that a linear model uses, and for the first outputs the largest weights."""
    if model.recipe:  # weights of generated features mean nothing to a reader
        return {}
    names = unpack_names(model.features, "the model") if set(NAME_ARRAYS) <= set(model.features) else None
    if names is not None and len(names) != model.n_features:
        raise FormatError(f"the model: {len(names)} names of {model.n_features} features; not written by distls")
    top = {}
    for k in range(model.n_outputs)[:most_classes]:
        weights = model.weights_for(k)
        # Of numbers by their size: none of them is against a class.
        largest = largest_places(weights if model.classes else abs(weights), _SHOWN_FEATURES)
        top[output_name(model, k)] = [[j if names is None else names[j], float(weights[j])] for j in largest]
    hashed = names is None and model.source.get("format") == "text"
    return {
        "non_zero_rows": len(used_rows(model.weights)),
        "n_classes": len(model.classes),
        "top_features": top,
        **({"words": said("hashed to numbers; --keep-words of train and ingest names them")} if hashed else {}),
    }


# -- as text ---------------------------------------------------------------------------------------------


SHOWN_CLASSES = 20  # whose strongest features are text, unless all are asked for
_SHOWN = 20  # values of a list, and fields of a long table
_WIDTH = 20  # of names
_SHORT = 100  # characters of a table that is shown on the line of its name


def info_lines(described: Mapping[str, Any]) -> list[str]:
    """Return the fields as lines: a table has a line for each of its fields, below its name."""
    lines = []
    for name, value in described.items():
        if name == "top_features" and value:
            # the caller has said of how many classes
            lines += _classes(name, value, described.get("n_classes", len(value)))
        elif name == "features" and isinstance(value, Mapping):
            # their numbers are checksums, which --json has
            lines += _field("feature_arrays", list(value), "")
        elif name == "table":
            lines += [name, *_table(value, "  ")]
        else:
            lines += _field(name, value, "")
    return lines


def _classes(name: str, features: Mapping[str, Any], count: int) -> list[str]:
    lines = [line for label, value in features.items() for line in _field(str(label), value, "  ")]
    left_out = count - len(features)
    more = [f"  and {left_out:,} more of {count:,} classes; --all shows them"] if left_out > 0 else []
    return [name, *lines, *more]


def _field(name: str, value: Any, indent: str) -> list[str]:
    title = f"{indent}{printable(name):{max(_WIDTH - len(indent), 1)}}"
    if isinstance(value, Mapping) and value:
        flat = ", ".join(f"{printable(key)}={_value(each)}" for key, each in value.items())
        if len(flat) <= _SHORT and not any(isinstance(each, (Mapping, list)) for each in value.values()):
            return [f"{title} {flat}"]
        return [title.rstrip(), *_table(value, indent + "  ")]
    if isinstance(value, list) and any(isinstance(each, Mapping) for each in value[:_SHOWN]):
        if all(list(each) == ["name"] for each in value):
            return _field(name, [each["name"] for each in value], indent)
        lines = [f"{indent}  {_value(_own(each, value))}" for each in value[:_SHOWN]]
        return [title.rstrip(), *lines, *_rest(len(value), indent + "  ")]
    return [f"{title} {_value(value)}".rstrip()]


def _own(each: Any, others: Sequence[Any]) -> Any:
    """Return a setting among others without the parameters that all of them have."""
    if not isinstance(each, Mapping) or not isinstance(each.get("params"), Mapping):
        return each
    every = [other.get("params", {}) for other in others if isinstance(other, Mapping)]
    params = each["params"]
    own = {name: value for name, value in params.items() if any(other.get(name) != value for other in every)}
    rest = {name: value for name, value in each.items() if name != "params" and value is not None}
    return {**own, **rest}


def _table(table: Mapping[str, Any], indent: str) -> list[str]:
    shown = list(table.items())[:_SHOWN]
    lines = [line for name, value in shown for line in _field(str(name), value, indent)]
    return [*lines, *_rest(len(table), indent)]


def _rest(count: int, indent: str) -> list[str]:
    return [f"{indent}and {count - _SHOWN:,} more; --json has all"] if count > _SHOWN else []


def _value(value: Any) -> str:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{printable(str(key))}={_value(each)}" for key, each in value.items()) or "none"
    if isinstance(value, Sequence):
        return _listed(value)
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def _listed(values: Sequence[Any]) -> str:
    if not values:
        return "none"
    # the pairs of top features: a name or a number, and its weight
    if len(values) == 2 and isinstance(values[1], float) and not isinstance(values[0], float):
        return f"{printable(str(values[0]))} {values[1]:.3g}"
    shown = ", ".join(_value(each) if not isinstance(each, int) else str(each) for each in values[:_SHOWN])
    more = f", and {len(values) - _SHOWN:,} more; --json has all" if len(values) > _SHOWN else ""
    return shown + more
