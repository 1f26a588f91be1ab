"""The options that say which cluster a command asks, and as whom.

::

    --name-server                                              the first of these places that has an address gives it;
    NAMESRV_ADDR                                               without any it is 127.0.0.1:9876
    spring.cloud.stream.rocketmq.binder.name-server            of the application in the current directory

    --access-key, --secret-key                                 visible to other users in the list of processes
    ROCKETMQ_ACCESS_KEY, ROCKETMQ_SECRET_KEY
    $ROCKETMQ_HOME/conf/tools.yml, or the file of --tools-file accessKey: …, secretKey: …, as mqadmin reads them
    spring.cloud.stream.rocketmq.binder.access-key, …          of that application, if its name server is used

The first of these places that has a key gives both. Without any, requests are not signed.
"""

import functools
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

from rocket_admin.commands.found_cluster import FoundCluster
from rocket_admin.commands.output import Output

if TYPE_CHECKING:
    from rocket_client import Admin, ClientSettings, Credentials

__all__ = [
    "ClusterConnection",
    "cluster_of",
    "connection_options",
    "found_cluster",
    "name_server_option",
    "with_connection_options",
]

R = TypeVar("R")

DEFAULT_NAME_SERVER: Final = "127.0.0.1:9876"

_OPTIONS: Final = frozenset(
    {"name_servers", "seconds", "uses_tls", "tls_config", "access_key", "secret_key", "tools_file"}
)

MAX_TOOLS_FILE: Final = 64 * 1024
"""Bytes of a file with keys."""


@dataclass(repr=False, eq=False, kw_only=True)
class ClusterConnection:
    """The cluster that a command's options name. Nothing is read or connected before `run`.

    Attributes:
        name_servers: The addresses that were given; None to take those of the application, or the default.
        origin: Where the addresses were given.
        seconds: How long a server may take to accept a connection, and to answer a request.
        uses_tls: Whether connections are encrypted.
        tls_config: File with Apache's settings of TLS.
        credentials: The keys that sign requests.
    """

    name_servers: str | None
    origin: str
    seconds: float
    uses_tls: bool = False
    tls_config: Path | None = None
    credentials: "Credentials | None" = None

    @property
    def is_named(self) -> bool:
        """Whether the options or the settings of the application here say which cluster it is.

        Raises:
            click.ClickException: The settings of the application cannot be read.
        """
        if self.name_servers is not None:
            return True
        from rocket_admin.commands.application_settings import cluster_of_application

        return cluster_of_application() is not None

    def show(self, work: "Callable[[Admin], Awaitable[None]]", output: Output) -> None:
        """Connect, do the work, again and again with `--watch`; end the command with status 1 if a broker failed.

        Args:
            work: Gets the running admin, and prints.
            output: What it prints with.

        Raises:
            click.ClickException: The work failed: the text names the server, and what to do.
        """

        async def repeated(admin: "Admin") -> None:
            await output.repeat(lambda: work(admin))

        try:
            self.run(repeated)
        except KeyboardInterrupt:
            if output.watch is None:
                raise
        if output.has_failures:
            click.get_current_context().exit(1)

    def run(self, work: "Callable[[Admin], Awaitable[R]]") -> R:
        """Connect, do the work and return its result.

        Args:
            work: Gets the running admin.

        Raises:
            click.ClickException: The work failed: the text names the server, and what to do.
        """
        import asyncio

        from rocket_client import Admin
        from rocket_remoting import RemotingError

        found, settings = self._settings()

        async def connected() -> R:
            async with Admin(settings) as admin:
                return await work(admin)

        try:
            return asyncio.run(connected())
        except RemotingError as error:
            raise click.ClickException(_advised(error, found.origin)) from error
        except (ValueError, TimeoutError) as error:  # of arguments, such as a broker that the cluster has not
            raise click.ClickException(str(error)) from error

    def _settings(self) -> "tuple[FoundCluster, ClientSettings]":
        from rocket_client import ClientSettings, ClientTls
        from rocket_remoting import RemotingError
        from rocket_remoting.tls.properties import client_tls_of_file

        origin = self.origin
        try:
            found = found_cluster(self.name_servers, origin)
            origin = found.origin
            tls = found.tls
            if self.uses_tls:
                tls = client_tls_of_file(self.tls_config) if self.tls_config else ClientTls()
            return found, ClientSettings(
                name_servers=found.name_servers,
                connect_timeout=timedelta(seconds=self.seconds),
                request_timeout=timedelta(seconds=self.seconds),
                tls=tls,
                credentials=self.credentials or found.credentials,
            )
        except RemotingError as error:
            raise click.ClickException(str(error)) from error
        except ValueError as error:
            raise click.ClickException(f"{error} (the name server is from {origin})") from error


name_server_option = click.option(
    "-n",
    "--name-server",
    "name_servers",
    envvar="NAMESRV_ADDR",
    metavar="HOST:PORT",
    help="Name servers, separated by ';'. Without it: $NAMESRV_ADDR, else the name server of the application in "
    f"the current directory, else {DEFAULT_NAME_SERVER}.",
)


def found_cluster(given: str | None, origin: str) -> FoundCluster:
    """Return the cluster with the given name servers, or that of the application in the current directory.

    The keys and the encryption of the application are used for its own name servers only.

    Args:
        given: The addresses of the option or the environment, if there are any.
        origin: Where these were given.

    Raises:
        click.ClickException: The settings of the application in the current directory cannot be read.
        RemotingError: Its settings of TLS cannot be used.
    """
    if given is not None:
        return FoundCluster(name_servers=given, origin=origin)
    from rocket_admin.commands.application_settings import cluster_of_application

    return cluster_of_application() or FoundCluster(name_servers=DEFAULT_NAME_SERVER, origin="the default")


