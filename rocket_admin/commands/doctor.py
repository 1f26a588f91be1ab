"""`streamkit doctor`: what is wrong with a cluster and with the application in the current directory."""

from typing import TYPE_CHECKING

import click

from rocket_admin.commands.connection_options import ClusterConnection, connection_options
from rocket_admin.commands.output import Column, Output, json_option

if TYPE_CHECKING:
    from rocket_client import Admin
    from streamkit.findings import Finding

__all__ = ["doctor"]


@click.command(short_help="Say what is wrong with a cluster and the application here, and how to mend it.")
@click.option(
    "--for",
    "watched",
    type=click.FloatRange(min=0, max=3600),
    default=3.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to watch whether lag grows; 0: not at all.",
)
@connection_options
@json_option
@click.pass_context
def doctor(context: click.Context, *, watched: float, cluster: ClusterConnection, output: Output) -> None:
    """Check a RocketMQ cluster and the application in the current directory, and show how to fix what is wrong.

    Kafka bindings are checked too: brokers, topics, partitions, groups.

    Nothing is changed. All checks run at the same time; a server that does not answer takes --answer-within once or
    twice.

    The exit status is 2 if there is an error, 1 if there is a warning, and 0 otherwise. Unknown facts and hints do not
    count.
    """
    import asyncio

    from rocket_admin.commands.application_checks import check_bindings, check_process, read_application
    from streamkit.findings import Finding, Severity, exit_status, worst_first

    application = read_application()
    findings = [check_process(), *(application.findings if application is not None else ())]

    async def of_binders() -> "list[Finding]":
        if application is None:
            return []
        return await application.examine(watch=watched, answer_within=cluster.seconds)

    async def examined(admin: "Admin") -> "list[Finding]":
        from rocket_admin.doctor.examination import examine

        of_cluster = examine(admin, seconds=watched)
        if application is None:
            return await of_cluster
        found = await asyncio.gather(of_cluster, check_bindings(application, admin.settings), of_binders())
        return [finding for each in found for finding in each]

    try:
        if application is not None and not application.needs_rocketmq and not cluster.is_named:
            text, mend = "no RocketMQ cluster was examined: no binding here uses one", "name one by --name-server"
            findings.append(Finding(severity=Severity.OK, check="cluster", found=text, mend=mend))
            findings += asyncio.run(of_binders())
        else:
            findings += cluster.run(examined)
    except click.UsageError:
        raise
    except click.ClickException as error:  # no name server is known, or a file of keys or TLS cannot be used
        findings.append(Finding(severity=Severity.ERROR, check="cluster", found=error.message))
        findings += asyncio.run(of_binders())
    findings = worst_first(findings)
    if output.as_json:
        output.json(*findings)
    else:
        output.table([line for finding in findings for line in _lines(finding)], _COLUMNS)
    counts = [f"{sum(each.severity is severity for each in findings)} {severity}" for severity in reversed(Severity)]
    output.say(f"\n{', '.join(counts)}.")
    context.exit(exit_status(findings))


def _lines(finding: "Finding") -> list[tuple[str, str, str]]:
    """Return the rows of a finding: what was found, and below what to do, so that both have room."""
    rows = [(finding.severity.value, finding.check, finding.found)]
    return rows if finding.mend is None else [*rows, ("", "", f"→ {finding.mend}")]


_COLUMNS: list[Column[tuple[str, str, str]]] = [
    Column(title="SEVERITY", text=lambda line: line[0]),
    Column(title="CHECK", text=lambda line: line[1]),
    Column(title="FOUND, AND WHAT TO DO", text=lambda line: line[2], may_wrap=True),
]
