"""The formats of exports by name: who writes each, and what a program that reads it makes of a model."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ExportFormat:
    """A format that `export` writes."""

    name: str
    # "module:function" of a loaded model, which returns the bytes of the file and which rows the exported model takes
    writer: str
    # whether its readers compute probabilities from scores: they would not be those of a calibrated model
    has_probabilities: bool = False
    # whether it has those of Platt's calibration of a single output
    has_platt: bool = False
    # whether its readers have weights and do with them what they like, so that any link will do
    has_any_link: bool = False
    # whether its rows are those of a table with gaps and words, if the model's are
    has_columns: bool = False
    # whether its weights are those of rows after transforms, so that any transforms will do
    is_after: bool = False


EXPORT_FORMATS: dict[str, ExportFormat] = {}


def register_export_format(format: ExportFormat) -> None:
    """Make a format known to `export`, in this process; a second one of the same name replaces the first."""
    EXPORT_FORMATS[format.name] = format


for _format in (
    ExportFormat(
        "onnx", "distls.interchange.onnx_graph:to_onnx", has_probabilities=True, has_platt=True, has_columns=True
    ),
    ExportFormat(
        "sklearn",
        "distls.interchange.sklearn_pipeline:to_skops",
        has_probabilities=True,
        has_platt=True,
        has_columns=True,
    ),
    ExportFormat("liblinear", "distls.interchange.plain_files:to_liblinear", has_probabilities=True),
    ExportFormat("vw", "distls.interchange.vw_model:to_vw"),
    ExportFormat("npz", "distls.interchange.plain_files:to_npz", has_any_link=True, is_after=True),
    ExportFormat("csv", "distls.interchange.plain_files:to_csv", has_any_link=True),
    ExportFormat("weights", "distls.interchange.plain_files:to_weights", has_any_link=True, is_after=True),
):
    register_export_format(_format)
