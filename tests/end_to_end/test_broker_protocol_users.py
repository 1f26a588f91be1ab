"""Access control of 5.3: users and policies by request, what each request needs, and who is refused and why."""

import asyncio
import json
import logging
from pathlib import Path

import msgspec
import pytest

from rocket_broker.embedded import EmbeddedBroker
from rocket_client import Credentials
from rocket_remoting import MemoryTransport
from rocket_remoting.wire.bodies import AclInfo, Body, PolicyEntryInfo, PolicyInfo, UserInfo, encode_body
from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.codes import ResponseCode, request_name
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.deduplication import SEND_DEDUPLICATED
from rocket_remoting.wire.ext_fields import Header
from rocket_remoting.wire.headers import (
    CreateAclRequestHeader,
    CreateUserRequestHeader,
    DeleteAclRequestHeader,
    DeleteUserRequestHeader,
    GetAclRequestHeader,
    GetUserRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UpdateUserRequestHeader,
    ViewMessageRequestHeader,
)
from rocket_remoting.wire.message_id import parse_offset_id
from rocket_remoting.wire.topics import TOOLS_CONSUMER_GROUP, TRANS_HALF_TOPIC
from tests.end_to_end.every_request import BODIES, of_every_header
from tests.end_to_end.raw_client import RawClient, pull_header, with_broker
from tests.end_to_end.transactions import GROUP, begin, end, questions

SECRET = "hush-12345"
ROOT, ALICE = Credentials("root", SECRET), Credentials("alice", SECRET)
BROKER = Credentials("broker", "hush-of-the-broker")
CLASSES = "org.apache.rocketmq.auth."
KEPT = {
    "authenticationMetadataProvider": f"{CLASSES}authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationMetadataProvider": f"{CLASSES}authorization.provider.LocalAuthorizationMetadataProvider",
}
SETTINGS = KEPT | {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": "root", "password": SECRET}),
    "innerClientAuthenticationCredentials": json.dumps(
        {"accessKey": BROKER.access_key, "secretKey": BROKER.secret_key}
    ),
}

TOPIC_GET, GROUP_GET = "Topic:orders Get", "Group:kitchen Get"
READ_CLUSTER, CHANGE_CLUSTER = "Cluster: Get", "Cluster: Update"
PUB, SUB = "Topic:orders Pub", "Topic:orders Sub, Group:kitchen Sub"
MEMBER = "Group:kitchen Sub, Topic:orders Sub"
OFFSETS = "Topic:orders Pub|Sub|Get"

