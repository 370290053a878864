"""The HTML page of a run's report, section by section."""

from typing import Any

from distls.evaluation.metrics import Evaluation, RegressionEvaluation, r2_text
from distls.execution.memory_budget import human
from distls.facts import Fact, counted
from distls.methods.parameters import shown_value
from distls.reporting.costs import costs_of
from distls.reporting.judgement import Judgement
from distls.reporting.markup import Markup, joined, tag
from distls.reporting.page import Page
from distls.reporting.page_tables import (
    cell,
    class_table,
    facts,
    feature_lists,
    matrix,
    note,
    share,
    sortable,
    tiles,
    worst_classes,
)
from distls.reporting.plots import memory_plot, ranking_plots, reliability_plot, seconds_plot
from distls.reporting.progress_plots import path_plots, progress_plots
from distls.reporting.run_report import Report, RunRecord, fit_command
from distls.reporting.strongest_features import strongest_features
from distls.storage.filesystem.safe_read import as_format_error
from distls.storage.model.model import LinearModel, used_rows
from distls.training.fit_facts import bound_fact, fit_facts, objective_fact

_CLASSES = 20  # whose features are shown
_FEATURES, _FEW, _FEATURES_OF_MANY = 10, 8, 6  # shown of each of a few classes, and of each of many
_SETTINGS = 200  # shown of those tried
_ENDED = {
    "CONVERGED": "converged",
    "MAX_PASSES": "ended at its limit of passes",
    "MAX_SECONDS": "ended at its limit of seconds",
    "EARLY_STOPPED": "stopped early: the error no longer fell",
    "DIVERGED": "diverged: there is no model",
    "INTERRUPTED": "interrupted; `distls resume` continues it",
    "RUNNING": "running, or stopped without notice; then `distls resume` continues it",
}


def render_report(report: Report, *, refresh: int | None = None) -> str:
    """Return the page of a report; with `refresh` it reloads itself after this many seconds.

    Raises FormatError for a run whose files were not written by distls.
    """
    with as_format_error(str(report.record.path)):
        return _page(report).render(_head(report), refresh=refresh)


def _page(report: Report) -> Page:
    record = report.record
    page = Page(f"{record.path.name}: distls report")
    page.add_section(
        "Summary",
        tiles(_tiles(report)),
        *(note(text) for text in [*record.status.get("notes", []), *report.remarks]),
        tag("div", _asked(record), _found(report), class_="columns"),
    )
    drawn = page.plots(progress_plots(record.events))
    if drawn:
        page.add_section("Progress", drawn)
    if len(record.settings) > 1:
        page.add_section("Settings tried", page.plots(path_plots(record)), _settings_table(record))
    if report.judged is not None:
        _add_judgement(page, report.judged)
    if record.model is not None:
        _add_features(page, record.model, report.judged)
    _add_costs(page, record)
    page.add_section("Provenance", *_provenance(report))
    return page


def _head(report: Report) -> Markup:
    record = report.record
    loss = record.model.loss if record.model is not None else record.params.get("loss")
    what = record.config.method if loss is None else f"{record.config.method} ({loss})"
    lead = f"{what} on {_last(record.config.dataset)}: {_ended(record)}."
    return joined([
        tag("p", "distls report", class_="kind"), tag("h1", record.path.name), tag("p", lead, class_="lead"),
    ])  # fmt: skip


def _ended(record: RunRecord, *, with_code: bool = False) -> str:
    status: str = record.status["status"]
    said = _ENDED.get(status, status)
    if status == "MAX_PASSES" and record.config.ends_before(record.status["passes"]):
        said = "ended by a limit of its own, such as steps or rounds, or for want of a step"
    return f"{said} ({status})" if with_code and status not in ("CONVERGED", said) else said


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2] or path


# -- summary ---------------------------------------------------------------------------------------------


