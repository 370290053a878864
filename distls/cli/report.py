"""Text output of the command line about datasets, plans, runs and results."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING, Any

from distls.cli.evaluation_text import calibration_lines
from distls.clock import seconds_text
from distls.execution.memory_budget import human
from distls.memory_plan import APART, Plan
from distls.methods.method_registry import method_named
from distls.methods.parameters import settings_text
from distls.problem import loss_of, penalty_of
from distls.solvers.loop import relative_bound
from distls.solvers.status import Status
from distls.storage.errors import ParameterError
from distls.storage.filesystem.paths import Place, place_of
from distls.storage.filesystem.safe_read import as_format_error
from distls.training.callbacks import eval_text
from distls.training.fit_facts import LOOSE, judged_fact, objective_fact
from distls.training.run_config import RunConfig
from distls.training.run_folder import Run
from distls.training.setting_fit import FitResult
from distls.workers.penalties.penalty_registry import PLAIN_PENALTY

if TYPE_CHECKING:
    from distls.planning.cluster_plan import ClusterPlan

# what another method solves the same problem with
_PROBLEM_PARAMS = ("loss", "alpha", "penalty", "l1_ratio", "class_weight")


def plan_lines(plan: Plan) -> list[str]:
    """Return a plan as lines."""
    return [f"{fact.label:<19}{fact.text}" for fact in plan.facts()]


def cluster_plan_lines(made: ClusterPlan) -> list[str]:
    """Return a plan for a hypothetical cluster as lines."""
    cluster, moved, seconds = made.cluster, made.round_bytes, made.plan.seconds_per_pass
    parts = ", ".join(f"{name} {value:.3g}" for name, value in made.round_parts.items())
    total = "" if made.round_seconds is None else f"{made.round_seconds:.3g} s: "
    lines = [
        f"cluster            {cluster.workers} workers of {cluster.threads} threads, "
        f"{cluster.bandwidth / 125e6:g} Gbit/s, {1e3 * cluster.latency:g} ms",
        f"data               {made.n_rows:,} rows, {made.partitions:,} blocks",
        # the seconds of a pass follow below: these are predicted, not probed
        *plan_lines(replace(made.plan, seconds_per_pass=None, idle=None if made.advice else made.plan.idle)),
        f"memory, scheduler  {human(made.scheduler_bytes)}",
        f"a round moves      {human(moved['sent'])} from the driver, "
        f"{human(moved['fetched'] + moved['merged'])} among workers, "
        f"{human(moved['returned'])} to the driver; reads {human(moved['read'])}",
        f"a round takes      {total}{parts}",
    ]
    if seconds is not None:
        every = made.plan.passes
        whole = "" if every is None else f", {made.plan.times_read * every * seconds:.4g} s in all, {APART} apart"
        lines.append(f"seconds a pass     {seconds:.4g}{whole}")
    if made.limited_by is not None:
        advice = "" if made.advice is None else f"; {made.advice}"
        lines.append(f"limited by         {made.limited_by}{advice}")
    return lines


def result_lines(result: FitResult) -> list[str]:
    """Return the result of a fit as lines."""
    record = result.record
    # Time goes on after the fit: workers end, pages are written.
    spent = {**record, "seconds": result.seconds + time.perf_counter() - result.made}
    lines = [f"{result.status}: {result.passes:g} pass{'es' * (result.passes != 1)}, {seconds_text(spent)}"]
    if result.selected is not None:
        chosen = settings_text(result.selected)
        name = next((name for name in ("select", "eval") if record.get(f"{name}_error") is not None), None)
        if "path" in (record.get("details") or {}):
            lines.append(f"selected {chosen}, by cross-validation")
        elif name is None:
            lines.append(f"the last of the path is published, {chosen}")
        else:
            data = {"select": "selection", "eval": "evaluation"}[name]
            lines.append(f"selected {chosen}, {judged_fact(record, name).said} on the {data} data")
    if record.get("objective") is not None:
        lines.append(objective_line(record))
    if record.get("eval_error") is not None:
        lines.append(eval_text(record))
    if record.get("averaging"):
        lines.append(averaging_text(record["averaging"]))
    lines += [f"note: {text}" for text in record.get("notes", [])]
    lines += limit_lines(result)
    if result.calibrated is not None:
        lines += calibration_lines(result.calibrated)
    if result.run is not None:
        lines.append(f"model in {result.run}")
    return lines


_OWN_LIMITS = ("steps", "rounds", "stages", "sweeps")  # parameters that end a fit
_NEAR = 1e-3  # of the objective: a bound from which nobody goes on


def limit_lines(result: FitResult) -> list[str]:
    """Return what to do about a fit that a limit has ended: before its tolerance was met, or as its method does."""
    if result.status != Status.MAX_PASSES or result.run is None:
        return []
    config, share = Run.open(result.run).config, relative_bound(result.record)
    method, params = method_named(config.method), result.selected or config.grid[0]
    if config.passes is None or config.ends_before(result.passes):
        given = [f"{name}={params[name]}" for name in _OWN_LIMITS if params.get(name) is not None]
        return [f"note: ended by {given[0]}: fit again with more to go on"] if given else []
    far = share is None or share > _NEAR
    usual = not config.is_judged and config.passes == method.passes and far
    if not (config.is_judged or usual):
        return []
    longer, several = f"--passes {2 * config.passes:g}", result.selected is not None
    goes_on = f"fit again with {longer}" if several else f"`distls resume {result.run} {longer}` goes on"
    if usual:
        known = () if method.proves else ("newton", "sdca")
        other = next((f", or take {each}, which proves the optimum" for each in known if _solves(each, params)), "")
        return [f"note: ended by its {config.passes:g} passes, as {method.name} does: {goes_on}{other}"]
    has_newton = config.method != "newton" and _solves("newton", params)
    other = ", or take newton, which needs fewer" if has_newton else ""
    return [f"note: the limit of {config.passes:g} passes came before the tolerance: {goes_on}{other}"]


def objective_line(record: dict[str, Any]) -> str:
    """Return the objective and what its certificate says, on one line."""
    fact = objective_fact(record)
    return f"{fact.said}, {fact.about}" if fact.about else fact.said


def _vacuous_lines(config: RunConfig, record: dict[str, Any], run: Run) -> list[str]:
    """Return a line about a bound that says next to nothing, and what gives a real one."""
    share = relative_bound(record)
    if share is None or share <= LOOSE:
        return []
    remedy = "more passes or a larger alpha give a better one"
    params = record.get("selected") or config.grid[0]
    same = [_setting(name, params[name]) for name in _PROBLEM_PARAMS if params.get(name) is not None]
    if not method_named(config.method).proves and _solves("sdca", params):
        given = " ".join(f"-p {quote(pair)}" for pair in [f"init={run.path}", *same])
        remedy = f"`distls fit sdca {config.dataset} RUN2 {given}` gives a real one"
    return [f"note: no useful bound on the optimum was found; {remedy}"]


def _setting(name: str, value: Any) -> str:
    """Return a parameter as the command line takes it."""
    return f"{name}={json.dumps(value)}" if isinstance(value, dict) else settings_text({name: value})


def _solves(method: str, params: dict[str, Any]) -> bool:
    """Return whether a method has the loss and the penalty of a setting."""
    given = {"loss": loss_of(params), "penalty": penalty_of(params), "alpha": params["alpha"]}
    if given["penalty"] == PLAIN_PENALTY:
        del given["penalty"]  # methods of this one alone do not name it
    try:
        method_named(method).resolve(given)
    except ParameterError:
        return False
    return params.get("l1_ratio") != 1.0


def averaging_text(averaging: dict[str, float | None]) -> str:
    """Return the effect of the last averaging of lanes as a line."""
    # none is finite of lanes that diverged
    known = {name: math.nan if value is None else value for name, value in averaging.items()}
    return (
        f"averaging lanes: loss on a fixed sample {known['loss_before']:.5f} before, "
        f"{known['loss_after']:.5f} after; relative spread {known['spread']:.3f}"
    )


def run_lines(path: str | Place) -> list[str]:
    """Return the lines that describe a run: its setting, each round, its end; raise FormatError if it is no run."""
    run = Run.open(place_of(path))
    with as_format_error(str(path)):
        return _story(run)


def _story(run: Run) -> list[str]:
    config, status = run.config, run.status
    lines = [f"{config.method} on {config.dataset}, seed {config.seed}"]
    children = [child for child in status.get("children", []) if not child.get("refit")]
    path = config.grid[0].get("alpha") == "path"
    if path and children and all("non_zero_rows" in child for child in children):
        lines += _sparse_table(children)
    elif len(config.grid) > 1 or (path and config.select is not None):
        lines += [_child_line(child) for child in children]
    else:
        lines.append(settings_text(config.grid[0]))
    events = run.events()
    if events:
        lines += ["", *_event_table(events), ""]
        lines += _totals(events)
    done = f"after {status['passes']:g} pass{'es' * (status['passes'] != 1)}, {seconds_text(status)}"
    if run.is_stopped:
        lines.append(f"stopped {done}: no process is at work on it; `distls resume {run.path}` continues")
    else:
        lines.append(f"status {status['status']} {done}")
    if status.get("objective") is not None:
        lines.append(objective_line(status))
        lines += _vacuous_lines(config, status, run)
    lines += [f"warning: {text}" for text in status.get("warnings", [])]
    return lines + [f"note: {text}" for text in status.get("notes", [])]


_BAR = 40  # columns of text


def _sparse_table(children: list[dict[str, Any]]) -> list[str]:
    """Return a table of children with sparse models, and a bar chart of accuracy by non-zero rows."""
    most = max(child["non_zero_rows"] for child in children)
    # on the evaluation data, else on the selection data
    judged: list[float | None] = [child.get("eval_error", child.get("error")) for child in children]
    lines = [f"{'alpha':>10} {'passes':>7} {'objective':>10} {'non-zero rows':>14} {'accuracy %':>11}"]
    for child, error in zip(children, judged, strict=True):
        objective = "-" if child.get("objective") is None else f"{child['objective']:.6f}"
        accuracy = "-" if error is None else f"{100 * (1 - error):.2f}"
        lines.append(
            f"{child['params']['alpha']:>10.3g} {child['passes']:>7.4g} {objective:>10} "
            f"{child['non_zero_rows']:>14,} {accuracy:>11}"
        )
    if None in judged or not most:
        return lines
    lines += ["", f"{'non-zero rows':>14}  accuracy %"]
    for child, error in sorted(zip(children, judged, strict=True), key=lambda each: each[0]["non_zero_rows"]):
        bar = "#" * round(_BAR * (1 - (error or 0.0)))
        lines.append(f"{child['non_zero_rows']:>14,}  {bar:<{_BAR}} {100 * (1 - (error or 0.0)):.2f}")
    return lines


def _child_line(child: dict[str, Any]) -> str:
    params = settings_text({name: child["params"].get(name) for name in ("loss", "alpha")})
    given = {f"select_{name}": child[name] for name in ("error", "mse") if name in child}
    error = "diverged" if child["error"] is None else judged_fact(given, "select").said
    return f"  {params}: {error} ({child['status']})"


def _event_table(events: list[dict[str, Any]]) -> list[str]:
    # a fit of numbers has no error rate; one of blocks of classes has none of its rounds
    numbers = any(
        "running_error" not in event and "open_classes" not in (event.get("details") or {}) for event in events
    )
    cells = _NUMBER_CELLS if numbers else _CELLS
    rows = [" ".join([*(title.rjust(_width(form)) for title, _, form in cells), f"{'read':>9}"])]
    places = _shown_rounds(len(events))
    for event in (events[place] for place in places):
        shown = [_cell(event.get(name), form) for _, name, form in cells]
        rows.append(" ".join([*shown, f"{human(event['bytes_read']):>9}"]))
    left_out = len(events) - len(places)
    return [*rows, f"{left_out:,} rounds of {len(events):,} are left out; --json has all"] if left_out else rows


def _shown_rounds(count: int) -> list[int]:
    """Return the places of the first rounds, of others evenly, and of the last."""
    if count <= _ROUNDS:
        return list(range(count))
    rest = _ROUNDS - _FIRST_ROUNDS
    step = (count - _FIRST_ROUNDS) / rest
    return [*range(_FIRST_ROUNDS), *(_FIRST_ROUNDS - 1 + round(step * k) for k in range(1, rest + 1))]


_ROUNDS, _FIRST_ROUNDS = 20, 5  # lines of a table, those of the first rounds among them

# Title, field of the event, and format, whose width is that of the column.
_FIRST_CELLS = (
    ("round", "round", "{:>6}"),
    ("passes", "passes", "{:>7.2f}"),
    ("seconds", "seconds", "{:>8.1f}"),
    ("loss", "running_loss", "{:>9.5f}"),
)
_OBJECTIVE_CELL = ("objective", "objective", "{:>10.6f}")
_ERROR_CELLS = (("error %", "running_error", "{:>8.2%}"), ("eval %", "eval_error", "{:>7.2%}"))
_CELLS = (*_FIRST_CELLS, *_ERROR_CELLS, _OBJECTIVE_CELL)
_NUMBER_CELLS = (*_FIRST_CELLS, ("eval mse", "eval_mse", "{:>11.5g}"), _OBJECTIVE_CELL)


def _width(form: str) -> int:
    return int(form.split(">")[1].split(".")[0].rstrip("}"))


def _cell(value: Any, form: str) -> str:
    text = "-" if value is None else form.format(value).replace("%", "")
    return text.rjust(_width(form))


def _totals(events: list[dict[str, Any]]) -> list[str]:
    read = sum(event["bytes_read"] for event in events)
    cached = sum(event["cached_bytes"] for event in events)
    peaks = events[-1].get("worker_peaks", {})
    lines = [f"read {human(read)} from the store, {human(cached)} came from the workers' caches"]
    lines += [f"peak memory of worker {name}: {human(peak)}" for name, peak in sorted(peaks.items())]
    if events[-1].get("averaging"):
        lines.append(averaging_text(events[-1]["averaging"]))
    return lines