NEEDED = {
    Code.SEND_MESSAGE: PUB,
    Code.SEND_MESSAGE_V2: PUB,
    Code.SEND_BATCH_MESSAGE: PUB,
    SEND_DEDUPLICATED: PUB,
    Code.SEND_REPLY_MESSAGE: PUB,
    Code.SEND_REPLY_MESSAGE_V2: PUB,
    Code.CONSUMER_SEND_MSG_BACK: "Group:kitchen Sub",
    Code.RECALL_MESSAGE: PUB,
    Code.END_TRANSACTION: PUB,
    Code.RESUME_CHECK_HALF_MESSAGE: CHANGE_CLUSTER,
    Code.PULL_MESSAGE: SUB,
    Code.LITE_PULL_MESSAGE: SUB,
    Code.HEART_BEAT: f"{MEMBER}, Group:kitchen Sub",
    Code.UNREGISTER_CLIENT: "Group:kitchen Sub",
    Code.CHECK_CLIENT_CONFIG: "",
    Code.GET_CONSUMER_LIST_BY_GROUP: "Group:kitchen Sub|Get",
    Code.LOCK_BATCH_MQ: MEMBER,
    Code.UNLOCK_BATCH_MQ: MEMBER,
    Code.QUERY_CONSUMER_OFFSET: "Topic:orders Sub|Get, Group:kitchen Sub|Get",
    Code.UPDATE_CONSUMER_OFFSET: "Topic:orders Sub|Update, Group:kitchen Sub|Update",
    Code.SEARCH_OFFSET_BY_TIMESTAMP: OFFSETS,
    Code.GET_MAX_OFFSET: OFFSETS,
    Code.GET_MIN_OFFSET: OFFSETS,
    Code.QUERY_CORRECTION_OFFSET: f"{TOPIC_GET}, {GROUP_GET}",
    Code.GET_EARLIEST_MSG_STORETIME: OFFSETS,
    Code.QUERY_MESSAGE: "Topic:orders Sub|Get",
    Code.VIEW_MESSAGE_BY_ID: "",  # of a record that does not exist
    Code.QUERY_CONSUME_QUEUE: f"{TOPIC_GET}, {GROUP_GET}",
    Code.UPDATE_AND_CREATE_TOPIC: "Topic:orders Create",
    Code.UPDATE_AND_CREATE_TOPIC_LIST: "Topic:orders Create",
    Code.DELETE_TOPIC_IN_BROKER: "Topic:orders Delete",
    Code.CLEAN_UNUSED_TOPIC: CHANGE_CLUSTER,
    Code.GET_ALL_TOPIC_CONFIG: "",
    Code.GET_TOPIC_CONFIG: TOPIC_GET,
    Code.GET_TOPIC_STATS_INFO: TOPIC_GET,
    Code.QUERY_TOPIC_CONSUME_BY_WHO: TOPIC_GET,
    Code.QUERY_TOPICS_BY_CONSUMER: GROUP_GET,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: "",
    Code.QUERY_CONSUME_TIME_SPAN: f"{TOPIC_GET}, {GROUP_GET}",
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: "Group:kitchen Create",
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: "Group:kitchen Create",
    Code.DELETE_SUBSCRIPTIONGROUP: "Group:group_name Delete",
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: "",
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: GROUP_GET,
    Code.GET_CONSUMER_CONNECTION_LIST: GROUP_GET,
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: f"{TOPIC_GET}, {GROUP_GET}",
    Code.GET_PRODUCER_CONNECTION_LIST: READ_CLUSTER,
    Code.GET_ALL_PRODUCER_INFO: READ_CLUSTER,
    Code.GET_CONSUME_STATS: f"{TOPIC_GET}, {GROUP_GET}",
    Code.GET_BROKER_CONSUME_STATS: READ_CLUSTER,
    Code.CLONE_GROUP_OFFSET: "Topic:orders Update, Group:kitchen Update, Group:kitchen Update",
    Code.INVOKE_BROKER_TO_RESET_OFFSET: "Topic:orders Update, Group:kitchen Update",
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: f"{TOPIC_GET}, {GROUP_GET}",
    Code.GET_CONSUMER_RUNNING_INFO: GROUP_GET,
    Code.CONSUME_MESSAGE_DIRECTLY: CHANGE_CLUSTER,
    Code.UPDATE_AND_CREATE_ACL_CONFIG: CHANGE_CLUSTER,
    Code.DELETE_ACL_CONFIG: CHANGE_CLUSTER,
    Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: CHANGE_CLUSTER,
    Code.GET_BROKER_CLUSTER_ACL_INFO: "",
    Code.GET_BROKER_CLUSTER_ACL_CONFIG: READ_CLUSTER,
    Code.AUTH_CREATE_USER: CHANGE_CLUSTER,
    Code.AUTH_UPDATE_USER: CHANGE_CLUSTER,
    Code.AUTH_DELETE_USER: CHANGE_CLUSTER,
    Code.AUTH_GET_USER: READ_CLUSTER,
    Code.AUTH_LIST_USER: READ_CLUSTER,
    Code.AUTH_CREATE_ACL: CHANGE_CLUSTER,
    Code.AUTH_UPDATE_ACL: CHANGE_CLUSTER,
    Code.AUTH_DELETE_ACL: CHANGE_CLUSTER,
    Code.AUTH_GET_ACL: READ_CLUSTER,
    Code.AUTH_LIST_ACL: READ_CLUSTER,
    Code.GET_BROKER_RUNTIME_INFO: "",
    Code.VIEW_BROKER_STATS_DATA: READ_CLUSTER,
    Code.GET_BROKER_HA_STATUS: READ_CLUSTER,
    Code.GET_ALL_CONSUMER_OFFSET: READ_CLUSTER,
    Code.GET_ALL_DELAY_OFFSET: READ_CLUSTER,
    Code.GET_TIMER_CHECK_POINT: READ_CLUSTER,
    Code.CLEAN_EXPIRED_CONSUMEQUEUE: CHANGE_CLUSTER,
    Code.DELETE_EXPIRED_COMMITLOG: CHANGE_CLUSTER,
    Code.GET_BROKER_CONFIG: "",
    Code.UPDATE_BROKER_CONFIG: CHANGE_CLUSTER,
}
"""What each request about `orders` and `kitchen` needs; nothing: any user may send it."""


