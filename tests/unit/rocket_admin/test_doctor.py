"""`streamkit doctor` on the bundled broker, with each fault made for real."""

import asyncio
import json
import resource
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Self

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from rocket_admin.commands import broker as broker_commands
from rocket_admin.commands.dlq import dlq
from rocket_admin.commands.doctor import doctor
from rocket_admin.commands.group import group
from rocket_admin.commands.topic import topic
from rocket_admin.doctor.brokers import BrokerView, check_clocks, check_disks, check_versions, clock_skew
from rocket_admin.doctor.examination import examine
from rocket_admin.doctor.groups import GroupSample, growing, sample
from rocket_admin.doctor.slaves import check_slaves
from rocket_admin.doctor.transactions import check_transactions
from rocket_broker.embedded import EmbeddedBroker
from rocket_broker.threaded_broker import ThreadedBroker
from rocket_client import (
    Admin,
    ClientSettings,
    ConsumeContext,
    ConsumeFromWhere,
    Producer,
    ProducerSettings,
    PushConsumer,
    PushConsumerSettings,
)
from rocket_remoting import Message, MessageExt
from rocket_remoting.clock import SystemClock
from streamkit.findings import Finding, Severity
from tests.ports import free_ports
from tests.unit.rocket_admin.cluster import commit, send
from tests.unit.rocket_admin.terminal import Terminal
from tests.unit.rocket_admin.test_broker_commands import register

NUMBERS = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[ThreadedBroker]:
    """A broker that is content with the disk of any machine that runs the tests."""
    with ThreadedBroker(settings={"diskMaxUsedSpaceRatio": "95"}) as broker:
        yield broker


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, which has no application."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def kitchen(terminal: Terminal) -> Iterator[tuple[str, str]]:
    """A topic with one queue, and a group."""
    number = next(NUMBERS)
    orders, kitchen = f"orders-{number}", f"kitchen-{number}"
    terminal.lines(topic, "create", orders, "--queues", "1")
    terminal.lines(group, "create", kitchen)
    yield orders, kitchen

    async def delete() -> None:
        async with Admin(ClientSettings(name_servers=terminal.name_server)) as admin:
            await admin.delete_group(kitchen)

    asyncio.run(delete())


def diagnosis(terminal: Terminal, *options: str) -> tuple[int, list[dict[str, Any]]]:
    """Return the exit status, and the findings that are neither ok nor about what is unknown."""
    done = terminal.run(doctor, "--for", "0", "--json", *options)
    findings = [json.loads(line) for line in done.stdout.splitlines()]
    assert findings, done.output
    return done.exit_code, [each for each in findings if each["severity"] in ("warning", "error")]


def test_healthy_cluster_has_findings_that_say_what_was_looked_at(terminal: Terminal) -> None:
    """The exit status is 0, in a table, too, which fits into the terminal."""
    findings = terminal.json(doctor, "--for", "0")
    assert {each["severity"] for each in findings} == {"ok"}
    checks = {each["check"] for each in findings}
    assert checks >= {"name servers", "brokers", "versions", "clocks", "transactions", "permissions"}
    for columns in (80, 200):
        lines = terminal.lines(doctor, "--for", "0", columns=columns)
        assert max(map(len, lines)) <= columns
        assert lines[-1].startswith("0 error, 0 warning, 0 unknown, ")


def test_servers_that_are_away_are_errors(terminal: Terminal) -> None:
    """The name servers that answer are asked all the rest; without any, that is the only finding."""
    with register(terminal.name_server, "broker-b", "127.0.0.1:1"):
        status, (server, broker) = diagnosis(terminal, "-n", f"{terminal.name_server};127.0.0.1:1")
    assert (status, server["about"], broker["about"]) == (2, ["127.0.0.1:1"], ["broker-b"])
    assert "broker broker-b (id 0) cannot be reached from here at 127.0.0.1:1, which it advertises" in broker["found"]
    assert "set brokerIP1" in broker["mend"]
    status, (server,) = diagnosis(terminal, "-n", "127.0.0.1:1")
    assert (status, server["check"]) == (2, "name servers")


