"""A name server and a broker that can be stopped and killed, and clients, in memory and under virtual time."""

import asyncio
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakSet

from click.testing import CliRunner

from rocket_broker.embedded import EmbeddedBroker
from rocket_broker.inspection.store_cli import store as store_command
from rocket_broker.settings.broker_settings import SMALL_STORE
from rocket_broker.store.message_store import MessageStore
from rocket_remoting import MemoryTransport
from rocket_remoting.native import has_native_core
from rocket_remoting.wire.bodies import Body
from rocket_remoting.wire.codes import ResponseCode, request_name
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import RemotingError
from rocket_remoting.wire.ext_fields import Header
from streamkit.testing.virtual_time import VirtualTime
from tests.end_to_end.raw_client import RawClient
from tests.state_campaign.broken import Broken
from tests.state_campaign.log_watch import LogWatch
from tests.state_campaign.table_sizes import table_sizes

__all__ = ["CLIENTS", "RESERVED_SECONDS", "ClientLeft", "Stage"]

T = TypeVar("T")

CLIENTS = 4
RESERVED_SECONDS = 3600
SETTINGS = {
    "mappedFileSizeCommitLog": str(128 * 1024),
    "mappedFileSizeConsumeQueue": "2000",
    "mappedFileSizeTimerLog": "52000",
    "maxHashSlotNum": "50",
    "maxIndexNum": "4000",
    "maxMessageSize": str(64 * 1024),
    "fileReservedTime": str(RESERVED_SECONDS // 3600),
}
"""Small files, so that a few messages fill some of them; and few slots of the index, so that keys collide."""
NAME_SERVER_PORT, BROKER_PORT = 9876, 10911
COUNTED = frozenset({"first", "end", "records", "entries", "queues", "index_files", "deleted"})
"""What `streamkit store verify` counts, and is not wrong."""
_A_DAY_MS = 24 * 3600 * 1000
_MOMENT = 0.0007
"""Virtual seconds at which no timer of the broker is due."""


class ClientLeft(Exception):  # noqa: N818 - nobody's mistake
    """There is no answer, because the client has closed its connection."""


class Stage:
    """Everything that runs in one example.

    Args:
        flush: The broker's `flushDiskType`.

    Attributes:
        embedded: The name server and the broker of now.
        watch: What listens to the log.
        requests: How often each request was sent.
        answers: How often each code was answered.
        kills: How often the broker was killed.
    """

    embedded: EmbeddedBroker

    def __init__(self, flush: str = "ASYNC_FLUSH") -> None:
        self.watch = LogWatch()
        self.requests: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()
        self.kills = 0
        self._settings = SETTINGS | {"flushDiskType": flush}
        self._directory = Path(tempfile.mkdtemp(prefix="streamkit-states-"))
        self._store = self._directory / "store-0"
        self._log_end = 0
        self._transport = MemoryTransport()
        self._at_broker: dict[int, RawClient] = {}
        self._at_name_server: dict[int, RawClient] = {}
        self._left: WeakSet[RawClient] = WeakSet()
        self._time = VirtualTime()
        has_native_core()  # loaded as by a broker's process, before it serves
        self.watch.open()
        self._start()

    # Life

    def close(self) -> None:
        """End everything, whatever state it is in."""
        try:
            self._time.run(self.embedded.stop())
        finally:
            self._time.close()
            self.watch.close()
            shutil.rmtree(self._directory, ignore_errors=True)

    def restart(self) -> None:
        """Stop the broker in order, verify its store, and start it anew."""
        self.stop()
        self._start()

    def stop(self) -> None:
        """Stop the broker in order, and verify its store.

        Raises:
            Broken: The store is not sound.
        """
        self._leave()
        self.run(self.embedded.stop())
        self._verify()

    def kill(self) -> None:
        """Start a broker with the files as they are now, and what the old one had in memory is gone.

        What was written is in the files, although no disk may have it: that is what the death of a process leaves.
        """
        self.kills += 1
        self.run(asyncio.sleep(_MOMENT))  # no thread of the broker writes now: they hold the clock
        copy = self._directory / f"store-{self.kills}"
        shutil.copytree(self._store, copy)
        self._leave()
        self._time.run(self.embedded.stop())
        shutil.rmtree(self._store)
        self._store = copy
        self._start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in the loop, and return its result.

        Raises:
            Broken: The log tells of a broken promise.
        """
        result = self._time.run(work)
        self._age_files()
        if self.watch.broken:
            raise self.watch.broken.pop(0)
        return result

    @property
    def now(self) -> float:
        """The virtual time in seconds."""
        return self._time.loop.time()

    @property
    def now_ms(self) -> int:
        """The wall-clock time in milliseconds."""
        return self._time.clock.now_ms()

    @property
    def store(self) -> MessageStore:
        """The broker's store."""
        return self.embedded.broker.store

    # Clients

    async def ask(
        self,
        client: int,
        code: int,
        header: Header | None = None,
        body: Body | bytes = b"",
        *,
        at_broker: bool = True,
    ) -> RemotingCommand:
        """Return the answer of the broker, or of the name server, whatever its code.

        Raises:
            Broken: There is no answer, or one with a code that nobody knows.
            ClientLeft: `disconnect` was called before the answer came.
        """
        connected = await (self.at_broker(client) if at_broker else self.at_name_server(client))
        self.requests[request_name(code)] += 1
        try:
            answer = await connected.ask(code, header, body)
        except RemotingError as e:
            if connected in self._left:
                raise ClientLeft from e
            raise Broken(f"no answer to {request_name(code)}", str(e)) from e
        self.check(code, answer)
        return answer

    def check(self, code: int, answer: RemotingCommand) -> None:
        """Look at an answer.

        Raises:
            Broken: Its code is not one that clients know.
        """
        try:
            self.answers[ResponseCode(answer.code).name] += 1
        except ValueError:
            raise Broken(f"unknown code in the answer to {request_name(code)}", f"{answer}") from None

    async def at_broker(self, client: int) -> RawClient:
        """Return the client's connection to the broker, a new one if it was closed."""
        return await self._connected(self._at_broker, client, self.embedded.broker_address)

    async def at_name_server(self, client: int) -> RawClient:
        """Return the client's connection to the name server, a new one if it was closed."""
        return await self._connected(self._at_name_server, client, self.embedded.name_server_address)

    def is_connected(self, client: int) -> bool:
        """Whether the client has a connection to the broker."""
        return client in self._at_broker and not self._at_broker[client].connection.is_closed

    async def disconnect(self, client: int, *, abruptly: bool = False) -> None:
        """End the client's connections."""
        for clients in (self._at_broker, self._at_name_server):
            known = clients.pop(client, None)
            if known is None:
                continue
            self._left.add(known)
            if abruptly:
                known.connection.abort("the test aborts the connection")
            else:
                await known.connection.close()

    def table_sizes(self) -> dict[str, int]:
        """Return how many entries the servers' tables have."""
        return table_sizes(self.embedded.broker, "broker") | table_sizes(self.embedded.name_server, "name_server")

    # Inside

    def _start(self) -> None:
        self.embedded = EmbeddedBroker(
            self._store,
            name_server_port=NAME_SERVER_PORT,
            broker_port=BROKER_PORT,
            transport=self._transport,
            clock=self._time.clock,
            settings=self._settings,
        )
        self.run(self.embedded.start())

    def _leave(self) -> None:
        for client in range(CLIENTS):
            self._time.run(self.disconnect(client))

    async def _connected(self, clients: dict[int, RawClient], client: int, address: str) -> RawClient:
        known = clients.get(client)
        if known is None or known.connection.is_closed:
            known = clients[client] = await RawClient.connect(self._transport, address)
        return known

    def _age_files(self) -> None:
        """Give files of the log the virtual time at which they were written: cleaning by age compares with that.

        Some file systems, such as tmpfs, do not renew the time of a file that is written through a map.
        """
        written_from, self._log_end = self._log_end, self.store.max_commit_log_offset
        for path in (self._store / "commitlog").glob("[0-9]*"):
            with suppress(FileNotFoundError):  # a thread of the broker deletes old files
                status = path.stat()
                is_written = written_from < int(path.name) + status.st_size and int(path.name) < self._log_end
                if status.st_mtime * 1000 > self.now_ms + _A_DAY_MS or (is_written and written_from < self._log_end):
                    os.utime(path, (self.now_ms / 1000, self.now_ms / 1000))

    def _verify(self) -> None:
        settings = self._directory / "broker.conf"
        lines = SMALL_STORE | self._settings | {"storePathRootDir": str(self._store)}
        settings.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        result = CliRunner().invoke(store_command, ["verify", str(self._store), "-c", str(settings), "--json"])
        if result.exit_code != 0:
            found = json.loads(result.stdout) if result.stdout.startswith("{") else {}
            wrong = {key: value for key, value in found.items() if value and key not in COUNTED}
            raise Broken("store verify", f"{wrong or result.output}")