def user(name: str, **values: str) -> tuple[Header, UserInfo]:
    """Return the header and body that create a user."""
    return CreateUserRequestHeader(username=name), UserInfo(**({"password": SECRET} | values))


def acl(name: str, *entries: str, **values: object) -> tuple[Header, AclInfo]:
    """Return the header and body that add entries, such as `Topic:orders Pub,Sub Allow`, to a user's policies."""
    made: list[PolicyEntryInfo] = []
    for text in entries:
        resource, actions, decision = text.split()
        made.append(PolicyEntryInfo(resource=resource, actions=actions.split(","), decision=decision))
    return CreateAclRequestHeader(subject=f"User:{name}"), AclInfo(policies=[PolicyInfo(entries=made)])


async def remark(client: RawClient, code: int, header: Header | None, body: Body | bytes = b"") -> str | None:
    """Return why a request is refused for lack of permission."""
    answer = await client.ask(code, header, body)
    assert answer.code == ResponseCode.NO_PERMISSION, (answer.code, answer.remark)
    return answer.remark


def test_every_request_needs_actions_on_its_resources() -> None:
    """From the dispatch table: a new request without a rule fails here."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        table = embedded.broker.requests.table
        assert NEEDED.keys() == table.keys()
        for code, served in table.items():
            command = RemotingCommand(code, 1, body=BODIES.get(code, b""), extra=of_every_header())
            needed = [f"{resource} {'|'.join(actions)}" for resource, actions in served.needs.accesses(command)]
            assert ", ".join(needed) == NEEDED[code], request_name(code)
            assert served.needs.account, f"{request_name(code)} needs a user"

    with_broker(scene)


def test_user_may_do_what_its_policies_allow(tmp_path: Path) -> None:
    """Sent over the connection: the remarks are Apache's, and nothing is stored of what is refused."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        client.connection.sign_with(ROOT)
        for topic in ("orders", "bills"):
            await client.create_topic(topic)
        await client.ask_ok(Code.AUTH_CREATE_USER, *user("alice"))
        client.connection.sign_with(ALICE)
        nothing = "User:alice has no permission to access Topic:orders from 127.0.0.1, no matched policies."
        assert (await client.try_send("orders")).remark == nothing
        client.connection.sign_with(ROOT)
        rights = ("Topic:orders Pub,Sub Allow", "Topic:b* Pub Deny", "Group:kit* Sub Allow", "Topic:new* Create Allow")
        await client.ask_ok(Code.AUTH_CREATE_ACL, *acl("alice", *rights))
        client.connection.sign_with(ALICE)
        await client.send("orders", b"tea")
        await client.heartbeat(consumers={"kitchen": {"orders": "*"}})
        pulled = await client.pull("orders", consumer_group="kitchen")
        (message,) = pulled.messages
        assert (await client.send_back(message, "kitchen")).code == ResponseCode.SUCCESS
        assert (await client.try_send("%RETRY%kitchen")).code == ResponseCode.SUCCESS
        await client.create_topic("newest")
        denied = "User:alice has no permission to access Topic:bills from 127.0.0.1, the decision is deny."
        assert (await client.try_send("bills")).remark == denied
        pull = pull_header("orders", 0, consumer_group="bar")
        missing = "User:alice has no permission to access Group:bar from 127.0.0.1, no matched policies."
        assert await remark(client, Code.PULL_MESSAGE, pull) == missing
        assert (await client.try_send("%RETRY%bar")).remark == missing
        missing = "User:alice has no permission to access Cluster:DefaultCluster from 127.0.0.1, no matched policies."
        assert await remark(client, Code.AUTH_LIST_USER, ListUsersRequestHeader()) == missing
        assert await remark(client, Code.UPDATE_BROKER_CONFIG, None, b"traceOn=false") == missing
        assert embedded.broker.store.max_offset("bills", 0) == 0

    with_broker(scene, **SETTINGS)


