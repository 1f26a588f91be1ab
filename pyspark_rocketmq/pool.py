"""The clients of this process: executors' workers are reused from task to task, and their connections with them."""

import os
import time
from dataclasses import dataclass
from datetime import timedelta

from pyspark_rocketmq.options import ClusterOptions
from rocket_client.blocking import BlockingClient, ProducerSettings


@dataclass
class _Entry:
    client: BlockingClient
    used: float


_clients: dict[tuple[int, str, str, float], _Entry] = {}
"""By process, name servers, group and timeout. A process forked from one that has clients makes its own."""


def client(options: ClusterOptions) -> BlockingClient:
    """A client for the cluster; those that nobody asked for in a long time are closed."""
    now = time.monotonic()
    key = (os.getpid(), options.name_servers, options.group, options.request_timeout)
    for other, entry in list(_clients.items()):
        if other != key and (other[0] != key[0] or now - entry.used > options.idle_seconds):
            del _clients[other]
            entry.client.close()
    entry = _clients.get(key) or _clients.setdefault(key, _Entry(new_client(options), now))
    entry.used = now
    return entry.client


def new_client(options: ClusterOptions) -> BlockingClient:
    """A client of the caller's own."""
    timeout = timedelta(seconds=options.request_timeout)
    settings = ProducerSettings(
        name_servers=options.name_servers,
        namespace="",  # options have the names that brokers know, whatever namespace the address says
        request_timeout=timeout,
        connect_timeout=timeout,
    )
    return BlockingClient(options.group, settings)
