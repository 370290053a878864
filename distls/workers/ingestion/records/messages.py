"""Refused tokens in messages, and the rules about numbers that they break."""

import functools
import math
import re

from distls.storage.errors import printable

# the remedy for text of another encoding; that of Windows is the usual one
ENCODED = "--encoding names its encoding, such as cp1252 or latin-1"

MISSING_VALUE = (
    "the value is missing; --na VALUE of ingest, train and predict is read in its place, --impute of ingest and train "
    "fills it in"
)

NO_LABEL = "the row has no label; --drop unknown leaves such rows out"
EMPTY_LABEL = "the label is empty"
SEVERAL_LABELS = "several labels in a row are read with --multilabel of ingest and train only"
UNLABELLED = "without labels are for ingest --unlabelled, and predict"
LABELS_ELSEWHERE = "--labels FILE may have it, ingest --unlabelled and predict need none"
NO_NUMBER = "; --na-values names texts that stand for no value"

_QUOTED_BYTES = 60
_REASON = re.compile(r'(column ".*?": )?(?:".*":? )?(.*)', re.DOTALL)
_NAN = re.compile(rb"[+-]?nan(:.*)?", re.IGNORECASE)  # maybe with a weight
_PLAIN = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\Z")


def quoted(token: bytes) -> str:
    """Return the start of a token, quoted and escaped for a message."""
    # Any bytes: a message must not fail over the token that it is about.
    shown = token[:_QUOTED_BYTES].decode("utf-8", "backslashreplace")
    return f'"{printable(shown)}{"..." if len(token) > _QUOTED_BYTES else ""}"'


@functools.lru_cache(maxsize=256)  # of many rows it is one
def kind_of(reason: str) -> str:
    """Return the column and the rule of a refusal, without the text that breaks it and what to do."""
    found = _REASON.fullmatch(reason)
    return "".join(filter(None, found.groups())).partition(";")[0] if found else reason


def lacks_label(reason: str) -> bool:
    """Return whether a refusal of any format is of a row without a label."""
    # at its end, where no name or text of the file can be
    return reason.endswith((NO_LABEL, EMPTY_LABEL, UNLABELLED, LABELS_ELSEWHERE))


def number_rule(text: bytes, what: str, remedy: str = "") -> str:
    """Return why `text` is not a usable number; `remedy` is for what is none at all."""
    try:
        value = float(text)
    except ValueError:
        return f"{what} must be a decimal number{remedy}"
    if math.isfinite(value):
        # float() takes underscores and words that kernels do not.
        return f"{what} must be written as a plain decimal number"
    return f"{what} must be finite"


def too_large(value: float) -> str:
    """Return what helps with a value of a table that is too large for its type."""
    wider = "--dtype float64 of ingest and train has it, " * math.isfinite(value)
    return f"; {wider}--kind NAME=category of ingest and train takes codes such as 3E400 for words"


def label_rule(token: bytes) -> str:
    """Return why `token` is not a list of labels."""
    if _NAN.fullmatch(token):
        return NO_LABEL
    bad = next((part for part in token.split(b",") if not _is_plain(part)), token)
    return number_rule(bad, "a label")


def _is_plain(text: bytes) -> bool:
    """Return whether the kernels accept `text` as a number."""
    return _PLAIN.match(text) is not None and math.isfinite(float(text))
