"""Access control of broker and name server: every request, and the accounts of four kinds."""

import asyncio
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rocket_broker.access.needs import Served, handlers_of
from rocket_broker.embedded import EmbeddedBroker
from rocket_broker.limits.refusal import Refusal
from rocket_broker.namesrv.kv_config import KVConfig
from rocket_broker.namesrv.processor import NameServerProcessor
from rocket_broker.namesrv.route_table import RouteTable
from rocket_broker.namesrv.settings import NameServerSettings
from rocket_client import Credentials
from rocket_remoting import MemoryTransport
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import (
    GetBrokerClusterAclConfigResponseBody,
    decode_body,
)
from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.codes import ResponseCode, request_name
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    GetBrokerAclConfigResponseHeader,
    PutKVConfigRequestHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
    ViewMessageRequestHeader,
)
from tests.end_to_end.every_request import BODIES, of_every_header
from tests.end_to_end.raw_client import RawClient, pull_header, send_header, with_broker
from tests.signatures import signed_as_apache

SECRET = "12345678"
ADMINISTRATOR, MEMBER = Credentials("administrator", SECRET), Credentials("memberOfAll", SECRET)
NOBODY = Credentials("withoutRights", SECRET)
FORGER = Credentials("administrator", "87654321")
STRANGER = Credentials("stranger", SECRET)
ACCOUNTS = f"""\
accounts:
  - accessKey: administrator
    secretKey: "{SECRET}"
    admin: true
  - accessKey: memberOfAll
    secretKey: "{SECRET}"
    topicPerms: [orders=PUB|SUB]
    groupPerms: [kitchen=SUB]
  - accessKey: withoutRights
    secretKey: "{SECRET}"
"""

FOR_EVERY_ACCOUNT = {
    Code.CHECK_CLIENT_CONFIG, Code.GET_ALL_TOPIC_CONFIG,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, Code.GET_PRODUCER_CONNECTION_LIST,
    Code.GET_ALL_PRODUCER_INFO, Code.GET_BROKER_CONSUME_STATS, Code.GET_BROKER_CLUSTER_ACL_INFO,
    Code.GET_BROKER_RUNTIME_INFO, Code.GET_BROKER_CONFIG, Code.VIEW_BROKER_STATS_DATA,
    Code.GET_BROKER_HA_STATUS,
}  # fmt: skip
"""Requests that are no secret, and that change nothing of others. A new request belongs here only for a reason."""

FOR_ADMINISTRATORS = {
    Code.RESUME_CHECK_HALF_MESSAGE, Code.UPDATE_AND_CREATE_TOPIC, Code.UPDATE_AND_CREATE_TOPIC_LIST,
    Code.DELETE_TOPIC_IN_BROKER, Code.CLEAN_UNUSED_TOPIC, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, Code.DELETE_SUBSCRIPTIONGROUP, Code.CONSUME_MESSAGE_DIRECTLY,
    Code.UPDATE_AND_CREATE_ACL_CONFIG, Code.DELETE_ACL_CONFIG, Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    Code.GET_BROKER_CLUSTER_ACL_CONFIG, Code.GET_ALL_CONSUMER_OFFSET, Code.GET_ALL_DELAY_OFFSET,
    Code.GET_TIMER_CHECK_POINT,
    Code.CLEAN_EXPIRED_CONSUMEQUEUE, Code.DELETE_EXPIRED_COMMITLOG, Code.UPDATE_BROKER_CONFIG,
    Code.AUTH_CREATE_USER, Code.AUTH_UPDATE_USER, Code.AUTH_DELETE_USER, Code.AUTH_GET_USER, Code.AUTH_LIST_USER,
    Code.AUTH_CREATE_ACL, Code.AUTH_UPDATE_ACL, Code.AUTH_DELETE_ACL, Code.AUTH_GET_ACL, Code.AUTH_LIST_ACL,
}  # fmt: skip

OF_NAME_SERVER_FOR_ADMINISTRATORS = {
    Code.REGISTER_BROKER, Code.UNREGISTER_BROKER, Code.QUERY_DATA_VERSION, Code.WIPE_WRITE_PERM_OF_BROKER,
    Code.ADD_WRITE_PERM_OF_BROKER, Code.DELETE_TOPIC_IN_NAMESRV, Code.PUT_KV_CONFIG, Code.DELETE_KV_CONFIG,
    Code.UPDATE_NAMESRV_CONFIG, Code.BROKER_HEARTBEAT,
}  # fmt: skip


