"""Access control beside Apache's: signatures, Java's clients on our broker, and our clients on Apache's broker."""

import asyncio
import base64
import json
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from rocket_broker.threaded_broker import ThreadedBroker
from rocket_client import (
    Admin,
    ClientSettings,
    ConsumeContext,
    ConsumeFromWhere,
    Credentials,
    Producer,
    ProducerSettings,
    PushConsumer,
    PushConsumerSettings,
    RetryLater,
    SendError,
    Success,
)
from rocket_client.blocking import BlockingClient
from rocket_remoting import Message, MessageExt
from rocket_remoting.wire.credentials import SCOPE, SIGNATURE
from tests.docs.pages import blocks_of
from tests.peer.apache import ApacheBroker
from tests.peer.artifacts import VERSIONS
from tests.peer.conftest import of_version
from tests.peer.go_client import VERSION, GoClient
from tests.peer.java_client import JavaClient
from tests.peer.json_peer import PeerError
from tests.peer.stage import ANSWER_TIMEOUT, DELAY_LEVELS, LATEST, SEND_TIMEOUT
from tests.signatures import VECTORS

SECRET = "12345678"
ADMINISTRATOR, SHOP = Credentials("administrator", SECRET), Credentials("shop-app", SECRET)
ACCOUNTS = f"""\
accounts:
- accessKey: administrator
  secretKey: {SECRET}
  admin: true
- accessKey: shop-app
  secretKey: {SECRET}
  topicPerms:
  - orders=PUB|SUB
  - go-orders=PUB|SUB
  groupPerms:
  - kitchen=SUB
  - go-kitchen=SUB
"""


@dataclass(frozen=True)
class Guarded:
    """A broker of ours with access control, and its file of accounts."""

    name_server: str
    address: str
    accounts: Path


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """Our broker with the accounts, one for all tests of this module."""
    home = tmp_path_factory.mktemp("home")
    (home / "conf").mkdir()
    accounts = home / "conf" / "plain_acl.yml"
    accounts.write_text(ACCOUNTS)
    keys = json.dumps({"accessKey": "administrator", "secretKey": SECRET})
    settings = {
        "aclEnable": "true",
        "rocketmqHome": str(home),
        "innerClientAuthenticationCredentials": keys,
        "messageDelayLevel": DELAY_LEVELS,
    }
    with ThreadedBroker(settings=settings) as broker:
        asyncio.run(create_topics(broker.name_server, "orders", "bills", "go-orders", "%RETRY%go-kitchen"))
        yield Guarded(broker.name_server, broker.address, accounts)


async def create_topics(name_server: str, *topics: str) -> None:
    """Create topics as the administrator."""
    settings = ClientSettings(
        name_servers=name_server, credentials=ADMINISTRATOR,
        connect_timeout=ANSWER_TIMEOUT, request_timeout=ANSWER_TIMEOUT,
    )  # fmt: skip
    async with Admin(settings) as admin:
        for topic in topics:
            await admin.create_topic(topic, 1)
            await admin.await_topic(topic, queues=1, timeout=60)


@pytest.mark.parametrize("version", [of_version(version) for version in VERSIONS])
def test_signatures_are_those_of_apaches_client(version: str, java_client: Callable[[str], JavaClient]) -> None:
    """Byte for byte, for every kind of request; our scope is one more field for it."""
    client = java_client(version)
    for vector in VECTORS:
        keys = vector.credentials
        ours = keys.signed(310, vector.fields, vector.body)
        request = {"fields": vector.fields | {SCOPE: ours[SCOPE]}}
        if vector.body:
            request["body"] = base64.b64encode(vector.body).decode()
        (fields,) = client.call(
            "sign",
            accessKey=keys.access_key,
            secretKey=keys.secret_key,
            securityToken=keys.security_token,
            requests=[request],
        )
        assert fields == ours, vector.name
        assert fields[SIGNATURE] == vector.signature


@pytest.mark.parametrize("version", [of_version(version) for version in VERSIONS])
def test_java_clients_are_served_by_their_rights(
    version: str, java_client: Callable[[str], JavaClient], guarded: Guarded
) -> None:
    """A message is sent, found by key, consumed, sent back and consumed again; what is not allowed says why."""
    client, at = java_client(version), guarded.name_server
    shop = {"accessKey": "shop-app", "secretKey": SECRET}
    body = f"tea of {version}"
    with (
        client.producer(at, **shop) as producer,
        client.consumer(at, "kitchen", "orders", failTimes=1, failBody=body, **shop) as consumer,
    ):
        producer.send("orders", body, keys=version.replace(".", ""))
        heard = consumer.take(2)
        assert [(message.text, message.reconsume_times) for message in heard] == [(body, 0), (body, 1)]
        (found,) = producer.query("orders", version.replace(".", ""))
        assert found.text == body
        with pytest.raises(PeerError, match="No default permission for topic:bills") as caught:
            producer.send("bills", body, mode="queue")  # which Java sends once, and shows the answer to
        assert caught.value.code == 16
    for keys, says in (
        ({}, "No accessKey is configured"),
        (shop | {"secretKey": "87654321"}, "Check signature failed for accessKey=shop-app"),
        (shop | {"accessKey": "stranger"}, "No acl config for stranger"),
    ):
        with client.producer(at, **keys) as stranger, pytest.raises(PeerError, match=says) as caught:
            stranger.send("orders", body, mode="queue")
        assert caught.value.code == 16


