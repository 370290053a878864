"""Which plots a run has: of its rounds, and of the settings that it tried."""

from collections.abc import Sequence
from typing import Any

from distls.reporting.plots import COLOURS, Curve, Drawn, curve_of, line_plot
from distls.reporting.run_report import RunRecord
from distls.solvers.loop import relative_bound

Record = dict[str, Any]


def progress_plots(events: Sequence[Record]) -> list[Drawn | None]:
    """Return the plots of a run's rounds."""
    of_numbers = any("eval_mse" in event for event in events)
    unit = "mean squared error" if of_numbers else "error %"
    field, scale = ("eval_mse", 1.0) if of_numbers else ("eval_error", 100.0)
    plots = []
    for x, label in (("passes", "passes"), ("seconds", "seconds")):
        curves = [curve_of("evaluation", events, x, field, scale)]
        if not of_numbers:
            curves.append(curve_of("rows just read", events, x, "running_error", 100.0))
        plots.append(line_plot(f"Error by {x}", (label, unit), curves))
    losses = [
        curve_of("evaluation", events, "passes", "eval_log_loss"),
        curve_of("rows just read", events, "passes", "running_loss"),
    ]
    return [
        *plots, line_plot("Loss", ("passes", "loss"), losses, caption=_LOSS_SAID), _objective_plot(events),
        _certificate_plot(events), _features_plot(events), _averaging_plot(events),
    ]  # fmt: skip


_LOSS_SAID = "Rows are scored just before they are learned from; on evaluation data it is the log loss."


def _objective_plot(events: Sequence[Record]) -> Drawn | None:
    curve = curve_of("objective", events, "passes", "objective")
    by_pass = {event["passes"]: event for event in events}
    if len(curve.points) < 2:
        return None  # the summary has the one value
    # a gradient norm bounds no distance, and has no band
    if any(relative_bound(by_pass[x]) is None for x, _ in curve.points):
        return line_plot("Objective", ("passes", "objective"), [curve])
    below = [y - by_pass[x]["certificate"]["value"] for x, y in curve.points]
    band, said = Curve(curve.name, curve.points, below), "The optimum is within the band: that is proven."
    return line_plot("Objective", ("passes", "objective"), [band], caption=said)


def _certificate_plot(events: Sequence[Record]) -> Drawn | None:
    held = [event for event in events if (event.get("certificate") or {}).get("value") is not None]
    if len(held) < 2:
        return None
    flat = [{"passes": event["passes"], "value": event["certificate"]["value"]} for event in held]
    kind = str(held[-1]["certificate"]["kind"])
    titles = {"gradient_norm": "Gradient norm", "duality_gap": "Duality gap"}
    curve = curve_of(kind.replace("_", " "), flat, "passes", "value")
    return line_plot(titles.get(kind, "Certificate"), ("passes", curve.name), [curve], log_y=True)


def _features_plot(events: Sequence[Record]) -> Drawn | None:
    # sparse methods take up many features first and drop most of them (Figure 4 of block coordinate descent)
    flat = [{"passes": event["passes"], **(event.get("details") or {})} for event in events]
    curve = curve_of("features used", flat, "passes", "non_zero_rows")
    return line_plot("Features used", ("passes", curve.name), [curve]) if len(curve.points) > 1 else None


def _signed(value: Any) -> str:
    return f"{value:.2g}" if isinstance(value, (int, float)) else "a number that is not finite"


def _averaging_plot(events: Sequence[Record]) -> Drawn | None:
    held = [{"passes": event["passes"], **event["averaging"]} for event in events if event.get("averaging")]
    if not held:
        return None
    last = held[-1]
    change, spread = _signed(last.get("penalty")), _signed(last.get("spread"))
    said = f"On a fixed sample: in the last round it changed by {change}; the lanes' relative spread was {spread}."
    curves = [
        curve_of("mean over lanes, before", held, "passes", "loss_before"),
        curve_of("after averaging", held, "passes", "loss_after"),
    ]
    return line_plot("What averaging the lanes costs", ("passes", "loss"), curves, caption=said)


def path_plots(record: RunRecord) -> list[Drawn | None]:
    """Return error, features and certificate by strength, a curve for each value of the other parameters."""
    groups = _by_strength(record.settings)
    if groups is None:
        return []
    lines = [line for group in groups.values() for line in group]
    field, scale, title = _judged_by(lines)
    alpha = record.params.get("alpha")
    if record.model is not None:
        alpha = record.model.params.get("alpha", alpha)

    def drawn(title: str, unit: str, field: str, scale: float = 1.0, log_y: bool = False) -> Drawn | None:
        curves = [curve_of(name or unit, group, "alpha", field, scale) for name, group in groups.items()]
        return _with_choice(line_plot(title, ("alpha", unit), curves, log_x=True, log_y=log_y), alpha)

    return [
        drawn("Error by strength", title, field, scale),
        drawn("Features by strength", "features used", "non_zero_rows"),
        drawn("Certificate by strength", "% above the optimum, at most", "bound", 100.0, log_y=True),
    ]


def _judged_by(lines: Sequence[Record]) -> tuple[str, float, str]:
    """Return the field that chose among settings, or may have, with its scale and name."""
    for field, scale, title in _JUDGES:
        if any(line.get(field) is not None for line in lines):
            return field, scale, title
    return _JUDGES[-1]


_JUDGES = (
    ("mse", 1.0, "selection mse"),
    ("error", 100.0, "selection error %"),
    ("cv_error", 1.0, "cross-validation error"),
    ("eval_error", 100.0, "evaluation error %"),
)


def _by_strength(settings: Sequence[Record]) -> dict[str, list[Record]] | None:
    """Return settings by increasing alpha, by the other parameters in which they differ; None without a path."""
    others = [{k: v for k, v in line["params"].items() if k not in ("alpha", "init")} for line in settings]
    names = [name for name in others[0] if any(other.get(name) != others[0][name] for other in others)]
    groups: dict[str, list[Record]] = {}
    for line, other in zip(settings, others, strict=True):
        alpha = line["params"].get("alpha")
        if not isinstance(alpha, (int, float)):
            return None
        name = ", ".join(f"{each}={other.get(each)}" for each in names)
        groups.setdefault(name, []).append({**line, "alpha": alpha, "bound": relative_bound(line)})
    if len(groups) > len(COLOURS) or max(len({line["alpha"] for line in g}) for g in groups.values()) < 2:
        return None
    return {name: sorted(group, key=lambda line: line["alpha"]) for name, group in groups.items()}


def _with_choice(drawn: Drawn | None, alpha: Any) -> Drawn | None:
    """Mark the chosen strength."""
    if drawn is None or not isinstance(alpha, (int, float)):
        return drawn
    from bokeh.models import Span

    drawn.figure.add_layout(
        Span(location=alpha, dimension="height", line_color=COLOURS[7], line_width=2, line_dash="dashed")
    )
    drawn.legend.append((COLOURS[7], f"chosen: {alpha:.6g}"))
    return drawn