def accounts_in(home: Path) -> dict[str, str]:
    """Write the accounts of an installation; return the settings of a broker that has it."""
    (home / "conf").mkdir()
    (home / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    keys = json.dumps({"accessKey": ADMINISTRATOR.access_key, "secretKey": SECRET})
    return {"aclEnable": "true", "rocketmqHome": str(home), "innerClientAuthenticationCredentials": keys}


def outcome(
    code: int, connection: Connection, embedded: EmbeddedBroker, table: Mapping[int, Served], keys: Credentials | None
) -> str:
    """Return `served`, or the start of the remark, for an account's request about `orders` and `kitchen`."""
    access = embedded.broker.access
    assert access is not None
    body, fields = BODIES.get(code, b""), of_every_header()
    command = RemotingCommand(code, 1, body=body, extra=fields if keys is None else keys.signed(code, fields, body))
    served = {at: Served(lambda *_: None, needs) for at, (_, needs) in table.items()}
    try:
        handlers_of(served, access.check)[code](connection, command)
    except Refusal as refusal:
        return " ".join(refusal.remark.split()[:2]) if refusal.code is ResponseCode.NO_PERMISSION else refusal.remark
    return "served"


ACCOUNTS_OF_ALL_KINDS = (None, STRANGER, FORGER, NOBODY, MEMBER, ADMINISTRATOR)


def test_every_request_of_the_broker_is_served_to_the_right_accounts(tmp_path: Path) -> None:
    """From the dispatch table: a new request is for accounts with rights, unless this module says otherwise."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        table = embedded.broker.requests.table
        client.connection.sign_with(ADMINISTRATOR)
        await client.create_topic("orders")
        await client.send("orders")  # of which VIEW_MESSAGE_BY_ID and CONSUMER_SEND_MSG_BACK name no record
        refused = ("No accessKey", "No acl", "Check signature")
        for code in table:
            if code in FOR_EVERY_ACCOUNT:
                expected = ("served", "served", "served")
            elif code in FOR_ADMINISTRATORS:
                expected = ("Need admin", "Need admin", "served")
            elif code == Code.VIEW_MESSAGE_BY_ID:
                expected = ("served", "served", "served")
            else:
                expected = ("No default", "served", "served")
            found = [outcome(code, client.connection, embedded, table, keys) for keys in ACCOUNTS_OF_ALL_KINDS]
            assert tuple(found) == (*refused, *expected), request_name(code)

    with_broker(scene, **accounts_in(tmp_path))


def test_every_request_of_the_name_server_is_served_to_the_right_accounts(tmp_path: Path) -> None:
    """Everybody may look up routes; only administrators, such as a broker's account, may change what is known."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        routes, kv = RouteTable(lambda: 0.0), KVConfig(tmp_path / "kv.json")
        table = NameServerProcessor(NameServerSettings(), routes, kv).table
        for code in table:
            found = [outcome(code, client.connection, embedded, table, keys) for keys in ACCOUNTS_OF_ALL_KINDS]
            if code in OF_NAME_SERVER_FOR_ADMINISTRATORS:
                assert found == ["No accessKey", "No acl", "Check signature", "Need admin", "Need admin", "served"]
            elif code == Code.GET_NAMESRV_CONFIG:
                assert found == ["No accessKey", "No acl", "Check signature", "served", "served", "served"]
            else:
                assert found == ["served"] * 6, request_name(code)

    with_broker(scene, **accounts_in(tmp_path))


def test_rights_are_those_on_the_topics_and_groups_of_the_request(tmp_path: Path) -> None:
    """Sent over the connection: the answer has Apache's remark, and nothing is stored."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        client.connection.sign_with(ADMINISTRATOR)
        for topic in ("orders", "bills"):
            await client.create_topic(topic)
        secret = await client.send("bills", b"secret")
        client.connection.sign_with(MEMBER)
        stored = await client.send("orders", b"tea")
        await client.heartbeat(consumers={"kitchen": {"orders": "*"}})
        pulled = await client.pull("orders", consumer_group="kitchen")
        (message,) = pulled.messages
        assert message.body == b"tea"
        assert (await client.send_back(message, "kitchen")).code == ResponseCode.SUCCESS
        assert (await client.try_send("%RETRY%kitchen")).code == ResponseCode.SUCCESS

        def refused(answer: RemotingCommand) -> str | None:
            assert answer.code == ResponseCode.NO_PERMISSION
            return answer.remark

        assert refused(await client.try_send("bills")) == "No default permission for topic:bills"
        assert refused(await client.try_send("%RETRY%bar")) == "No default permission for group:bar"
        for topic, group, missing in (("bills", "kitchen", "topic:bills"), ("orders", "bar", "group:bar")):
            answer = await client.ask(Code.PULL_MESSAGE, pull_header(topic, 0, consumer_group=group))
            assert refused(answer) == f"No default permission for {missing}"
        beat = await client.heartbeat(
            consumers={"kitchen": {"orders": "*", "bills": "*"}}, expected=ResponseCode.NO_PERMISSION
        )
        assert beat.remark == "No default permission for topic:bills"
        # A message is of its own topic, whatever the request says.
        offset = int(secret.msg_id[16:], 16)
        view = ViewMessageRequestHeader(topic="orders", offset=offset)
        assert refused(await client.ask(Code.VIEW_MESSAGE_BY_ID, view)) == "No default permission for topic:bills"
        message.commit_log_offset = offset
        assert refused(await client.send_back(message, "kitchen")) == "No default permission for topic:bills"
        view = ViewMessageRequestHeader(offset=int(stored.msg_id[16:], 16))
        assert (await client.ask(Code.VIEW_MESSAGE_BY_ID, view)).code == ResponseCode.SUCCESS
        assert embedded.broker.store.max_offset("bills", 0) == 1

    with_broker(scene, **accounts_in(tmp_path))


def test_signature_covers_fields_and_body(tmp_path: Path) -> None:
    """A changed field or body is refused; a field that old Java clients add later need not be signed."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        client.connection.sign_with(ADMINISTRATOR)
        await client.create_topic("orders")
        client.connection.sign_with(None)
        header, body = send_header("orders", None), b"tea"
        fields = signed_as_apache(MEMBER, RemotingCommand.request(0, header).ext_fields, body)

        async def code(fields: Mapping[str, str], body: bytes) -> int:
            return (await client.ask(Code.SEND_MESSAGE_V2, body=body, ext_fields=fields)).code

        assert await code(fields, body) == ResponseCode.SUCCESS
        assert await code(fields | {"_UNIQUE_KEY_QUERY": "true"}, body) == ResponseCode.SUCCESS
        for changed in (fields | {"b": "bills"}, fields | {"x": "y"}, fields | {"Signature": "é"}):
            assert await code(changed, body) == ResponseCode.NO_PERMISSION
        assert await code(fields, b"coffee") == ResponseCode.NO_PERMISSION
        del fields["Signature"]
        assert await code(fields, body) == ResponseCode.NO_PERMISSION

    with_broker(scene, **accounts_in(tmp_path))


def test_addresses_of_white_lists_need_no_signature(tmp_path: Path) -> None:
    """One list is for all requests, an account's own list for requests in its name."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        fields = {"AccessKey": "withoutRights"}
        assert (await client.ask(Code.CLEAN_UNUSED_TOPIC, ext_fields=fields)).code == ResponseCode.NO_PERMISSION
        client.connection.sign_with(ADMINISTRATOR)
        account = CreateAccessConfigRequestHeader(
            access_key="withoutRights", secret_key=SECRET, white_remote_address="127.0.0.*"
        )
        await client.ask_ok(Code.UPDATE_AND_CREATE_ACL_CONFIG, account)
        client.connection.sign_with(None)
        assert (await client.ask(Code.CLEAN_UNUSED_TOPIC, ext_fields=fields)).code == ResponseCode.SUCCESS
        assert (await client.ask(Code.CLEAN_UNUSED_TOPIC)).code == ResponseCode.NO_PERMISSION
        client.connection.sign_with(ADMINISTRATOR)
        everybody = UpdateGlobalWhiteAddrsConfigRequestHeader(global_white_addrs="127.0.0.1,10.*.*.*")
        await client.ask_ok(Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, everybody)
        client.connection.sign_with(None)
        assert (await client.ask(Code.CLEAN_UNUSED_TOPIC)).code == ResponseCode.SUCCESS

    with_broker(scene, **accounts_in(tmp_path))


def test_accounts_are_changed_and_listed_by_requests(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """At once, and in the file; no answer and no log has a secret key."""
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "conf" / "plain_acl.yml"
    newcomer = Credentials("newcomer", "hush-hush")

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        client.connection.sign_with(ADMINISTRATOR)
        header = CreateAccessConfigRequestHeader(
            access_key="newcomer", secret_key="hush-hush", default_topic_perm="PUB", topic_perms="a=SUB, b=DENY"
        )
        await client.ask_ok(Code.UPDATE_AND_CREATE_ACL_CONFIG, header)
        client.connection.sign_with(newcomer)
        await client.ask_ok(Code.GET_BROKER_CONFIG)
        version = (await client.ask_ok(Code.GET_BROKER_CLUSTER_ACL_INFO)).header(GetBrokerAclConfigResponseHeader)
        assert json.loads(version.version)["counter"] == 1
        assert list(json.loads(version.all_acl_file_version or "")) == [str(path)]
        client.connection.sign_with(ADMINISTRATOR)
        answer = await client.ask_ok(Code.GET_BROKER_CLUSTER_ACL_CONFIG)
        config = decode_body(answer.body, GetBrokerClusterAclConfigResponseBody)
        described = {account.access_key: account for account in config.plain_access_configs}["newcomer"]
        assert (described.secret_key, described.admin, described.topic_perms) == ("******", False, ["a=SUB", "b=DENY"])
        assert (described.default_topic_perm, described.default_group_perm) == ("PUB", "DENY")
        # What a tool has read cannot be sent back as a secret.
        header.secret_key = described.secret_key
        answer = await client.ask(Code.UPDATE_AND_CREATE_ACL_CONFIG, header)
        assert answer.code == ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
        delete = DeleteAccessConfigRequestHeader(access_key="newcomer")
        await client.ask_ok(Code.DELETE_ACL_CONFIG, delete)
        answer = await client.ask(Code.DELETE_ACL_CONFIG, delete)
        assert (answer.code, answer.remark) == (ResponseCode.DELETE_ACL_CONFIG_FAILED, "No acl config for newcomer")
        client.connection.sign_with(newcomer)
        assert (await client.ask(Code.GET_BROKER_CONFIG)).code == ResponseCode.NO_PERMISSION

    with_broker(scene, **accounts_in(tmp_path))
    assert "account newcomer changed by" in caplog.text
    assert "hush" not in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    "wrong",
    [
        {"secret_key": "short"},
        {"secret_key": None},
        {"access_key": "short"},
        {"default_topic_perm": "READ"},
        {"topic_perms": "a"},
        {"group_perms": "a=PUB,b=READ"},
        {"white_remote_address": "10.0.0"},
    ],
)
def test_wrong_account_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    """The file stays as it was, and the remark has no secret."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        client.connection.sign_with(ADMINISTRATOR)
        header = CreateAccessConfigRequestHeader(**({"access_key": "newcomer", "secret_key": "hush-hush"} | wrong))
        answer = await client.ask(Code.UPDATE_AND_CREATE_ACL_CONFIG, header)
        assert answer.code == ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
        assert "hush" not in (answer.remark or "")

    with_broker(scene, **accounts_in(tmp_path))
    assert (tmp_path / "conf" / "plain_acl.yml").read_text() == ACCOUNTS


def test_commands_about_accounts_say_that_access_control_is_off() -> None:
    """With the code of Apache's broker for a failed change."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        header = CreateAccessConfigRequestHeader(access_key="newcomer", secret_key=SECRET)
        answer = await client.ask(Code.UPDATE_AND_CREATE_ACL_CONFIG, header)
        assert answer.code == ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
        assert answer.remark == "access control is off on this broker: start it with aclEnable=true"
        assert (await client.ask(Code.GET_BROKER_CLUSTER_ACL_CONFIG)).code == ResponseCode.SYSTEM_ERROR

    with_broker(scene)


def test_name_server_with_access_control_knows_signed_brokers_only(tmp_path: Path) -> None:
    """The bundled broker signs with its own account, which no answer and no report shows."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        transport = embedded.broker.transport
        asking = await RawClient.connect(transport, embedded.name_server_address)
        put = PutKVConfigRequestHeader(namespace="n", key="k", value="v")
        assert "broker-a" in bytes((await asking.ask_ok(Code.GET_BROKER_CLUSTER_INFO)).body).decode()
        assert (await asking.ask(Code.PUT_KV_CONFIG, put)).code == ResponseCode.NO_PERMISSION
        asking.connection.sign_with(ADMINISTRATOR)
        await asking.ask_ok(Code.PUT_KV_CONFIG, put)
        await asking.connection.close()
        client.connection.sign_with(NOBODY)
        reported = bytes((await client.ask_ok(Code.GET_BROKER_CONFIG)).body).decode()
        assert "innerClientAuthenticationCredentials" not in reported
        assert SECRET not in reported
        # A tool may send back what it has read; nobody changes the secret by request.
        client.connection.sign_with(ADMINISTRATOR)
        key = "innerClientAuthenticationCredentials"
        await client.ask_ok(Code.UPDATE_BROKER_CONFIG, body=f"{key}=******\n".encode())
        answer = await client.ask(Code.UPDATE_BROKER_CONFIG, body=f"{key}={{}}hush\n".encode())
        assert answer.code != ResponseCode.SUCCESS
        assert "hush" not in (answer.remark or "")

    with_broker(scene, **accounts_in(tmp_path))


def test_name_server_without_access_control_is_administrated_from_its_own_machine() -> None:
    """Brokers and clients of other machines are served; a setting lets everybody administrate, as on Apache's."""
    put = PutKVConfigRequestHeader(namespace="n", key="k", value="v")

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        transport, address = embedded.broker.transport, embedded.name_server_address
        assert isinstance(transport, MemoryTransport)
        near = await RawClient.connect(transport, address)
        far = await RawClient.connect(transport.at("10.0.0.7"), address)
        await far.ask_ok(Code.GET_BROKER_CLUSTER_INFO)
        answer = await far.ask(Code.PUT_KV_CONFIG, put)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.remark == (
            "only clients on the server's machine may send PUT_KV_CONFIG (100): turn access control on "
            "(aclEnable=true), or set remoteAdministrationEnable=true"
        )
        await near.ask_ok(Code.PUT_KV_CONFIG, put)
        embedded.name_server.settings.remote_administration_enable = True
        await far.ask_ok(Code.PUT_KV_CONFIG, put)
        for each in (near, far):
            await each.connection.close()

    with_broker(scene)


def test_client_is_known_by_a_signed_request_only(tmp_path: Path) -> None:
    """Of other clients an address has few connections, whatever they ask."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        table = embedded.broker.requests.table
        for keys, is_known in ((None, False), (STRANGER, False), (FORGER, False), (NOBODY, True)):
            other = await RawClient.connect(embedded.broker.transport, embedded.broker_address)
            outcome(Code.GET_BROKER_CONFIG, other.connection, embedded, table, keys)
            assert other.connection.is_known is is_known
            await other.connection.close()

    with_broker(scene, **accounts_in(tmp_path))


@pytest.mark.parametrize("keys", [FORGER, NOBODY])
def test_requests_that_are_refused_keep_no_connections(tmp_path: Path, keys: Credentials) -> None:
    """One percent of the connections are for clients of an address without an account, twice as many for others."""
    settings = accounts_in(tmp_path) | {"maxAddressConnectionsRatio": "2"}

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        transport = embedded.broker.transport
        assert isinstance(transport, MemoryTransport)
        crowd = [await RawClient.connect(transport.at("10.0.0.7"), embedded.broker_address) for _ in range(100)]
        for other in crowd:
            other.connection.sign_with(keys)
            await other.ask(Code.CHECK_CLIENT_CONFIG)
        late = await RawClient.connect(transport.at("10.0.0.7"), embedded.broker_address)
        await asyncio.sleep(1)
        assert late.connection.is_closed is (keys is FORGER)
        for other in (*crowd, late):
            await other.connection.close()

    with_broker(scene, **settings)
