"""`streamkit console`: web pages about a cluster."""

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocket_admin.commands.connection_options import ClusterConnection, with_connection_options

if TYPE_CHECKING:
    from rocket_console.pages.section import Section
    from streamkit.patterns.outbox.database import Database

__all__ = ["console"]

_EXTRA = "the console needs starlette, uvicorn and jinja2: pip install 'streamkit-messaging[console]'"


@click.command()
@click.option("--address", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8090, show_default=True, help="Port; 0 takes a free one."
)
@click.option(
    "--allowed-host",
    "allowed_hosts",
    envvar="STREAMKIT_CONSOLE_ALLOWED_HOSTS",
    multiple=True,
    metavar="NAME",
    help="A host name that requests may use besides those of this machine; may be repeated.",
)
@click.option(
    "--operator-password",
    envvar="STREAMKIT_CONSOLE_OPERATOR_PASSWORD",
    help="Password of operators, who may make changes; better in $STREAMKIT_CONSOLE_OPERATOR_PASSWORD.",
)
@click.option(
    "--viewer-password",
    envvar="STREAMKIT_CONSOLE_VIEWER_PASSWORD",
    help="Password of viewers, who may only read; better in $STREAMKIT_CONSOLE_VIEWER_PASSWORD.",
)
@click.option(
    "--read-only",
    "is_read_only",
    envvar="STREAMKIT_CONSOLE_READ_ONLY",
    is_flag=True,
    help="Allow no changes.",
)
@click.option(
    "--audit-log",
    envvar="STREAMKIT_CONSOLE_AUDIT_LOG",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File of the audit log; by default $XDG_STATE_HOME/streamkit/console-audit.log.",
)
@click.option(
    "--app",
    "application",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Directory of an application whose bindings and Kafka destinations are shown too. Default: the current"
    " directory, unless --name-server is given.",
)
@click.option(
    "--schemas",
    envvar="STREAMKIT_CONSOLE_SCHEMAS",
    type=click.Path(path_type=Path, exists=True),
    help="Avro schema (a file .avsc or a directory of them) for showing Avro bodies; needs the extra `avro`.",
)
@click.option(
    "--outbox",
    "outbox_url",
    envvar="STREAMKIT_OUTBOX_URL",
    metavar="URL",
    help="Also show the outbox in this database, such as postgresql://user@host/shop; without --name-server, that of "
    "the setting streamkit.outbox.url. A password is better in $STREAMKIT_OUTBOX_URL.",
)
@partial(with_connection_options, answer_within=3.0)
def console(
    *,
    address: str,
    port: int,
    allowed_hosts: tuple[str, ...],
    operator_password: str | None,
    viewer_password: str | None,
    is_read_only: bool,
    audit_log: Path | None,
    application: Path | None,
    schemas: Path | None,
    outbox_url: str | None,
    cluster: ClusterConnection,
) -> None:
    """Serve web pages about a RocketMQ cluster: brokers, topics, groups, messages.

    In the directory of an application that uses Kafka, they also show its Kafka topics, records and groups, or only
    these.

    Without a password the console listens on loopback only, and everybody on this machine may change the cluster.
    """
    import asyncio
    import signal

    try:
        from rocket_console.server.console_server import ConsoleError, ConsoleServer, ConsoleSettings
    except ImportError as error:
        raise click.ClickException(_EXTRA) from error
    from rocket_admin.commands.application_explorers import UsedSystems, systems_of_application
    from rocket_admin.commands.application_settings import bindings_of_application
    from rocket_client import Admin
    from streamkit.processes.supervisor_line import SupervisorLine

    supervisor = SupervisorLine.from_environment()
    if supervisor is not None:
        supervisor.stop_with_supervisor()

    audit_log, schemas = (audit_log or _default_audit_log()).absolute(), schemas and schemas.absolute()
    if application is not None:
        os.chdir(application)  # the settings of an application are those of its directory
    # The settings of an application here belong to its own cluster.
    is_of_application = application is not None or cluster.name_servers is None
    systems = systems_of_application() if is_of_application else UsedSystems()
    for problem in systems.problems:
        click.echo(f"Warning: Kafka destinations are not shown, because the settings are wrong: {problem}", err=True)
    database = _outbox(outbox_url, looks_for_settings=is_of_application)
    more_sections: tuple[Section, ...] = ()
    if database is not None:
        from rocket_console.pages.outbox import OutboxPages

        more_sections = (OutboxPages(database).section,)
    settings = ConsoleSettings(
        address=address,
        port=port,
        allowed_hosts=allowed_hosts,
        operator_password=operator_password,
        viewer_password=viewer_password,
        is_read_only=is_read_only,
        audit_log=audit_log,
        schemas=schemas,
        bindings=bindings_of_application() if is_of_application else (),
        explorers=systems.explorers,
        has_rocketmq=systems.needs_rocketmq or cluster.is_named,
        more_sections=more_sections,
        answer_within=cluster.seconds,
    )

    async def serve(admin: Admin) -> None:
        end = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, end.set)
        try:
            server = ConsoleServer(admin, settings)
            await server.start()
        except ConsoleError as error:
            raise click.ClickException(str(error)) from error
        try:
            if supervisor is None:
                click.echo(f"Console of {server.systems} at {server.url}; Ctrl-C ends.")
            else:
                supervisor.report_started(server.url)
            await end.wait()
        finally:
            await server.stop()

    try:
        cluster.run(serve)
    finally:
        if database is not None:
            database.engine.dispose()


def _outbox(url: str | None, *, looks_for_settings: bool) -> "Database | None":
    """Return the database of the outbox to show; None if there is none.

    Raises:
        click.ClickException: SQLAlchemy or a driver is missing, or the URL or the settings cannot be read.
    """
    from streamkit.errors import ConfigurationError
    from streamkit.patterns.outbox.errors import OutboxError
    from streamkit.patterns.outbox.operator_database import database_at, url_of_settings
    from streamkit.patterns.table_schema import require_sqlalchemy

    try:
        url = url or (url_of_settings() if looks_for_settings else None)
        if url is None:
            return None
        require_sqlalchemy("the outbox")
        return database_at(url)
    except ConfigurationError as error:
        raise click.ClickException(
            f"the settings of the application in this directory cannot be read: {error}. Give --name-server."
        ) from error
    except OutboxError as error:
        raise click.ClickException(str(error)) from error


def _default_audit_log() -> Path:
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "streamkit" / "console-audit.log"
