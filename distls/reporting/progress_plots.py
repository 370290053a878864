"""Which plots a run has: of its rounds, and of the settings that it tried."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distls.reporting.plots import Curve, Drawn, curve_of, line_plot
from distls.reporting.run_record import RunRecord
from distls.solvers.loop import relative_bound

__all__ = ["path_plots", "progress_plots"]

Record = dict[str, Any]


def progress_plots(events: Sequence[Record]) -> list[Drawn | None]:
    """Return the plots of a run's rounds."""
    of_numbers = any("eval_mse" in event for event in events)
    unit = "mean squared error" if of_numbers else "error %"
    field, scale = ("eval_mse", 1.0) if of_numbers else ("eval_error", 100.0)
    plots = []
    for x, label in (("passes", "passes"), ("seconds", "seconds of training")):
        curves = [curve_of("evaluation", events, x, field, scale)]
        if not of_numbers:
            curves.append(curve_of("rows just read", events, x, "running_error", 100.0))
        plots.append(line_plot(f"Error by {x}", (label, unit), curves))
    losses = [
        curve_of("evaluation", events, "passes", "eval_log_loss"),
        curve_of("rows just read", events, "passes", "running_loss"),
    ]
    return [
        *plots,
        line_plot("Loss", ("passes", "loss"), losses, caption=_LOSS_SAID),
        _objective_plot(events),
        _certificate_plot(events),
        _averaging_plot(events),
    ]


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
    said = "The optimum is within the band: that is proven."
    return line_plot(
        "Objective", ("passes", "objective"), [Curve(curve.name, curve.points, below)], caption=said
    )


def _certificate_plot(events: Sequence[Record]) -> Drawn | None:
    held = [event for event in events if (event.get("certificate") or {}).get("value") is not None]
    if len(held) < 2:
        return None
    flat = [{"passes": event["passes"], "value": event["certificate"]["value"]} for event in held]
    kind = str(held[-1]["certificate"]["kind"])
    titles = {
        "gradient_norm": "Gradient norm",
        "duality_gap": "Duality gap",
        "strong_convexity": "Certificate",
    }
    curve = curve_of(kind.replace("_", " "), flat, "passes", "value")
    return line_plot(titles.get(kind, "Certificate"), ("passes", curve.name), [curve], log_y=True)


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
    """Return error, features and certificate by strength, of settings that differ in alpha alone."""
    lines = _by_alpha(record.settings)
    if lines is None:
        return []
    errors = [
        curve_of(name, lines, "alpha", field, scale)
        for name, field, scale in (
            ("selection", "error", 100.0), ("evaluation", "eval_error", 100.0), ("cross-validation", "cv_error", 1.0),
        )
    ]  # fmt: skip
    crossed = any("cv_error" in line for line in lines)
    axes = ("alpha", "error" if crossed else "error %")
    alpha = record.params.get("alpha")
    if record.model is not None:
        alpha = record.model.params.get("alpha", alpha)
    return [
        _with_choice(line_plot("Error by strength", axes, errors, log_x=True), alpha),
        _with_choice(_features_plot(lines), alpha),
        _with_choice(_gap_plot(lines), alpha),
    ]


def _features_plot(lines: Sequence[Record]) -> Drawn | None:
    curve = curve_of("features used", lines, "alpha", "non_zero_rows")
    return line_plot("Features by strength", ("alpha", "features used"), [curve], log_x=True)


def _gap_plot(lines: Sequence[Record]) -> Drawn | None:
    parts = [{**line, "bound": relative_bound(line)} for line in lines]
    curve = curve_of("above the optimum, at most, %", parts, "alpha", "bound", 100.0)
    return line_plot(
        "Certificate by strength", ("alpha", "% of the objective"), [curve], log_x=True, log_y=True
    )


def _by_alpha(settings: Sequence[Record]) -> list[Record] | None:
    """Return the settings by increasing alpha, None unless they differ in nothing else."""
    fixed = {
        str({k: v for k, v in line["params"].items() if k not in ("alpha", "init")}) for line in settings
    }
    alphas = [line["params"].get("alpha") for line in settings]
    if len(fixed) != 1 or len(set(map(str, alphas))) < 2:
        return None
    if not all(isinstance(alpha, (int, float)) for alpha in alphas):
        return None
    return sorted(
        ({**line, "alpha": line["params"]["alpha"]} for line in settings), key=lambda line: line["alpha"]
    )


def _with_choice(drawn: Drawn | None, alpha: Any) -> Drawn | None:
    """Mark the chosen strength."""
    if drawn is None or not isinstance(alpha, (int, float)):
        return drawn
    from bokeh.models import Span

    from distls.reporting.plots import COLOURS

    drawn.figure.add_layout(
        Span(location=alpha, dimension="height", line_color=COLOURS[2], line_width=2, line_dash="dashed")
    )
    drawn.legend.append((COLOURS[2], f"chosen: {alpha:.4g}"))
    return drawn
