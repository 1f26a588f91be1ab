"""Access control: requests that reach a topic, whose right is missing, by a detour."""

from pathlib import Path

from rocket_broker.embedded import EmbeddedBroker
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from tests.end_to_end.raw_client import RawClient, with_broker
from tests.end_to_end.test_broker_protocol_access_control import ADMINISTRATOR, MEMBER, accounts_in
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