def test_sender_must_be_an_enabled_user_and_sign() -> None:
    """With Apache's remarks; codes in the white list need neither."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        assert await remark(client, Code.GET_BROKER_RUNTIME_INFO, None) == "username cannot be null."
        client.connection.sign_with(Credentials("bob", SECRET))
        assert await remark(client, Code.GET_BROKER_RUNTIME_INFO, None) == "User:bob is not found."
        client.connection.sign_with(Credentials("root", "another"))
        assert await remark(client, Code.GET_BROKER_RUNTIME_INFO, None) == "check signature failed."
        client.connection.sign_with(BROKER)  # a super user, too
        await client.ask_ok(Code.AUTH_CREATE_USER, *user("alice", user_status="disable"))
        client.connection.sign_with(ALICE)
        assert await remark(client, Code.GET_BROKER_RUNTIME_INFO, None) == "User:alice is disabled."
        client.connection.sign_with(None)
        await client.ask_ok(Code.GET_ALL_DELAY_OFFSET)

    white = {"authenticationWhitelist": "310, 45", "authorizationWhitelist": "45"}
    with_broker(scene, **SETTINGS | white)


def test_users_are_checked_without_policies() -> None:
    """With `authenticationEnabled` alone every user may do everything, but not change super users."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        assert (await client.try_send("orders")).remark == "username cannot be null."
        client.connection.sign_with(ROOT)
        await client.ask_ok(Code.AUTH_CREATE_USER, *user("alice"))
        client.connection.sign_with(ALICE)
        await client.create_topic("orders")
        await client.send("orders")
        await client.ask_ok(Code.AUTH_CREATE_USER, *user("bob"))
        header, body = user("eve", user_type="Super")
        answer = await client.ask(Code.AUTH_CREATE_USER, header, body)
        only = "The super user can only be create by super user"
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, only)
        only = "The super user can only be update by super user"
        answer = await client.ask(Code.AUTH_UPDATE_USER, UpdateUserRequestHeader(username="alice"), body)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, only)
        disabled = UserInfo(user_status="disable")
        assert await remark(client, Code.AUTH_UPDATE_USER, UpdateUserRequestHeader(username="root"), disabled) == only
        assert await remark(client, Code.AUTH_DELETE_USER, DeleteUserRequestHeader(username="root")) == only

    with_broker(scene, **SETTINGS | {"authorizationEnabled": "false"})


