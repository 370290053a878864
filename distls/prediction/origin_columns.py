"""Columns that join predictions to their source: the file, the number and the id of each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from distls.storage.dataset.dataset import Dataset
from distls.storage.dataset.row_origins import RowOrigins, RowSources

__all__ = ["OriginColumns", "origin_columns"]


@dataclass(frozen=True)
class OriginColumns:
    """The origins of a data set's rows, as columns of its predictions."""

    origins: RowOrigins
    numbered: bool  # rows are not simply those of one file in its order, which their count shows

    @property
    def names(self) -> list[str]:
        """Return the names of the columns."""
        several = len(self.origins.facts.files) > 1
        own = (["source_file"] if several else []) + (["source_row"] if self.numbered else [])
        return own + (["id"] if self.origins.facts.ids else [])

    def read(self, index: int) -> RowSources:
        """Return the origins of partition `index`, those that are shown."""
        return self.origins.read(index)

    def columns(self, index: int) -> list[Any]:
        """Return the columns of the rows of partition `index`."""
        sources = self.read(index)
        columns: list[Any] = []
        if sources.files is not None:
            columns.append([self.origins.facts.files[code] for code in sources.files.tolist()])
        if self.numbered:
            columns.append(sources.rows.tolist())
        if sources.ids is not None:
            columns.append(sources.ids.texts())
        return columns


def origin_columns(data: Dataset) -> OriginColumns | None:
    """Return the columns for the rows of `data`; None if they would say nothing new."""
    origins = data.origins
    if origins is None:
        return None
    columns = OriginColumns(origins, numbered=not origins.facts.in_order)
    return columns if columns.names else None