def _tiles(report: Report) -> list[Fact]:
    record, status = report.record, report.record.status
    facts = {fact.key: fact for fact in fit_facts(status)}
    if report.judged is not None:
        found = [_judged_tile(report.judged)]
    else:
        judged = (facts.get(key) for key in ("eval_mse", "eval_error"))
        found = [fact._replace(label=f"evaluation {fact.label}") for fact in judged if fact is not None]
    if "objective" in facts:
        found.append(facts["objective"])
    found.append(facts["passes"]._replace(about=counted(len(record.events), "round")))
    found.append(facts["seconds"]._replace(form="{:,.1f} s".format))
    if record.model is not None and not record.model.recipe:
        used, width = len(used_rows(record.model.weights)), record.model.n_features
        found.append(Fact("features used", used, ",", f"of {width:,}"))
    return found


def _judged_tile(judged: Judgement) -> Fact:
    _, first, *_ = judged.evaluation.facts()
    label = first.about or first.label
    return first._replace(label=label, about=f"{judged.evaluation.n_rows:,} rows of {_last(judged.dataset)}")


def _asked(record: RunRecord) -> Markup:
    config = record.config
    asked = config.asked.items()
    given = ", ".join(f"{option.key} {value:g}" for option, value in asked if option.is_limit)
    why = "" if config.reason is None else f": {config.reason}"
    rows: list[tuple[str, object]] = [("method", config.method + why), ("training data", config.dataset)]
    rows.append(("limits", given or "the method's own"))
    rows += [(option.key, value) for option, value in asked if not option.is_limit]
    if len(record.settings) > 1:
        rows.append(("settings", f"{len(record.settings)}, the best of which is published"))
    return tag("div", tag("h3", "Asked"), facts(rows))


def _found(report: Report) -> Markup:
    status, model = report.record.status, report.record.model
    rows: list[tuple[str, object]] = [("status", _ended(report.record, with_code=True))]
    if status.get("objective") is not None:
        fact = objective_fact(status)
        rows.append(("objective", f"{fact.value:.8g}, {fact.about or 'no certificate'}"))
    if report.record.events:
        last = report.record.events[-1]
        if last.get("running_loss") is not None:
            rows.append(("loss, last round", f"{last['running_loss']:.5g}"))
    chosen = status.get("selected")
    if chosen:
        rows.append(("chosen", _differing(chosen, report.record.settings)))
    if model is not None:
        rows.append(("predicts", _predicts(model)))
    if report.training is not None:
        meta = report.training.meta
        rows.append(("trained on", f"{meta.n_rows:,} rows, {meta.n_features:,} features"))
    return tag("div", tag("h3", "Found"), facts(rows))


def _predicts(model: LinearModel) -> str:
    if model.target == "continuous":
        return "a number" if model.n_outputs == 1 else f"{model.n_outputs} numbers"
    kind = "sets of {} labels" if model.target == "multilabel" else "one of {} classes"
    return kind.format(f"{len(model.classes):,}")


# -- settings --------------------------------------------------------------------------------------------


def _varied(settings: list[dict[str, Any]]) -> list[str]:
    """Return the parameters in which settings differ; each but the first of a path starts from another run."""
    names = dict.fromkeys(name for line in settings for name in line["params"] if name != "init")
    return [name for name in names if len({str(line["params"].get(name)) for line in settings}) > 1]


def _differing(params: dict[str, Any], settings: list[dict[str, Any]]) -> str:
    return ", ".join(f"{name}={_value(params.get(name))}" for name in _varied(settings)) or "the only setting"


