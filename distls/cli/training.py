"""Commands that plan and train."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from distls.cli.interrupts import INTERRUPTED
from distls.cli.method_names import METHOD, START, MethodCommand, method_or_path, parameter_option, started_from
from distls.cli.output import FAILED, OK, note, say, show
from distls.cli.support import (
    PLACE,
    Running,
    Size,
    Written,
    cli,
    cluster_of,
    cluster_options,
    common_options,
    debug_option,
    print_json,
    request_options,
    watchers,
)
from distls.storage.errors import ParameterError
from distls.storage.filesystem.paths import Place

if TYPE_CHECKING:
    from distls.memory_plan import Plan
    from distls.planning.cluster_plan import ClusterPlan
    from distls.training.setting_fit import FitResult


@cli.command()
@click.argument("method", required=False, type=METHOD)
def methods(method: str | None) -> None:
    """List the methods, or one method's parameters."""
    from distls.methods.method_registry import METHODS, WHICH_TO_TAKE, method_named

    if method is None:
        show([*(f"{each.name:12} {each.summary}" for each in METHODS.values()), "", *WHICH_TO_TAKE.split("\n")])
        return
    chosen = method_named(method)
    lines = [f"{chosen.name}: {chosen.summary}", f"paper: {chosen.paper}", ""]
    if chosen.aliases:
        lines += ["short loss names: " + ", ".join(f"{a} = {b}" for a, b in chosen.aliases.items()), ""]
    settings = {
        "on continuous targets (regression), unless the first is given": chosen.continuous,
        "as printed in the paper, by --as-published": chosen.published,
    }
    for when, values in settings.items():
        shown = [f"{name}={json.dumps(value).strip(chr(34))}" for name, value in values.items()]
        lines += [f"{when}: {', '.join(shown)}", ""] if shown else []
    for parameter in chosen.parameters:
        default = "" if parameter.default is None else f" [{parameter.default}]"
        lines.append(f"  {parameter.name:14} {parameter.description}{default}")
    show(lines)


def _named_and_placed(metavar: tuple[str, ...], given: tuple[str, ...]) -> tuple[str, tuple[Place, ...]]:
    """Return the method, "auto" where none is given, and the places of a command line."""
    from distls.methods.method_registry import METHODS
    from distls.methods.recommendation import AUTO

    missing = len(metavar) - len(given)
    if missing < 0:
        raise click.UsageError(f"Got unexpected extra arguments ({' '.join(given[len(metavar) :])})")
    # one place may be missing because no method was wanted, but the name of a method is no place
    method = AUTO if missing and not (given and given[0] in METHODS) else (*given, "")[0]
    places = given if method == AUTO and missing else given[1:]
    if len(places) < len(metavar) - 1:
        raise click.UsageError(f"Missing argument '{metavar[1 + len(places)]}'.")
    context = click.get_current_context()
    return method, tuple(PLACE.convert(place, None, context) for place in places)


