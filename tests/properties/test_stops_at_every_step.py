"""An application stopped at each step of its work loses nothing, repeats nothing and leaves nothing behind."""

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
from tests.properties.stepping import SteppingLoop, exempt_from_collections, no_tasks_left, no_unhandled_errors

# One worker counts the steps of a run, for all places at which it is interrupted.
one_worker = pytest.mark.xdist_group

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
    """Work until the end; return who answers."""
    began = loop.time()
    await work_a_while(shop, loop)
    assert loop.time() - began < LONGEST


async def work_until_done(shop: Shop, loop: SteppingLoop) -> None:
    await shop.live(until_done=True)
    loop.stop_counting()


async def work_beside_another(shop: Shop, loop: SteppingLoop) -> None:
    """Work beside another application, which completes the rest."""
    other = Shop(shop.environment, takes=SHORT, beside=shop)
    await asyncio.gather(work_a_while(shop, loop), other.live(until_done=True))


def play(make: MakeEnvironment, home: Path, scene: Scene, takes: float = TAKES, complaint: str | None = None) -> None:
    """Run a scene with a busy application; only errors with the text `complaint` are allowed."""
    exempt_from_collections()
    with VirtualTime(loop_factory=SteppingLoop) as time:
        loop = time.loop
        assert isinstance(loop, SteppingLoop)
        environment = make(time, home)

        async def main() -> None:
            async with environment.around():
                shop = Shop(environment, takes=takes)
                await shop.fill()
                with no_unhandled_errors(loop, but=complaint):
                    await scene(shop, loop)

        time.run(main())


@cache
def length(make: MakeEnvironment, life: Scene, takes: float) -> int:
    """Return the number of steps of a run."""
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
    """Interrupt an application after so many hundredths of its run, and check the state `after` it."""
    step = 1 + length(make, life, takes) * at // 100

    async def scene(shop: Shop, loop: SteppingLoop) -> None:
        loop.at_step(step, lambda: action(shop))
        async with no_tasks_left():
            await life(shop, loop)
        assert loop.has_acted, f"there was no step {step}"
        await after(shop, loop)

    play(make, home, scene, takes, complaint)


def meddle(make: MakeEnvironment, home: Path, how: str, at: int) -> None:
    """Interrupt an application in its first run."""

    async def second_life(shop: Shop, loop: SteppingLoop) -> None:
        async with no_tasks_left():
            await shop.live(until_done=True)
        await shop.check()

    life = work_until_done if how.endswith("bindings") else work_a_while
    interrupt(make, home, at=at, life=life, action=MEDDLING[how], after=second_life)


def change_hands(make: MakeEnvironment, home: Path, at: int) -> None:
    """Stop one of two applications that started together."""

    async def check(shop: Shop, loop: SteppingLoop) -> None:
        await shop.check_changed_hands()

    interrupt(make, home, at=at, life=work_beside_another, action=Shop.stop, after=check, takes=SHORT)


def lose_broker(home: Path, at: int) -> None:
    """Stop an application and its broker together in its first run."""

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


@one_worker("stops in memory")
@pytest.mark.parametrize("at", range(0, 96, 6))
@pytest.mark.parametrize("how", MEDDLING)
def test_stopping_at_any_step_in_memory(tmp_path: Path, how: str, at: int) -> None:
    """Each message is handled the right number of times."""
    meddle(in_memory, tmp_path, how, at)


@one_worker("stops")
@pytest.mark.parametrize("at", [*range(10), *range(10, 96, 9)])
@pytest.mark.parametrize("how", ["stop", "give up"])
def test_stopping_at_any_step_on_the_bundled_broker(tmp_path: Path, how: str, at: int) -> None:
    """While connecting, provisioning, joining, taking over queues, sending, settling or committing."""
    meddle(bundled_broker, tmp_path, how, at)


@one_worker("restarts")
@pytest.mark.parametrize("at", range(2, 96, 11))
@pytest.mark.parametrize("how", ["restart bindings", "pause bindings"])
def test_restarting_bindings_at_any_step_on_the_bundled_broker(tmp_path: Path, how: str, at: int) -> None:
    """Or pausing and resuming them, while the others continue."""
    meddle(bundled_broker, tmp_path, how, at)


@one_worker("stops of brokers")
@pytest.mark.parametrize("at", range(0, 96, 6))
def test_stopping_together_with_the_broker(tmp_path: Path, at: int) -> None:
    """The stop ends, and nothing is lost."""
    lose_broker(tmp_path, at)


@one_worker("stops of one in memory")
@pytest.mark.parametrize("at", range(0, 96, 6))
def test_stopping_one_of_two_in_memory(tmp_path: Path, at: int) -> None:
    """At any step the other one continues where the first has stopped."""
    change_hands(in_memory, tmp_path, at)


@one_worker("stops of one")
@pytest.mark.parametrize("at", range(0, 91, 5))
def test_stopping_one_of_two_on_the_bundled_broker(tmp_path: Path, at: int) -> None:
    """At any step, while they share or hand over queues."""
    change_hands(bundled_broker, tmp_path, at)
