"""Brokers in memory: orders come and receipts leave without a server."""

from contextlib import ExitStack

from benchmarks.page import Plot, Section, Table
from benchmarks.peers.environment import PACKAGES
from benchmarks.peers.figures import Figures, cells, in_turns
from benchmarks.peers.run import Run
from benchmarks.peers.worker import python_worker

__all__ = ["measure"]

SYSTEMS = {
    "streamkit's in-memory binder": ("in_memory_streamkit", "-"),
    "FastStream's TestKafkaBroker": ("in_memory_faststream", "kafka"),
    "FastStream's TestNatsBroker": ("in_memory_faststream", "nats"),
    "FastStream's TestRedisBroker": ("in_memory_faststream", "redis"),
    "taskiq's InMemoryBroker": ("in_memory_taskiq", "-"),
}
TASKS = {"1": "one after the other", "32": "32 at once"}
_ONE_AT_A_TIME = "in_memory_faststream"


def measure(run: Run) -> Section:
    """Measure trips from a send to a listener's result, of one system after the other in each round."""
    with ExitStack() as stack:
        workers = {
            name: stack.enter_context(python_worker(f"clients.{module}", system, own=module == "in_memory_streamkit"))
            for name, (module, system) in SYSTEMS.items()
        }

        def once(task: str, name: str) -> Figures | None:
            if task != "1" and SYSTEMS[name][0] == _ONE_AT_A_TIME:
                return None
            run.say(f"{name}: {TASKS[task]} ...")
            done = workers[name].do("trips", seconds=run.seconds, at_once=int(task))
            return Figures(done["messages"] / done["seconds"], done["cpu"] / done["messages"] * 1e6)

        medians = in_turns(list(TASKS), list(SYSTEMS), run.rounds, once)
    rows = cells(list(TASKS), list(SYSTEMS), medians)
    return Section(
        "In memory",
        "in-memory",
        [
            (
                "A trip: an order is sent as JSON, a listener receives it as an object and returns a receipt, and "
                "a second listener receives that. streamkit's binder does what it does for other systems: groups, "
                "offsets, attempts, settlement. FastStream's test brokers call the listener inside the "
                "publication, so they cannot make several trips at once. With taskiq a task is called with the "
                "order and returns the receipt to its caller (`await_inplace=True`)."
            ),
            (
                "Cells: trips per second · CPU for each, and in brackets streamkit's rate and CPU as multiples of the "
                "row's."
            ),
        ],
        [Table(["", *TASKS.values()], rows)],
        Plot(
            "CPU for each trip, µs (less is better)",
            list(TASKS.values()),
            {
                name: [found.own_us if (found := medians.get((task, name))) else None for task in TASKS]
                for name in SYSTEMS
            },
        ),
        run.notes(f"FastStream {PACKAGES['faststream']}", f"taskiq {PACKAGES['taskiq']}"),
    )
