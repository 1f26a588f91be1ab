"""Fast failure: requests that waited too long are refused."""

import asyncio
import logging
from collections.abc import Iterable

import pytest

from rocket_broker.limits.refusal import Refusal
from rocket_broker.requests.fast_failure import FastFailure
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.settings.properties_file import entries_of
from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.codes import ResponseCode
from tests.unit.rocket_broker.test_queue_locks import Time


def fast_failure(time: Time, **keys: str) -> FastFailure:
    return FastFailure(BrokerSettings.from_entries(entries_of(keys, "test")), time=time)


def admitted(waiting: FastFailure, codes: Iterable[int]) -> list[int]:
    """Return the requests that are handled."""
    found = []
    for code in codes:
        try:
            waiting.admit(code)
        except Refusal:
            continue
        found.append(code)
    return found


@pytest.mark.parametrize(
    ("waited", "handled"),
    [
        (0.199, {"send", "back", "end", "pull", "lite", "lock", "beat", "commit", "leave"}),
        (0.2, {"end", "pull", "lite", "lock", "beat", "commit", "leave"}),
        (3.0, {"pull", "lite", "lock", "beat", "commit", "leave"}),
        (5.0, {"beat", "commit", "leave"}),
        (31.0, {"commit", "leave"}),
    ],
)
def test_each_request_kind_has_its_wait_limit(waited: float, handled: set[str]) -> None:
    """The limits are Apache's; kinds that its brokers never refuse are always handled."""
    codes: dict[int, str] = {
        Code.SEND_MESSAGE_V2: "send", Code.CONSUMER_SEND_MSG_BACK: "back", Code.END_TRANSACTION: "end",
        Code.PULL_MESSAGE: "pull", Code.LITE_PULL_MESSAGE: "lite", Code.LOCK_BATCH_MQ: "lock",
        Code.HEART_BEAT: "beat", Code.UPDATE_CONSUMER_OFFSET: "commit", Code.UNREGISTER_CLIENT: "leave",
    }  # fmt: skip

    async def main() -> None:
        time = Time()
        waiting = fast_failure(time)
        waiting.admit(Code.SEND_MESSAGE_V2)
        time.now += waited
        assert {codes[code] for code in admitted(waiting, codes)} == handled

    asyncio.run(main())


def test_waiting_time_is_measured_within_one_loop_iteration() -> None:
    """The waiting time of the first request in an iteration is zero, so it is always handled."""

    async def main() -> None:
        time = Time()
        waiting = fast_failure(time)
        waiting.admit(Code.SEND_MESSAGE)
        time.now += 1.0
        assert admitted(waiting, [Code.SEND_MESSAGE]) == []
        await asyncio.sleep(0)
        assert waiting.last_turn_ms == 1000
        time.now += 60.0
        assert waiting.last_turn_ms == 0
        assert admitted(waiting, [Code.SEND_MESSAGE] * 3) == [Code.SEND_MESSAGE] * 3

    asyncio.run(main())


def test_refusal_has_apaches_code_and_remark(caplog: pytest.LogCaptureFixture) -> None:
    """Code 2 with the time waited and the queue size; at most one line per second is logged."""

    async def main() -> None:
        time = Time()
        waiting = fast_failure(time)
        waiting.admit(Code.SEND_MESSAGE)
        time.now += 0.25
        with pytest.raises(Refusal) as caught:
            waiting.admit(Code.SEND_MESSAGE)
        assert caught.value.code is ResponseCode.SYSTEM_BUSY
        assert caught.value.remark == (
            "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 250ms, size of queue: 2"
        )
        admitted(waiting, [Code.SEND_MESSAGE] * 100)
        assert waiting.refused == 101

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert len(caplog.records) == 1


def test_wait_limits_can_be_changed_while_running() -> None:
    """Raised, lowered or disabled."""

    async def main() -> None:
        time = Time()
        settings = BrokerSettings()
        waiting = FastFailure(settings, time=time)
        settings.on_update.append(waiting.settings_updated)
        waiting.admit(Code.SEND_MESSAGE)
        time.now += 0.25
        outcomes = []
        for keys in ({"waitTimeMillsInSendQueue": "300"}, {"waitTimeMillsInSendQueue": "100"},
                     {"brokerFastFailureEnable": "false"}):  # fmt: skip
            settings.update(entries_of(keys, "test"))
            outcomes.append(admitted(waiting, [Code.SEND_MESSAGE]) != [])
        assert outcomes == [True, False, True]

    asyncio.run(main())
