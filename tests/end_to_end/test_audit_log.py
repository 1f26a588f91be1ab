"""The audit log of broker and name server: what it has of requests over the wire, and what it costs."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from rocket_broker.access.audit_log import MINUTE, MOST_REFUSED, RENEWAL_SECONDS
from rocket_broker.embedded import EmbeddedBroker
from rocket_broker.namesrv.kv_config import KVConfig
from rocket_broker.namesrv.processor import NameServerProcessor
from rocket_broker.namesrv.route_table import RouteTable
from rocket_broker.namesrv.server import NameServer
from rocket_broker.namesrv.settings import NameServerSettings
from rocket_broker.settings.properties_file import entries_of
from rocket_remoting import MemoryTransport
from rocket_remoting.tls.settings import ClientTls
from rocket_remoting.transports.tcp import TcpTransport
from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    CreateAccessConfigRequestHeader,
    DeleteTopicRequestHeader,
    PutKVConfigRequestHeader,
    QueryDataVersionRequestHeader,
)
from streamkit.testing.virtual_time import VirtualTime
from tests.certificates import authority
from tests.end_to_end.raw_client import RawClient, with_broker
from tests.end_to_end.test_broker_protocol_access_control import (
    ADMINISTRATOR,
    FORGER,
    NOBODY,
    SECRET,
    accounts_in,
    of_every_header,
)
from tests.unit.rocket_broker.test_tls_servers import server_keys

Line = dict[str, Any]


def lines(embedded: EmbeddedBroker, *, of_name_server: bool = False) -> list[Line]:
    """Return the lines of a server's log."""
    directory = embedded.store_path / "namesrv" if of_name_server else embedded.store_path
    path = directory / "audit" / "audit.log"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_each_administrative_request_is_one_line(tmp_path: Path) -> None:
    """From the dispatch tables: those that need an administrator, whenever and however they are answered."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        broker, fields = embedded.broker, of_every_header()
        name_server = await RawClient.connect(embedded.broker.transport, embedded.name_server_address)
        processor = NameServerProcessor(NameServerSettings(), RouteTable(lambda: 0.0), KVConfig(tmp_path / "kv.json"))
        for asked, table, of_name_server in (
            (client, broker.requests.table, False),
            (name_server, processor.table, True),
        ):
            asked.connection.sign_with(ADMINISTRATOR)
            for code, (_, needs) in table.items():
                before = len(lines(embedded, of_name_server=of_name_server))
                answer = await asked.ask(code, ext_fields=fields)
                found = lines(embedded, of_name_server=of_name_server)[before:]
                expected = [(Code(code).name, ResponseCode(answer.code).name)] if needs.admin else []
                assert [(line["request"], line["answer"]) for line in found] == expected
        await name_server.connection.close()

    with_broker(scene, **accounts_in(tmp_path))


def test_line_says_who_asked_for_what_from_where(tmp_path: Path) -> None:
    """And with which result; it has no secret."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        client.connection.sign_with(ADMINISTRATOR)
        await client.create_topic("orders")
        account = CreateAccessConfigRequestHeader(
            access_key="newcomer", secret_key="hush-hush", topic_perms="orders=PUB"
        )
        await client.ask_ok(Code.UPDATE_AND_CREATE_ACL_CONFIG, account)
        await client.ask(Code.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4\nmaxTopics=1\n")
        created, changed, settings = lines(embedded)
        assert created.pop("time").endswith("Z")
        assert created == {
            "server": "broker-a", "request": "UPDATE_AND_CREATE_TOPIC", "code": 17, "account": "administrator",
            "signed": True, "certificate": None, "from": client.connection.local_address, "names": {"topic": "orders"},
            "answer": "SUCCESS", "remark": None,
        }  # fmt: skip
        assert changed["names"] == {"accessKey": "newcomer", "admin": "false", "topicPerms": "orders=PUB"}
        assert settings["names"] == {"listed": ["brokerPermission", "maxTopics"]}
        assert settings["answer"] == "NO_PERMISSION"
        assert "maxTopics" in settings["remark"]
        text = (embedded.store_path / "audit" / "audit.log").read_text()
        assert not any(secret in text for secret in ("hush-hush", SECRET, "Signature"))

    with_broker(scene, **accounts_in(tmp_path))


def test_refused_requests_are_recorded_and_bounded(tmp_path: Path) -> None:
    """Of every kind: unsigned, wrongly signed, and without the right; a flood is some lines with its number."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        found = []
        for keys in (None, FORGER, NOBODY):
            client.connection.sign_with(keys)
            for code in (Code.CLEAN_UNUSED_TOPIC, Code.SEND_MESSAGE_V2):
                await (client.ask(code) if code == Code.CLEAN_UNUSED_TOPIC else client.try_send("orders"))
            found += [(line["account"], line["signed"], line["request"]) for line in lines(embedded)[-2:]]
        cleaned, sent = "CLEAN_UNUSED_TOPIC", "SEND_MESSAGE_V2"
        assert found == [
            ("anonymous", False, cleaned), ("anonymous", False, sent),
            ("administrator", False, cleaned), ("administrator", False, sent),
            ("withoutRights", True, cleaned), ("withoutRights", True, sent),
        ]  # fmt: skip
        assert lines(embedded)[-1]["names"] == {"topic": "orders"}
        assert lines(embedded)[-1]["remark"] == "No default permission for topic:orders"
        for _ in range(200):
            await client.try_send("orders")
        assert len(lines(embedded)) == MOST_REFUSED[0]
        transport = embedded.broker.transport
        assert isinstance(transport, MemoryTransport)
        other = await RawClient.connect(transport.at("10.0.0.7"), embedded.broker_address)
        await other.try_send("orders")  # an address that floods the log keeps no other address out
        assert lines(embedded)[-1]["from"].startswith("10.0.0.7:")
        await other.connection.close()
        await asyncio.sleep(MINUTE)
        last = lines(embedded)[-1]
        assert (last["left_out"], last["kind"]) == (206 - MOST_REFUSED[0], "refused")
        assert list(last["addresses"].values()) == [206 - MOST_REFUSED[0]]
        await client.try_send("orders")
        assert lines(embedded)[-1]["request"] == sent

    with_broker(scene, **accounts_in(tmp_path))


def test_clients_cannot_forge_lines() -> None:
    """Whatever a name has in it, it is a short text within one line of ASCII."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        forged = '","account":"administrator"}\n{"x":"\x1b[2J\u2028' + "é" * 10_000
        await client.ask(Code.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=forged))
        (line,) = lines(embedded)
        assert line["account"] == "anonymous"
        assert line["names"]["topic"].startswith(forged[:128])
        text = (embedded.store_path / "audit" / "audit.log").read_bytes()
        assert text.count(b"\n") == 1
        assert len(text) < 5000
        assert all(32 <= byte < 127 for byte in text[:-1])

    with_broker(scene)


