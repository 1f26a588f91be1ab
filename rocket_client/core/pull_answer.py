"""The answer to a pull; the asyncio client and the blocking client share it."""

from enum import Enum
from typing import NamedTuple

from rocket_client.core.call import refusal
from rocket_client.core.topic_route import MASTER_ID
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import PullMessageResponseHeader


class PullStatus(Enum):
    """The status of a pull, with the names of Java's ``PullStatus``."""

    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


_STATUS = {
    int(ResponseCode.SUCCESS): PullStatus.FOUND,
    int(ResponseCode.PULL_NOT_FOUND): PullStatus.NO_NEW_MSG,
    int(ResponseCode.PULL_RETRY_IMMEDIATELY): PullStatus.NO_MATCHED_MSG,
    int(ResponseCode.PULL_OFFSET_MOVED): PullStatus.OFFSET_ILLEGAL,
}


def pull_status(response: RemotingCommand, address: str, request_code: int = RequestCode.PULL_MESSAGE) -> PullStatus:
    """Return the status of a pull's response.

    Raises:
        ResponseError: The broker at `address` refused the pull.
    """
    status = _STATUS.get(response.code)
    if status is None:
        raise refusal(response, address, request_code)
    return status


class PullAnswer(NamedTuple):
    """The answer to a pull, with records that are not decoded yet."""

    status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    suggest_which_broker_id: int
    records: bytes | memoryview

    @classmethod
    def of(cls, response: RemotingCommand, address: str, request_code: int = RequestCode.PULL_MESSAGE) -> "PullAnswer":
        """Return the answer in a response of the broker at `address`.

        Raises:
            ResponseError: The broker refused the pull.
        """
        status = pull_status(response, address, request_code)
        header = response.header(PullMessageResponseHeader)
        return cls(
            status,
            header.next_begin_offset,
            header.min_offset,
            header.max_offset,
            header.suggest_which_broker_id or MASTER_ID,
            response.body,
        )
