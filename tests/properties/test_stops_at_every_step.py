"""An application that is stopped at each step of its work loses nothing, repeats nothing and leaves nothing behind.

A shop has a binding of every kind. It is started and stopped at a step of the loop, then started once more and left
alone until all is done. Whatever the step was: what a listener finished is not delivered again, since calls in flight
get their time and what they settled is committed.

Steps are told as hundredths of a life that nobody meddles with; each process counts its steps once.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from streamkit.testing.contract import ContractEnvironment
from streamkit.testing.virtual_time import VirtualTime
from tests.contract.rocket_environment import VirtualRocketEnvironment
from tests.contract.test_inmemory_contract import InMemoryEnvironment
from tests.properties.shop import TAKES, Shop
from tests.properties.stepping import SteppingLoop, no_complaints, no_tasks_left

SHORT = 0.05
"""Seconds of a call that ends before a queue changes hands."""
LONGEST = 60.0
"""Seconds that a start and a stop may take, although the broker answers nothing."""


MakeEnvironment = Callable[[VirtualTime, Path], ContractEnvironment]


def in_memory(time: VirtualTime, home: Path) -> ContractEnvironment:
    return InMemoryEnvironment(time)


def bundled_broker(time: VirtualTime, home: Path) -> ContractEnvironment:
    return VirtualRocketEnvironment(time, home)


GONE = "no server has this address in this memory transport"

MEDDLING: dict[str, Callable[[Shop], None]] = {
    "stop": Shop.stop,
    "give up": Shop.give_up,
    "restart bindings": Shop.restart_bindings,
    "pause bindings": Shop.pause_bindings,
}


Scene = Callable[[Shop, SteppingLoop], Awaitable[None]]
"""What a shop goes through; as a life, it ends the loop's counting when the shop has stopped."""


async def work_a_while(shop: Shop, loop: SteppingLoop) -> None:
    await shop.live(until_done=False)
    loop.stop_counting()


async def work_and_come_to_an_end(shop: Shop, loop: SteppingLoop) -> None:
    """Whoever answers."""
    began = loop.time()
    await work_a_while(shop, loop)
    assert loop.time() - began < LONGEST


async def work_until_done(shop: Shop, loop: SteppingLoop) -> None:
    await shop.live(until_done=True)
    loop.stop_counting()


async def work_beside_another(shop: Shop, loop: SteppingLoop) -> None:
    """Together with another shop, that does what is left."""
    other = Shop(shop.environment, takes=SHORT, beside=shop)
    await asyncio.gather(work_a_while(shop, loop), other.live(until_done=True))


def play(make: MakeEnvironment, home: Path, scene: Scene, takes: float = TAKES, complaint: str | None = None) -> None:
    """Run a scene with a shop that has much to do; nobody may complain, except of what has the text `complaint`."""
    with VirtualTime(loop_factory=SteppingLoop) as time:
        loop = time.loop
        assert isinstance(loop, SteppingLoop)
        environment = make(time, home)

        async def main() -> None:
            async with environment.around():
                shop = Shop(environment, takes=takes)
                await shop.fill()
                with no_complaints(loop, but=complaint):
                    await scene(shop, loop)

        time.run(main())


@cache
def length(make: MakeEnvironment, life: Scene, takes: float) -> int:
    """How many steps a life has."""
    counted = 0

    async def scene(shop: Shop, loop: SteppingLoop) -> None:
        nonlocal counted
        loop.count()
        await life(shop, loop)
        counted = loop.steps

    with TemporaryDirectory() as home:
        play(make, Path(home), scene, takes)
    return counted


def interrupt(
    make: MakeEnvironment,
    home: Path,
    *,
    at: int,
    life: Scene,
    action: Callable[[Shop], None],
    after: Scene,
    takes: float = TAKES,
    complaint: str | None = None,
) -> None:
    """Do something to a shop after so many hundredths of its life, and look at what comes `after` that life."""
    step = 1 + length(make, life, takes) * at // 100

    async def scene(shop: Shop, loop: SteppingLoop) -> None:
        loop.at_step(step, lambda: action(shop))
        async with no_tasks_left():
            await life(shop, loop)
        assert loop.has_acted, f"there was no step {step}"
        await after(shop, loop)

    play(make, home, scene, takes, complaint)


def meddle(make: MakeEnvironment, home: Path, how: str, at: int) -> None:
    """Do something in a shop's first life."""

    async def second_life(shop: Shop, loop: SteppingLoop) -> None:
        async with no_tasks_left():
            await shop.live(until_done=True)
        await shop.check()

    life = work_until_done if how.endswith("bindings") else work_a_while
    interrupt(make, home, at=at, life=life, action=MEDDLING[how], after=second_life)


def change_hands(make: MakeEnvironment, home: Path, at: int) -> None:
    """Stop one of two shops that have started together."""

    async def check(shop: Shop, loop: SteppingLoop) -> None:
        await shop.check_changed_hands()

    interrupt(make, home, at=at, life=work_beside_another, action=Shop.stop, after=check, takes=SHORT)


def lose_broker(home: Path, at: int) -> None:
    """Stop, in its first life, a shop and its broker together."""

    async def second_life(shop: Shop, loop: SteppingLoop) -> None:
        environment = shop.environment
        assert isinstance(environment, VirtualRocketEnvironment)
        await environment.restart_broker()
        async with no_tasks_left():
            await shop.live(until_done=True)
        await shop.check_nothing_was_lost()

    life = work_and_come_to_an_end
    interrupt(
        bundled_broker,
        home,
        at=at,
        life=life,
        action=Shop.lose_broker,
        after=second_life,
        complaint=GONE,  # the error channel tells of a result that could not be sent
    )


@pytest.mark.parametrize("at", range(0, 96, 6))
@pytest.mark.parametrize("how", MEDDLING)
def test_in_memory(tmp_path: Path, how: str, at: int) -> None:
    """Whatever happens at that step, each message is handled as often as it should be."""
    meddle(in_memory, tmp_path, how, at)


@pytest.mark.parametrize("at", [*range(10), *range(10, 96, 9)])
@pytest.mark.parametrize("how", ["stop", "give up"])
def test_an_application_on_the_bundled_broker(tmp_path: Path, how: str, at: int) -> None:
    """Stopped at that step: connecting, provisioning, joining, taking over queues, sending, settling, committing."""
    meddle(bundled_broker, tmp_path, how, at)


@pytest.mark.parametrize("at", range(2, 96, 11))
@pytest.mark.parametrize("how", ["restart bindings", "pause bindings"])
def test_bindings_on_the_bundled_broker(tmp_path: Path, how: str, at: int) -> None:
    """Stopped and started, or paused and resumed, while the others go on."""
    meddle(bundled_broker, tmp_path, how, at)


@pytest.mark.parametrize("at", range(0, 96, 6))
def test_an_application_that_stops_with_its_broker(tmp_path: Path, at: int) -> None:
    """It does not wait for ever, and nothing is lost."""
    lose_broker(tmp_path, at)


@pytest.mark.parametrize("at", range(0, 96, 6))
def test_one_of_two_in_memory(tmp_path: Path, at: int) -> None:
    """Whatever the step, the other one goes on where the first has stopped."""
    change_hands(in_memory, tmp_path, at)


@pytest.mark.parametrize("at", range(0, 91, 5))
def test_one_of_two_on_the_bundled_broker(tmp_path: Path, at: int) -> None:
    """Whatever the step, while they share the queues or hand them over."""
    change_hands(bundled_broker, tmp_path, at)
