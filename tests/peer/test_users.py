"""Access control of 5.3 beside Apache's: mqadmin and Java's client on our broker, and our client on Apache's broker."""

import asyncio
import json
import shlex
from collections.abc import Callable, Iterator

import pytest

from rocket_broker.threaded_broker import ThreadedBroker
from rocket_client import Admin, ClientSettings, Credentials, Producer, ProducerSettings, SendError
from rocket_client.blocking import BlockingClient
from rocket_remoting import Message
from rocket_remoting.transports.tcp import TcpTransport
from rocket_remoting.wire.bodies import AclInfo, Body, PolicyEntryInfo, PolicyInfo, UserInfo
from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.codes import ResponseCode, request_name
from rocket_remoting.wire.ext_fields import Header
from rocket_remoting.wire.headers import (
    CreateAclRequestHeader,
    CreateUserRequestHeader,
    DeleteAclRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteUserRequestHeader,
    GetAclRequestHeader,
    GetMinOffsetRequestHeader,
    GetTopicStatsInfoRequestHeader,
    GetUserRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UpdateUserRequestHeader,
)
from tests.docs.pages import blocks_of
from tests.end_to_end.raw_client import RawClient
from tests.peer.apache import ApacheBroker
from tests.peer.artifacts import VERSIONS
from tests.peer.conftest import of_version, require
from tests.peer.java_client import JavaClient
from tests.peer.json_peer import PeerError
from tests.peer.stage import ANSWER_TIMEOUT, DELAY_LEVELS, SEND_TIMEOUT, eventually

NEWEST = [of_version(VERSIONS[-1])]
"""The version with users; the tests of one version share a worker, and Apache's broker."""

SECRET = "hush-12345"
ROOT = {"accessKey": "root", "secretKey": SECRET}
SHOP = {"accessKey": "shop-app", "secretKey": "change-this-3"}
"""The user that the commands on the page about security make."""
CLASSES = "org.apache.rocketmq.auth."
SETTINGS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "authenticationMetadataProvider": f"{CLASSES}authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationMetadataProvider": f"{CLASSES}authorization.provider.LocalAuthorizationMetadataProvider",
    "initAuthenticationUser": json.dumps({"username": "root", "password": SECRET}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": "broker", "secretKey": SECRET}),
    "messageDelayLevel": DELAY_LEVELS,
}


async def create_topics(name_server: str, *topics: str) -> None:
    """Create topics as the super user."""
    settings = ClientSettings(
        name_servers=name_server, credentials=Credentials("root", SECRET),
        connect_timeout=ANSWER_TIMEOUT, request_timeout=ANSWER_TIMEOUT,
    )  # fmt: skip
    async with Admin(settings) as admin:
        for topic in topics:
            await admin.create_topic(topic, 1)
            await admin.await_topic(topic, queues=1, timeout=60)


@pytest.fixture(scope="module")
def guarded() -> Iterator[ThreadedBroker]:
    """Our broker with users."""
    with ThreadedBroker(settings=SETTINGS) as broker:
        asyncio.run(create_topics(broker.name_server, "orders", "secrets"))
        yield broker


def commands_on_the_page() -> Iterator[list[str]]:
    """Yield the commands about users on the page about security, without the name server's address."""
    for block in blocks_of("docs/security.md"):
        if "mqadmin createUser" in block.text:
            for line in block.text.splitlines():
                name, _, _, *arguments = shlex.split(line.removeprefix("$ mqadmin "))
                yield [name, *arguments]


@pytest.mark.parametrize("version", NEWEST)
def test_mqadmin_and_java_on_our_broker(
    version: str, java_client: Callable[[str], JavaClient], guarded: ThreadedBroker
) -> None:
    """The page's commands make a user; Java's clients do what it may do, and are told what it may not do."""
    client, at, address = java_client(version), guarded.name_server, guarded.address

    def run(*arguments: str, keys: dict[str, str] = ROOT) -> str:
        return client.mqadmin(at, *arguments, keys=keys)

    create, acl_of_topics, acl_of_group, list_users, get_acl, disable, delete_acl, delete_user = commands_on_the_page()
    assert f"create user to {address} success" in run(*create)
    assert f"create acl to {address} success" in run(*acl_of_topics)
    # The page's network is another; a second entry for the same group replaces the first.
    assert "success" in run(*acl_of_group)
    assert "success" in run("updateAcl", "-b", address, "-s", "User:shop-app", "-r", "Group:kitchen", "-a", "Sub",
                            "-i", "127.0.0.0/8", "-d", "Allow")  # fmt: skip
    users = run(*list_users)
    assert [line.split() for line in users.splitlines() if line.startswith("shop-app")] == [
        ["shop-app", "******", "Normal", "enable"]
    ]
    assert SECRET not in users
    policies = run(*get_acl)
    for shown in ("Topic:orders", "Topic:bills-*", "Group:kitchen", "[127.0.0.0/8]", "Allow", "Custom"):
        assert shown in policies

    body = "tea with sugar"
    with (
        client.producer(at, **SHOP) as producer,
        client.consumer(at, "kitchen", "orders", failTimes=1, failBody=body, **SHOP) as consumer,
    ):
        producer.send("orders", body)
        heard = consumer.take(2)
        assert [(message.text, message.reconsume_times) for message in heard] == [(body, 0), (body, 1)]
        missing = "User:shop-app has no permission to access Topic:secrets from 127.0.0.1, no matched policies."
        with pytest.raises(PeerError, match=missing) as caught:
            producer.send("secrets", body, mode="queue")  # which Java sends once, and shows the answer to
        assert caught.value.code == 16
    assert "no permission to access Cluster:DefaultCluster" in run("listUser", "-b", address, keys=SHOP)

    assert "success" in run(*disable)
    with client.producer(at, **SHOP) as producer, pytest.raises(PeerError, match="User:shop-app is disabled"):
        producer.send("orders", body, mode="queue")
    assert "success" in run(*delete_acl)
    assert "Topic:bills" not in run(*get_acl)
    assert "success" in run(*delete_user)
    assert "shop-app" not in run(*list_users)