def test_policies_are_checked_without_signatures() -> None:
    """With `authorizationEnabled` alone: a request without a user, or with one that does not exist, is refused."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        failed = "Authorization failed. Please verify your access rights and try again."
        assert (await client.try_send("orders")).remark == failed
        client.connection.sign_with(Credentials("bob", SECRET))
        assert (await client.try_send("orders")).remark == "User:bob not found."
        client.connection.sign_with(Credentials("root", "another"))
        await client.create_topic("orders")
        await client.ask_ok(Code.AUTH_CREATE_USER, *user("alice", user_status="disable"))
        client.connection.sign_with(ALICE)
        assert (await client.try_send("orders")).remark == "User:alice is disabled."

    with_broker(scene, **SETTINGS | {"authenticationEnabled": "false"})


def test_users_are_created_changed_listed_and_deleted(caplog: pytest.LogCaptureFixture) -> None:
    """With Apache's answers, but no answer and no line of a log has a password; the audit log has the names."""
    caplog.set_level(logging.DEBUG)

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        client.connection.sign_with(ROOT)

        async def shown(name: str) -> dict[str, str]:
            answer = await client.ask_ok(Code.AUTH_GET_USER, GetUserRequestHeader(username=name))
            return json.loads(bytes(answer.body)) if answer.body else {}

        await client.ask_ok(Code.AUTH_CREATE_USER, *user("alice", user_type="unknown"))
        await client.ask_ok(Code.AUTH_CREATE_USER, *user("bob", user_type="super", user_status="DISABLE"))
        hidden = {"password": "******"}
        assert await shown("alice") == {"username": "alice", "userType": "Normal", "userStatus": "enable"} | hidden
        assert await shown("bob") == {"username": "bob", "userType": "Super", "userStatus": "disable"} | hidden
        assert await shown("carol") == {}
        update = UpdateUserRequestHeader(username="alice")
        await client.ask_ok(Code.AUTH_UPDATE_USER, update, UserInfo(password="hush-again", user_status="disable"))
        await client.ask_ok(Code.AUTH_UPDATE_USER, update, UserInfo(user_status="enable"))
        client.connection.sign_with(Credentials("alice", "hush-again"))
        await client.ask_ok(Code.GET_BROKER_RUNTIME_INFO)
        client.connection.sign_with(ROOT)
        for part, names in ((None, ["alice", "bob", "broker", "root"]), ("b", ["bob", "broker"])):
            listed = await client.ask_ok(Code.AUTH_LIST_USER, ListUsersRequestHeader(filter=part))
            assert [each["username"] for each in json.loads(bytes(listed.body))] == names
            assert b"hush" not in bytes(listed.body)
        assert not (await client.ask_ok(Code.AUTH_LIST_USER, ListUsersRequestHeader(filter="x"))).body
        assert await remark(client, Code.AUTH_CREATE_USER, *user("alice")) == "The user is existed"
        assert await remark(client, Code.AUTH_CREATE_USER, *user("new", password=" ")) == "password can not be blank"
        missing = UpdateUserRequestHeader(username="carol")
        assert await remark(client, Code.AUTH_UPDATE_USER, missing, UserInfo()) == "The user is not exist"
        blank = DeleteUserRequestHeader(username=" ")
        assert await remark(client, Code.AUTH_DELETE_USER, blank) == "username can not be blank"
        for code, header in (
            (Code.AUTH_CREATE_USER, CreateUserRequestHeader()),
            (Code.AUTH_UPDATE_USER, UpdateUserRequestHeader(username=" ")),
            (Code.AUTH_GET_USER, GetUserRequestHeader(username="")),
        ):
            answer = await client.ask(code, header, UserInfo())
            assert (answer.code, answer.remark) == (ResponseCode.INVALID_PARAMETER, "The username is blank")
        await client.ask_ok(Code.AUTH_CREATE_ACL, *acl("alice", "Topic:* Pub Allow"))
        for _ in range(2):
            await client.ask_ok(Code.AUTH_DELETE_USER, DeleteUserRequestHeader(username="alice"))
        assert not (await client.ask_ok(Code.AUTH_LIST_ACL, ListAclsRequestHeader())).body, "deleted with the user"
        audited = (embedded.store_path / "audit" / "audit.log").read_text()
        assert '"names":{"username":"bob","listed":["super","DISABLE"]},"answer":"SUCCESS"' in audited
        assert '"names":{"subject":"User:alice","listed":["Topic:*"]},"answer":"SUCCESS"' in audited
        assert "hush" not in audited

    with_broker(scene, **SETTINGS)
    assert "user alice created by" in caplog.text
    assert "hush" not in caplog.text


def test_user_beyond_the_limits_is_refused() -> None:
    """And the remark has no password."""

    def of(password: str) -> bytes:
        return encode_body(UserInfo(password=password))

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        client.connection.sign_with(ROOT)
        for name, body, says in (
            ("new", b'{"password":"hush"', "the body is not a user"),
            ("new", b"", "the body is not a user"),
            ("new", of("hush" * 64), "the password has more than 255 characters"),
            ("new", of("******"), "****** stands for a password in answers"),
            ("n" * 256, of("hush"), "at most 255 printable characters"),
            ("a\nb", of("hush"), "at most 255 printable characters"),
            ("third", of("hush"), "at most 2 (maxUsers)"),
        ):
            answer = await client.ask(Code.AUTH_CREATE_USER, CreateUserRequestHeader(username=name), body)
            assert answer.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.INVALID_PARAMETER)
            assert says in (answer.remark or "")
            assert "hush" not in (answer.remark or "")

    with_broker(scene, **SETTINGS | {"maxUsers": "2"})


