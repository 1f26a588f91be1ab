"""Requests 28, 43 and 45: the broker's runtime figures, and its tables of consumer and delay offsets."""

import shutil
from pathlib import Path

from rocket_broker.loop.loop_time import loop_time
from rocket_broker.processors.broker_context import BrokerContext
from rocket_broker.requests.long_answer import long_answer
from rocket_broker.requests.request_steps import Steps
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import KVTable, encode_body
from rocket_remoting.wire.codes import CURRENT_VERSION
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.record import peek_record

__all__ = ["RuntimeProcessor"]

_NO_QUEUE = "0"
"""Number of queued requests. Requests wait in the sockets' buffers here; Apache's thread pool queues do not exist."""


class RuntimeProcessor:
    """Reports the broker's state to tools."""

    def __init__(self, context: BrokerContext) -> None:
        self._settings = context.settings
        self._store = context.store
        self._offsets = context.offsets
        self._delays = context.delays
        self._halves = context.halves
        self._statistics = context.statistics
        self._fast_failure = context.fast_failure
        self._boot_ms = context.clock.now_ms()
        self._boot_loop_time = loop_time()

    def info(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_RUNTIME_INFO (28): the runtime figures under Apache's keys, as far as Apache's tools read them."""
        table = {**self._broker(), **self._traffic(), **self._disk(), **self._queues(), **self._transactions()}
        for level, (offset, end) in self._delays.backlog().items():
            table[f"scheduleMessageOffset_{level}"] = f"{offset},{end}"
        return RemotingCommand.response(command, body=encode_body(KVTable(table=table)))

    def consumer_offsets(self, connection: Connection, command: RemotingCommand) -> Steps:
        """GET_ALL_CONSUMER_OFFSET (43): the content of consumerOffset.json."""
        instead = "ask for the groups of a topic (QUERY_TOPIC_CONSUME_BY_WHO) and their progress (GET_CONSUME_STATS)"
        return long_answer(command, self._offsets.body(), instead=instead, standard_json=True)

    def delay_offsets(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_ALL_DELAY_OFFSET (45): the content of delayOffset.json."""
        return RemotingCommand.response(command, body=self._delays.encode())

    def _broker(self) -> dict[str, str]:
        return {
            "brokerVersionDesc": CURRENT_VERSION.name,
            "brokerVersion": str(int(CURRENT_VERSION)),
            "brokerActive": "true",
            "bootTimestamp": str(self._boot_ms),
            "runtime": _duration(loop_time() - self._boot_loop_time),
            "startAcceptSendRequestTimeStamp": str(self._settings.start_accept_send_request_time_stamp),
        }

    def _traffic(self) -> dict[str, str]:
        s = self._statistics
        transferred = s.rates("got_messages")
        return {
            "putTps": s.rates("put_messages"),
            "getTransferedTps": transferred,  # the spelling of 4.9
            "getTransferredTps": transferred,
            "getFoundTps": s.rates("pulls_found"),
            "getMissTps": s.rates("pulls_missed"),
            "getTotalTps": s.rates("pulls_found", "pulls_missed"),
            "putMessageTimesTotal": str(s.put_messages),
            "putMessageSizeTotal": str(s.put_bytes),
            "putMessageAverageSize": str(s.put_bytes / max(s.put_messages, 1)),
            "msgPutTotalTodayNow": str(s.put_messages),
            "msgGetTotalTodayNow": str(s.got_messages),
            # Nothing is counted by days: the whole time since the start counts as today.
            "msgPutTotalTodayMorning": "0",
            "msgPutTotalYesterdayMorning": "0",
            "msgGetTotalTodayMorning": "0",
            "msgGetTotalYesterdayMorning": "0",
        }

    def _disk(self) -> dict[str, str]:
        root = self._settings.store_path_root_dir
        log = self._settings.store_path_commit_log or root
        usage = shutil.disk_usage(log if log.exists() else root)
        return {
            "commitLogMinOffset": str(self._store.min_commit_log_offset),
            "commitLogMaxOffset": str(self._store.max_commit_log_offset),
            "commitLogDiskRatio": str(_used_share(log if log.exists() else root)),
            "consumeQueueDiskRatio": str(_used_share(root)),
            "commitLogDirCapacity": f"Total : {_gibibytes(usage.total)}, Free : {_gibibytes(usage.free)}.",
            "earliestMessageTimeStamp": str(self._earliest()),
            "dispatchBehindBytes": "0",
            "pageCacheLockTimeMills": "0",
        }

    def _queues(self) -> dict[str, str]:
        pools = [f"{pool}ThreadPoolQueue" for pool in ("send", "pull", "query")]
        waited = str(self._fast_failure.last_turn_ms)
        return {f"{pool}Size": _NO_QUEUE for pool in pools} | {f"{pool}HeadWaitTimeMills": waited for pool in pools}

    def _transactions(self) -> dict[str, str]:
        """Return figures that Apache's brokers do not have."""
        return {
            "transactionsPending": str(self._halves.pending.count),
            "transactionsPutAside": str(self._statistics.transactions_put_aside),
        }

    def _earliest(self) -> int:
        """Return the store time of the oldest message in milliseconds since 1970; -1 if there is no message."""
        record = self._store.message_at(self._store.min_commit_log_offset)
        try:
            return peek_record(record).store_timestamp if record is not None else -1
        except RemoteProtocolError:
            return -1


def _used_share(path: Path) -> float:
    usage = shutil.disk_usage(path)
    return usage.used / usage.total


def _gibibytes(number: int) -> str:
    return f"{number / 1024**3:.1f} GiB"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {rest} seconds ]"