@pytest.fixture(scope="module", params=NEWEST)
def apaches(request: pytest.FixtureRequest) -> Iterator[ApacheBroker]:
    """Apache's broker with the same users."""
    require(request.param)
    with ApacheBroker(request.param, settings=SETTINGS) as broker:
        asyncio.run(create_topics(broker.name_server, "orders", "secrets"))
        yield broker


def test_our_clients_are_served_by_apaches_broker(apaches: ApacheBroker) -> None:
    """Apache's broker takes our signatures for those of its user."""

    def settings(secret: str) -> ProducerSettings:
        return ProducerSettings(
            name_servers=apaches.name_server, credentials=Credentials("root", secret),
            send_timeout=SEND_TIMEOUT, request_timeout=ANSWER_TIMEOUT,
        )  # fmt: skip

    async def scene() -> None:
        async with Producer("shop", settings(SECRET)) as producer, Producer("forger", settings("another")) as forger:
            await producer.send(Message("orders", b"tea"))
            with pytest.raises(SendError, match="check signature failed"):
                await forger.send(Message("orders", b"tea"))

    asyncio.run(scene())
    with BlockingClient("kitchen", settings(SECRET)) as client:
        (queue,) = client.queues("orders")
        # Apache's broker adds a message to its queue after its answer.
        (message,) = eventually(lambda: client.pull(queue, 0).messages(), bool)
        assert message.body == b"tea"
        client.commit_offset(queue, 1)


ALICE, ROOT_KEYS = Credentials("alice", SECRET), Credentials("root", SECRET)
USER, ACL = "User:alice", CreateAclRequestHeader(subject="User:alice")


def entries(*texts: str, policy_type: str | None = None) -> AclInfo:
    """Return policies of entries such as `Topic:orders Pub,Sub Allow 10.0.0.0/8`."""
    made: list[PolicyEntryInfo] = []
    for text in texts:
        resource, actions, decision, *sources = text.split()
        made.append(
            PolicyEntryInfo(resource=resource, actions=actions.split(","), decision=decision, source_ips=sources)
        )
    return AclInfo(policies=[PolicyInfo(policy_type=policy_type, entries=made)])


