"""docs/security.md, about access control: the files on the page are those of servers that serve the page's client."""

import asyncio
import re
import runpy
import shutil
import subprocess
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

from rocket_broker.broker import Broker
from rocket_broker.embedded import EmbeddedBroker
from rocket_broker.namesrv.server import NameServer
from rocket_broker.namesrv.settings import NameServerSettings
from rocket_broker.settings.broker_settings import SMALL_STORE, BrokerSettings
from rocket_broker.settings.properties_file import entries_of, parse_properties, read_properties
from rocket_client import (
    Admin,
    ClientSettings,
    ConsumeContext,
    Credentials,
    Producer,
    ProducerSettings,
    PushConsumer,
    PushConsumerSettings,
    SendError,
    Success,
)
from rocket_remoting import MemoryTransport, Message, MessageExt
from rocket_remoting.clock import SystemClock
from rocket_remoting.tls.settings import ClientTls
from rocket_remoting.transports.tcp import TcpTransport
from rocket_remoting.wire.bodies import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.errors import RemotingError
from rocket_remoting.wire.headers import CreateAclRequestHeader, CreateUserRequestHeader
from streamkit.cli import main as streamkit
from streamkit.testing.virtual_time import VirtualTime
from tests.docs.pages import ROOT, blocks_of
from tests.end_to_end.raw_client import RawClient
from tests.ports import free_ports

PAGE = "docs/security.md"
OPERATOR = Credentials("operator", "change-this-1")


def settings_on_the_page() -> ProducerSettings:
    """Return the settings that the page's Python code makes."""
    (code,) = [
        block.text
        for block in blocks_of(PAGE)
        if "Credentials" in block.text and block.language == "python" and block.file is None
    ]
    names: dict[str, object] = {}
    exec(code, names)
    made = names["settings"]
    assert isinstance(made, ProducerSettings)
    return made


def test_servers_with_the_files_of_the_page_serve_its_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shop may send orders, and nothing else; the operator may do everything."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    for block in blocks_of(PAGE):
        if block.file is not None:
            Path(block.file).parent.mkdir(exist_ok=True)
            Path(block.file).write_text(block.text)
    files = {name: Path("conf") / f"{name}.conf" for name in ("namesrv", "broker")}
    small = entries_of(SMALL_STORE, "test")
    named = NameServerSettings.from_entries(read_properties(files["namesrv"]))
    stored = BrokerSettings.from_entries([*small, *read_properties(files["broker"])])
    named.source, stored.source = files["namesrv"], files["broker"]

    async def scene(time: VirtualTime) -> None:
        transport = MemoryTransport()
        name_server = NameServer(named, transport=transport)
        broker = Broker(stored, transport=transport, clock=time.clock)
        await name_server.start()
        await broker.start()
        shop = settings_on_the_page()
        operator = ClientSettings(name_servers=shop.name_servers, credentials=OPERATOR)
        async with (
            Admin(operator, transport=transport, clock=time.clock) as admin,
            Producer("shop", shop, transport=transport, clock=time.clock) as producer,
        ):
            for topic in ("orders", "secrets"):
                await admin.create_topic(topic, 1)
                await admin.await_topic(topic, queues=1)
            await producer.send(Message("orders", b"tea"))
            with pytest.raises(SendError, match="No default permission for topic:secrets"):
                await producer.send(Message("secrets", b"tea"))
        await broker.stop()
        await name_server.stop()

    with VirtualTime() as time:
        time.run(scene(time))


