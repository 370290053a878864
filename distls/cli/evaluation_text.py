"""Text output of the command line about evaluations."""

from typing import Any

import numpy as np

from distls.evaluation.class_details import ClassDetails, ProbabilityQuality
from distls.evaluation.metrics import (
    AnyEvaluation,
    Evaluation,
    LabelEvaluation,
    RegressionEvaluation,
    f1_facts,
    r2_text,
)
from distls.facts import counted
from distls.workers.evaluation.ranked_scores import WithBound

# With more classes, labels or outputs, a table has the worst of them, and there is no confusion matrix.
_SHOWN_CLASSES = 20
_WORST = 10
_SHORT = 6  # characters of a class's name that can head a column


def evaluation_lines(evaluation: AnyEvaluation, *, every: bool = False) -> list[str]:
    """Return an evaluation as lines: totals, then classes, labels or outputs, with `every` however many."""
    # the means of F1 have a line of their own
    totals = ", ".join(fact.said for fact in evaluation.facts() if not fact.label.endswith("F1"))
    if isinstance(evaluation, RegressionEvaluation):
        return [totals, *_output_lines(evaluation, every)]
    lines = [totals]
    lines += _label_lines(evaluation) if isinstance(evaluation, LabelEvaluation) else _detail_lines(evaluation)
    if evaluation.unknown:
        have = "has" if evaluation.unknown == 1 else "have"
        unknown = f"{counted(evaluation.unknown, 'row')} {have} labels the model does not know"
        lines.append(f"{unknown}, counted as errors")
    if isinstance(evaluation, LabelEvaluation):
        return lines + _class_lines(evaluation.per_class(), "label", every)
    return lines + _class_lines(evaluation.per_class(), "class", every) + _confusion_lines(evaluation)


def _label_lines(evaluation: LabelEvaluation) -> list[str]:
    lines = ["an error is a row whose predicted set of labels is not exactly its own"]
    lines.append(_f1_text(evaluation))
    if evaluation.calibration is not None:
        lines[-1] += f" (thresholds fitted: {evaluation.calibration})"
    if evaluation.precision_at:
        shown = ", ".join(f"{value:.4f} at {k}" for k, value in evaluation.precision_at.items())
        lines.append(f"precision {shown}")
    return lines


def _f1_text(evaluation: Evaluation | LabelEvaluation) -> str:
    means = (f"{fact.text} {fact.label.removesuffix(' F1')}" for fact in f1_facts(evaluation))
    return f"F1 {', '.join(means)}"


def _detail_lines(evaluation: Evaluation) -> list[str]:
    details = evaluation.details
    if details is None:
        return []
    # the first of them is 1 - error
    top = ", ".join(f"{100 * value:.2f} % top {k}" for k, value in details.top_k.items() if k > 1)
    lines = [
        *([f"accuracy {top}"] if top else []),
        _f1_text(evaluation),
        *_ranking_lines(details),
        *_probability_lines(details),
    ]
    lines += _threshold_lines(evaluation)
    if details.cost is not None:
        lines.append(f"cost {details.cost:.6g} a row")
    if details.weighted:
        lines.append("rows count by their sample weights")
    return lines


def _ranking_lines(details: ClassDetails) -> list[str]:
    ranking = details.ranking
    if ranking is None or ranking.roc_auc is None or ranking.average_precision is None:
        return []
    how = "" if len(ranking.by_class) == 2 else "; means over the classes, each against the rest"
    area, precision = _bounded(ranking.roc_auc), _bounded(ranking.average_precision)
    return [f"ROC AUC {area}, average precision {precision} (ranked by {ranking.by}{how})"]


def _bounded(value: WithBound) -> str:
    return f"{value.value:.4f}" + (f" +- {value.bound:.1g}" if value.bound else "")


def _probability_lines(details: ClassDetails) -> list[str]:
    if details.probability is None:
        return []
    lines = [_quality_text(details.probability)]
    if details.calibration is not None:
        lines[0] += f", after calibration ({details.calibration})"
    if details.uncalibrated is not None:
        before = details.uncalibrated
        lines.append(f"{_quality_text(before)}, log loss {before.log_loss:.4f} before it")
    return lines


def _threshold_lines(evaluation: Evaluation) -> list[str]:
    """Return what a model of two classes predicts where it has a threshold."""
    chosen = {} if evaluation.details is None else evaluation.details.threshold
    if not chosen:
        return []
    at, second = chosen["probability"], evaluation.predicted_classes[1]
    return [f"predicts {second} above a probability of {at:.4g}, chosen for {chosen['threshold_for']}"]