def test_log_that_cannot_be_written_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The requests are served; once lines can be written again, the first says how many are lost."""
    obstacle = tmp_path / "audit"
    obstacle.write_text("no directory")

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        for topic in ("a", "b", "c"):
            await client.create_topic(topic)
        obstacle.unlink()
        await client.create_topic("d")
        lost, written = (json.loads(line) for line in (obstacle / "audit.log").read_text().splitlines())
        assert lost["lost"] == 3
        assert written["names"] == {"topic": "d"}

    with_broker(scene, auditLogPath=str(obstacle / "audit.log"))
    assert len([record for record in caplog.records if "lines of the audit log are lost" in record.message]) == 1


def test_files_are_rotated(tmp_path: Path) -> None:
    """None is larger than its bound, there are as many as the settings say, and other users can read none."""
    path = tmp_path / "logs" / "audit.log"

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        for _ in range(900):
            await client.ask(Code.GET_ALL_DELAY_OFFSET, ext_fields={"topic": "t" * 127})

    with_broker(scene, auditLogPath=str(path), auditLogFileSize="65536", auditLogFileCount="3")
    files = [path, path.with_suffix(".log.1"), path.with_suffix(".log.2")]
    assert sorted(path.parent.iterdir()) == files
    assert all(0 < file.stat().st_size <= 65536 for file in files)
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    times = [json.loads(line)["time"] for file in reversed(files) for line in file.read_text().splitlines()]
    assert times == sorted(times)


def test_broker_that_renews_its_registration_is_recorded_once_an_hour(tmp_path: Path) -> None:
    """Else registrations would push everything else out of the log."""
    keys = accounts_in(tmp_path) | {"kvConfigPath": str(tmp_path / "kv.json"), "listenPort": "0"}
    del keys["innerClientAuthenticationCredentials"]
    header = QueryDataVersionRequestHeader(broker_name="b", broker_addr="a:1", cluster_name="c", broker_id=0)

    async def scene(time: VirtualTime) -> None:
        transport = MemoryTransport()
        settings = NameServerSettings.from_entries(entries_of(keys, "test"))
        name_server = NameServer(settings, transport=transport, clock=time.clock)
        await name_server.start()
        for hour in (1, 2):
            client = await RawClient.connect(transport, name_server.address)
            client.connection.sign_with(ADMINISTRATOR)
            for _ in range(3):
                await client.ask(Code.QUERY_DATA_VERSION, header, b"{}")
            assert (tmp_path / "audit" / "audit.log").read_text().count("QUERY_DATA_VERSION") == hour
            await client.connection.close()
            await asyncio.sleep(RENEWAL_SECONDS)
        await name_server.stop()

    with VirtualTime() as time:
        time.run(scene(time))


def test_name_server_without_access_control_records_nothing_unless_told() -> None:
    """Its key-value configuration is then changed by clients on its machine only."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        name_server = await RawClient.connect(embedded.broker.transport, embedded.name_server_address)
        await name_server.ask_ok(Code.PUT_KV_CONFIG, PutKVConfigRequestHeader(namespace="n", key="k", value="v"))
        assert lines(embedded, of_name_server=True) == []
        await name_server.connection.close()

    with_broker(scene)
    kept = NameServerSettings(audit_log_enable=True).audit_file(Path("here"), is_default=False)
    assert kept == Path("here/audit/audit.log")


