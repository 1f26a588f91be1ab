"""The book's first applications: two processes connected only by the broker."""

import os
import re
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rocket_broker.pytest_plugin import RocketBroker

ROOT = Path(__file__).parents[2]


@contextmanager
def sample(name: str, broker: RocketBroker, **variables: str) -> Iterator["subprocess.Popen[str]"]:
    """Run the sample until the block ends."""
    environment = os.environ | {
        "SPRING_CLOUD_STREAM_ROCKETMQ_BINDER_NAME_SERVER": broker.name_server,
        "SPRING_CLOUD_STREAM_ROCKETMQ_BINDER_PROVISIONING": "create",
        "PYTHONIOENCODING": "utf-8",
        **variables,
    }
    command = [sys.executable, "-m", f"samples.{name}"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, encoding="utf-8") as process:
        try:
            yield process
        finally:
            process.terminate()


def get(producer: "subprocess.Popen[str]", base: list[str], path: str) -> str:
    """Return the producer's answer; `base` is cached, since the address is printed once."""
    if not base:
        assert producer.stdout is not None
        base.append(producer.stdout.readline().removeprefix("Try ").partition("/send")[0])
    with urllib.request.urlopen(base[0] + path, timeout=60) as answer:
        return str(answer.read().decode())


def received(consumer: "subprocess.Popen[str]") -> str:
    """Return the next text that the consumer prints as received."""
    assert consumer.stdout is not None
    line = consumer.stdout.readline()
    found = re.fullmatch(r"TopicTest receive: (.*)，receiveTime = \d{13}\n", line)
    assert found, line
    return found[1]


@pytest.mark.slow
def test_consumer_prints_what_the_producer_sends(rocket_broker: RocketBroker) -> None:
    """A1 – A4 and 9.4 of the book: one message, then the steps of an order in their order."""
    base: list[str] = []
    with (
        sample("consumer", rocket_broker) as consumer,
        sample("producer", rocket_broker, SERVER_PORT="0") as producer,
    ):
        assert get(producer, base, "/send?msg=tcever") == "Hello RocketMQ Binder, send tcever"
        assert received(consumer) == "tcever"
        text = urllib.parse.urlencode({"msg": "你好"})
        assert get(producer, base, f"/send?{text}") == "Hello RocketMQ Binder, send 你好"
        assert received(consumer) == "你好"
        assert get(producer, base, "/orderly") == "OK"
        assert [received(consumer) for _ in range(3)] == ["创建", "支付", "退款"]
