"""Access control: requests that reach a topic, whose right is missing, by a detour."""

import asyncio
import json
from pathlib import Path

import pytest

from rocket_broker.clients.producer_table import RESERVED_SECONDS
from rocket_broker.embedded import EmbeddedBroker
from rocket_client import Credentials
from rocket_remoting.wire.bodies import PolicyEntryInfo, PolicyInfo, UserInfo
from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import ViewMessageRequestHeader
from rocket_remoting.wire.message_id import parse_offset_id
from rocket_remoting.wire.record import decode_record, encode_record
from rocket_remoting.wire.topics import SCHEDULE_TOPIC, TOOLS_CONSUMER_GROUP, TRANS_HALF_TOPIC
from tests.end_to_end.raw_client import RawClient, pull_header, send_header, with_broker
from tests.end_to_end.test_audit_log import lines
from tests.end_to_end.test_broker_protocol_access_control import ADMINISTRATOR, MEMBER, NOBODY, SECRET, accounts_in
from tests.end_to_end.transactions import GROUP, begin, end, questions


def refused(answer: RemotingCommand) -> str | None:
    """Return the remark of an answer that says that a right is missing."""
    assert answer.code == ResponseCode.NO_PERMISSION, (answer.code, answer.remark)
    return answer.remark


async def view(client: RawClient, offset: int) -> RemotingCommand:
    """Return the answer to a view of the message at an offset."""
    return await client.ask(Code.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=offset))


async def offset_of(client: RawClient, topic: str, body: bytes, **properties: str) -> int:
    """Send a message; return where it is stored."""
    return parse_offset_id((await client.send(topic, body, properties=properties)).msg_id)[2]


def test_transaction_ends_only_with_the_right_on_its_topic(tmp_path: Path) -> None:
    """The topic of the half message counts, whether or not the request has another one."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        client.connection.sign_with(ADMINISTRATOR)
        await client.create_topic("bills")
        half = await begin(client, embedded.broker.clock.now_ms(), topic="bills")
        client.connection.sign_with(MEMBER)
        assert refused(await end(client, half)) == "No default permission for topic:bills"
        assert refused(await end(client, half, topic="orders")) == "No default permission for topic:bills"
        client.connection.sign_with(ADMINISTRATOR)
        assert await client.end("bills") == 0
        assert (await end(client, half)).code == ResponseCode.SUCCESS
        assert await client.end("bills") == 1

    with_broker(scene, **accounts_in(tmp_path))


def test_reply_is_stored_only_with_the_right_on_its_topic(tmp_path: Path) -> None:
    """Replies go to the cluster's topic of replies, for which an account is enough."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        client.connection.sign_with(ADMINISTRATOR)
        await client.create_topic("bills")
        client.connection.sign_with(NOBODY)

        async def reply(topic: str) -> RemotingCommand:
            return await client.ask(Code.SEND_REPLY_MESSAGE_V2, send_header(topic, {}), b"forged")

        assert refused(await reply("bills")) == "No default permission for topic:bills"
        assert embedded.broker.store.max_offset("bills", 0) == 0
        assert (await reply("DefaultCluster_REPLY_TOPIC")).code == ResponseCode.SYSTEM_ERROR  # nobody waits for it

    with_broker(scene, **accounts_in(tmp_path))


