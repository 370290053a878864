"""Commands that show what runs have done."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import click

from distls.cli.output import OK, note, say, show
from distls.cli.support import PLACE, Running, cli, cluster_of, cluster_options, debug_option, print_json, scored_bytes
from distls.storage.errors import DistlsError, ParameterError
from distls.storage.filesystem.paths import Place
from distls.storage.filesystem.safe_read import as_format_error

if TYPE_CHECKING:
    from distls.reporting.run_report import Report

html_option = click.option("--html", "page", type=PLACE, metavar="FILE", help="Write one HTML file instead.")
data_option = click.option("--data", type=PLACE, metavar="DATASET", help="Score the model on this data set or file.")


@cli.command(short_help="Show a run's rounds, costs and result, as text or a page.")
@click.argument("run", type=PLACE)
@html_option
@data_option
@click.option("--own-data/--no-data", default=None, help="Open the data sets that the run names; default no.")
@click.option("--json", "as_json", is_flag=True)
@click.option("--live", is_flag=True, help="Serve the page to this machine until Ctrl-C, while the run trains.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="With --live; default any free one.")
@cluster_options
@debug_option
def report(
    run: Place,
    page: Place | None,
    data: Place | None,
    own_data: bool | None,
    as_json: bool,
    live: bool,
    port: int,
    debug: bool,
    **options: Any,
) -> int:
    """Show a run's rounds, costs and result: as text, as JSON, or as a page with plots that needs no network."""
    if (page is not None) + as_json + live > 1:
        raise ParameterError("--html, --json and --live: one of them")
    if data is not None and (own_data is False or live):
        raise ParameterError(f"--data and {'--live' if live else '--no-data'}: one of them")
    if live:
        return _serve(run, port, bool(own_data))
    if page is None and not as_json:
        _print_text(run, data)
        return OK
    if page is not None:
        check_page(page)
    made = _made(run, data, bool(own_data), options, debug)
    for text in made.remarks:
        note(text)
    if page is None:
        with as_format_error(str(run)):
            print_json(made.to_json())
        return OK
    from distls.reporting.page import write_page
    from distls.reporting.run_page import render_report

    write_page(page, render_report(made))
    show([f"report in {page}"], needed=False)
    return OK


def _serve(run: Place, port: int, own_data: bool) -> int:
    """Serve a page that follows the run, until Ctrl-C."""
    from distls.reporting.live import LiveReport

    served = LiveReport(run, port, own_data=own_data)
    try:
        show([served.address], needed=False)
        served.serve()
    except KeyboardInterrupt:
        return say(f"{served.address} ends", OK)
    finally:
        served.close()
    return OK


def _print_text(run: Place, data: Place | None) -> None:
    from distls.cli.report import run_lines

    if data is not None:
        raise ParameterError("--data is for --html and --json; `distls evaluate` scores a model in text")
    show(run_lines(run))


def check_page(page: Place) -> None:
    """Refuse a page that cannot be written, before anything is read."""
    from distls.reporting.page import checked_page

    checked_page(page)


def _made(run: Place, data: Place | None, own_data: bool, options: dict[str, Any], debug: bool) -> Report:
    """Return the report; a cluster is started for large data only."""
    from distls.reporting.run_report import read_run
    from distls.reporting.run_report import report as report_of
    from distls.storage.filesystem.paths import place_of

    cluster, n_bytes = cluster_of(options, debug), None if data is None else scored_bytes([data])
    if data is None and own_data:
        # what cannot be opened is a remark of the report
        with contextlib.suppress(DistlsError, OSError):
            own, _ = read_run(run).judged_on
            n_bytes = scored_bytes([place_of(path) for path in own]) if own else None
    if n_bytes is None:
        return report_of(run, data, own_data=own_data)
    with Running(cluster, n_bytes, quiet=True) as (executor, _):
        return report_of(run, data, executor=executor, own_data=own_data)


@cli.command(short_help="Compare runs: curves, parameters, weights, predictions.")
@click.argument("runs", nargs=-1, required=True, type=PLACE, metavar="RUN...")
@html_option
@click.option("--data", type=PLACE, metavar="DATASET", help="Find the rows of this data set that they disagree on.")
@click.option("--json", "as_json", is_flag=True)
@cluster_options
@debug_option
def compare(
    runs: tuple[Place, ...], page: Place | None, data: Place | None, as_json: bool, debug: bool, **options: Any
) -> None:
    """Compare runs: curves, settings, distances between weights, rows they disagree on."""
    from distls.reporting.comparison import compare as run_compare
    from distls.reporting.comparison_text import comparison_lines

    if page is not None and as_json:
        raise ParameterError("--html and --json: one of them")
    if page is not None:
        check_page(page)
    cluster = cluster_of(options, debug)
    if data is None:
        made = run_compare(runs)
    else:
        with Running(cluster, scored_bytes([data]), quiet=True) as (executor, _):
            made = run_compare(runs, data, executor=executor)
    if as_json:
        print_json(made.to_json())
    elif page is None:
        show(comparison_lines(made))
    else:
        from distls.reporting.comparison_page import render_comparison
        from distls.reporting.page import write_page

        write_page(page, render_comparison(made))
        show([f"comparison in {page}"], needed=False)