def test_broker_with_the_settings_of_5_3_on_the_page_serves_its_user(tmp_path: Path) -> None:
    """A user with `Pub` and `Sub` sends and consumes, from a group that begins at the end of its topic."""
    (text,) = [block.text for block in blocks_of(PAGE) if "authenticationEnabled=true" in block.text]
    given = {entry.key: entry.value for entry in parse_properties(text, PAGE)}

    async def scene(time: VirtualTime) -> None:
        transport = MemoryTransport()
        async with EmbeddedBroker(tmp_path, transport=transport, clock=time.clock, settings=given) as embedded:
            at = embedded.name_server_address
            raw = await RawClient.connect(transport, embedded.broker_address)
            raw.connection.sign_with(OPERATOR)
            created = CreateUserRequestHeader(username="shop-app"), UserInfo(password="change-this-3")
            await raw.ask_ok(RequestCode.AUTH_CREATE_USER, *created)
            rights = [
                PolicyEntryInfo(resource=resource, actions=actions, decision="Allow")
                for resource, actions in (("Topic:orders", ["Pub", "Sub"]), ("Group:kitchen", ["Sub"]))
            ]
            acl = AclInfo(policies=[PolicyInfo(entries=rights)])
            await raw.ask_ok(RequestCode.AUTH_CREATE_ACL, CreateAclRequestHeader(subject="User:shop-app"), acl)
            await raw.connection.close()
            operator = ClientSettings(name_servers=at, credentials=OPERATOR)
            async with Admin(operator, transport=transport, clock=time.clock) as admin:
                await admin.create_topic("orders", 1)
                await admin.await_topic("orders", queues=1)
            shop = Credentials("shop-app", "change-this-3")
            heard: asyncio.Queue[bytes] = asyncio.Queue()

            async def hear(messages: list[MessageExt], context: ConsumeContext) -> Success:
                for message in messages:
                    heard.put_nowait(message.body)
                return Success()

            consumer = PushConsumer(
                "kitchen", PushConsumerSettings(name_servers=at, credentials=shop), transport=transport,
                clock=time.clock,
            )  # fmt: skip
            consumer.subscribe("orders", "*")
            consumer.listen_concurrently(hear)
            producer = Producer(
                "shop", ProducerSettings(name_servers=at, credentials=shop), transport=transport, clock=time.clock
            )
            async with producer, consumer:
                await asyncio.sleep(60)  # in virtual time: the consumer has its queue
                await producer.send(Message("orders", b"tea"))
                assert await heard.get() == b"tea"
                with pytest.raises(SendError, match="no permission to access Topic:secrets"):
                    await producer.send(Message("secrets", b"tea"))

    with VirtualTime() as time:
        time.run(scene(time))


def outcome_of(command: str) -> str:
    """Run a command of the page that ends; return what it writes."""
    match command.split():
        case ["python", file]:
            runpy.run_path(file, run_name="__main__")
            return ""
        case ["streamkit", *arguments]:
            found = CliRunner().invoke(streamkit, arguments, catch_exceptions=False)
            assert found.exit_code == 0, found.output
            return found.output
    return subprocess.run(command, shell=True, check=True, capture_output=True, text=True).stdout


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")
def test_hardened_set_up_sends_a_signed_and_encrypted_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the ten commands is run as the page has it; the servers run in this process, on other ports."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    ports = dict(zip(("9876", "10911"), map(str, free_ports()), strict=True))

    def on_free_ports(text: str) -> str:
        return re.sub("|".join(ports), lambda port: ports[port[0]], text)

    lines = (ROOT / PAGE).read_text(encoding="utf-8").splitlines()
    begin, end = lines.index("## A hardened set-up"), lines.index("## What remains open")
    blocks = [block for block in blocks_of(PAGE) if begin < block.line < end]
    first, then = (
        [on_free_ports(line.removeprefix("$ ")) for line in block.text.splitlines()]
        for block in blocks
        if block.language == "console"
    )
    assert len(first) + len(then) == 10
    subprocess.run(["bash", "-ec", "\n".join(first)], check=True, capture_output=True)
    monkeypatch.chdir(tmp_path / "secure")
    assert {path.stat().st_mode & 0o077 for path in Path().iterdir()} == {0}
    for block in blocks:
        if block.file is not None:
            (tmp_path / block.file).write_text(on_free_ports(block.text))

    async def scene() -> None:
        transport = TcpTransport()
        async with AsyncExitStack() as running:
            small = entries_of(SMALL_STORE, "test")
            assert then[0] == "streamkit namesrv -c namesrv.conf"
            named = NameServerSettings.from_entries(read_properties(Path("namesrv.conf")))
            named.source = Path("namesrv.conf")
            name_server = NameServer(named, transport=transport)
            running.push_async_callback(name_server.stop)
            await name_server.start()
            assert then[1] == "streamkit broker -c broker.conf"
            stored = BrokerSettings.from_entries([*small, *read_properties(Path("broker.conf"))])
            stored.source = Path("broker.conf")
            broker = Broker(stored, transport=transport, clock=SystemClock())
            running.push_async_callback(broker.stop)
            await broker.start()
            _, listed, audited = [await asyncio.to_thread(outcome_of, command) for command in then[2:]]
            assert "orders" in listed
            assert '"account":"broker-a","signed":true' in audited
            assert sum(broker.store.max_offset("orders", queue) for queue in range(8)) == 1
            connection = await transport.connect(
                broker.address, tls=ClientTls(trust_certificates=Path("ca.pem")), timeout=60
            )
            answer = await connection.invoke(RequestCode.GET_ALL_TOPIC_CONFIG, timeout=60)
            assert answer.code == ResponseCode.NO_PERMISSION
            await connection.close()
            plain = await transport.connect(broker.address, timeout=60)
            with pytest.raises(RemotingError):
                await plain.invoke(RequestCode.GET_ALL_TOPIC_CONFIG, timeout=60)
            await plain.close()

    asyncio.run(scene())