def test_body_that_looks_like_a_record_does_not_show_what_follows_it(tmp_path: Path) -> None:
    """A record of the member's topic, whose body would end after another topic's message, is no message."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        client.connection.sign_with(ADMINISTRATOR)
        for topic in ("orders", "bills"):
            await client.create_topic(topic)
        client.connection.sign_with(MEMBER)
        first = (await view(client, await offset_of(client, "orders", b"x" * 200))).body
        message, body_at = decode_record(first), bytes(first).index(b"x" * 200)
        forged_at = message.commit_log_offset + message.store_size + body_at  # the next message's body
        forged = encode_record(
            "orders", bytes(1000), b"", queue_id=0, queue_offset=0, commit_log_offset=forged_at, sys_flag=0, flag=0,
            born_timestamp=0, born_host=message.born_host, store_timestamp=0, store_host=message.store_host,
        )  # fmt: skip
        await client.send("orders", forged[:200])
        client.connection.sign_with(ADMINISTRATOR)
        await client.send("bills", b"secret")
        client.connection.sign_with(MEMBER)
        last = await offset_of(client, "orders", b"x" * 200)
        end_at = forged_at + len(forged) - (last + message.store_size + body_at)
        await client.send("orders", forged[-end_at:])
        answer = await view(client, forged_at)
        assert b"secret" not in answer.body
        assert refused(answer) == f"No message is stored at the offset {forged_at}"
        message.commit_log_offset = forged_at
        assert refused(await client.send_back(message, "kitchen"))

    with_broker(scene, **accounts_in(tmp_path))


@pytest.mark.parametrize("topic", [SCHEDULE_TOPIC, TRANS_HALF_TOPIC])
def test_waiting_message_is_of_the_topic_that_it_waits_for(tmp_path: Path, topic: str) -> None:
    """An account with rights on all topics but one does not read that topic's messages while they wait."""
    settings = accounts_in(tmp_path)
    (tmp_path / "conf" / "acl").mkdir()
    (tmp_path / "conf" / "acl" / "most.yml").write_text(
        f"accounts: [{{accessKey: mostRights, secretKey: '{SECRET}', defaultTopicPerm: PUB|SUB, "
        "defaultGroupPerm: SUB, topicPerms: [bills=DENY]}]"
    )

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        client.connection.sign_with(ADMINISTRATOR)
        offsets = []
        for of in ("bills", "tables"):
            await client.create_topic(of)
            if topic == SCHEDULE_TOPIC:
                offsets.append(await offset_of(client, of, b"secret", DELAY="1"))
            else:
                half = await begin(client, embedded.broker.clock.now_ms(), topic=of)
                offsets.append(parse_offset_id(half.msg_id)[2])
        client.connection.sign_with(Credentials("mostRights", SECRET))
        pull = pull_header(topic, 0, consumer_group=TOOLS_CONSUMER_GROUP)
        assert refused(await client.ask(Code.PULL_MESSAGE, pull)) == f"No default permission for topic:{topic}"
        of_bills, of_tables = offsets
        assert refused(await view(client, of_bills)) == "No default permission for topic:bills"
        assert (await view(client, of_tables)).code == ResponseCode.SUCCESS

    with_broker(scene, **settings)


def test_check_of_a_transaction_goes_to_a_producer_with_the_right_on_its_topic(tmp_path: Path) -> None:
    """The check has the half message, and every client may call itself a producer of any group."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        client.connection.sign_with(NOBODY)
        await client.heartbeat("stranger@1", producers=(GROUP,))
        owner = await RawClient.connect(embedded.broker.transport, embedded.broker_address)
        owner.connection.sign_with(ADMINISTRATOR)
        await owner.create_topic("bills")
        await begin(owner, embedded.broker.clock.now_ms(), topic="bills")
        await asyncio.sleep(200)
        assert not questions(client)
        await owner.heartbeat(producers=(GROUP,))
        await asyncio.sleep(200)
        assert questions(owner)
        assert not questions(client)

    with_broker(scene, channelExpiredTimeout="100000000", **accounts_in(tmp_path))


PRODUCERS = f"""\
accounts:
  - accessKey: shop-app
    secretKey: "{SECRET}"
    topicPerms: [bills=PUB]
  - accessKey: stranger
    secretKey: "{SECRET}"
    topicPerms: [bills=PUB]
    groupPerms: [others=PUB]
"""
SHOP, STRANGER = Credentials("shop-app", SECRET), Credentials("stranger", SECRET)


@pytest.mark.parametrize("is_named", [False, True])
def test_producer_group_can_belong_to_the_accounts_with_a_right_on_it(tmp_path: Path, is_named: bool) -> None:
    """Without such an account everybody in the group who may send to the topic is asked, as on Apache's broker."""
    settings = accounts_in(tmp_path)
    (tmp_path / "conf" / "acl").mkdir()
    named = PRODUCERS.replace("[bills=PUB]\n", f"[bills=PUB]\n    groupPerms: [{GROUP}=PUB]\n", 1)
    (tmp_path / "conf" / "acl" / "more.yml").write_text(named if is_named else PRODUCERS)

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        client.connection.sign_with(ADMINISTRATOR)
        await client.create_topic("bills")
        await ask_both(client, embedded, SHOP, STRANGER, is_stranger_asked=not is_named)

    with_broker(scene, channelExpiredTimeout="100000000", **settings)