def connection_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options to a command, which gets a `ClusterConnection` as its argument `cluster`."""
    return with_connection_options(command, answer_within=10.0)


def with_connection_options(command: Callable[..., R], *, answer_within: float) -> Callable[..., R]:
    """Add the options to a command, with another default for the seconds in which a server has to answer."""

    @name_server_option
    @click.option(
        "--answer-within",
        "seconds",
        type=click.FloatRange(min=0, min_open=True),
        default=answer_within,
        show_default=True,
        metavar="SECONDS",
        help="How long a server may take to answer.",
    )
    @click.option(
        "--tls",
        "uses_tls",
        is_flag=True,
        help="Encrypt the connections. Not needed if the application in the current directory has the same name"
        " server and encrypts.",
    )
    @click.option(
        "--tls-config",
        type=click.Path(path_type=Path),
        help="With --tls: file with Apache's settings tls.client.*, such as tls.client.trustCertPath=ca.pem. "
        "Without it: trust the authorities that the operating system trusts.",
    )
    @click.option(
        "--access-key",
        help="Access key of an account. Without it: $ROCKETMQ_ACCESS_KEY, a tools file, or the key of the "
        "application in the current directory, if its name server is used.",
    )
    @click.option("--secret-key", help="Secret key of the account; better set $ROCKETMQ_SECRET_KEY.")
    @click.option(
        "--tools-file",
        type=click.Path(path_type=Path),
        help="File with the keys, in the format of mqadmin; by default $ROCKETMQ_HOME/conf/tools.yml, if it exists.",
    )
    @functools.wraps(command)
    def run(*args: object, **options: object) -> R:
        cluster = cluster_of(click.get_current_context())
        rest = {name: value for name, value in options.items() if name not in _OPTIONS}
        return command(*args, cluster=cluster, **rest)

    return run


def cluster_of(context: click.Context) -> ClusterConnection:
    """Return the cluster that the options of a command name.

    Raises:
        click.ClickException: The options contradict each other, or a file of keys cannot be read.
    """
    options = context.params
    if options["tls_config"] is not None and not options["uses_tls"]:
        raise click.UsageError("--tls-config needs --tls")
    source = context.get_parameter_source("name_servers")
    return ClusterConnection(
        name_servers=options["name_servers"],
        origin="NAMESRV_ADDR" if source is click.core.ParameterSource.ENVIRONMENT else "--name-server",
        seconds=options["seconds"],
        uses_tls=options["uses_tls"],
        tls_config=options["tls_config"],
        credentials=_credentials(options["access_key"], options["secret_key"], options["tools_file"]),
    )


def _advised(error: Exception, origin: str) -> str:
    """Return the error's text, with what to do about it if the name server, the account or the topic is wrong."""
    from rocket_client import NameServersUnreachableError, TopicNotFoundError
    from rocket_remoting import ResponseError
    from rocket_remoting.wire.codes import ResponseCode

    if isinstance(error, NameServersUnreachableError):
        return f"{error}. The address is from {origin}: start the server, or give another one with --name-server."
    if isinstance(error, ResponseError) and error.code == ResponseCode.NO_PERMISSION:
        return f"{error}. Give the keys of an account that may: --access-key and --secret-key, or --tools-file."
    if isinstance(error, TopicNotFoundError):
        return f"{error}. `streamkit topic list` shows all topics."
    return str(error)


def _credentials(access_key: str | None, secret_key: str | None, tools_file: Path | None) -> "Credentials | None":
    given = _pair("--access-key and --secret-key", access_key, secret_key)
    if given is None and tools_file is None:
        variables = os.environ.get("ROCKETMQ_ACCESS_KEY"), os.environ.get("ROCKETMQ_SECRET_KEY")
        given = _pair("ROCKETMQ_ACCESS_KEY and ROCKETMQ_SECRET_KEY", *variables)
    if given is not None:
        return given
    if tools_file is not None:
        return _from_file(tools_file)
    home = os.environ.get("ROCKETMQ_HOME")
    usual = Path(home) / "conf" / "tools.yml" if home else None
    return _from_file(usual) if usual is not None and usual.exists() else None


def _pair(where: str, access_key: str | None, secret_key: str | None) -> "Credentials | None":
    if not access_key and not secret_key:
        return None
    if not access_key or not secret_key:
        raise click.UsageError(f"{where} belong together: set both, or none")
    from rocket_client import Credentials

    return Credentials(access_key, secret_key)


def _from_file(path: Path) -> "Credentials":
    import yaml

    from streamkit.yaml_bounds import YamlTooLargeError, check_bounds

    try:
        with path.open("rb") as file:
            text = file.read(MAX_TOOLS_FILE + 1)
        if len(text) > MAX_TOOLS_FILE:
            raise click.ClickException(f"{path} has more than {MAX_TOOLS_FILE} bytes: expected accessKey and secretKey")
        # Texts as they are written: Java turns the number 12345678 into the same text.
        check_bounds(text, yaml.BaseLoader)
        keys = yaml.load(text, Loader=yaml.BaseLoader)
    except OSError as error:
        raise click.ClickException(f"{path} cannot be read: {error.strerror}") from error
    except YamlTooLargeError as error:
        raise click.ClickException(f"{path}:{error.line}: {error}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        # The error's own text may show a line of the file, which has a secret.
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        raise click.ClickException(f"{path}{line} is not YAML: expected accessKey and secretKey") from None
    values = keys if isinstance(keys, dict) else {}
    access_key, secret_key = values.get("accessKey"), values.get("secretKey")
    if not (isinstance(access_key, str) and isinstance(secret_key, str) and access_key and secret_key):
        raise click.ClickException(f"{path} must have accessKey and secretKey, a text each")
    from rocket_client import Credentials

    return Credentials(access_key, secret_key)
