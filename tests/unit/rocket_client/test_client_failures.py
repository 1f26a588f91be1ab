"""Failed messages whose failure the consumer cannot report to the brokers."""

import asyncio
from typing import NoReturn

import pytest

from rocket_client import Reject, RetryLater
from rocket_remoting import ResponseCode
from streamkit.testing.virtual_time import VirtualTime
from tests.unit.rocket_client.consumer_script import ConsumerScript, play, pulled, record


class Unconvertible(str):
    """A text that cannot be made a property."""

    __slots__ = ()

    def replace(self, *_: object) -> NoReturn:
        """Raise an error."""
        raise AttributeError("replace")


NO_CAUSE = Unconvertible("why")


@pytest.mark.parametrize(
    ("orderly", "said"),
    [(False, RetryLater(cause=NO_CAUSE)), (False, Reject(NO_CAUSE)), (True, Reject(NO_CAUSE))],
)
def test_message_that_cannot_be_sent_back_is_delivered_again(
    virtual: VirtualTime, caplog: pytest.LogCaptureFixture, orderly: bool, said: object
) -> None:
    """The messages behind it are settled afterwards."""

    async def scene(script: ConsumerScript) -> None:
        async def says() -> object:
            return said if len(script.heard) == 1 else None

        script.says = says
        await asyncio.sleep(60)
        heard = [message.queue_offset for message in script.heard]
        assert sorted(heard) == [7, 7, 8]
        assert heard == ([7, 7, 8] if orderly else [7, 8, 7])
        assert script.commits[-1] == 9
        assert "AttributeError" in caplog.text

    replies = pulled(ResponseCode.SUCCESS, 9, record(7) + record(8))
    play(virtual, scene, replies, committed=7, orderly=orderly)