async def ask_both(
    client: RawClient, embedded: EmbeddedBroker, owner: Credentials, other: Credentials, *, is_stranger_asked: bool
) -> None:
    """End a transaction of `owner` as `other`, after the broker has asked about it; both are in its producer group."""
    stranger = await RawClient.connect(embedded.broker.transport, embedded.broker_address)
    stranger.connection.sign_with(other)
    await stranger.heartbeat("stranger@1", producers=(GROUP,))
    client.connection.sign_with(owner)
    await client.heartbeat("shop@1", producers=(GROUP,))
    half = await begin(client, embedded.broker.clock.now_ms(), topic="bills")
    await asyncio.sleep(200)
    assert questions(client)
    assert bool(questions(stranger)) is is_stranger_asked
    ended = await end(stranger, half)
    if is_stranger_asked:
        assert ended.code == ResponseCode.SUCCESS
    else:
        assert GROUP in (refused(ended) or "")
        assert (await end(client, half)).code == ResponseCode.SUCCESS
    await stranger.connection.close()


def test_producer_group_of_users_belongs_to_those_with_a_policy_for_it() -> None:
    """5.3: the action Pub on the group."""
    provider = "org.apache.rocketmq.auth.{0}.provider.Local{1}MetadataProvider".format
    settings = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "authenticationMetadataProvider": provider("authentication", "Authentication"),
        "authorizationMetadataProvider": provider("authorization", "Authorization"),
        "initAuthenticationUser": json.dumps({"username": "administrator", "password": SECRET}),
    }

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        directory = embedded.broker.directory
        assert directory is not None
        client.connection.sign_with(ADMINISTRATOR)
        await client.create_topic("bills")
        for keys in (SHOP, STRANGER):
            directory.users.put(
                UserInfo(username=keys.access_key, password=SECRET, user_type="Normal", user_status="enable")
            )
            directory.acls.merge(f"User:{keys.access_key}", [sends("Topic:bills")])
        await ask_both(client, embedded, SHOP, STRANGER, is_stranger_asked=True)
        directory.acls.merge(f"User:{SHOP.access_key}", [sends(f"Group:{GROUP}")])
        await ask_both(client, embedded, SHOP, STRANGER, is_stranger_asked=False)

    with_broker(scene, channelExpiredTimeout="100000000", **settings)


def sends(resource: str) -> PolicyInfo:
    """Return a policy that lets a user send to a resource."""
    entry = PolicyEntryInfo(resource=resource, actions=["Pub"], decision="Allow")
    return PolicyInfo(policy_type="Custom", entries=[entry])


def test_client_id_belongs_to_the_account_that_has_registered_it(tmp_path: Path) -> None:
    """Another account gets no replies for it, and neither does it in the minute in which the client connects again."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        transport, address = embedded.broker.transport, embedded.broker_address
        client.connection.sign_with(MEMBER)
        asker, thief = await RawClient.connect(transport, address), await RawClient.connect(transport, address)
        asker.connection.sign_with(MEMBER)
        thief.connection.sign_with(NOBODY)

        async def steal(expected: ResponseCode = ResponseCode.NO_PERMISSION) -> str | None:
            return (await thief.heartbeat("asker@1", producers=("p",), expected=expected)).remark

        async def reply() -> None:
            header = send_header("DefaultCluster_REPLY_TOPIC", {"REPLY_TO_CLIENT": "asker@1"})
            client.connection.invoke_oneway(Code.SEND_REPLY_MESSAGE_V2, header, b"secret")
            await asyncio.sleep(1)

        await asker.heartbeat("asker@1", producers=("p",))
        assert "the client id asker@1 belongs to another account" in (await steal() or "")
        await reply()
        assert (len(asker.pushed), len(thief.pushed)) == (1, 0)
        await asker.connection.close()
        await steal()
        again = await RawClient.connect(transport, address)
        again.connection.sign_with(MEMBER)
        await again.heartbeat("asker@1", producers=("p",))
        await reply()
        assert (len(again.pushed), len(thief.pushed)) == (1, 0)
        await again.connection.close()
        await asyncio.sleep(RESERVED_SECONDS + 1)
        await steal(ResponseCode.SUCCESS)
        await thief.connection.close()
        refusals = [line for line in lines(embedded) if line["request"] == "HEART_BEAT"]
        assert [(line["account"], line["answer"]) for line in refusals] == [("withoutRights", "NO_PERMISSION")] * 2

    with_broker(scene, **accounts_in(tmp_path))
