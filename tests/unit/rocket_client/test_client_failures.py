"""What a consumer does with a message whose failure cannot be told to the brokers, for a reason of its own."""

import asyncio
from typing import NoReturn

import pytest

from rocket_client import Reject, RetryLater
from rocket_remoting import ResponseCode
from streamkit.testing.virtual_time import VirtualTime
from tests.unit.rocket_client.consumer_script import ConsumerScript, play, pulled, record


class Unbearable(str):
    """A text that no consumer can make a property of."""

    __slots__ = ()

    def replace(self, *_: object) -> NoReturn:
        """Refuses."""
        raise AttributeError("replace")


NO_CAUSE = Unbearable("why")


@pytest.mark.parametrize(
    ("orderly", "said"),
    [(False, RetryLater(cause=NO_CAUSE)), (False, Reject(NO_CAUSE)), (True, Reject(NO_CAUSE))],
)
def test_a_message_keeps_its_place_whatever_goes_wrong_with_it(
    virtual: VirtualTime, caplog: pytest.LogCaptureFixture, orderly: bool, said: object
) -> None:
    """It is heard again, and then the messages behind it are settled too."""

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
