"""The console on a port, for as long as the command runs."""

import logging
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rocket_admin.application_bindings import ApplicationBinding
from rocket_admin.avro_schemas import AvroSchemas, SchemaError
from rocket_client import Admin
from rocket_console.access.audit_log import AuditLog
from rocket_console.access.passwords import Passwords
from rocket_console.access.roles import Role
from rocket_console.access.sessions import Sessions
from rocket_console.jobs.replay_jobs import ReplayJobs
from rocket_console.live.cluster_watch import ClusterWatch
from rocket_console.pages.section import Section
from rocket_console.pages.sections import sections_of
from rocket_console.server.application import ConsoleApplication
from streamkit.binder.exploring import Explorer
from streamkit.management.connection import ConnectionLimits
from streamkit.management.http_server import HttpServer, host_and_port, is_loopback, listen

__all__ = ["ConsoleError", "ConsoleServer", "ConsoleSettings"]

logger = logging.getLogger(__name__)

_EVERY_ADDRESS = ("0.0.0.0", "::", "")


class ConsoleError(Exception):
    """The console cannot be started so; the text says why, and what to do."""


@dataclass(frozen=True, kw_only=True)
class ConsoleSettings:
    """How a console is served.

    Attributes:
        address: The address that it listens at.
        port: The port; 0 takes a free one.
        allowed_hosts: The names that it is reached by, besides those of this machine.
        operator_password: The password of operators; None if nobody logs in as one.
        viewer_password: That of viewers.
        is_read_only: Whether nobody may change anything.
        audit_log: The file of the audit log.
        bindings: The bindings of the application in the current directory, for the picture of the cluster.
        explorers: What looks at the Kafka clusters of this application, by the names of their binders. The console
            closes them when it stops.
        has_rocketmq: Whether there are pages about the RocketMQ cluster.
        schemas: The schemas of bodies that are Avro: a file `.avsc`, or a directory of them; None if there are none.
        more_sections: Sections besides those that every console has, at the end of the navigation.
        answer_within: Seconds in which a server of the cluster has to answer; a page takes at most twice as long.
    """

    address: str = "127.0.0.1"
    port: int = 0
    allowed_hosts: tuple[str, ...] = ()
    operator_password: str | None = None
    viewer_password: str | None = None
    is_read_only: bool = False
    audit_log: Path
    bindings: tuple[ApplicationBinding, ...] = ()
    explorers: Mapping[str, Explorer] = field(default_factory=dict)
    has_rocketmq: bool = True
    schemas: Path | None = None
    more_sections: tuple[Section, ...] = ()
    answer_within: float = 3.0

    @property
    def page_seconds(self) -> float:
        """The time limit of a page: some ask the cluster several times in turn."""
        return 2 * self.answer_within


class ConsoleServer:
    """Serves the console of the cluster that an admin administers.

    Attributes:
        url: The address of the console, once started; empty before.
    """

    def __init__(self, admin: Admin, settings: ConsoleSettings) -> None:
        """Create the console; :meth:`start` serves it.

        Args:
            admin: A running admin.
            settings: The address, the passwords and the like.

        Raises:
            ConsoleError: The passwords contradict each other.
        """
        self.url = ""
        self._admin = admin
        self._settings = settings
        self._watch = ClusterWatch(admin)
        # Beside the audit log, so that a replay goes on after its account when the console is started again.
        self._replays = ReplayJobs(admin, settings.audit_log.parent / "replays")
        self._server: HttpServer | None = None
        self._audit_log: AuditLog | None = None
        operator = None if settings.is_read_only else settings.operator_password
        try:
            self._passwords = Passwords(operator=operator, viewer=settings.viewer_password)
        except ValueError as error:
            raise ConsoleError(str(error)) from None
        if settings.is_read_only and settings.operator_password and not settings.viewer_password:
            raise ConsoleError("nobody could log in: a read-only console needs the password of viewers")

    async def start(self) -> None:
        """Start to serve on the running loop.

        Raises:
            ConsoleError: The address cannot be bound, other machines could use the console without a login, a schema
                cannot be read, or the audit log cannot be written.
        """
        settings = self._settings
        try:
            schemas = AvroSchemas.none() if settings.schemas is None else AvroSchemas.read(settings.schemas)
        except SchemaError as error:
            raise ConsoleError(str(error)) from error
        try:
            audit_log = AuditLog(settings.audit_log)
        except OSError as error:
            raise ConsoleError(
                f"the audit log {settings.audit_log} cannot be written: {error.strerror}; give another file with "
                "--audit-log"
            ) from error
        listener = self._listen()
        port = listener.getsockname()[1]
        role = Role.VIEWER if settings.is_read_only else Role.OPERATOR
        own = [settings.address] if settings.address not in _EVERY_ADDRESS else []
        application = ConsoleApplication(
            (
                *sections_of(has_rocketmq=settings.has_rocketmq, has_kafka=bool(settings.explorers)),
                *settings.more_sections,
            ),
            admin=self._admin,
            watch=self._watch,
            replays=self._replays,
            sessions=Sessions(self._passwords, port=port, role_without_password=role),
            audit_log=audit_log,
            allowed_hosts=[*settings.allowed_hosts, *own],
            seconds=settings.page_seconds,
            bindings=settings.bindings,
            explorers=settings.explorers,
            schemas=schemas,
            systems=self.systems,
        )
        self._audit_log = audit_log
        self._server = HttpServer(application.asgi, ConnectionLimits(), "console")
        self._server.start(listener)
        self.url = f"http://{host_and_port(listener)}/"
        if not is_loopback(listener):
            logger.warning(
                "The console at %s can be reached from other machines, and HTTP sends passwords and pages unencrypted: "
                "put a proxy with TLS in front of it",
                self.url,
            )

    async def stop(self) -> None:
        """Finish the responses to complete requests within a second, close all connections, and end replays."""
        if self._server is not None:
            await self._server.stop()
        await self._replays.stop()
        await self._watch.stop()
        for explorer in self._settings.explorers.values():
            await explorer.close()
        if self._audit_log is not None:
            self._audit_log.close()

    @property
    def systems(self) -> str:
        """The addresses of the servers that the console asks, for people."""
        others = (explorer.address for explorer in self._settings.explorers.values())
        own = (self._admin.settings.name_servers_text,) if self._settings.has_rocketmq else ()
        return "; ".join((*own, *others))

    def _listen(self) -> socket.socket:
        address, port = self._settings.address, self._settings.port
        try:
            listener = listen(address, port)
        except OSError as error:
            raise ConsoleError(
                f"the console cannot listen on {address}:{port}: {error.strerror or error}; give another port with "
                "--port, or --port 0 for any free one"
            ) from error
        if not is_loopback(listener) and not self._passwords.is_needed:
            listener.close()
            raise ConsoleError(
                f"other machines could use the console on {address} without a login: set the environment variable "
                "STREAMKIT_CONSOLE_OPERATOR_PASSWORD, and STREAMKIT_CONSOLE_VIEWER_PASSWORD for those who only look"
            )
        return listener
