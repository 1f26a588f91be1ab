"""The checks of `streamkit doctor` that are about the application in the current directory, and this process.

The settings are judged as by `streamkit config report`, without the application's code: settings of bindings count.
"""

import asyncio
import logging
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from rocket_admin.commands.application_settings import KEYS, addresses_at
from rocket_client import Admin, TopicNotFoundError
from rocket_remoting import RemotingError
from streamkit.config.environment import Environment
from streamkit.config.verdict import Verdict
from streamkit.errors import ConfigurationError
from streamkit.findings import Finding, Severity, listed

if TYPE_CHECKING:
    from rocket_client import ClientSettings
    from streamkit.binder.binding import Binding
    from streamkit.config.report import ReportedSetting
    from streamkit.config.settings import StreamSettings
    from streamkit.plugins.application_plugins import ApplicationPlugins

__all__ = ["Application", "check_bindings", "check_process", "read_application"]

OPEN_FILES: Final = 1024
"""File descriptors that a process should have: each connection needs one, and each file of an embedded broker."""

HTTP_SECONDS: Final = 1.0
"""How long the program that has the management port may take to answer."""
MAX_HEALTH: Final = 64 * 1024
"""Bytes that are read of its answer."""

PREFIX: Final = "spring.cloud.stream"
_BINDER: Final = f"{PREFIX}.rocketmq.binder"
_OF_APPLICATIONS: Final = (PREFIX, "spring.cloud.function", "rocketmq")
_SEVERITIES: Final = {
    Verdict.WRONG: Severity.ERROR,
    Verdict.NAMES_NOTHING: Severity.WARNING,
    Verdict.ANOTHER_BINDER: Severity.WARNING,
    Verdict.NO_EFFECT: Severity.WARNING,
}


class BoundTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic of a binding that uses RocketMQ.

    Attributes:
        binding: The binding.
        topic: The topic.
        name_servers: The addresses in the settings of its binder; None if they are not set.
        provisioning: What the binder does about a missing topic, as its setting says it; None if it does not.
        has_namespace: Whether the settings put the topic into a namespace, so that brokers know it by another name.
    """

    binding: str
    topic: str
    name_servers: str | None
    provisioning: str | None
    has_namespace: bool


class Application(msgspec.Struct, frozen=True, kw_only=True):
    """The application in the current directory.

    Attributes:
        findings: What was found in its settings, and at its management port.
        topics: The topics that its bindings of RocketMQ name.
        bindings: The bindings that its settings name, made but not bound; empty if a setting is wrong.
    """

    findings: tuple[Finding, ...]
    topics: tuple[BoundTopic, ...]
    bindings: "tuple[Binding, ...]" = ()

    @property
    def needs_rocketmq(self) -> bool:
        """Whether a binding uses RocketMQ, or none is named, so that the code may have some that do."""
        return bool(self.topics) or not self.bindings

    async def examine(self, *, watch: float, answer_within: float) -> list[Finding]:
        """Return what the binders of the application find.

        Args:
            watch: Seconds between the two measurements that show whether lag grows; 0 measures once.
            answer_within: Seconds that a server may take to answer.
        """
        from streamkit.binder.examination import examine_bindings

        return await examine_bindings(self.bindings, watch=watch, answer_within=answer_within)


def read_application() -> Application | None:
    """Judge the settings in the current directory; return None if there are no settings of an application."""
    # The findings have what the framework and the clients of binders would log.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        if not any(Environment.load().sets_below(prefix) for prefix in _OF_APPLICATIONS):
            return None
        # Settings name exception classes of the application, which is imported from here.
        sys.path.insert(0, ".")
        try:
            return _judge()
        finally:
            sys.path.remove(".")
    except ConfigurationError as error:
        text = f"the settings in this directory cannot be read: {error}"
        finding = Finding(severity=Severity.ERROR, check="application settings", found=text)
        return Application(findings=(finding,), topics=())


def _judge() -> Application:
    # These are slow to import, and needed only where there is an application.
    from streamkit.config.report import report_settings
    from streamkit.plugins.application_plugins import ApplicationPlugins
    from streamkit.running.rehearsal import rehearse_settings

    plugins = ApplicationPlugins()
    environment = Environment.load(more_sources=plugins.settings_sources)
    start = rehearse_settings(environment, plugins)
    findings = _judged(report_settings(environment, start.problems))
    if start.problems:
        return Application(findings=tuple(findings), topics=())
    topics = tuple(_topics(environment, plugins, start.type_of))
    return Application(findings=(*findings, *_management(environment)), topics=topics, bindings=tuple(start.bindings))


def _judged(rows: "Sequence[ReportedSetting]") -> list[Finding]:
    findings = [
        Finding(
            severity=_SEVERITIES[row.verdict],
            check="application settings",
            about=(row.key,),
            found=f"{row.origin}: {row.key or 'a setting'}: {row.verdict.value}: {row.reason}",
            mend=f"write {row.suggestion}" if row.suggestion else "streamkit config report",
        )
        for row in rows
        if row.verdict in _SEVERITIES
    ]
    if not findings:
        honoured = sum(row.verdict is Verdict.HONOURED for row in rows)
        text = f"{honoured} setting(s) of the application in this directory have their effect, none is wrong"
        findings.append(Finding(severity=Severity.OK, check="application settings", found=text))
    return findings


def _topics(
    environment: Environment, plugins: "ApplicationPlugins", type_of: Callable[[str], str | None]
) -> Iterator[BoundTopic]:
    """Yield the topics of the bindings that the settings name and that use RocketMQ."""
    from streamkit.config.settings import StreamSettings

    stream = StreamSettings.explain(environment, plugins.binder_types().names).value
    for name, binding in stream.bindings.items():
        if type_of(name) != "rocketmq":
            continue
        seen = _seen_by_binder(environment, stream, binding.binder)
        is_embedded = seen.text(f"{_BINDER}.embedded") == "always"
        addresses = None if is_embedded else next(filter(None, (addresses_at(seen, key) for key in KEYS)), None)
        own = f"{PREFIX}.rocketmq.bindings.{name}"
        namespaces = (f"{_BINDER}.namespace", f"{own}.consumer.namespace", f"{own}.producer.namespace")
        for topic in (binding.destination or name).split(","):
            yield BoundTopic(
                binding=name,
                topic=topic.strip(),
                name_servers=None if addresses is None else str(addresses),
                provisioning=seen.text(f"{_BINDER}.provisioning"),
                has_namespace=any(seen.text(key) for key in namespaces),
            )


def _seen_by_binder(environment: Environment, stream: "StreamSettings", binder: str | None) -> Environment:
    """Return the settings that the binder of a binding sees."""
    candidates = [name for name, each in stream.binders.items() if each.default_candidate]
    name = binder or stream.default_binder or next(iter(candidates), None)
    configuration = None if name is None else stream.binders.get(name)
    if configuration is None:
        return environment
    return environment.below(f"{PREFIX}.binders[{name}].environment", inherit=configuration.inherit_environment)


def _management(environment: Environment) -> list[Finding]:
    """Return whether the port of the management endpoints is free, or who has it."""
    from streamkit.config.application_properties import MANAGEMENT_SERVER

    if not environment.sets_below(MANAGEMENT_SERVER):
        return []
    from streamkit.config.management_properties import ManagementServerProperties

    properties = environment.bind(MANAGEMENT_SERVER, ManagementServerProperties)
    port, address = properties.port, properties.address
    if port is None or port <= 0:
        return []
    place = f"{address}:{port}, where the application serves its management endpoints,"
    try:
        with socket.create_server((address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET):
            return [Finding(severity=Severity.OK, check="management port", found=f"{place} is free")]
    except OSError as error:
        if _serves_endpoints(address, port, properties.base_path):
            text = f"{place} answers: the application runs"
            return [Finding(severity=Severity.OK, check="management port", found=text)]
        return [
            Finding(
                severity=Severity.WARNING,
                check="management port",
                about=(str(port),),
                found=f"{place} cannot be listened on: {error.strerror or error}",
                mend="end the program that has the port, or set management.server.port to another one; 0 takes a free "
                "one",
            )
        ]


def _serves_endpoints(address: str, port: int, base_path: str) -> bool:
    """Return whether management endpoints answer there, be it that they ask for a login."""
    from http.client import HTTPConnection, HTTPException

    connection = HTTPConnection(address, port, timeout=HTTP_SECONDS)
    try:
        connection.request("GET", f"{base_path}/actuator/health")
        answer = connection.getresponse()
        return answer.status == HTTPStatus.UNAUTHORIZED or b'"status"' in answer.read(MAX_HEALTH)
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


async def check_bindings(application: Application, settings: "ClientSettings") -> list[Finding]:
    """Return whether the name servers of the bindings answer, and their topics exist.

    Args:
        application: The application.
        settings: The timeouts, keys and TLS settings with which its name servers are asked.
    """
    embedded = [bound.binding for bound in application.topics if bound.name_servers is None]
    findings: list[Finding] = []
    if embedded:
        text = f"no name server is set for {listed(set(embedded))}: an embedded broker may be started for them"
        findings.append(Finding(severity=Severity.UNKNOWN, check="bindings", about=tuple(embedded), found=text))
    by_servers: dict[str, list[BoundTopic]] = {}
    for bound in application.topics:
        if bound.name_servers is not None:
            by_servers.setdefault(bound.name_servers, []).append(bound)
    found = await asyncio.gather(
        *(_check_topics(replace(settings, name_servers=servers), topics) for servers, topics in by_servers.items())
    )
    return [*findings, *(finding for each in found for finding in each)]


async def _check_topics(settings: "ClientSettings", topics: Sequence[BoundTopic]) -> list[Finding]:
    async with Admin(settings) as admin:
        try:
            answers = await asyncio.gather(*(_check_topic(admin, bound) for bound in topics))
        except RemotingError as error:
            names = tuple(dict.fromkeys(bound.binding for bound in topics))
            return [
                Finding(
                    severity=Severity.ERROR,
                    check="bindings",
                    about=names,
                    found=f"the topics of {listed(names)} cannot be looked up: {error}",
                    mend=f"start the name server, or correct {KEYS[0]}",
                )
            ]
    findings = [finding for finding in answers if finding is not None]
    if not findings:
        text = f"the topics of all bindings exist: {listed({bound.topic for bound in topics})}"
        findings.append(Finding(severity=Severity.OK, check="bindings", found=text))
    return findings


async def _check_topic(admin: Admin, bound: BoundTopic) -> Finding | None:
    if bound.has_namespace:
        text = f"binding {bound.binding} has a namespace: whether its topic {bound.topic} exists was not looked up"
        return Finding(severity=Severity.UNKNOWN, check="bindings", about=(bound.binding,), found=text)
    try:
        await admin.topic_route(bound.topic)
    except TopicNotFoundError:
        if bound.provisioning == "create":
            return None
        refuses = bound.provisioning == "verify"
        what = "the application does not start" if refuses else "messages may have nowhere to go"
        return Finding(
            severity=Severity.ERROR if refuses else Severity.WARNING,
            check="bindings",
            about=(bound.binding, bound.topic),
            found=f"topic {bound.topic} of binding {bound.binding} does not exist: {what}",
            mend=f"streamkit topic create {bound.topic}",
        )
    return None


def check_process() -> Finding:
    """Return whether this process, and so one that is started in its place, may open enough files."""
    try:
        import resource
    except ImportError:  # Windows
        return Finding(severity=Severity.UNKNOWN, check="open files", found="this system does not tell its limit")
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY or limit >= OPEN_FILES:
        shown = "any number of" if limit == resource.RLIM_INFINITY else f"{limit:,}"
        return Finding(severity=Severity.OK, check="open files", found=f"a process started here may open {shown} files")
    return Finding(
        severity=Severity.WARNING,
        check="open files",
        found=f"a process started here may open {limit:,} files only, and each connection is one",
        mend="ulimit -n 65536, or LimitNOFILE=65536 in the service's unit",
    )