def test_address_of_another_broker_is_an_error(terminal: Terminal) -> None:
    """Such as one on loopback, which is another broker on each machine."""
    with ThreadedBroker() as other, register(terminal.name_server, "broker-b", other.address):
        status, (found,) = diagnosis(terminal)
    assert (status, found["about"]) == (2, ["broker-b"])
    assert found["found"].startswith(f"at {other.address}, which broker broker-b (id 0) advertises, broker broker-a ")


def test_name_servers_that_know_different_brokers_are_warned_of(terminal: Terminal) -> None:
    """By the names of the brokers."""
    with ThreadedBroker() as other:
        status, (found,) = diagnosis(terminal, "-n", f"{terminal.name_server};{other.name_server}")
    assert (status, found["check"], found["about"]) == (1, "name servers", ["broker-a"])
    assert f"namesrvAddr={terminal.name_server};{other.name_server}" in found["mend"]


def test_permission_that_was_taken_away_is_given_back_by_the_command_that_is_named(
    terminal: Terminal, kitchen: tuple[str, str]
) -> None:
    """From a broker at the name server or by its setting, from a topic, from a group."""
    orders, name = kitchen
    terminal.lines(broker_commands.wipe_perm, "broker-a", "--yes")
    status, (wiped,) = diagnosis(terminal)
    assert (status, wiped["mend"]) == (1, "streamkit broker add-perm broker-a")
    terminal.lines(broker_commands.add_perm, "broker-a")

    terminal.lines(topic, "update", orders, "--permission", "r")
    terminal.lines(group, "update", name, "--no-consume")
    _, found = diagnosis(terminal)
    assert [(each["found"], each["mend"]) for each in found] == [
        (
            f"on broker broker-a, {orders} cannot be written to",
            f"streamkit topic update {orders} --permission rw --broker broker-a",
        ),
        (f"broker broker-a gives no messages to {name}", f"streamkit group update {name} --consume --broker broker-a"),
    ]
    terminal.lines(topic, *found[0]["mend"].split()[2:])
    terminal.lines(group, *found[1]["mend"].split()[2:])
    assert diagnosis(terminal) == (0, [])


def test_setting_that_forbids_to_read_is_warned_of(terminal: Terminal) -> None:
    """The command that mends it is named."""
    terminal.lines(broker_commands.config, "broker-a", "--set", "brokerPermission=2", "--yes")
    _, (found,) = diagnosis(terminal)
    assert found["found"] == "broker broker-a cannot be read (its setting brokerPermission)"
    terminal.lines(broker_commands.config, *found["mend"].split()[3:], "--yes")
    assert diagnosis(terminal) == (0, [])


def test_lag_that_nobody_consumes_is_warned_of(terminal: Terminal, kitchen: tuple[str, str]) -> None:
    """Of a group that has committed nothing it is not known."""
    orders, name = kitchen
    asyncio.run(send(terminal.name_server, orders, 3))
    findings = terminal.json(doctor, "--for", "0")
    (unknown,) = [each for each in findings if each["severity"] == "unknown"]
    assert unknown["about"] == [name]
    asyncio.run(commit(terminal.name_server, orders, name, 1))
    status, (found,) = diagnosis(terminal)
    assert (status, found["found"]) == (1, f"group {name} has no members, and 2 message(s) to consume")


def test_dead_letters_are_warned_of_until_they_are_dropped(terminal: Terminal, kitchen: tuple[str, str]) -> None:
    """By their group."""
    _, name = kitchen

    async def bury() -> None:
        settings = {"name_servers": terminal.name_server}
        async with Admin(ClientSettings(**settings)) as admin, Producer("p", ProducerSettings(**settings)) as producer:
            await admin.create_topic(f"%DLQ%{name}", 1)
            await producer.send(Message(f"%DLQ%{name}", b"order"))

    asyncio.run(bury())
    status, (found,) = diagnosis(terminal)
    assert (status, found["mend"]) == (1, f"streamkit dlq show {name}")
    assert found["found"].startswith(f"group {name} has 1 dead letter(s), the newest of ")
    terminal.lines(dlq, "drop", name, "--yes")
    assert diagnosis(terminal) == (0, [])


