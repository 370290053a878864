"""Stage 2 of an ingest: classes, width and base, which need all of the input."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from typing import Any

from distls.ingestion.formats.column_kinds import first_of
from distls.ingestion.request.like import Like
from distls.ingestion.request.options import IngestOptions
from distls.ingestion.request.source_plan import SourcePlan
from distls.storage.dataset.metadata import Label, TargetKind
from distls.storage.errors import BadInputError, MismatchError, ParameterError
from distls.workers.ingestion.formats.mixed_columns import MARKED, is_date
from distls.workers.ingestion.formats.table_columns import text_ranges
from distls.workers.ingestion.parsing.rounding_kernels import EqualValues, merge_rounded
from distls.workers.ingestion.records import labels
from distls.workers.ingestion.transforms import source_width

_MISSED = 5.0  # values that must be expected to be missing before their presence says anything
MANY_CLASSES = "whole numbers are taken for classes"  # `train` stops at a notice that says so


class Survey:
    """The summaries of all items as `stage_item` returned them, and the positions of their lines."""

    def __init__(self, plan: SourcePlan, summaries: Sequence[dict[str, Any]]) -> None:
        self.plan = plan
        self.summaries = summaries
        self.chunks: list[dict[str, Any]] = [chunk for summary in summaries for chunk in summary["chunks"]]
        self._owners = [item for item, summary in enumerate(summaries) for _ in summary["chunks"]]
        self._first_lines, lines = list[int](), 0  # of its file before each item
        for item, summary in zip(plan.items, summaries, strict=True):
            lines = 0 if item.start == 0 else lines  # a new file
            self._first_lines.append(lines)
            lines += summary["lines"]

    @property
    def n_rows(self) -> int:
        """Rows read."""
        return sum(chunk["rows"] for chunk in self.chunks)

    def where(self, item: int, line: int) -> str:
        """Format the position of a 0-based line (row, for arrays) of an item."""
        return self.plan.items[item].where(line, self._first_lines[item])

    def where_in_chunk(self, chunk: int, line: int) -> str:
        """Format the position of a line of the item that a chunk belongs to."""
        return self.where(self._owners[chunk], line)

    def extreme(self, name: str) -> tuple[int, str]:
        """Return the "min" or "max" feature number, -1 if there is none, and its first position."""
        found = [(s[f"{name}_index"], n) for n, s in enumerate(self.summaries) if s[f"{name}_index"] >= 0]
        if not found:
            return -1, ""
        best = min(found)[0] if name == "min" else max(found)[0]
        item = next(n for index, n in found if index == best)
        return best, self.where(item, self.summaries[item][f"{name}_line"])

    def label_words(self) -> dict[float, str]:
        """Return the labels that are words, by their value in the records."""
        words: dict[float, str] = {}
        for chunk in self.chunks:
            for value, word in chunk["words"]:
                labels.check_one_name(words.setdefault(value, word), word)
        # a number must not have the value of a word's hash either
        for chunk in self.chunks if words else ():
            own = dict(chunk["words"])
            for value in words.keys() & set(chunk["labels"][0]):
                labels.check_one_name(words[value], own.get(value, str(labels.number_label(value))))
        return words

    def first(self, fact: str) -> tuple[Any, str] | None:
        """Return the first value that a chunk recorded as `fact`, and its position; None if there is none."""
        for number, chunk in enumerate(self.chunks):
            if chunk.get(fact) is not None:
                value, line = chunk[fact]
                return value, self.where_in_chunk(number, line)
        return None

    def total(self, count: str) -> int:
        """Sum a count of `Progress` over all items."""
        return sum(summary[count] for summary in self.summaries)

    def rounded(self) -> dict[int, EqualValues]:
        """Return the columns in which different values become equal."""
        return merge_rounded([chunk["rounded"] for chunk in self.chunks])

    def first_unseen(self) -> str:
        """Return the first value of an unknown category, and its position."""
        item, first = next((n, s["unseen_first"]) for n, s in enumerate(self.summaries) if s["unseen_first"])
        return f"{self.where(item, first[0])}: {first[1]}"

    def skipped(self) -> tuple[int, list[str]]:
        """Return the number of refused lines, and the first few with their reasons."""
        first = [(n, *refused) for n, own in enumerate(self.summaries) for refused in own["skipped_first"]]
        return self.total("skipped"), [f"{self.where(n, line)}: {why}" for n, line, why in first[:10]]


@dataclass(frozen=True)
class Schema:
    """Target, classes, width and base of the whole dataset."""

    target: TargetKind
    classes: tuple[Label, ...]
    n_targets: int  # columns of continuous targets, else 0
    n_columns: int  # features of the source
    zero_based: bool | None  # None for sources whose columns have no numbers
    weighted: bool
    notices: tuple[str, ...]
    narrowed: bool = False  # rows have features beyond `n_columns`, which are left out

    @property
    def base(self) -> int:
        """Number of the first feature in the source."""
        return 1 if self.zero_based is False else 0


def decide_schema(survey: Survey, options: IngestOptions, like: Like | None) -> Schema:
    """Decide the schema.

    Raises BadInputError if there are no rows, a single class, or features or values out of range, and says where;
    MismatchError if the data do not match `like`.
    """
    # with --on-error skip there may be lines, but no rows
    if not survey.n_rows:
        skipped, dropped = survey.skipped()[0], sum(sum(s["dropped"].values()) for s in survey.summaries)
        why = f"; all {skipped} lines with content were refused" if skipped and not dropped else ""
        why += f"; {dropped} are left out by --drop" if dropped else ""
        raise BadInputError(f"{_sources(survey)}: no rows{why}")
    zero_based = _zero_based(survey, like)
    notices: list[str] = []
    target = _target(survey, options, like, notices)
    classes = _classes(survey, target, like, notices)
    if target == "class" and like is None and options.target == "auto":
        notices += _many_classes(survey, classes)
    if target == "class" and len(classes) == 1 and like is None:
        remedy = "two classes are needed at least"
        raise BadInputError(f"{_sources(survey)}: every label is {classes[0]}; {remedy}")
    for what, name in (("qid", "qids"), ("tag", "tags"), ("base", "bases")):
        # tags are kept where they are the ids of rows
        if (rows := survey.total(name)) and survey.plan.read.id_column != what:
            notices.append(f"{what} ignored in {rows} row{'s' * (rows > 1)}")
    if unseen := survey.total("unseen"):
        assert like is not None
        notices.append(
            f"{unseen} value{'s' * (unseen > 1)} of categories not seen in training ({like.path}), encoded as zeros; "
            f"the first: {survey.first_unseen()}"
        )
    n_targets = survey.chunks[0]["n_labels"] // survey.chunks[0]["rows"] if target == "continuous" else 0
    n_columns, narrowed = _width(survey, options, like, 1 if zero_based is False else 0)
    if narrowed:
        assert like is not None
        notices.append(f"features beyond the {n_columns} of {like.path} are left out")
    _check_log1p(survey, like.meta.transforms if like else options.transform)
    weighted = survey.plan.weighted and (not survey.plan.may_be_unweighted or survey.total("weighted") > 0)
    return Schema(target, classes, n_targets, n_columns, zero_based, weighted, tuple(notices), narrowed)


def asks_for_numbers(options: IngestOptions, like: Like | None) -> bool:
    """Return whether labels are numbers, of any size, by the options or as those of `like`."""
    known = None if like is None else like.meta.target
    return "continuous" in (options.target, known if options.target == "auto" else None)


def _many_classes(survey: Survey, classes: Sequence[Label]) -> list[str]:
    """Return a notice if whole numbers have so many values that they are more likely a quantity than classes."""
    few = len(classes) < 20 or 5 * len(classes) < survey.n_rows
    if few or _has_words(classes) or _are_codes(classes, survey.n_rows):
        return []
    return [
        f"{len(classes)} classes in {survey.n_rows} rows: {MANY_CLASSES}; "
        "--target continuous if they are a quantity (regression)"
    ]


def _are_codes(classes: Sequence[Label], n_rows: int) -> bool:
    """Tell whether every number from 0 or 1 on occurs, though so few rows of a quantity would miss several."""
    k = len(classes)
    numbers = sorted(int(label) for label in classes)
    # even drawn with equal chances, k exp(-n/k) of the values do not occur
    return numbers[0] in (0, 1) and numbers[-1] - numbers[0] == k - 1 and k * exp(-n_rows / k) > _MISSED


def _sources(survey: Survey) -> str:
    return first_of([file.path for file in survey.plan.files] or ["X"], 1)


def _zero_based(survey: Survey, like: Like | None) -> bool | None:
    if not survey.plan.is_numbered:
        return None
    smallest, where = survey.extreme("min")
    known = like.meta.zero_based if like is not None else None
    if survey.plan.zero_based == "auto":
        if like is not None and known is False and smallest == 0:
            raise MismatchError(f"{where}: index 0, but the features of {like.path} count from 1")
        return known if known is not None else smallest == 0
    wanted = survey.plan.zero_based == "yes"
    if like is not None and known is not None and known != wanted:
        rest = f"zero_based says from {1 - wanted}"
        raise MismatchError(f"the features of {like.path} count from {1 - known}, {rest}")
    return wanted


def _target(survey: Survey, options: IngestOptions, like: Like | None, notices: list[str]) -> TargetKind:
    if not survey.plan.labelled:
        return "none"
    if options.multilabel:
        return _like_target("multilabel", like)
    fraction, word = survey.first("fraction"), survey.first("first_word")
    several = any(chunk["n_labels"] != chunk["rows"] for chunk in survey.chunks)
    target: TargetKind
    if options.target != "auto":
        target = "class" if options.target == "class" else "continuous"
    elif word is not None:
        target = "class"
    elif like is not None and like.meta.target == "continuous":
        target = "continuous"
    else:
        target = "continuous" if fraction is not None or several else "class"
        if fraction is not None:
            why = "labels are a continuous target (regression)"
            notices.append(f"label {fraction[0]:g} ({fraction[1]}) is not a whole number: {why}")
    if target == "class" and several:
        raise ParameterError("target=class takes one label a row; there are several columns of labels")
    _check_words(target, options, fraction, word)
    return _like_target(target, like)


def _check_words(
    target: TargetKind, options: IngestOptions, fraction: tuple[float, str] | None, word: tuple[str, str] | None
) -> None:
    """Refuse labels that are words unless all labels are classes."""
    if word is None:
        return
    if target == "continuous":
        raise BadInputError(f'{word[1]}: label "{word[0]}" is not a number, as a continuous target must be')
    if fraction is not None and options.target == "auto":
        rest = f"label {fraction[0]:g} ({fraction[1]}) a fraction; target=class makes classes of both"
        raise BadInputError(f'{word[1]}: label "{word[0]}" is a word, {rest}')


def _like_target(target: TargetKind, like: Like | None) -> TargetKind:
    if like is not None and like.meta.target not in (target, "none"):
        raise MismatchError(f"{like.path} has a {like.meta.target} target, these data a {target} one")
    return target


def _classes(survey: Survey, target: TargetKind, like: Like | None, notices: list[str]) -> tuple[Label, ...]:
    if target not in ("class", "multilabel"):
        return ()
    words = survey.label_words()
    own = {labels.label_value(label): label for label in survey.plan.labels}
    words |= {value: label for value, label in own.items() if isinstance(label, str) and str(value) != label}
    seen = sorted({*own, *(value for chunk in survey.chunks for value in chunk["labels"][0])})
    if like is None or like.meta.target == "none":
        word = survey.first("first_word")
        # formats whose values stand for none at the word of an option
        alone = word is not None and len(words) == 1 < len(seen) - 1 and not word[0].lstrip("+-").isdecimal()
        if word is not None and alone and hasattr(survey.plan.read, "dialect"):
            rest = f'so that all are words; --na-values "{word[0]}" if it stands for no label'
            notices.append(f'labels are numbers but for "{word[0]}" ({word[1]}), {rest}')
        named = _named(seen, words)
        if pair := labels.alike(named):
            rest = f"blanks or the form of Unicode only are different classes: {pair}"
            notices.append(f"labels that differ in case, {rest}")
        for what, looks in (("numbers with marks", MARKED.fullmatch), ("dates", is_date)):
            if 2 * len(found := [word for word in words.values() if looks(word)]) > len(named):
                why = "write them as plain numbers if they are a quantity (regression)"
                notices.append(f'labels look like {what}, such as "{min(found)}", and are classes: {why}')
        return named
    # the codes of known classes stay; unseen labels are appended
    known = like.meta.classes
    spelled = {*labels.class_values(known).ravel().tolist()}
    # beside further classes truths are words, of one spelling
    values = spelled if spelled.issuperset(seen) else {*map(labels.label_value, known)}
    unseen = _named([value for value in seen if value not in values], words, as_words=_has_words(known))
    _check_same_kind(survey, like, seen, unseen)
    if unseen:
        shown = ", ".join(map(str, unseen[:5])) + (", ..." if len(unseen) > 5 else "")
        notices.append(f"{len(unseen)} label{'s' * (len(unseen) > 1)} not in {like.path} appended: {shown}")
    return (*known, *unseen)


def _named(values: list[float], words: dict[float, str], as_words: bool = False) -> tuple[Label, ...]:
    """Return the labels of these increasing values, sorted: all numbers, or all words if one is a word."""
    numbers = (labels.number_label(value) for value in values)
    if not words and not as_words:
        return tuple(numbers)
    return tuple(sorted(words.get(value) or str(n) for value, n in zip(values, numbers, strict=True)))


def _has_words(classes: Sequence[Label]) -> bool:
    return any(isinstance(label, str) for label in classes)


def _check_same_kind(survey: Survey, like: Like, seen: list[float], unseen: tuple[Label, ...]) -> None:
    """Refuse words if the classes are numbers, and nothing but numbers if they are words."""
    if not unseen:  # truths may be spelled otherwise
        return
    known = like.meta.classes
    word = survey.first("first_word")
    if word is not None and not _has_words(known):
        why = f'label "{word[0]}" is a word, but the classes of {like.path} are numbers'
        raise MismatchError(f"{word[1]}: {why}")
    if word is None and _has_words(known) and len(unseen) == len(seen):
        rest = f"but these data have numbers, like {unseen[0]}"
        raise MismatchError(f'the classes of {like.path} are words, like "{known[0]}", {rest}')


def _width(survey: Survey, options: IngestOptions, like: Like | None, base: int) -> tuple[int, bool]:
    """Return the features of the source to store, and whether rows have others."""
    if survey.plan.is_numbered:
        largest, where = survey.extreme("max")
        found, what = largest - base + 1 if largest >= 0 else 0, f"{where}: index {largest}"
    else:
        found = survey.plan.headers[0].n_features
        what = f"{_sources(survey)}: {found} columns"
    if like is not None:
        known = source_width(like.meta.transforms, like.meta.n_features)
        # min_count dropped features after they were numbered
        has = "has" if known == like.meta.n_features else f"keeps {like.meta.n_features} of"
        if options.n_features not in (None, known):
            raise MismatchError(f"n_features={options.n_features}, but {like.path} {has} {known}")
        ignored = options.unknown_features == "ignore" and not survey.plan.is_dense
        if survey.plan.is_dense and found != known:
            raise MismatchError(f"{what}, but {like.path} {has} {known} features")
        if found > known and not ignored:
            raise MismatchError(
                f"{what}, but {like.path} {has} {known} features; --unknown-features ignore leaves out the others, "
                "--n-features at the ingest of the training data makes room for them"
            )
        return known, found > known
    # of a table it is the width of its documents
    if options.n_features is not None and not text_ranges(getattr(survey.plan.read, "features", ())):
        if found > options.n_features:
            raise BadInputError(f"{what} does not fit into n_features={options.n_features}")
        if survey.plan.is_dense and found < options.n_features:
            raise BadInputError(f"{what} of dense rows, which n_features={options.n_features} does not widen")
        return options.n_features, False
    found = max(found, survey.plan.width)
    if not found:
        raise BadInputError(f"{_sources(survey)}: no row has a feature; give n_features if that is meant")
    return found, False


def _check_log1p(survey: Survey, steps: Sequence[dict[str, Any]]) -> None:
    # here the line is still known; after steps other than scale, the check is left to their application
    divisor = 1.0
    for step in steps:
        if step["name"] not in ("log1p", "scale") or "ranges" in step:
            return
        if step["name"] == "log1p":
            break
        divisor *= step["divisor"]
    else:
        return
    for number, chunk in enumerate(survey.chunks):
        value, line = chunk["minimum"]
        if value / divisor <= -1:
            where = survey.where_in_chunk(number, line)
            raise BadInputError(f"{where}: log1p of {value / divisor:g}; values must be above -1")
