"""`streamkit outbox relay`: a process that sends the rows of an outbox."""

import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from rocket_broker.threaded_broker import ThreadedBroker
from rocket_client import ProducerSettings
from rocket_client.blocking import BlockingClient
from streamkit.patterns.outbox.tables import PRODUCER_TABLES
from streamkit.patterns.table_schema import sql_script

SETTINGS = """
spring.cloud.stream.output-bindings=orders
spring.cloud.stream.rocketmq.binder.name-server={}
spring.cloud.stream.rocketmq.binder.provisioning=create
"""
ROW = """
    insert into producer_msg (msgId, message_status, topic, body, headers, lane, create_time, update_time, send_times,
                              due_time, check_time, pending)
    values ('o-1', 'NOT_CONSUMED', 'orders', x'7b7d', '{"id": "x"}', 0, 1000, 1000, 0, 0, 0, 1)
"""


@pytest.mark.slow
def test_relay_sends_pending_rows_until_it_is_stopped(tmp_path: Path) -> None:
    database = tmp_path / "shop.db"
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.executescript(sql_script("sqlite", PRODUCER_TABLES))
        connection.execute(ROW)
    with ThreadedBroker() as broker:
        (tmp_path / "application.properties").write_text(SETTINGS.format(broker.name_server))
        command = [sys.executable, "-m", "streamkit.cli", "outbox", "relay", "orders", "--url", f"sqlite:///{database}"]
        relay = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        try:
            while not sent(database):
                assert relay.poll() is None, relay.communicate()[1]
                time.sleep(0.05)
        finally:
            relay.send_signal(signal.SIGTERM)
            told = relay.communicate()[1]
        assert relay.returncode == 0, told
        with BlockingClient("readers", ProducerSettings(name_servers=[broker.name_server])) as client:
            stored = [each for queue in client.queues("orders") for each in client.pull(queue, 0).messages()]
    assert [bytes(each.body) for each in stored] == [b"{}"]


def sent(database: Path) -> bool:
    """Return whether the row is recorded as sent."""
    with closing(sqlite3.connect(database, timeout=30)) as connection:
        [(time_of_sending,)] = connection.execute("select sent_time from producer_msg").fetchall()
    return time_of_sending is not None