def test_request_that_a_consumer_answers_is_recorded_with_its_answer() -> None:
    """Although the broker answers it long after its handler has returned."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.create_topic("orders")
        sent = await client.send("orders")
        consumer = await RawClient.connect(
            embedded.broker.transport, embedded.broker_address, answer=RemotingCommand.response
        )
        await consumer.heartbeat(consumers={"g": {"orders": "*"}})
        header = ConsumeMessageDirectlyResultRequestHeader(
            consumer_group="g", client_id="client@1", msg_id=sent.msg_id, topic="orders"
        )
        await client.ask_ok(Code.CONSUME_MESSAGE_DIRECTLY, header)
        line = lines(embedded)[-1]
        assert (line["answer"], line["names"]["consumerGroup"]) == ("SUCCESS", "g")
        await consumer.connection.close()

    with_broker(scene)


def test_certificate_of_the_client_is_recorded() -> None:
    """By its name, also where there is no access control."""

    async def scene() -> list[Line]:
        async with EmbeddedBroker(settings=server_keys("enforcing", "optional")) as embedded:
            clients: list[ClientTls] = [authority().client(signed_by=authority()), authority().client()]
            for tls in clients:
                connection = await TcpTransport().connect(embedded.broker_address, tls=tls, timeout=60)
                client = RawClient(connection, [])
                await client.create_topic("orders")
                await connection.close()
            return lines(embedded)

    found = asyncio.run(scene())
    assert [line["certificate"] for line in found] == ["client", None]
