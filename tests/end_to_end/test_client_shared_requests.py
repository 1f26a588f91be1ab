"""Sends that share a request, on the bundled broker."""

import asyncio

from rocket_client import SendResult
from rocket_remoting import Message, MessageExt
from tests.end_to_end.client_stage import ClientStage, play


def test_messages_are_stored_as_if_each_was_sent_alone() -> None:
    """Each result names its own message, which has the same fields as one that was sent alone."""

    async def scene(stage: ClientStage) -> None:
        def order(number: int) -> Message:
            return Message(
                "orders", b"%d" % number, tags="tea", keys=["a", f"k{number}"], properties={"customer": "Ann"}, flag=7
            )

        def unplaced(sent: SendResult) -> SendResult:
            return sent._replace(msg_id="", offset_msg_id="", message_queue=alone.message_queue, queue_offset=0)

        async def stored(body: bytes, sent: SendResult) -> tuple[MessageExt, dict[str, str]]:
            message = await admin.view_message(sent.offset_msg_id)
            assert (message.body, message.queue_id, message.queue_offset) == (
                body,
                sent.message_queue.queue_id,
                sent.queue_offset,
            )
            (indexed,) = await admin.query_by_unique_key("orders", sent.msg_id)
            assert indexed.commit_log_offset == message.commit_log_offset
            return message, {name: text for name, text in message.properties.items() if name != "UNIQ_KEY"}

        async with stage.producer() as producer, stage.admin() as admin:
            alone = await producer.send(order(0))
            together = await asyncio.gather(*(producer.send(order(number)) for number in range(1, 6)))
            assert len({result.message_queue for result in together[1:]}) == 1, "they share a request"
            first, properties = await stored(b"0", alone)
            for number, result in enumerate(together, 1):
                message, others = await stored(b"%d" % number, result)
                assert others == properties | {"KEYS": f"a k{number}"}
                assert (message.flag, message.sys_flag, message.tags) == (7, first.sys_flag, "tea")
                assert unplaced(result) == unplaced(alone)

    play(scene)
