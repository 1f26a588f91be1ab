"""The clients of this process, which are reused from task to task as the executors' workers are."""

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


_clients: dict[tuple[object, ...], _Entry] = {}
"""The clients by process, name servers, group, times, TLS and keys; a forked process makes clients of its own."""


def client(options: ClusterOptions) -> BlockingClient:
    """Return a client for the cluster; close clients that were not used for a long time."""
    now = time.monotonic()
    times = (options.request_timeout, options.poll_interval)
    key = (os.getpid(), options.name_servers, options.group, times, options.client_tls(), options.credentials)
    for other, entry in list(_clients.items()):
        if other != key and (other[0] != key[0] or now - entry.used > options.idle_seconds):
            del _clients[other]
            entry.client.close()
    entry = _clients.get(key) or _clients.setdefault(key, _Entry(new_client(options), now))
    entry.used = now
    return entry.client


def new_client(options: ClusterOptions) -> BlockingClient:
    """Return a new client that belongs to the caller."""
    timeout = timedelta(seconds=options.request_timeout)
    settings = ProducerSettings(
        name_servers=options.name_servers,
        namespace="",  # options have the names that brokers know, whatever namespace the address says
        tls=options.client_tls(),
        request_timeout=timeout,
        connect_timeout=timeout,
        poll_name_server_interval=timedelta(seconds=options.poll_interval),
        credentials=options.credentials,
    )
    return BlockingClient(options.group, settings)
