"""docs/security.md, about access control: the files on the page are those of servers that serve the page's client."""

from pathlib import Path

import pytest

from rocket_broker.broker import Broker
from rocket_broker.namesrv.server import NameServer
from rocket_broker.namesrv.settings import NameServerSettings
from rocket_broker.settings.broker_settings import SMALL_STORE, BrokerSettings
from rocket_broker.settings.properties_file import entries_of, read_properties
from rocket_client import Admin, ClientSettings, Credentials, Producer, ProducerSettings, SendError
from rocket_remoting import MemoryTransport, Message
from streamkit.testing.virtual_time import VirtualTime
from tests.docs.pages import blocks_of

PAGE = "docs/security.md"


def settings_on_the_page() -> ProducerSettings:
    """Return the settings that the page's Python code makes."""
    (code,) = [block.text for block in blocks_of(PAGE) if "Credentials" in block.text and block.language == "python"]
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
        keys = Credentials("operator", "change-this-1")
        operator = ClientSettings(name_servers=shop.name_servers, credentials=keys)
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
