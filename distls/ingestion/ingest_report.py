"""The result of an ingest, as its caller gets it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from distls.facts import Shown, said
from distls.ingestion.label_rules import dropped_notice
from distls.ingestion.schema import Survey
from distls.storage.dataset.dataset import Dataset
from distls.storage.filesystem.paths import Place


@dataclass(frozen=True, repr=False)
class IngestReport(Shown):
    """The result of an ingest.

    Attributes
    ----------
    paths : tuple of Place
        DATASET, then DATASET-NAME for each split.
    rows, nnz, bytes : int
        Totals over all paths; `bytes` as stored.
    skipped : int
        Refused lines (rows, for arrays) that were left out.
    skipped_lines : tuple of str
        The first few, ``FILE:LINE: "text": rule``.
    notices : tuple of str
        Messages for the user, one line each.
    dropped : dict
        Rows that were left out, by what `drop` calls them.
    """

    paths: tuple[Place, ...]
    rows: int
    nnz: int
    bytes: int
    skipped: int
    skipped_lines: tuple[str, ...]
    notices: tuple[str, ...]
    dropped: dict[str, int] = field(default_factory=dict)


def ingest_report(
    datasets: Sequence[Dataset], survey: Survey, notices: Sequence[str], dropped: dict[str, int]
) -> IngestReport:
    """Return the report of what was written; `notices` are those of its stages."""
    skipped, lines = survey.skipped()
    # The first of them is enough to see what is wrong.
    refused = [f"{skipped} line{'s' * (skipped > 1)} skipped; the first: {lines[0]}"] if skipped else []
    return IngestReport(
        paths=tuple(data.path for data in datasets),
        rows=sum(data.meta.n_rows for data in datasets),
        nnz=sum(data.meta.nnz for data in datasets),
        bytes=sum(int(data.stored_bytes.sum()) for data in datasets),
        skipped=skipped,
        skipped_lines=tuple(map(said, lines)),
        notices=tuple(map(said, (*notices, *dropped_notice(dropped), *refused))),
        dropped=dropped,
    )
