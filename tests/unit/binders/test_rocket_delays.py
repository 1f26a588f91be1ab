"""Properties of messages with a delay."""

from datetime import timedelta
from pathlib import Path

from streamkit.messaging.headers import DELAY, DELAY_LEVEL
from streamkit.testing.contract import Scenario
from streamkit.testing.contract.scenario import run_case
from streamkit.testing.virtual_time import VirtualTime
from tests.contract.rocket_environment import VirtualRocketEnvironment


def test_invalid_delay_level_leaves_the_delay(tmp_path: Path) -> None:
    """As in memory: a level below 1 is ignored."""

    async def main(s: Scenario) -> None:
        topic = await s.topic()
        received = await s.record(topic, s.name("group"))
        sent = s.recorder("sent")
        for level in (0, "0", -1):
            sent.add(0)
            await s.send(topic, "x", {DELAY_LEVEL: level, DELAY: timedelta(seconds=5)})
        await received.settled(3)
        assert min(received.times) - sent.times[0] >= 4.75

    with VirtualTime() as time:
        run_case(VirtualRocketEnvironment(time, tmp_path), main)