class Members:
    """Members of a group that hold each message until the end of the test."""

    def __init__(self, name_server: str) -> None:
        self._settings = PushConsumerSettings(
            name_servers=name_server, consume_from_where=ConsumeFromWhere.FIRST_OFFSET
        )
        self._ended = asyncio.Event()
        self._stack = AsyncExitStack()

    async def add(self, group: str, topic: str, expression: str = "*") -> None:
        """Start another member."""
        consumer = PushConsumer(group, self._settings)
        consumer.subscribe(topic, expression)
        consumer.listen_concurrently(self._hold)
        await self._stack.enter_async_context(consumer)

    async def _hold(self, messages: list[MessageExt], context: ConsumeContext) -> None:
        await self._ended.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ended.set()
        await self._stack.aclose()


async def connected(admin: Admin, broker: ThreadedBroker, group: str, members: int) -> dict[str, GroupSample]:
    """Return a sample of the group once it has so many members."""
    masters = [BrokerView(name="broker-a", broker_id=0, address=broker.address)]
    while len((found := await sample(admin, masters, [group]))[group].members) < members:
        pass
    return found


def test_lag_that_grows_is_warned_of(broker: ThreadedBroker, kitchen: tuple[str, str]) -> None:
    """Between two samples, of a group with members."""
    orders, name = kitchen

    async def watched() -> list[Finding]:
        server = broker.name_server
        async with Admin(ClientSettings(name_servers=server)) as admin, Members(server) as members:
            await send(server, orders, 2)
            await commit(server, orders, name, 0)
            await members.add(name, orders)
            before = await connected(admin, broker, name, 1)
            assert growing(before, before, 1.0) == []
            await send(server, orders, 3)
            return growing(before, await connected(admin, broker, name, 1), 1.0)

    (found,) = asyncio.run(watched())
    assert (found.severity, found.found) == (Severity.WARNING, f"the lag of group {name} grew from 2 to 5 in 1 s")
    assert str(found.mend).endswith(f"streamkit group members {name}")


def test_members_that_subscribe_to_different_things_are_an_error(
    broker: ThreadedBroker, kitchen: tuple[str, str]
) -> None:
    """Tags in another order are the same."""
    orders, name = kitchen

    async def watched() -> list[list[Finding]]:
        server = broker.name_server
        async with Admin(ClientSettings(name_servers=server)) as admin, Members(server) as members:
            found: list[list[Finding]] = []
            for number, expression in enumerate(("a || b", "b||a", "c"), 1):
                await members.add(name, orders, expression)
                await connected(admin, broker, name, number)
                found.append([each for each in await examine(admin, seconds=0) if each.check == "subscriptions"])
            return found

    alone, same, different = asyncio.run(watched())
    assert (alone, [each.severity for each in same]) == ([], [Severity.OK])
    (error,) = different
    assert (error.severity, error.about) == (Severity.ERROR, (name,))
    assert f"{orders} a || b" in error.found
    assert f"{orders} c" in error.found


class SteppedClock:
    """The system's clock, until it is set to another time."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        """Return milliseconds since 1970."""
        return SystemClock().now_ms() + self.ahead_ms


@pytest.mark.anyio
@pytest.mark.parametrize(("ahead_ms", "says"), [(3_600_000, "ahead of"), (-3_600_000, "behind")])
async def test_clock_of_a_broker_that_differs_is_warned_of(ahead_ms: int, says: str) -> None:
    """Though it was right when the broker was started: its run time counts."""
    clock = SteppedClock()
    # It was started three hours ago, so that the time that it is set back to is after its start.
    clock.ahead_ms = -3 * 3_600_000
    async with EmbeddedBroker(clock=clock) as broker:
        clock.ahead_ms = ahead_ms
        async with Admin(ClientSettings(name_servers=broker.name_server_address)) as admin:
            (found,) = [each for each in await examine(admin, seconds=0) if each.check == "clocks"]
    assert found.severity is Severity.WARNING
    assert f"seconds {says} that of this machine" in found.found


def view(**info: str) -> BrokerView:
    """Return a broker that reports figures."""
    return BrokerView(name="broker-a", broker_id=0, address="10.0.0.5:10911", settings={}, info=info)


def test_run_time_is_read_as_java_writes_it() -> None:
    """With a separator of thousands; a broker that does not report it is unknown, not right."""
    running = view(bootTimestamp="1000", runtime="[ 1,000 days, 2 hours, 3 minutes, 4 seconds ]")
    time = 1000 + ((1000 * 24 + 2) * 60 + 3) * 60_000 + 4000
    assert clock_skew(running) == (time, time + 1000)
    assert [each.severity for each in check_clocks([view()])] == [Severity.UNKNOWN]


@pytest.mark.parametrize(
    ("versions", "says"),
    [
        (("V4_9_7", "V4_9_7"), []),
        (("V4_9_7", "V5_3_3"), ["the brokers have different versions: 4.9.7: broker-a; 5.3.3: broker-a"]),
        (("V4_9_5",), ["broker-a: version 4.9.5 lets anyone"]),
        (("V5_1_0",), ["broker-a: version 5.1.0 lets anyone"]),
        (("V5_1_1",), []),
    ],
)
def test_versions_that_differ_or_have_a_known_hole_are_warned_of(versions: tuple[str, ...], says: list[str]) -> None:
    """Each with the brokers' names."""
    findings = check_versions([view(brokerVersionDesc=version) for version in versions])
    found = [each.found for each in findings if each.severity is Severity.WARNING]
    assert [text[: len(start)] for text, start in zip(found, says, strict=True)] == says