def test_policies_are_merged_listed_and_deleted() -> None:
    """An entry for the same resource replaces the former one; with Apache's answers."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        client.connection.sign_with(ROOT)
        for name in ("alice", "bob"):
            await client.ask_ok(Code.AUTH_CREATE_USER, *user(name))

        async def listed(code: int, header: Header) -> object:
            body = bytes((await client.ask_ok(code, header)).body)
            return msgspec.json.decode(body) if body else None

        def one(resource: str, *actions: str, decision: str = "Allow") -> dict[str, object]:
            return {"resource": resource, "actions": list(actions), "decision": decision}

        get = GetAclRequestHeader(subject="User:alice")
        assert await listed(Code.AUTH_GET_ACL, get) is None
        await client.ask_ok(Code.AUTH_CREATE_ACL, *acl("alice", "Topic:a Pub,Sub Allow", "Group:* Sub Allow"))
        await client.ask_ok(Code.AUTH_UPDATE_ACL, *acl("alice", "topic:a Pub Deny", "Topic:b* All Allow"))
        default = AclInfo(
            subject="User:alice",
            policies=[
                PolicyInfo(
                    policy_type="Default",
                    entries=[
                        PolicyEntryInfo(resource="*", actions=["Get"], source_ips=["10.0.0.0/8"], decision="Allow")
                    ],
                )
            ],
        )
        await client.ask_ok(Code.AUTH_UPDATE_ACL, CreateAclRequestHeader(subject="User:bob"), default)
        custom = [one("Topic:a", "Pub", decision="Deny"), one("Group:*", "Sub"), one("Topic:b*", "All")]
        of_alice = {
            "subject": "User:alice",
            "policies": [
                {"policyType": "Custom", "entries": custom},
                {"policyType": "Default", "entries": [one("*", "Get") | {"sourceIps": ["10.0.0.0/8"]}]},
            ],
        }
        assert await listed(Code.AUTH_GET_ACL, get) == of_alice
        assert await listed(Code.AUTH_LIST_ACL, ListAclsRequestHeader()) == [of_alice]
        assert await listed(Code.AUTH_LIST_ACL, ListAclsRequestHeader(subject_filter="bob")) is None
        only = {"subject": "User:alice", "policies": [{"policyType": "Custom", "entries": [custom[1]]}]}
        assert await listed(Code.AUTH_LIST_ACL, ListAclsRequestHeader(resource_filter="Group")) == [only]

        def delete(resource: str | None, policy_type: str | None = None) -> DeleteAclRequestHeader:
            return DeleteAclRequestHeader(subject="User:alice", policy_type=policy_type, resource=resource)

        await client.ask_ok(Code.AUTH_DELETE_ACL, delete("*", "default"))
        await client.ask_ok(Code.AUTH_DELETE_ACL, delete("Topic:b*"))
        await client.ask_ok(Code.AUTH_DELETE_ACL, delete("Topic:other"))
        left = {"subject": "User:alice", "policies": [{"policyType": "Custom", "entries": custom[:2]}]}
        assert await listed(Code.AUTH_GET_ACL, get) == left
        assert "is not a resource" in (await remark(client, Code.AUTH_DELETE_ACL, delete("b")) or "")
        await client.ask_ok(Code.AUTH_DELETE_ACL, delete(None))
        assert await remark(client, Code.AUTH_DELETE_ACL, delete(None)) == "The acl is not exist."
        stranger = DeleteAclRequestHeader(subject="User:carol")
        assert await remark(client, Code.AUTH_DELETE_ACL, stranger) == "The subject is not exist."
        assert await remark(client, Code.AUTH_DELETE_ACL, DeleteAclRequestHeader()) == "The subject is null."
        stranger = GetAclRequestHeader(subject="User:carol")
        assert await remark(client, Code.AUTH_GET_ACL, stranger) == "The subject is not exist."
        missing = "The subject of User:carol is not exist."
        assert await remark(client, Code.AUTH_CREATE_ACL, *acl("carol", "Topic:a Pub Allow")) == missing
        wrong = acl("bob", "Topic:a Fly Allow")
        assert await remark(client, Code.AUTH_CREATE_ACL, *wrong) == "The actions is empty."
        answer = await client.ask(Code.AUTH_CREATE_ACL, CreateAclRequestHeader(subject="User:bob"), AclInfo())
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "The body of acl is null")
        await client.ask_ok(Code.AUTH_CREATE_ACL, *acl("bob", *[f"Topic:{n:0200} Pub Allow" for n in range(150)]))
        answer = await client.ask(Code.AUTH_CREATE_ACL, *acl("bob", *[f"Group:{n:0200} Sub Allow" for n in range(150)]))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "use prefixes" in (answer.remark or "")

    with_broker(scene, **SETTINGS)


def test_change_of_policies_applies_to_the_next_request() -> None:
    """So does the end of a user: nothing is remembered of a connection."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        client.connection.sign_with(ROOT)
        await client.create_topic("orders")
        await client.ask_ok(Code.AUTH_CREATE_USER, *user("alice"))
        transport = embedded.broker.transport
        other = await RawClient.connect(transport, embedded.broker_address)
        other.connection.sign_with(ALICE)
        for decision, code in (("Allow", ResponseCode.SUCCESS), ("Deny", ResponseCode.NO_PERMISSION)):
            await client.ask_ok(Code.AUTH_UPDATE_ACL, *acl("alice", f"Topic:orders Pub {decision}"))
            assert (await other.try_send("orders")).code == code
        await client.ask_ok(Code.AUTH_DELETE_USER, DeleteUserRequestHeader(username="alice"))
        assert (await other.try_send("orders")).remark == "User:alice is not found."
        await other.connection.close()

    with_broker(scene, **SETTINGS)