def _value(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


_SETTING_CELLS = (
    ("selection error %", "error", lambda v: share(v)),
    ("selection mse", "mse", lambda v: (v, f"{v:.5g}")),
    ("evaluation error %", "eval_error", lambda v: share(v)),
    ("cross-validation error", "cv_error", lambda v: (v, f"{v:.5g}")),
    ("features", "non_zero_rows", lambda v: (v, f"{v:,}")),
    ("objective", "objective", lambda v: (v, f"{v:.6g}")),
    ("passes", "passes", lambda v: (v, f"{v:.4g}")),
)


def _settings_table(record: RunRecord) -> Markup:
    shown = record.settings[:_SETTINGS]
    names = _varied(record.settings)
    # not named `cell`, as the function is: Python 3.12.1 takes one for the other
    cells = [each for each in _SETTING_CELLS if any(line.get(each[1]) is not None for line in shown)]
    rows = [
        [
            *((_number(line["params"].get(name)), _value(line["params"].get(name))) for name in names),
            *((None, "–") if line.get(field) is None else form(line[field]) for _, field, form in cells),
            cell(bound_fact(line)), str(line.get("status", "")),
        ]
        for line in shown
    ]  # fmt: skip
    heads = [*names, *(title for title, *_ in cells), "above the optimum", "status"]
    table = sortable(heads, rows, words=(len(names) + len(cells) + 1,), chosen=_chosen(record))
    if len(record.settings) <= _SETTINGS:
        return table
    return joined([table, tag("p", f"The first {_SETTINGS} of {len(record.settings):,}; --json has all.")])


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _chosen(record: RunRecord) -> int:
    """Return which setting was published, -1 if that cannot be told."""
    chosen = record.status.get("selected") or (record.model.params if record.model is not None else {})
    for number, line in enumerate(record.settings):
        # of a path by cross-validation only what differs is known
        if all(chosen.get(name) == value for name, value in line["params"].items() if name != "init"):
            return number
    return -1


# -- on data ---------------------------------------------------------------------------------------------


def _add_judgement(page: Page, judged: Judgement) -> None:
    found = judged.evaluation
    # the first is of rows, the second heads the page
    numbers = [_judged_tile(judged), *found.facts()[2:]]
    if isinstance(found, RegressionEvaluation):
        page.add_section(f"On {_last(judged.dataset)}", tiles(numbers), _outputs(found))
        return
    if judged.calibration_error is not None:
        about = "probabilities are off by this"
        numbers.append(Fact("calibration error", judged.calibration_error, ".4f", about))
    if found.unknown:
        numbers.append(Fact("unknown labels", found.unknown, ",", "rows, counted as errors"))
    what = "class" if isinstance(found, Evaluation) else "label"
    parts: list[object] = [tiles(numbers)]
    if isinstance(found, Evaluation):
        parts += [tag("h3", "What is taken for what"), matrix(found, judged.classes)]
    plural = "Classes" if what == "class" else "Labels"
    parts += [tag("h3", f"{plural}, those with the most errors first"), class_table(judged.classes, what)]
    plots = [reliability_plot(judged.reliability)]
    if isinstance(found, Evaluation) and found.details is not None and found.details.ranking is not None:
        plots += ranking_plots(found.details.ranking.curve, str(found.predicted_classes[-1]))
    page.add_section(f"On {_last(judged.dataset)}", *parts, page.plots(plots))


def _outputs(found: RegressionEvaluation) -> Markup:
    lines = zip(found.outputs, found.mse_by_output.tolist(), found.r2_by_output, strict=True)
    rows = [
        [name if found.names else (name, f"output {name}"), (mse, f"{mse:.6g}"), (r2, r2_text(r2))]
        for name, mse, r2 in lines
    ]
    return sortable(["output", "mean squared error", "r2"], rows) if len(rows) > 1 else Markup("")


def _add_features(page: Page, model: LinearModel, judged: Judgement | None) -> None:
    places = list(range(model.n_outputs))
    said = "Weights of the largest size: blue for the class, orange against it."
    if len(places) > _CLASSES:
        said += f" Of {len(places):,} classes, {_CLASSES}"
        if judged is not None and judged.classes:
            worst = {str(row["class"]) for row in worst_classes(judged.classes, _CLASSES)}
            places = [k for k in places if str(model.classes[k]) in worst]
            said += " with the most errors."
        else:
            said += "; `distls info --json` has more."
    most = _FEATURES if len(places) <= _FEW else _FEATURES_OF_MANY
    found = strongest_features(model, places[:_CLASSES], most)
    if found:
        page.add_section("Strongest features", tag("p", said), feature_lists(found))


# -- costs and provenance --------------------------------------------------------------------------------


def _add_costs(page: Page, record: RunRecord) -> None:
    costs = costs_of(record.events, record.status)
    total = sum(costs["process_seconds"].values())
    spent = [
        [name, (seconds, f"{seconds:.2f}"), (seconds, f"{100 * seconds / total:.1f}" if total else "–")]
        for name, seconds in costs["process_seconds"].items()
    ]
    whole = "seconds" if costs["parts"] else "seconds of training"
    rows: list[tuple[str, object]] = [(whole, f"{costs['seconds']:.2f} s")]
    rows += [(name, f"{seconds:.2f} s") for name, seconds in costs["parts"].items()]
    rows.append(("read", f"{human(costs['bytes_read'])} from the store"))
    rows.append(("from caches", human(costs["cached_bytes"])))
    rows += _memory_facts(costs)
    page.add_section(
        "Costs",
        tag("div", facts(rows), sortable(["process-seconds of rounds", "s", "%"], spent), class_="columns"),
        tag("p", _SECONDS_SAID) if record.events else "",
        page.plots([seconds_plot(record.events), memory_plot(record.events, costs["plan"])]),
    )


_SECONDS_SAID = (
    "Waiting for data is reading and decoding that is not hidden behind kernels. Outside tasks are the driver, the "
    "network, and workers without a task."
)


def _memory_facts(costs: dict[str, Any]) -> list[tuple[str, object]]:
    plan, peaks = costs["plan"], costs["worker_peaks"]
    rows: list[tuple[str, object]] = []
    if peaks:
        rows.append(("largest worker", f"{human(max(peaks.values()))} of {len(peaks)} processes"))
    if plan is None:
        return [*rows, ("planned", "not recorded in this run")]
    parts = ", ".join(f"{name} {human(size)}" for name, size in plan["worker_parts"].items() if size)
    limit = f" of {human(plan['worker_limit'])}"
    return [*rows, ("planned", f"{human(plan['worker_bytes'])}{limit} a worker: {parts}")]


def _provenance(report: Report) -> list[object]:
    record, model = report.record, report.record.model
    rows: list[tuple[str, object]] = [
        ("run", str(record.path)), ("training data", record.config.dataset),
        ("fingerprint", record.config.dataset_fingerprint),
        ("weights sha256", record.status.get("weights_sha256", "–")),
    ]  # fmt: skip
    if report.training is not None:
        rows += _source_facts(report.training.meta.source)
    if model is not None:
        rows.append(("transforms", ", ".join(str(t.get("name")) for t in model.transforms) or "none"))
    versions = (record.status.get("versions") or {}).items()
    said = ", ".join(f"{name} {version}" for name, version in versions)
    rows.append(("versions", said or "not recorded in this run"))
    shown = {name: value for name, value in record.params.items() if value is not None}
    return [
        facts(rows),
        tag("h3", "The command that repeats it"),
        tag("pre", fit_command(record.config, "NEW-RUN")),
        tag("h3", "Parameters"),
        tag("pre", joined([f"{name}={shown_value(value)}" for name, value in shown.items()], "\n")),
    ]


def _source_facts(source: dict[str, Any]) -> list[tuple[str, object]]:
    files = source.get("files")
    if not isinstance(files, list) or not files:
        return []
    named = ", ".join(str(file) for file in files[:10])
    more = f" and {len(files) - 10:,} more" if len(files) > 10 else ""
    return [("files", f"{named}{more} ({source.get('format', '')})")]