@pytest.mark.parametrize("version", [of_version(f"go{VERSION}")])
def test_go_clients_are_served_by_their_rights(version: str, go_client: GoClient, guarded: Guarded) -> None:
    """A message is sent, consumed, sent back and consumed again; what is not allowed says why."""
    at = guarded.name_server
    producer = go_client.producer(at, "go-shop", keys=SHOP)
    consumer = go_client.consumer(at, "go-kitchen", "go-orders", fail_times=1, keys=SHOP)
    try:
        assert [answer["ok"] for answer in producer.send("go-orders", "tea", keys=["k"], tags="t")] == [True]
        heard = consumer.take(2, LATEST)
        assert [(message.body, message.reconsume_times) for message in heard] == [("tea", 0), ("tea", 1)]
    finally:
        consumer.stop()
    forged, stranger = Credentials("shop-app", "87654321"), Credentials("stranger", SECRET)
    for keys, topic, says in (
        (SHOP, "bills", "No default permission for topic:bills"),
        (None, "go-orders", "No accessKey is configured"),
        (forged, "go-orders", "Check signature failed for accessKey=shop-app"),
        (stranger, "go-orders", "No acl config for stranger"),
    ):
        with pytest.raises(PeerError, match=says):
            go_client.producer(at, "go-shop", keys=keys).send(topic, "tea")


@pytest.mark.peer
def test_mqadmin_changes_the_accounts(java_client: Callable[[str], JavaClient], guarded: Guarded) -> None:
    """By the commands on the page about security, signed with `tools.yml`; none shows a secret."""
    client = java_client("4.9.7")
    keys = {"accessKey": "administrator", "secretKey": SECRET}
    commands = [
        shlex.split(line.removeprefix("$ mqadmin "))
        for block in blocks_of("docs/security.md")
        if "mqadmin updateAclConfig" in block.text
        for line in block.text.splitlines()
        if line.startswith("$ mqadmin ")
    ]
    printed: dict[str, str] = {}
    for name, _, _, *arguments in commands:  # the page names another name server
        printed[name] = client.mqadmin(guarded.name_server, name, *arguments, keys=keys)
        if name == "updateAclConfig":
            accounts = yaml.safe_load(guarded.accounts.read_text())["accounts"]
            (made,) = [account for account in accounts if account["accessKey"] == "billing-app"]
            assert (made["topicPerms"], made["groupPerms"]) == (["bills=SUB"], ["billing=SUB"])
    assert re.search("billing-app", printed["getAclConfig"]), printed
    assert SECRET not in printed["getAclConfig"]
    assert str(guarded.accounts) in printed["clusterAclConfigVersion"], printed
    for name in ("updateAclConfig", "updateGlobalWhiteAddr", "deleteAclConfig"):
        assert "success" in printed[name], printed
    contents = yaml.safe_load(guarded.accounts.read_text())
    assert contents["globalWhiteRemoteAddresses"] == ["10.0.0.1"]
    assert [account["accessKey"] for account in contents["accounts"]] == ["administrator", "shop-app"]
    refused = client.mqadmin(guarded.name_server, "getAclConfig", "-b", guarded.address)
    assert "No accessKey is configured" in refused


@pytest.mark.peer
def test_our_clients_are_served_by_apaches_broker(apache_broker_factory: Callable[..., ApacheBroker]) -> None:
    """All of them sign: admin, producer, consumer, blocking client; Apache's broker refuses a wrong secret."""
    broker = apache_broker_factory(
        "4.9.7", settings={"aclEnable": "true", "messageDelayLevel": DELAY_LEVELS}, accounts=ACCOUNTS
    )

    async def scene() -> None:
        await create_topics(broker.name_server, "orders", "bills")
        received: asyncio.Queue[MessageExt] = asyncio.Queue()

        async def hear(messages: list[MessageExt], context: ConsumeContext) -> Success | RetryLater:
            for message in messages:
                received.put_nowait(message)
            return RetryLater() if messages[0].reconsume_times == 0 else Success()

        shop = ProducerSettings(name_servers=broker.name_server, credentials=SHOP, send_timeout=SEND_TIMEOUT)
        forged = ProducerSettings(name_servers=broker.name_server, credentials=Credentials("shop-app", "87654321"))
        consumer = PushConsumer(
            "kitchen",
            PushConsumerSettings(
                name_servers=broker.name_server, credentials=SHOP, request_timeout=ANSWER_TIMEOUT,
                consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
            ),
        )  # fmt: skip
        consumer.subscribe("orders", "*")
        consumer.listen_concurrently(hear)
        async with Producer("shop", shop) as producer, Producer("forger", forged) as forger, consumer:
            await producer.send(Message("orders", b"tea"))
            async with asyncio.timeout(LATEST):
                messages = [await received.get() for _ in range(2)]
            assert [message.reconsume_times for message in messages] == [0, 1]
            with pytest.raises(SendError, match="Check signature failed"):
                await forger.send(Message("orders", b"tea"))
            with pytest.raises(SendError, match="No default permission for topic:bills"):
                await producer.send(Message("bills", b"tea"))

    asyncio.run(scene())
    settings = ProducerSettings(name_servers=broker.name_server, credentials=SHOP, request_timeout=ANSWER_TIMEOUT)
    with BlockingClient("kitchen", settings) as client:
        (queue,) = client.queues("orders")
        (message,) = client.pull(queue, 0).messages()
        assert message.body == b"tea"
        client.commit_offset(queue, 1)
