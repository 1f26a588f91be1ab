"""Request 315: a counter of the broker's statistics over the last minute, hour and day."""

from rocket_broker.limits.refusal import Refusal
from rocket_broker.loop.loop_time import loop_time
from rocket_broker.processors.broker_context import BrokerContext
from rocket_broker.traffic import Traffic
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import BrokerStatsData, BrokerStatsItem, encode_body
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import ViewBrokerStatsDataRequestHeader

__all__ = ["BrokerStatsProcessor"]


class BrokerStatsProcessor:
    """Shows the counters that Apache's BrokerStatsManager has, by its names.

    ::

        TOPIC_PUT_NUMS, TOPIC_PUT_SIZE                     topic
        GROUP_GET_NUMS, GROUP_GET_SIZE, SNDBCK_PUT_NUMS    topic@group
        BROKER_PUT_NUMS, BROKER_GET_NUMS                   cluster
    """

    def __init__(self, context: BrokerContext) -> None:
        self._cluster = context.settings.broker_cluster_name
        self._statistics = context.statistics

    def view(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """VIEW_BROKER_STATS_DATA (315): sum, sum per second and average of each request of one counter."""
        header = command.header(ViewBrokerStatsDataRequestHeader)
        name, key = header.stats_name, header.stats_key
        traffic = self._traffic(name, key)
        if traffic is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
        sizes = name.endswith("_SIZE")
        minute, hour, day = (_item(traffic, number, sizes=sizes) for number in range(3))
        body = BrokerStatsData(stats_minute=minute, stats_hour=hour, stats_day=day)
        return RemotingCommand.response(command, body=encode_body(body))

    def _traffic(self, name: str, key: str) -> Traffic | None:
        statistics = self._statistics
        topic, _, group = key.partition("@")
        match name:
            case "TOPIC_PUT_NUMS" | "TOPIC_PUT_SIZE":
                return statistics.puts.get(key)
            case "GROUP_GET_NUMS" | "GROUP_GET_SIZE":
                return statistics.gets.get((topic, group))
            case "SNDBCK_PUT_NUMS":
                return statistics.send_backs.get((topic, group))
            case "BROKER_PUT_NUMS" if key == self._cluster:
                return statistics.all_puts
            case "BROKER_GET_NUMS" if key == self._cluster:
                return statistics.all_gets
            case _:
                return None


def _item(traffic: Traffic, number: int, *, sizes: bool) -> BrokerStatsItem:
    growth = traffic.growth(number, loop_time())
    total = growth.size if sizes else growth.messages
    return BrokerStatsItem(
        sum=total,
        tps=total / growth.seconds,
        avgpt=total / growth.calls if growth.calls else 0.0,
    )