@pytest.mark.parametrize(
    ("share", "severity", "says"),
    [
        ("0.74", "ok", "74%"),
        ("0.75", "warning", "above 85 % it will delete messages before fileReservedTime"),
        ("0.86", "warning", "above 85 % it deletes messages before fileReservedTime"),
        ("0.9", "error", "above 90 % it refuses messages"),
        ("-1.0", "unknown", "is not known"),
    ],
)
def test_disk_is_judged_by_what_brokers_do_when_it_fills(share: str, severity: str, says: str) -> None:
    """Apache's say -1 where they do not know."""
    (found,) = check_disks([view(commitLogDiskRatio=share)])
    assert found.severity == severity
    assert says in found.found


@pytest.mark.parametrize(
    ("role", "has_slave", "ends", "found"),
    [
        ("ASYNC_MASTER", False, ("100", ""), []),
        ("SYNC_MASTER", False, ("100", ""), ["error: broker broker-a is a SYNC_MASTER and has no slave"]),
        ("SYNC_MASTER", True, ("100", "90"), ["ok: the slave that is farthest behind lacks 10 bytes"]),
        ("SYNC_MASTER", True, ("2000", "90"), ["error: slave broker-a (id 1) lacks 1,910 bytes of its master's log"]),
        ("ASYNC_MASTER", True, ("2000", "90"), ["warning: slave broker-a (id 1) lacks 1,910 bytes"]),
        ("ASYNC_MASTER", True, ("2000", ""), []),
    ],
)
def test_slaves_are_compared_with_their_master(
    role: str, has_slave: bool, ends: tuple[str, str], found: list[str]
) -> None:
    """By the ends of both logs."""
    settings = {"brokerRole": role, "haSlaveFallbehindMax": "1000"}
    master = replace(view(commitLogMaxOffset=ends[0]), settings=settings, has_slaves=has_slave)
    slave = replace(view(commitLogMaxOffset=ends[1]), broker_id=1)
    findings = check_slaves([master, slave] if has_slave else [master])
    told = [f"{finding.severity}: {finding.found}" for finding in findings]
    assert [text[: len(start)] for text, start in zip(told, found, strict=True)] == found


@pytest.mark.parametrize(
    ("pending", "refused", "found"),
    [
        (None, None, []),
        (39_999, "", ["ok: the broker with most open transactions has 39,999"]),
        (40_000, "", ["warning: 40,000 transactions are open at broker broker-a, a group or address that has 50,000"]),
        (
            50_001,
            "group a",
            ["error: 50,001 transactions are open at broker broker-a, 50,000 of each of these, whose "],
        ),
        (
            200_000,
            "",
            ["error: 200,000 transactions are open at broker broker-a, which is the limit: further ones are"],
        ),
    ],
)
def test_open_transactions_are_compared_with_their_limits(
    pending: int | None, refused: str | None, found: list[str]
) -> None:
    """Apache's brokers have no such limits."""
    figures = {"transactionsPendingMax": "200000", "transactionsOfOneOwnerMax": "50000"}
    figures |= {} if pending is None else {"transactionsPending": str(pending), "transactionsRefusedTo": str(refused)}
    findings = check_transactions([view(**figures)])
    told = [f"{finding.severity}: {finding.found}" for finding in findings]
    assert [text[: len(start)] for text, start in zip(told, found, strict=True)] == found
    assert all(str(each.mend).startswith("start the producers") for each in findings if each.severity != "ok")


