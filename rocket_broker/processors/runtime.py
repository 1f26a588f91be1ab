"""Requests 28, 43, 45 and 60: the broker's figures, its consumer and delay offsets, and the progress of its timers."""

import shutil
from pathlib import Path

from rocket_broker.limits.refusal import Refusal
from rocket_broker.processors.broker_context import BrokerContext
from rocket_broker.requests.long_answer import long_answer
from rocket_broker.requests.request_steps import Steps
from rocket_broker.transaction.pending import MAX_PENDING
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import KVTable, encode_body
from rocket_remoting.wire.codes import CURRENT_VERSION, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.record import peek_record

__all__ = ["RuntimeProcessor"]

_NO_QUEUE = "0"
"""Size and capacity of a queue of requests. Requests wait in the sockets' buffers here, not before thread pools."""


class RuntimeProcessor:
    """Reports the broker's state to tools."""

    def __init__(self, context: BrokerContext) -> None:
        self._settings = context.settings
        self._store = context.store
        self._offsets = context.offsets
        self._delays = context.delays
        self._halves = context.halves
        self._timers = context.timers
        self._statistics = context.statistics
        self._fast_failure = context.fast_failure
        self._clock = context.clock
        self._boot_ms = self._clock.now_ms()

    def info(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_RUNTIME_INFO (28): the runtime figures under Apache's keys, as far as Apache's tools read them."""
        table = {**self._broker(), **self._traffic(), **self._disk(), **self._queues(), **self._timed()}
        table |= self._transactions()
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

    def timer_checkpoint(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_TIMER_CHECK_POINT (60): the progress of the timers, as in Apache's file ``timercheck``."""
        if self._timers is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "this broker delivers no timed messages, so it has no checkpoint")
        return RemotingCommand.response(command, body=self._timers.progress.encode())

    def _broker(self) -> dict[str, str]:
        return {
            "brokerVersionDesc": CURRENT_VERSION.name,
            "brokerVersion": str(int(CURRENT_VERSION)),
            "brokerActive": "true",
            "bootTimestamp": str(self._boot_ms),
            # By the wall clock, as Apache's: with the start it tells tools what time the broker has.
            "runtime": _duration(max(0, self._clock.now_ms() - self._boot_ms) // 1_000),
            "startAcceptSendRequestTimeStamp": str(self._settings.start_accept_send_request_time_stamp),
        }

    def _traffic(self) -> dict[str, str]:
        s = self._statistics
        transferred = s.rates("got_messages")
        times = s.put_times
        (put_morning, got_morning), (put_yesterday, got_yesterday) = s.mornings
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
            "putMessageFailedTimes": str(s.put_failures),
            "putMessageEntireTimeMax": str(times.longest_ms),
            "putMessageDistributeTime": times.distribution(),
            "putLatency99": f"{times.quantile_ms(0.99):.2f}",
            "putLatency999": f"{times.quantile_ms(0.999):.2f}",
            "msgPutTotalTodayNow": str(s.put_messages),
            "msgPutTotalTodayMorning": str(put_morning),
            "msgPutTotalYesterdayMorning": str(put_yesterday),
            "msgGetTotalTodayNow": str(s.got_messages),
            "msgGetTotalTodayMorning": str(got_morning),
            "msgGetTotalYesterdayMorning": str(got_yesterday),
        }

    def _disk(self) -> dict[str, str]:
        root = self._settings.store_path_root_dir
        log = self._settings.store_path_commit_log or root
        ratio = str(_used_share(log if log.exists() else root))
        usage = shutil.disk_usage(log if log.exists() else root)
        return {
            f"commitLogDiskRatio_{log}": ratio,
            "commitLogMinOffset": str(self._store.min_commit_log_offset),
            "commitLogMaxOffset": str(self._store.max_commit_log_offset),
            "commitLogDiskRatio": ratio,
            "consumeQueueDiskRatio": str(_used_share(root)),
            "commitLogDirCapacity": f"Total : {_gibibytes(usage.total)}, Free : {_gibibytes(usage.free)}.",
            "earliestMessageTimeStamp": str(self._earliest()),
            "remainHowManyDataToFlush": _readable(self._store.unflushed_bytes),
            # Messages are dispatched in the step that stores them.
            "dispatchBehindBytes": "0",
            "dispatchMaxBuffer": "0",
            "pageCacheLockTimeMills": "0",
        }

    def _queues(self) -> dict[str, str]:
        pools = [f"{pool}ThreadPoolQueue" for pool in ("send", "pull", "litePull", "query", "ack")]
        waited = str(self._fast_failure.last_turn_ms)
        sizes = [*(f"{pool}{of}" for pool in pools for of in ("Size", "Capacity")), "EndTransactionQueueSize"]
        sizes.append("EndTransactionThreadPoolQueueCapacity")
        return dict.fromkeys(sizes, _NO_QUEUE) | {f"{pool}HeadWaitTimeMills": waited for pool in pools}

    def _timed(self) -> dict[str, str]:
        """Return how far the delivery of timed messages is behind; nothing if this broker has no timers."""
        if self._timers is None:
            return {}
        return {
            "timerReadBehind": str(self._timers.seconds_behind),
            "timerOffsetBehind": str(self._timers.messages_behind),
        }

    def _transactions(self) -> dict[str, str]:
        """Return figures that Apache's brokers do not have."""
        pending = self._halves.pending
        return {
            "transactionsPending": str(pending.count),
            "transactionsPendingMax": str(MAX_PENDING),
            "transactionsOfOneOwnerMax": str(pending.quota),
            "transactionsRefusedTo": ", ".join(pending.full_owners),
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


def _readable(number: int) -> str:
    """Return bytes as Apache's brokers write them, such as ``12.5 KiB``."""
    if number < 1024:
        return f"{number} B"
    power = (number.bit_length() - 1) // 10
    return f"{number / 1024**power:.1f} {'KMGTPE'[power - 1]}iB"


def _gibibytes(number: int) -> str:
    return f"{number / 1024**3:.1f} GiB"


def _duration(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {rest} seconds ]"
