"""Names of the columns of hashed text: the most frequent word of each."""

from typing import Any

from distls.ingestion.schema import Survey
from distls.storage.errors import CorruptDataError
from distls.storage.temporary.ingest_staging import StagingArea
from distls.workers.ingestion.formats.document_records import DocumentReadOptions


def column_names(survey: Survey, staging: StagingArea) -> tuple[str, ...]:
    """Return the names of all columns, empty if words are not kept; of columns without a word their numbers.

    The words of each chunk are merged as in a majority vote, with one word and one number for each column: a word that
    is more than half of a column's occurrences is always found.
    """
    read = survey.plan.read
    if not isinstance(read, DocumentReadOptions) or not read.keep_words:
        return ()
    best: dict[int, tuple[str, int]] = {}
    for chunk in survey.chunks:
        for column, (word, count) in _words_of(staging, chunk["name"]):
            known, lead = best.get(column, (word, 0))
            if known == word:
                best[column] = (word, lead + count)
            else:
                best[column] = (known, lead - count) if lead >= count else (word, count - lead)
    return tuple(best[k][0] if k in best else f"#{k}" for k in range(read.hashing.n_features))


def _words_of(staging: StagingArea, chunk: str) -> list[Any]:
    found = staging.read_document(f"words-{chunk}")
    if not isinstance(found, list):
        raise CorruptDataError(
            f"{staging.dataset}: the words of chunk {chunk} are missing; remove it and ingest again"
        )
    return found