CONVERSATION: list[tuple[Credentials | None, int, Header | None, Body | bytes]] = [
    (ROOT_KEYS, Code.AUTH_CREATE_USER, CreateUserRequestHeader(username="alice"), UserInfo(password=SECRET)),
    (ROOT_KEYS, Code.AUTH_CREATE_USER, CreateUserRequestHeader(username="alice"), UserInfo(password=SECRET)),
    (ROOT_KEYS, Code.AUTH_CREATE_USER, CreateUserRequestHeader(username="bob"), UserInfo()),
    (ROOT_KEYS, Code.AUTH_CREATE_USER, CreateUserRequestHeader(), UserInfo(password=SECRET)),
    (ROOT_KEYS, Code.AUTH_UPDATE_USER, UpdateUserRequestHeader(username="bob"), UserInfo(user_type="Super")),
    (ROOT_KEYS, Code.AUTH_UPDATE_USER, UpdateUserRequestHeader(username="alice"), UserInfo(user_status="disable")),
    (ROOT_KEYS, Code.AUTH_GET_USER, GetUserRequestHeader(username="alice"), b""),
    (ROOT_KEYS, Code.AUTH_GET_USER, GetUserRequestHeader(username="bob"), b""),
    (ROOT_KEYS, Code.AUTH_LIST_USER, ListUsersRequestHeader(), b""),
    (ROOT_KEYS, Code.AUTH_LIST_USER, ListUsersRequestHeader(filter="lic"), b""),
    (ALICE, Code.AUTH_LIST_USER, ListUsersRequestHeader(), b""),
    (Credentials("bob", SECRET), Code.AUTH_LIST_USER, ListUsersRequestHeader(), b""),
    (Credentials("root", "x"), Code.AUTH_LIST_USER, ListUsersRequestHeader(), b""),
    (None, Code.AUTH_LIST_USER, ListUsersRequestHeader(filter="x"), b""),
    (ROOT_KEYS, Code.AUTH_UPDATE_USER, UpdateUserRequestHeader(username="alice"), UserInfo(user_status="enable")),
    (ALICE, Code.AUTH_LIST_USER, ListUsersRequestHeader(filter="x"), b""),
    (ALICE, Code.GET_MIN_OFFSET, GetMinOffsetRequestHeader(topic="orders", queue_id=0), b""),
    (ROOT_KEYS, Code.AUTH_CREATE_ACL, CreateAclRequestHeader(subject="User:bob"), entries("* All Allow")),
    *((ROOT_KEYS, Code.AUTH_CREATE_ACL, ACL, entries(wrong)) for wrong in (
        "orders Pub Allow", "Topic:a Fly Allow", "Topic:a Any Allow", "Topic:a Pub Allow 10.0.0", "Topic:a Pub Perhaps",
    )),
    (ROOT_KEYS, Code.AUTH_CREATE_ACL, ACL, AclInfo(policies=[PolicyInfo(policy_type="Custom")])),
    (ROOT_KEYS, Code.AUTH_GET_ACL, GetAclRequestHeader(subject=USER), b""),
    (ROOT_KEYS, Code.AUTH_CREATE_ACL, ACL, entries("topic:orders pub,get Allow", "Topic:sec* Get Deny 10.0.0.0/8")),
    (ROOT_KEYS, Code.AUTH_UPDATE_ACL, ACL, entries("Topic:sec* Get Deny", "Group:* Sub Allow")),
    (ROOT_KEYS, Code.AUTH_UPDATE_ACL, ACL, entries("Topic:* All Allow", policy_type="Default")),
    (ROOT_KEYS, Code.AUTH_GET_ACL, GetAclRequestHeader(subject=USER), b""),
    (ROOT_KEYS, Code.AUTH_LIST_ACL, ListAclsRequestHeader(subject_filter="ali"), b""),
    (ROOT_KEYS, Code.AUTH_LIST_ACL, ListAclsRequestHeader(resource_filter="Group"), b""),
    (ALICE, Code.GET_MIN_OFFSET, GetMinOffsetRequestHeader(topic="orders", queue_id=0), b""),
    (ALICE, Code.GET_MIN_OFFSET, GetMinOffsetRequestHeader(topic="secrets", queue_id=0), b""),
    (ALICE, Code.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader(topic="nope"), b""),
    (ALICE, Code.DELETE_SUBSCRIPTIONGROUP, DeleteSubscriptionGroupRequestHeader(group_name="kitchen"), b""),
    (ROOT_KEYS, Code.AUTH_DELETE_ACL, DeleteAclRequestHeader(subject=USER, resource="Topic:sec*"), b""),
    (ROOT_KEYS, Code.AUTH_DELETE_ACL, DeleteAclRequestHeader(subject=USER, resource="Topic:*"), b""),
    (ROOT_KEYS, Code.AUTH_GET_ACL, GetAclRequestHeader(subject=USER), b""),
    (ROOT_KEYS, Code.AUTH_DELETE_ACL, DeleteAclRequestHeader(subject=USER), b""),
    (ROOT_KEYS, Code.AUTH_DELETE_ACL, DeleteAclRequestHeader(subject=USER), b""),
    (ROOT_KEYS, Code.AUTH_DELETE_ACL, DeleteAclRequestHeader(subject="User:bob"), b""),
    (ROOT_KEYS, Code.AUTH_GET_ACL, GetAclRequestHeader(subject="User:bob"), b""),
    (ROOT_KEYS, Code.AUTH_DELETE_USER, DeleteUserRequestHeader(username="alice"), b""),
    (ROOT_KEYS, Code.AUTH_DELETE_USER, DeleteUserRequestHeader(username="alice"), b""),
]  # fmt: skip
"""Requests in order, each with the keys that sign it."""


async def answers_of(address: str) -> list[tuple[int, str | None, object]]:
    """Return the code of each answer to the conversation, with the remark of a refusal, or the body."""
    client = await RawClient.connect(TcpTransport(), address)
    found: list[tuple[int, str | None, object]] = []
    try:
        for keys, code, header, body in CONVERSATION:
            client.connection.sign_with(keys)
            answer = await client.ask(code, header, body)
            text = bytes(answer.body).decode().replace(SECRET, "******")
            # Apache's success has a remark, too, which says nothing.
            remark = answer.remark if answer.code != ResponseCode.SUCCESS else None
            found.append((answer.code, remark, json.loads(text) if text else None))
    finally:
        await client.connection.close()
    return found


def test_answers_about_users_are_apaches(guarded: ThreadedBroker, apaches: ApacheBroker) -> None:
    """Code, remark and body; but our broker hides passwords, as the comparison does."""
    ours, theirs = (asyncio.run(answers_of(each.address)) for each in (guarded, apaches))
    for number, ((_, code, header, _), our, their) in enumerate(zip(CONVERSATION, ours, theirs, strict=True)):
        assert our == their, f"request {number}: {request_name(code)} {header}"