def test_policy_is_for_the_addresses_of_clients() -> None:
    """The address of the connection counts."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        client.connection.sign_with(ROOT)
        await client.create_topic("orders")
        await client.ask_ok(Code.AUTH_CREATE_USER, *user("alice"))
        header, body = acl("alice", "Topic:orders Pub Allow")
        body.policies[0].entries[0].source_ips = ["10.0.0.0/8"]  # type: ignore[index]
        await client.ask_ok(Code.AUTH_CREATE_ACL, header, body)
        client.connection.sign_with(ALICE)
        near = "User:alice has no permission to access Topic:orders from 127.0.0.1, no matched policies."
        assert (await client.try_send("orders")).remark == near
        transport = embedded.broker.transport
        assert isinstance(transport, MemoryTransport)
        far = await RawClient.connect(transport.at("10.0.0.7"), embedded.broker_address)
        far.connection.sign_with(ALICE)
        assert (await far.try_send("orders")).code == ResponseCode.SUCCESS
        await far.connection.close()

    with_broker(scene, **SETTINGS)


def test_policies_hold_for_the_message_that_a_request_is_about() -> None:
    """Its topic counts, not that of the request; checks of transactions go to producers that may send there."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        client.connection.sign_with(ROOT)
        for topic in ("orders", "bills"):
            await client.create_topic(topic)
        await client.ask_ok(Code.AUTH_CREATE_USER, *user("alice"))
        await client.ask_ok(Code.AUTH_CREATE_ACL, *acl("alice", "Topic:* Pub,Sub,Get Allow", "Topic:bills All Deny"))
        half = await begin(client, embedded.broker.clock.now_ms(), topic="bills")
        offset = parse_offset_id((await client.send("bills", b"secret")).msg_id)[2]
        member = await RawClient.connect(embedded.broker.transport, embedded.broker_address)
        member.connection.sign_with(ALICE)
        await member.heartbeat(producers=(GROUP,))
        denied = "User:alice has no permission to access Topic:bills from 127.0.0.1, the decision is deny."
        assert (await end(member, half, topic="orders")).remark == denied
        view = ViewMessageRequestHeader(topic="orders", offset=offset)
        assert await remark(member, Code.VIEW_MESSAGE_BY_ID, view) == denied
        waiting = pull_header(TRANS_HALF_TOPIC, 0, consumer_group=TOOLS_CONSUMER_GROUP)
        assert TRANS_HALF_TOPIC in (await remark(member, Code.PULL_MESSAGE, waiting) or "")
        await asyncio.sleep(200)  # in virtual time
        assert not questions(member)
        await client.heartbeat(producers=(GROUP,))
        await asyncio.sleep(200)
        assert questions(client)
        assert not questions(member)
        await member.connection.close()

    with_broker(scene, **SETTINGS)


