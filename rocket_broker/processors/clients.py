"""Requests 34, 35, 38 and 46: heartbeats, unregistration, lists of group members, and checks of subscriptions."""

from collections.abc import Generator, Iterator
from weakref import WeakKeyDictionary

from rocket_broker.access.needs import HEARTBEAT, refused
from rocket_broker.clients.client_channel import ClientChannel
from rocket_broker.filter.sql import SQL92, SqlError, SqlExpression, is_compiled
from rocket_broker.filter.subscription import is_tag_type
from rocket_broker.limits.refusal import Refusal
from rocket_broker.perm import READ, WRITE
from rocket_broker.processors.broker_context import BrokerContext
from rocket_broker.requests.long_answer import long_answer
from rocket_broker.requests.request_body import MAX_HEARTBEAT, read_body
from rocket_broker.requests.request_steps import Steps
from rocket_broker.requests.serving import Answer
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import (
    CheckClientRequestBody,
    ConsumerData,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    Items,
    LongBody,
    TopicConfig,
)
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.credentials import ACCESS_KEY
from rocket_remoting.wire.headers import GetConsumerListByGroupRequestHeader, UnregisterClientRequestHeader
from rocket_remoting.wire.sys_flag import TOPIC_UNIT_SUB
from rocket_remoting.wire.topics import is_system_group, retry_topic

__all__ = ["ClientsProcessor"]

_GROUPS_A_STEP = 64
"""Groups created in one step, which takes one or two milliseconds."""
_MOST_PROBLEMS = 10
"""Maximum number of refused groups of a heartbeat that the answer explains."""


