"""Access control: requests that reach a topic, whose right is missing, by a detour."""

from pathlib import Path

from rocket_broker.embedded import EmbeddedBroker
from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from tests.end_to_end.raw_client import RawClient, send_header, with_broker
from tests.end_to_end.test_broker_protocol_access_control import ADMINISTRATOR, MEMBER, NOBODY, accounts_in
from tests.end_to_end.transactions import begin, end


def refused(answer: RemotingCommand) -> str | None:
    """Return the remark of an answer that says that a right is missing."""
    assert answer.code == ResponseCode.NO_PERMISSION, (answer.code, answer.remark)
    return answer.remark


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