def test_broker_without_users_says_so() -> None:
    """Without a provider there is no table of users; nobody else is refused."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.create_topic("orders")
        for code, (header, body) in (
            (Code.AUTH_CREATE_USER, user("a")),
            (Code.AUTH_CREATE_ACL, acl("a", "* All Allow")),
        ):
            answer = await client.ask(code, header, body)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "this broker keeps no users: set authenticationMetadataProvider" in (answer.remark or "")

    with_broker(scene)


def test_users_can_be_made_before_requests_are_checked() -> None:
    """As on Apache's broker: with the providers alone, and by requests that nobody signs."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.ask_ok(Code.AUTH_CREATE_USER, *user("root", user_type="Super"))
        await client.create_topic("orders")

    with_broker(scene, **KEPT)


def test_accounts_of_4_9_become_users_once(tmp_path: Path) -> None:
    """At the start: rights become policies, administrators super users; later changes of the users stay."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(
        f"""\
globalWhiteRemoteAddresses: [127.0.0.1]
accounts:
  - {{accessKey: operator, secretKey: {SECRET}, admin: true}}
  - accessKey: shop-app
    secretKey: {SECRET}
    defaultGroupPerm: SUB
    topicPerms: [orders=PUB|SUB, bills=DENY, "x*=PUB"]
    groupPerms: [kitchen=SUB]
"""
    )
    shop = Credentials("shop-app", SECRET)
    settings = SETTINGS | {"rocketmqHome": str(tmp_path), "migrateAuthFromV1Enabled": "true"}

    def entry(resource: str, decision: str, *actions: str) -> dict[str, object]:
        return {"resource": resource, "actions": list(actions), "decision": decision}

    async def first(client: RawClient, embedded: EmbeddedBroker) -> None:
        client.connection.sign_with(Credentials("operator", SECRET))
        await client.create_topic("orders")
        answer = await client.ask_ok(Code.AUTH_GET_ACL, GetAclRequestHeader(subject="User:shop-app"))
        custom, default = json.loads(bytes(answer.body))["policies"]
        assert custom["entries"] == [
            entry("Topic:orders", "Allow", "Pub", "Sub"),
            entry("Topic:bills", "Deny", "All"),
            entry("Group:kitchen", "Allow", "Sub"),
        ]
        assert default["policyType"] == "Default"
        assert default["entries"] == [entry("Topic:*", "Deny", "All"), entry("Group:*", "Allow", "Sub")]
        client.connection.sign_with(shop)
        await client.send("orders")
        pulled = await client.pull("orders", consumer_group="another")
        assert len(pulled.messages) == 1
        denied = "User:shop-app has no permission to access Topic:xyz from 127.0.0.1, the decision is deny."
        assert (await client.try_send("xyz")).remark == denied
        client.connection.sign_with(ROOT)
        await client.ask_ok(
            Code.AUTH_UPDATE_USER, UpdateUserRequestHeader(username="shop-app"), UserInfo(password="new")
        )

    async def again(client: RawClient, embedded: EmbeddedBroker) -> None:
        client.connection.sign_with(shop)
        assert (await client.try_send("orders")).remark == "check signature failed."
        client.connection.sign_with(Credentials("shop-app", "new"))
        await client.send("orders")

    with_broker(first, **settings, storePathRootDir=str(tmp_path / "store"))
    with_broker(again, **settings, storePathRootDir=str(tmp_path / "store"))