@cli.command(cls=MethodCommand, short_help="Show what a fit will cost in memory, bytes and seconds.")
@click.argument("names", nargs=-1, metavar="[METHOD] DATASET", shell_complete=method_or_path)
@parameter_option("Set a parameter of the method.")
@request_options("passes", "seed", "as_published", "parallelism")
@click.option("--json", "as_json", is_flag=True)
@click.option("--no-probe", is_flag=True, help="Do not time a partition.")
@click.option(
    "--cluster",
    "shape",
    type=Written("WxT", "distls.planning.cluster_plan:parse_shape"),
    help="Plan for a hypothetical cluster of W workers with T threads each.",
)
@click.option(
    "--bandwidth",
    type=Written("rate", "distls.planning.cluster_plan:parse_bandwidth"),
    help="Bandwidth of each machine's link, with --cluster; default 10Gbit.",
)
@click.option(
    "--latency",
    type=Written("time", "distls.planning.cluster_plan:parse_seconds"),
    help="Latency between machines, with --cluster; default 1ms.",
)
@click.option("--bytes", "n_bytes", type=Size(), help="Plan as if DATASET had this size, with --cluster.")
@click.option(
    "--rate", type=Size(), help="Stored bytes that a thread processes per second, with --cluster, instead of the probe."
)
@cluster_options
@debug_option
def plan(
    names: tuple[str, ...], pairs: tuple[str, ...], as_json: bool, no_probe: bool, debug: bool, **options: Any
) -> None:
    """Show what a fit will cost in memory, bytes and seconds; fail if it cannot fit.

    Without METHOD, one that suits DATASET is planned.
    """
    from distls.cli.report import cluster_plan_lines, plan_lines
    from distls.methods.method_registry import method_named, parse_values
    from distls.planning.cluster_plan import plan_cluster
    from distls.planning.fit_plan import plan_fit

    method, (dataset,) = _named_and_placed(("METHOD", "DATASET"), names)
    asked = {name: options.pop(name) for name in ("shape", "bandwidth", "latency", "n_bytes", "rate")}
    common: dict[str, Any] = {name: options.pop(name) for name in ("seed", "passes", "parallelism")}
    params = parse_values(pairs)
    if options.pop("as_published"):
        params, _ = method_named(method).as_published(params)
    common |= {"params": params, "probe": not no_probe}
    made: Plan | ClusterPlan
    if asked["shape"] is not None:
        made = imagined = plan_cluster(method, dataset, **_imagined(asked, options), **common)
        lines = cluster_plan_lines(imagined)
    elif given := [name for name, value in asked.items() if value is not None]:
        option = {"n_bytes": "bytes"}.get(given[0], given[0])
        raise ParameterError(f"--{option} needs --cluster, such as --cluster 100x8")
    else:
        made = real = plan_fit(method, dataset, cluster=cluster_of(options, debug), **common)
        lines = plan_lines(real)
    if as_json:
        print_json(made.to_json())
    else:
        show(lines)