class ClientsProcessor:
    """Maintains the tables of live producers and consumers."""

    def __init__(self, context: BrokerContext) -> None:
        self._settings = context.settings
        self._topics = context.topics
        self._groups = context.groups
        self._consumers = context.consumers
        self._producers = context.producers
        self._filter_compiler = context.filter_compiler
        self._limits = context.heartbeat_limits
        self._access = context.access
        self._audit = context.audit
        self._fingerprints: WeakKeyDictionary[Connection, int] = WeakKeyDictionary()

    def heartbeat(self, connection: Connection, command: RemotingCommand) -> Steps:
        """HEART_BEAT (34): note the client as alive and as a member of its groups.

        The version in the answer tells clients which features this broker has. A heartbeat beyond the limits is
        refused as a whole, and the client stays a member of the groups of its last heartbeat. A single group that is
        refused does not affect the client's other groups; the answer names the refused groups.
        """
        data = read_body(command, HeartbeatData, most=MAX_HEARTBEAT)
        if data.without_sub:
            return self._short_heartbeat(connection, command, data)
        try:
            yield from self._limits.admit(connection, data)
            compiled = yield from self._compile(connection, data)
            yield from self._create_what_is_missing(connection, data.consumer_data_set)
        except (Refusal, OSError):  # the client is alive: it stays in the groups of its last heartbeat
            self._consumers.note_alive(connection)
            self._producers.note_alive(connection)
            raise
        problems = yield from self._register(connection, command, data)
        del compiled  # the registered filters keep the compiled expressions alive from here on
        yield from self._register_producers(connection, command, data)
        if problems:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "; ".join(problems[:_MOST_PROBLEMS]))
        if not data.heartbeat_fingerprint:
            return RemotingCommand.response(command)
        self._fingerprints[connection] = data.heartbeat_fingerprint
        return _answer_with_fingerprint(command, changed=False)

    def _short_heartbeat(
        self, connection: Connection, command: RemotingCommand, data: HeartbeatData
    ) -> RemotingCommand:
        """Handle a heartbeat of 5.x that has a digest instead of subscriptions.

        If the client's last whole heartbeat on this connection had the same digest, its groups have not changed.
        Otherwise, for example after a restart of the broker, the answer asks for a whole heartbeat.
        """
        self._consumers.note_alive(connection)
        self._producers.note_alive(connection)
        is_known = self._fingerprints.get(connection) == data.heartbeat_fingerprint and all(
            self._is_member(connection, consumer.group_name) for consumer in data.consumer_data_set
        )
        return _answer_with_fingerprint(command, changed=not is_known)

    def _is_member(self, connection: Connection, group_name: str) -> bool:
        """Return whether the client on a connection is a member of a group that has not been deleted since."""
        group = self._consumers.get(group_name)
        exists = group_name in self._groups and retry_topic(group_name) in self._topics
        return exists and group is not None and group.member_on(connection) is not None

    def _compile(self, connection: Connection, data: HeartbeatData) -> Generator[None, None, list[SqlExpression]]:
        """Compile the expressions of a heartbeat that are not compiled yet."""
        texts = [
            known.sub_string
            for consumer in data.consumer_data_set
            for known in consumer.subscription_data_set
            if not is_tag_type(known.expression_type) and not is_compiled(known.sub_string)
        ]
        return (yield from self._filter_compiler.prepare(texts, connection)) if texts else []

    def _register(
        self, connection: Connection, command: RemotingCommand, data: HeartbeatData
    ) -> Generator[None, None, list[str]]:
        """Register the client in its consumer groups; return the reasons for the groups that refused it."""
        problems = []
        for consumer in data.consumer_data_set:
            config = self._groups.get(consumer.group_name)
            notify = config is None or config.notify_consumer_ids_changed_enable
            client = self._client(connection, command, data.client_id)
            try:
                self._topics.system.check_group(consumer.group_name)
                yield from self._consumers.register(client, consumer, notify=notify)
            except Refusal as refusal:  # go on with the client's other groups
                problems.append(refusal.remark)
        return problems

    def _register_producers(
        self, connection: Connection, command: RemotingCommand, data: HeartbeatData
    ) -> Generator[None, None, None]:
        """Register the client in its producer groups.

        Raises:
            AccessRefusal: Another account has this client id.
        """
        client_id = data.client_id
        for producer in data.producer_data_set:
            client = self._client(connection, command, client_id)
            if self._producers.is_of_another_account(client_id, client.access_key):
                refusal = refused(
                    f"the client id {client_id} belongs to another account, whose client is connected or was a minute "
                    "ago: give this client another instance name; it gets neither replies nor checks of transactions",
                    is_signed=True,
                )
                if self._audit is not None:
                    self._audit.refused(connection, command, HEARTBEAT, refusal)
                raise refusal
            self._producers.register(producer.group_name, client)
            yield

    def unregister(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """UNREGISTER_CLIENT (35): remove the client from a producer group, a consumer group, or both."""
        header = command.header(UnregisterClientRequestHeader)
        self._limits.left(connection, producer_group=header.producer_group, consumer_group=header.consumer_group)
        if header.producer_group:
            self._producers.unregister(header.producer_group, connection)
        if header.consumer_group:
            self._consumers.unregister(header.consumer_group, connection)
        return RemotingCommand.response(command)

    def consumer_list(self, connection: Connection, command: RemotingCommand) -> Steps:
        """GET_CONSUMER_LIST_BY_GROUP (38): the client ids of a group's live members, for the clients' rebalance."""
        name = command.header(GetConsumerListByGroupRequestHeader).consumer_group
        group = self._consumers.get(name)
        if group is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
        # All members ask after each change: the list is encoded once for them all.
        if group.listed is not None:
            return RemotingCommand.response(command, parts=group.listed)
        client_ids = group.client_ids()
        empty = GetConsumerListByGroupResponseBody(consumer_id_list=[])
        body = LongBody(empty, consumer_id_list=Items(client_ids))
        answer = yield from long_answer(command, body, instead="the group has too many members to be listed")
        if answer is not None and group.client_ids() is client_ids:  # no member has joined or left meanwhile
            group.listed = answer.parts
        return answer

    def check_config(self, connection: Connection, command: RemotingCommand) -> Answer:
        """CHECK_CLIENT_CONFIG (46): check that this broker can filter as the subscription requires."""
        asked = read_body(command, CheckClientRequestBody).subscription_data
        if is_tag_type(asked.expression_type):
            return RemotingCommand.response(command)
        if asked.expression_type != SQL92 or not self._settings.enable_property_filter:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {asked.expression_type}",
            )
        return self._check_expression(connection, command, asked.sub_string)

    def _check_expression(self, connection: Connection, command: RemotingCommand, text: str | None) -> Steps:
        compiled = yield from self._filter_compiler.prepare([text], connection)
        try:
            self._filter_compiler.compile(text, connection)
        except SqlError as e:
            raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"Invalid MessageSelector. {e}") from None
        del compiled
        return RemotingCommand.response(command)

    def _create_what_is_missing(
        self, connection: Connection, consumers: list[ConsumerData]
    ) -> Generator[None, None, None]:
        """Create missing groups and their retry topics, some in each step, with one change of each table a step.

        A group beyond the limits is not created; the answers to its pulls give the reason.
        """
        owner = connection.counted_as
        for start in range(0, len(consumers), _GROUPS_A_STEP):
            some = consumers[start : start + _GROUPS_A_STEP]
            names = (consumer.group_name for consumer in some if consumer.group_name not in self._groups)
            self._groups.create_missing((name for name in names if not is_system_group(name)), owner)
            self._topics.create_missing(list(self._missing_retry_topics(some)), owner)
            yield

    def _missing_retry_topics(self, consumers: list[ConsumerData]) -> Iterator[TopicConfig]:
        for consumer in consumers:
            topic, config = retry_topic(consumer.group_name), self._groups.get(consumer.group_name)
            if config is not None and topic not in self._topics:
                queues = max(0, config.retry_queue_nums)
                yield TopicConfig(
                    topic_name=topic,
                    read_queue_nums=queues,
                    write_queue_nums=queues,
                    perm=READ | WRITE,
                    topic_sys_flag=TOPIC_UNIT_SUB if consumer.unit_mode else 0,
                )

    def _client(self, connection: Connection, command: RemotingCommand, client_id: str) -> ClientChannel:
        return ClientChannel(
            connection,
            client_id,
            language=command.language,
            version=command.version,
            access_key=command.ext_fields.get(ACCESS_KEY) if self._access is not None else None,
        )


def _answer_with_fingerprint(command: RemotingCommand, *, changed: bool) -> RemotingCommand:
    """Return the answer to a heartbeat with a digest; `changed` asks for a whole heartbeat next time."""
    fields = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true" if changed else "false"}
    return RemotingCommand.response(command, ext_fields=fields)