def write_settings(directory: Path, name_server: str, *more: str) -> None:
    """Write the settings of an application with one output."""
    lines = (
        f"spring.cloud.stream.rocketmq.binder.name-server={name_server}",
        "spring.cloud.stream.bindings.bills-out-0.destination=bills",
        *more,
    )
    (directory / "application.properties").write_text("\n".join(lines))


def test_topic_of_a_binding_that_does_not_exist_is_warned_of(terminal: Terminal, directory: Path) -> None:
    """It is an error if the settings say that topics must exist; a wrong setting is one, too."""
    write_settings(directory, terminal.name_server)
    status, (found,) = diagnosis(terminal)
    assert (status, found["about"], found["mend"]) == (1, ["bills-out-0", "bills"], "streamkit topic create bills")
    write_settings(directory, terminal.name_server, "spring.cloud.stream.rocketmq.binder.provisioning=verify")
    assert diagnosis(terminal)[0] == 2
    terminal.lines(topic, *found["mend"].split()[2:])
    assert diagnosis(terminal) == (0, [])
    write_settings(
        directory, terminal.name_server, "spring.cloud.stream.bindings.bills-out-0.producer.partition-cont=2"
    )
    status, (found,) = diagnosis(terminal)
    assert (status, found["severity"]) == (2, "error")
    assert "partition-count" in found["mend"]


def test_name_server_of_the_application_that_is_away_is_an_error(terminal: Terminal, directory: Path) -> None:
    """Though another one was named for the cluster."""
    write_settings(directory, "127.0.0.1:1")
    status, (found,) = diagnosis(terminal)
    assert (status, found["check"], found["about"]) == (2, "bindings", ["bills-out-0"])


def test_cluster_is_not_looked_for_if_no_binding_uses_rocketmq(
    directory: Path, monkeypatch: pytest.MonkeyPatch, terminal: Terminal
) -> None:
    """Unless one is named; the bindings of other binders are examined all the same."""
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    lines = ("default-binder=kafka", "kafka.binder.brokers=127.0.0.1:1", "bindings.bills-out-0.destination=bills")
    text = "\n".join(f"spring.cloud.stream.{line}" for line in lines)
    (directory / "application.properties").write_text(text)
    done = CliRunner().invoke(doctor, ["--for", "0", "--json"])
    findings = [json.loads(line) for line in done.stdout.splitlines()]
    assert ("ok", "cluster") in {(each["severity"], each["check"]) for each in findings}
    (error,) = [each for each in findings if each["severity"] == "error"]
    assert (done.exit_code, error["check"], error["about"]) == (2, "brokers", ["127.0.0.1:1"])
    assert diagnosis(terminal) == (2, [error])


def test_management_port_that_is_taken_is_warned_of(
    terminal: Terminal, broker: ThreadedBroker, directory: Path
) -> None:
    """And one that is free is not."""
    created = "spring.cloud.stream.rocketmq.binder.provisioning=create"
    taken = broker.address.rpartition(":")[2]
    write_settings(directory, terminal.name_server, created, f"management.server.port={taken}")
    status, (found,) = diagnosis(terminal)
    assert (status, found["check"], found["about"]) == (1, "management port", [taken])
    write_settings(directory, terminal.name_server, created, f"management.server.port={free_ports()[0]}")
    assert diagnosis(terminal) == (0, [])


@contextmanager
def open_files(limit: int) -> Iterator[None]:
    """Limit the files that this process may open."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_small_limit_of_open_files_is_warned_of(terminal: Terminal) -> None:
    """With the command that raises it."""
    with open_files(1000):
        status, (found,) = diagnosis(terminal)
    assert (status, found["check"]) == (1, "open files")
    assert found["mend"].startswith("ulimit -n")


def test_settings_that_cannot_be_read_are_an_error(
    terminal_of: Callable[[str], Terminal], terminal: Terminal, directory: Path
) -> None:
    """The cluster is looked at all the same."""
    (directory / "application.yml").write_text("a: [")
    status, (found,) = diagnosis(terminal)
    assert (status, found["check"]) == (2, "application settings")