def _imagined(asked: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of `plan_cluster`; refuse options that describe actual workers."""
    from distls.execution.round_seconds import Cluster

    context = click.get_current_context()
    for name in options:
        # a scheduler address in the environment is meant for other commands
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE and name != "memory_limit":
            option = name.removesuffix("_kind").replace("_", "-")
            raise ParameterError(
                f"--{option} describes actual workers and --cluster hypothetical ones; drop one of them"
            )
    cluster, limit = Cluster.of(asked["shape"], asked["bandwidth"], asked["latency"]), options["memory_limit"]
    return {"cluster": cluster, "memory_limit": limit, "stored_bytes": asked["n_bytes"], "rate": asked["rate"]}


@cli.command(cls=MethodCommand)
@click.argument("names", nargs=-1, metavar="[METHOD] DATASET RUN", shell_complete=method_or_path)
@parameter_option("Set a parameter of METHOD; several values NAME=A,B,C with --select.")
@START
@request_options()
@click.option("--checkpoint-seconds", type=click.FloatRange(0), default=30.0, show_default=True)
@click.option("--report", "page", type=PLACE, metavar="FILE", help="Write a report of the run as an HTML file.")
@cluster_options
@common_options
def fit(
    names: tuple[str, ...],
    pairs: tuple[str, ...],
    quiet: bool,
    debug: bool,
    checkpoint_seconds: float,
    page: Place | None,
    init: Place | None,
    **options: Any,
) -> int:
    """Train METHOD on DATASET into the new folder RUN.

    Without METHOD, one that suits DATASET is chosen, and its main parameters by cross-validation.
    """
    from distls.cli.reporting import check_page
    from distls.methods.method_registry import parse_values
    from distls.planning.fit_plan import workers_of
    from distls.solvers.status import Status
    from distls.training.configuration import FitRequest
    from distls.training.exact_method import choosing
    from distls.training.fitting import train
    from distls.training.run_folder import Run
    from distls.training.setting_fit import FitOptions

    method, (dataset, run) = _named_and_placed(("METHOD", "DATASET", "RUN"), names)
    cluster = cluster_of(options, debug)
    # fail on anything that metadata can rule out before a cluster is started
    params = parse_values(pairs)
    params |= started_from(init, "init" in params)
    choose = choosing(partial(workers_of, cluster, dataset), options)
    request = FitRequest.of(method, dataset, params=params, choose=choose, **options)
    Run.check_new(run)
    if page is not None:
        check_page(page)
    if request.reason is not None and not quiet:
        note(f"{request.method.name}: {request.reason}")
    for text in () if quiet else request.notices:
        note(text)
    n_bytes = request.decoded_bytes
    if cluster.scheduler is None:
        budget = cluster.for_data(n_bytes).budget()
        request.check(slots=budget.workers * budget.threads, memory=budget)
    with Running(cluster, n_bytes, quiet) as (executor, budget):
        result = train(request, run, FitOptions(executor, budget, watchers(quiet), checkpoint_seconds))
        if page is not None and result.status != Status.INTERRUPTED:
            from distls.reporting.run_report import report

            report(run, html=page, executor=executor, own_data=True)  # the user has named them
            note(f"report in {page}")
    return conclude(result, run, quiet)


@cli.command(short_help="Continue a fit that was interrupted, or with more passes.")
@click.argument("run", type=PLACE)
@click.option("--passes", type=float, help="Continue up to this many passes in total, even if the fit has ended.")
@click.option("--data", type=PLACE, metavar="DATASET", help="Where the training data are now.")
@click.option("--checkpoint-seconds", type=click.FloatRange(0), default=30.0, show_default=True)
@cluster_options
@common_options
def resume(
    run: Place,
    quiet: bool,
    debug: bool,
    passes: float | None,
    data: Place | None,
    checkpoint_seconds: float,
    **options: Any,
) -> int:
    """Continue a fit that was interrupted or killed, or with --passes one that has ended."""
    from distls.solvers.status import Status
    from distls.training.fitting import proceed, resumable
    from distls.training.setting_fit import FitOptions

    cluster = cluster_of(options, debug)
    folder, request = resumable(run, passes, data)
    ended = folder.has_ended
    if ended and not quiet:
        # what converged, stopped early or diverged is refused more passes
        limited = folder.status["status"] in (Status.MAX_PASSES, Status.MAX_SECONDS)
        more = "; --passes N trains on" if limited and (folder.path / "final").exists() else ""
        note(f"{run} has ended: nothing is to be done{more}")
    # what has ended needs no workers
    with Running(cluster, 0.0 if ended else request.decoded_bytes, quiet or ended) as (executor, budget):
        result = proceed(folder, request, FitOptions(executor, budget, watchers(quiet), checkpoint_seconds))
    return conclude(result, run, quiet)


def conclude(result: FitResult, run: Place, quiet: bool) -> int:
    """Print how a fit ended, and unless `quiet` its warnings; return the exit code."""
    from distls.cli.report import result_lines
    from distls.methods.method import diverged
    from distls.methods.method_registry import method_named
    from distls.solvers.status import Status
    from distls.training.run_folder import Run

    if result.status == Status.INTERRUPTED:
        return say(f"interrupted after {result.passes:g} passes; `distls resume {run}` continues", INTERRUPTED)
    if result.status == Status.DIVERGED:
        known = {each.name for each in method_named(Run.open(run).config.method).parameters}
        return say(f"distls: {run}: {diverged(known)}", FAILED)
    if not quiet:
        for text in result.warnings:
            say(f"warning: {text}", OK)
    show(result_lines(result), needed=False)
    return OK


@cli.command(short_help="Generate data, ingest, train and evaluate: a short tour.")
@click.option("--rows", type=click.IntRange(1000), default=400_000, show_default=True)
@click.option(
    "--directory", type=click.Path(path_type=Path), help="Keep all files in this folder; default a temporary one."
)
@click.option("--workers", type=click.IntRange(1), help="Worker processes; default one per core.")
@debug_option
def demo(rows: int, directory: Path | None, workers: int | None, debug: bool) -> int:
    """Generate, ingest, plan, train out of core on local processes, evaluate, report: within a minute."""
    from distls.cli.demo import run_demo

    code = run_demo(rows, directory, workers)
    return say("interrupted", INTERRUPTED) if code == INTERRUPTED else code
