"""Hostile routing expressions in messages, in a separate process: later messages are handled, and it stops."""

import signal
from pathlib import Path

import pytest

from tests.unit.application.test_application_process import program, rest_of, until

pytestmark = pytest.mark.slow

PROGRAM = """
import asyncio
from streamkit import Message, StreamApplication
from streamkit.events import application_started

app = StreamApplication()
tasks = set()

@app.function
async def note(text: str) -> None:
    print("got", text[-5:], flush=True)

async def feed():
    header = "spring.cloud.function.routing-expression"
    backtracking = "payload.matches('(a|aa)+$') ? 'none' : 'note'"
    replacing = "payload" + ".replace('a', 'aaaaaaaaaaaaaaaa')" * 6
    for text, expression in (("a" * 60 + "b", backtracking), ("a" * 60, replacing), ("later", "'note'")):
        await app.bridge.asend("topic", Message(text, {header: expression}))

@application_started.connect
def begin(sender):
    tasks.add(asyncio.get_running_loop().create_task(feed()))

if __name__ == "__main__":
    app.run()
    print("stopped", flush=True)
"""

STREAM = "spring.cloud.stream"
SETTINGS = (
    f"--{STREAM}.function.routing.enabled=true",
    f"--{STREAM}.bindings.functionRouter-in-0.destination=topic",
    f"--{STREAM}.bindings.functionRouter-in-0.group=g",
    f"--{STREAM}.bindings.functionRouter-in-0.consumer.max-attempts=1",
)
ENABLED = f"--{STREAM}.function.routing.expression-header-enabled=true"
SHUTDOWN = 30
"""Seconds that `spring.lifecycle.timeout-per-shutdown-phase` gives calls in flight."""


def test_hostile_expressions_block_nothing(tmp_path: Path) -> None:
    """One is evaluated in linear time, one fails its message; later ones are handled, and SIGTERM stops."""
    with program(tmp_path, "shop.py", *SETTINGS, ENABLED, text=PROGRAM) as process:
        output = until(process, "got later")
        process.send_signal(signal.SIGTERM)
        assert process.wait(SHUTDOWN) == 0
        assert "stopped" in rest_of(process)
    assert "got aaaab" in output
    assert "failed in attempt 1" in output
    assert "ExpressionLimitExceeded: the expression takes more than" in output


def test_message_expressions_are_disabled_by_default(tmp_path: Path) -> None:
    """Such messages are routed like those without the header."""
    default = "--spring.cloud.function.routing-expression='note'"
    with program(tmp_path, "shop.py", *SETTINGS, default, text=PROGRAM) as process:
        output = until(process, "got later")
        process.send_signal(signal.SIGTERM)
        assert process.wait(SHUTDOWN) == 0
    assert "got aaaab" in output
    assert "got aaaaa" in output
    assert output.count("ignores header spring.cloud.function.routing-expression") == 1