def _quality_text(quality: ProbabilityQuality) -> str:
    return f"Brier score {quality.brier_score:.4f}, calibration error {quality.calibration_error:.4f}"


def calibration_lines(evaluation: AnyEvaluation, before: LabelEvaluation | None = None) -> list[str]:
    """Return what a calibration did on the rows that it was fitted to."""
    if isinstance(evaluation, LabelEvaluation):
        how = f"thresholds of labels ({evaluation.calibration}) fitted to {evaluation.n_rows:,} held-out rows"
        return [f"{how}, on which now {_f1_text(evaluation)}"] + (
            [] if before is None else [f"before: {_f1_text(before)}"]
        )
    if isinstance(evaluation, RegressionEvaluation):
        return []
    details = evaluation.details
    if details is None or details.probability is None:
        return []
    lines = [f"calibrated ({details.calibration}) on {evaluation.n_rows:,} held-out rows, on which now"]
    lines[0] += f" log loss {details.probability.log_loss:.4f}, {_quality_text(details.probability)}"
    if details.uncalibrated is not None:
        lines.append(f"before: log loss {details.uncalibrated.log_loss:.4f}, {_quality_text(details.uncalibrated)}")
    return lines + _threshold_lines(evaluation)


def _output_lines(evaluation: RegressionEvaluation, every: bool) -> list[str]:
    measured = evaluation.mse_by_output.tolist(), evaluation.r2_by_output
    outputs = list(zip(evaluation.outputs, *measured, strict=True))
    if len(outputs) == 1:
        return []
    shown = outputs if every else outputs[:_SHOWN_CLASSES]
    wide = max(12, *(len(str(name)) for name, *_ in shown))
    lines = [f"{'output':>{wide}} {'mse':>12} {'r2':>8}"]
    lines += [f"{name:>{wide}} {mse:>12.6g} {r2_text(r2):>8}" for name, mse, r2 in shown]
    if len(outputs) > len(shown):
        lines.append(f"... and {len(outputs) - len(shown)} more outputs; --all shows them all")
    return lines


def _class_lines(table: list[dict[str, Any]], what: str, every: bool) -> list[str]:
    plural = {"class": "classes"}.get(what, f"{what}s")
    shown, lines = table, []
    if len(table) > _SHOWN_CLASSES and not every:
        # of equally bad ones those with most rows, which matter most
        used = [row for row in table if row["n_rows"]]
        shown = sorted(used, key=lambda row: (row["f1"], -row["n_rows"]))[:_WORST]
        lines.append(f"the {len(shown)} of {len(table)} {plural} with the lowest F1; --all shows them all")
    width = max([12, *(len(str(row["class"])) for row in shown)])
    lines.append(f"{what:>{width}} {'rows':>9} {'recall':>8} {'precision':>10} {'F1':>8}")
    for row in shown:
        recall, precision = (f"{100 * v:.1f} %" if v is not None else "-" for v in (row["recall"], row["precision"]))
        rows = f"{row['n_rows']:,}" if isinstance(row["n_rows"], int) else f"{row['n_rows']:,.6g}"
        lines.append(f"{row['class']!s:>{width}} {rows:>9} {recall:>8} {precision:>10} {row['f1']:>8.4f}")
    return lines


def _confusion_lines(evaluation: Evaluation) -> list[str]:
    """Return the confusion matrix of few classes, a row a class of the data and a column a predicted one."""
    names, heads = ([str(label) for label in evaluation.classes], [str(c) for c in evaluation.predicted_classes])
    if evaluation.details is None or not names or max(len(names), len(heads)) > _SHOWN_CLASSES:
        return []
    counts = np.zeros((len(names), len(heads)))
    rows, columns, weights = evaluation.confusion.T
    counts[rows.astype(np.int64), columns.astype(np.int64)] = weights
    cells = [[f"{count:.6g}" if count else "." for count in row] for row in counts.tolist()]
    # long names would make the table wide: columns are then numbered as the model's classes are
    numbered = max(map(len, heads)) > _SHORT
    if numbered:
        heads = [str(number) for number in range(1, len(heads) + 1)]
        place = {str(label): number for number, label in enumerate(evaluation.predicted_classes, 1)}
        names = [f"{name} = {place[name]}" if name in place else name for name in names]
    first = max(12, *map(len, names))
    width = max(len(text) for text in [*heads, *(cell for row in cells for cell in row)])
    lines = [f"{'predicted':>{first}} " + " ".join(f"{head:>{width}}" for head in heads)]
    lines += [
        f"{name:>{first}} " + " ".join(f"{cell:>{width}}" for cell in row)
        for name, row in zip(names, cells, strict=True)
    ]
    return lines
