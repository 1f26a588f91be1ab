"""Helpers of transaction tests: begin, end, check."""

from typing import Any

from rocket_remoting import MessageExt
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
    SendMessageResponseHeader,
)
from rocket_remoting.wire.message_id import parse_offset_id
from rocket_remoting.wire.record import decode_record
from rocket_remoting.wire.sys_flag import TRANSACTION_COMMIT, TRANSACTION_PREPARED
from tests.end_to_end.raw_client import RawClient

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
OP = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
PUT_ASIDE = "TRANS_CHECK_MAX_TIME_TOPIC"
GROUP = "producers"


async def begin(
    client: RawClient, now_ms: int, *, topic: str = "orders", key: str = "id-1", **properties: str
) -> SendMessageResponseHeader:
    """Store a half message as Apache's clients do; ``now_ms`` is its creation time."""
    own = {"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": key}
    return await client.send(
        topic,
        producer_group=GROUP,
        sys_flag=TRANSACTION_PREPARED,
        born_timestamp=now_ms,
        properties=own | properties,
    )


def end_header(half: SendMessageResponseHeader, **fields: Any) -> EndTransactionRequestHeader:
    """Return the header that ends a local transaction; a commit unless ``fields`` say otherwise."""
    values: dict[str, Any] = {
        "producer_group": GROUP,
        "tran_state_table_offset": half.queue_offset,
        "commit_log_offset": parse_offset_id(half.msg_id)[2],
        "commit_or_rollback": TRANSACTION_COMMIT,
        "msg_id": half.transaction_id or "",
        "transaction_id": half.transaction_id,
    }
    return EndTransactionRequestHeader(**values | fields)


async def end(client: RawClient, half: SendMessageResponseHeader, **fields: Any) -> RemotingCommand:
    """End the transaction and return the answer, whatever its code."""
    return await client.ask(RequestCode.END_TRANSACTION, end_header(half, **fields))


class Question:
    """A check as a producer receives it."""

    def __init__(self, request: RemotingCommand) -> None:
        assert request.code == RequestCode.CHECK_TRANSACTION_STATE
        self.header = request.header(CheckTransactionStateRequestHeader)
        self.message: MessageExt = decode_record(request.body)

    def answer_header(self, **fields: Any) -> EndTransactionRequestHeader:
        """Return the header of a check's answer; a commit unless ``fields`` say otherwise."""
        values: dict[str, Any] = {
            "producer_group": self.message.properties["PGROUP"],
            "tran_state_table_offset": self.header.tran_state_table_offset,
            "commit_log_offset": self.header.commit_log_offset,
            "commit_or_rollback": TRANSACTION_COMMIT,
            "from_transaction_check": True,
            "msg_id": self.header.msg_id or "",
            "transaction_id": self.header.transaction_id,
        }
        return EndTransactionRequestHeader(**values | fields)

    async def answer(self, client: RawClient, **fields: Any) -> RemotingCommand:
        """Answer the check, and return the broker's answer."""
        return await client.ask(RequestCode.END_TRANSACTION, self.answer_header(**fields))


def questions(client: RawClient) -> list[Question]:
    """Return the checks that the client received, oldest first."""
    return [Question(r) for r in client.pushed if r.code == RequestCode.CHECK_TRANSACTION_STATE]
