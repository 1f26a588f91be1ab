"""Requests 11 and 361: read messages of a queue, or wait for a message.

Records are sent as they lie in the commit log. A consumer's filter comes with the request or with its
heartbeats. Tags are filtered by their hash codes in the consume queue, SQL92 expressions by the properties in
the records.

A pull that finds no message is held (long polling) if its sysFlag allows that, and answered when a message arrives or
when its suspend timeout is over: see `rocket_broker.pulling.pull_request_hold`.

A slave may lack messages that its master has. So it does not correct an offset outside of its queue: the pull finds no
message and waits until the offset is copied, unless `offsetCheckInSlave` is true.
"""

import logging
from contextlib import suppress

from rocket_broker.filter.consumer_filter_table import RetryFilter
from rocket_broker.filter.pull_filter import PullFilter
from rocket_broker.filter.sql import SQL92, SqlError, SqlExpression, is_compiled
from rocket_broker.filter.subscription import (
    TAGS_A_STEP,
    Subscription,
    is_tag_type,
    tag_filter,
    tag_filter_steps,
)
from rocket_broker.limits.refusal import SEE_FAQ, Refusal
from rocket_broker.perm import READ
from rocket_broker.processors.broker_context import BrokerContext
from rocket_broker.pulling.memory import is_far_behind
from rocket_broker.pulling.pull_request_hold import HeldPullRequest, PullTerms
from rocket_broker.requests.request_steps import Steps
from rocket_broker.requests.serving import Answer
from rocket_broker.settings.broker_settings import MASTER_ID, BrokerRole
from rocket_broker.store.messages import GetResult, GetStatus
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import DataVersion, MessageModel, SubscriptionGroupConfig
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import PREFIX, HeaderEncoding, RemotingCommand
from rocket_remoting.wire.headers import PullMessageRequestHeader, PullMessageResponseHeader
from rocket_remoting.wire.sys_flag import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION, PULL_SUSPEND
from rocket_remoting.wire.topics import RETRY_PREFIX

__all__ = ["PullProcessor"]

logger = logging.getLogger(__name__)

BROADCASTING = "BROADCASTING"
_LONG_LIST = 3 * TAGS_A_STEP
"""Characters from which on a list of tags is hashed in steps: a shorter one, with two bars between its tags, has no
more tags than one step."""
SMALL_PULL = 32
SMALL_PULL_BYTES = 256 * 1024
"""Apache's limits of one answer: a request for more than 32 messages gets up to the limits of the settings."""

_FOUND = ResponseCode.SUCCESS
_FOUND_REMARK = GetStatus.FOUND.name
_CODES = {
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.NO_MATCHED_LOGIC_QUEUE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.NO_MESSAGE_IN_QUEUE: ResponseCode.PULL_NOT_FOUND,
}
_EMPTY = (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE)
_OUTSIDE_OF_QUEUE = (*_EMPTY, GetStatus.OFFSET_OVERFLOW_BADLY, GetStatus.OFFSET_TOO_SMALL)
"""A slave sends no consumer to another offset for these."""

_Basis = tuple[int, DataVersion, DataVersion, int, MessageModel | None]
"""The broker's permission, the versions of topics and groups, the number of the group's subscription, and the group's
message model."""


def _found_head() -> bytes:
    """Return the header of an answer with messages, with ``%d`` for the offsets and the request's number."""
    numbers = 1_111_111_111, 2_222_222_222, 3_333_333_333, 1_333_333_333
    offsets = PullMessageResponseHeader(
        suggest_which_broker_id=MASTER_ID, next_begin_offset=numbers[0], min_offset=numbers[1], max_offset=numbers[2]
    )
    to = RemotingCommand(RequestCode.PULL_MESSAGE, numbers[3])
    (frame,) = RemotingCommand.response(to, _FOUND, offsets, remark=_FOUND_REMARK).encode()
    head = bytes(frame[PREFIX.size :]).replace(b"%", b"%%")
    for number in numbers:
        head = head.replace(b"%d" % number, b"%d")
    return head


_FOUND_HEAD = _found_head()


class PullProcessor:
    """Answers pull requests."""

    def __init__(self, context: BrokerContext) -> None:
        self._settings = context.settings
        self._store = context.store
        self._topics = context.topics
        self._groups = context.groups
        self._consumers = context.consumers
        self._filter_compiler = context.filter_compiler
        self._filters = context.filters
        self._offsets = context.offsets
        self._pull_request_hold = context.pull_request_hold
        self._statistics = context.statistics
        self._host = context.settings.advertised_host
        self._corrects_offsets = (
            context.settings.broker_role is not BrokerRole.SLAVE or context.settings.offset_check_in_slave
        )

    def pull(self, connection: Connection, command: RemotingCommand) -> Answer:
        """PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361): answer with messages, or hold the request."""
        if connection.exhausts_buffers:
            raise Refusal(
                ResponseCode.SYSTEM_BUSY,
                "broker busy: read the answers to earlier pulls before you pull again",
            )
        header = command.header(PullMessageRequestHeader)
        if header.expression_type == SQL92 and self._must_compile(header):
            return self._compile_and_pull(connection, command, header)
        if len(header.subscription or "") > _LONG_LIST and header.sys_flag & PULL_SUBSCRIPTION:
            return self._hash_and_pull(connection, command, header)
        return self._pull(connection, command, header)

    def _hash_and_pull(
        self, connection: Connection, command: RemotingCommand, header: PullMessageRequestHeader
    ) -> Steps:
        wanted = None
        if is_tag_type(header.expression_type):
            with suppress(ValueError):  # `_pull` refuses the list with its reason
                wanted = yield from tag_filter_steps(header.subscription or "")
        answer = self._pull(connection, command, header)
        del wanted  # `_pull` gets an equal filter at once while this one is kept
        return answer

    def _must_compile(self, header: PullMessageRequestHeader) -> bool:
        brings_filter = header.sys_flag & PULL_SUBSCRIPTION and self._settings.enable_property_filter
        return bool(brings_filter) and not is_compiled(header.subscription)

    def _compile_and_pull(
        self, connection: Connection, command: RemotingCommand, header: PullMessageRequestHeader
    ) -> Steps:
        compiled = yield from self._filter_compiler.prepare([header.subscription], connection)
        answer = self._pull(connection, command, header)
        del compiled  # a pull request that is held keeps its expression alive
        return answer

    def _pull(
        self, connection: Connection, command: RemotingCommand, header: PullMessageRequestHeader
    ) -> RemotingCommand | None:
        wanted = self._wanted(connection, header)
        # Before `_reset`: a pull that begins at the reset offset settles the reset, and must be read as
        # usual.
        self._settle_reset(connection, header)
        offset = header.queue_offset
        result = self._reset(connection, header) or self._read(header, offset, wanted)
        # While a reset is pending, the offset that comes with a pull is from before the reset, and would
        # undo it.
        commits = header.sys_flag & PULL_COMMIT_OFFSET and result.status is not GetStatus.OFFSET_RESET
        if commits and header.commit_offset >= 0:
            self._commit(connection, header, header.commit_offset)
        code = self._code(result.status, offset)
        # Nothing runs between the read and `_hold`, so no message can arrive unnoticed in between.
        if code is ResponseCode.PULL_NOT_FOUND and header.sys_flag & PULL_SUSPEND:
            _drop_unused(header)
            terms = PullTerms(command, header, wanted, self._lasting_basis(header))
            self._hold(HeldPullRequest(connection, command.opaque, offset, terms, self._resume))
            return None
        return self._answer(connection, command, header, offset, result, code)

    def terms(
        self, connection: Connection, command: RemotingCommand, header: PullMessageRequestHeader
    ) -> PullTerms | None:
        """Return the terms of a pull request, by which `pull_again` handles others like it.

        Returns:
            None if permissions and filter of such requests must be decided each time.

        Raises:
            Refusal: The consumer may not pull from the queue, or its filter is unknown or not supported.
        """
        if self._lasting_basis(header) is None:
            return None
        wanted = self._wanted(connection, header)  # this may create the group
        _drop_unused(header)
        return PullTerms(command, header, wanted, self.basis(header))

    def basis(self, header: PullMessageRequestHeader) -> _Basis:
        """Return all that permission and filter depend on, apart from the request and the names of system topics."""
        number, model = 0, None
        if not header.sys_flag & PULL_SUBSCRIPTION:
            members = self._consumers.get(header.consumer_group)
            if members is not None:
                model = members.message_model
                subscription = members.subscriptions.get(header.topic)
                number = subscription.number if subscription is not None else 0
        # Each change of a table makes a new version. The subscription itself is not kept here, for it may be large.
        return self._settings.broker_permission, self._topics.data_version, self._groups.data_version, number, model

    def pull_again(
        self, connection: Connection, terms: PullTerms, opaque: int, offset: int, commit_offset: int
    ) -> bytes | None:
        """Answer or hold a pull request with known terms, whose `basis` is still the same, if it is a usual one.

        Args:
            connection: The consumer's connection.
            terms: The terms of the request.
            opaque: The number of the request.
            offset: The queue offset from which on messages are wanted.
            commit_offset: The group's offset to commit, if the terms say so.

        Returns:
            The frame of the answer, empty if the request is held; None if nothing was done, and `pull` must be called.

        Raises:
            Refusal: A limit of held pull requests is reached.
        """
        header = terms.header
        if connection.exhausts_buffers or self._offsets.resets or self._settings.slave_read_enable:
            return None
        topic, queue_id = terms.key
        end = self._store.max_offset(topic, queue_id)
        answer = b""
        if offset < end:
            result = self._read(header, offset, terms.filter)
            if result.status is not GetStatus.FOUND:
                return None
            answer = self._found(header, opaque, result)
        elif offset != end or not end or not header.sys_flag & PULL_SUSPEND:
            return None
        if header.sys_flag & PULL_COMMIT_OFFSET:
            self._commit(connection, header, commit_offset)
        if not answer:
            self._hold(HeldPullRequest(connection, opaque, offset, terms, self._resume))
        return answer

    def _lasting_basis(self, header: PullMessageRequestHeader) -> _Basis | None:
        """Return the `basis`; None if permission or filter may change without a change of it."""
        # The filter of a retry topic depends on a setting, and SQL92 expressions may be forgotten.
        if header.topic.startswith(RETRY_PREFIX):
            return None
        expression_type = header.expression_type
        if not header.sys_flag & PULL_SUBSCRIPTION:
            members = self._consumers.get(header.consumer_group)
            subscription = members.subscriptions.get(header.topic) if members is not None else None
            if subscription is None:
                return None
            expression_type = subscription.data.expression_type
        return self.basis(header) if is_tag_type(expression_type) else None

    def _commit(self, connection: Connection, header: PullMessageRequestHeader, offset: int) -> None:
        """Commit the offset that came with a pull. A refusal, for want of room, does not fail the pull."""
        try:
            self._offsets.commit(header.consumer_group, header.topic, header.queue_id, offset, connection)
        except Refusal as refusal:
            logger.debug("the pull of %s commits no offset: %s", connection.remote_address, refusal)

    def _resume(self, pull: HeldPullRequest) -> None:
        """Answer a held pull request with the messages that there are now, or with none."""
        terms, connection = pull.terms, pull.connection
        header = terms.header
        try:
            # Permissions, the group or its subscription may have changed while the pull request was held. The offset
            # is not committed a second time, as by Apache's PullMessageProcessor, which commits only at the first
            # read.
            is_decided = terms.basis is not None and terms.basis == self.basis(header)
            wanted = terms.filter if is_decided else self._wanted(connection, header)
            reset = self._reset(connection, header) if self._offsets.resets else None
            result = reset or self._read(header, pull.offset, wanted)
            if (
                result.status is GetStatus.FOUND
                and terms.encoding is HeaderEncoding.JSON
                and not self._settings.slave_read_enable
            ):
                frame = self._found(header, pull.opaque, result)
                connection.respond_encoded(frame, at_once=pull.answers_at_once)
                return
            code = self._code(result.status, pull.offset)
            response = self._answer(connection, pull.command, header, pull.offset, result, code)
        except Refusal as refusal:
            response = refusal.answer(pull.command)
        connection.respond(response, at_once=pull.answers_at_once)

    def _settle_reset(self, connection: Connection, header: PullMessageRequestHeader) -> None:
        """Settle a pending reset of the offset, once a pull shows that the group follows it.

        A pull that begins at the reset offset settles the reset. To have sent an answer with the reset offset does
        not: the answer may have gone to a former member, whose pull request was held. A connection that got such an
        answer, and then pulls from another offset, has chosen its own offset, which settles the reset too.
        """
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        reset = self._offsets.pending_reset(group, topic, queue_id)
        if reset is not None and (reset.offset == header.queue_offset or connection in reset.reported):
            self._offsets.settle_reset(group, topic, queue_id)

    def _reset(self, connection: Connection, header: PullMessageRequestHeader) -> GetResult | None:
        """Return a result that sends the consumer to a pending reset offset; None if no reset is pending."""
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        reset = self._offsets.pending_reset(group, topic, queue_id)
        if reset is None:
            return None
        # Noted for `_settle_reset`: the next pull of this connection shows whether it has followed.
        reset.reported.add(connection)
        first, end = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        return GetResult(GetStatus.OFFSET_RESET, reset.offset, first, end)

    def _hold(self, pull: HeldPullRequest) -> None:
        milliseconds = pull.terms.header.suspend_timeout_millis
        if not self._settings.long_polling_enable:
            milliseconds = self._settings.short_polling_time_mills
        self._pull_request_hold.hold(pull, milliseconds / 1000)
        self._statistics.pulls_missed += 1

    def _wanted(self, connection: Connection, header: PullMessageRequestHeader) -> PullFilter:
        """Return the consumer's filter, once its permissions are checked.

        Raises:
            Refusal: The consumer may not pull from the queue, or its filter is unknown or not supported.
        """
        if not self._settings.broker_permission & READ:
            raise Refusal(ResponseCode.NO_PERMISSION, f"the broker[{self._host}] pulling message is forbidden")
        system = self._topics.system
        check = system.check_offsets if header.sys_flag & PULL_COMMIT_OFFSET else system.check_pull
        check(header.consumer_group, header.topic)
        group = self._group(connection, header.consumer_group)
        self._check_queue(connection, header)
        brings_filter = header.sys_flag & PULL_SUBSCRIPTION
        wanted = self._asked(connection, header) if brings_filter else self._known(connection, group, header)
        if self._settings.filter_support_retry and header.topic.startswith(RETRY_PREFIX):
            group_name = header.topic.removeprefix(RETRY_PREFIX)
            return PullFilter(wanted.codes, RetryFilter(self._filters, group_name))
        return wanted

    def _group(self, connection: Connection, name: str) -> SubscriptionGroupConfig:
        group = self._groups.get(name) or self._groups.find(name, connection.counted_as)
        if group is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{name}] does not exist, {SEE_FAQ}",
            )
        if not group.consume_enable:
            raise Refusal(ResponseCode.NO_PERMISSION, f"subscription group no permission, {name}")
        return group

    def _check_queue(self, connection: Connection, header: PullMessageRequestHeader) -> None:
        topic = header.topic
        config = self._topics.get(topic)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please! {SEE_FAQ}")
        if not config.perm & READ:
            raise Refusal(ResponseCode.NO_PERMISSION, f"the topic[{topic}] pulling message is forbidden")
        if not 0 <= header.queue_id < config.read_queue_nums:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{header.queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:"
                f"[{config.read_queue_nums}] consumer:[{connection.remote_address}]",
            )

    def _asked(self, connection: Connection, header: PullMessageRequestHeader) -> PullFilter:
        """Return the filter that came with the pull request."""
        try:
            if is_tag_type(header.expression_type):
                return tag_filter(header.subscription)
            self._check_served(header.expression_type)
            return PullFilter(None, self._filter_compiler.compile(header.subscription, connection))
        except (ValueError, SqlError) as e:
            remark = "parse the consumer's subscription failed"
            if isinstance(e, SqlError):
                remark += f": {e}"
            raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark) from None

    def _known(
        self, connection: Connection, group: SubscriptionGroupConfig, header: PullMessageRequestHeader
    ) -> PullFilter:
        """Return the filter from the group's heartbeats."""
        members = self._consumers.get(header.consumer_group)
        if members is None:
            raise Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{SEE_FAQ}")
        if not group.consume_broadcast_enable and members.message_model == BROADCASTING:
            raise Refusal(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{header.consumer_group}] can not consume by broadcast way",
            )
        subscription = members.subscriptions.get(header.topic)
        if subscription is None:
            raise Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist{SEE_FAQ}")
        # The consumer has a newer subscription than its group here: its heartbeat is still to come.
        if subscription.data.sub_version < header.sub_version:
            raise Refusal(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        if is_tag_type(subscription.data.expression_type):
            return subscription.filter
        return PullFilter(None, self._known_expression(connection, header, subscription))

    def _known_expression(
        self, connection: Connection, header: PullMessageRequestHeader, subscription: Subscription
    ) -> SqlExpression:
        """Return the group's compiled SQL92 expression."""
        found = self._filters.get(header.consumer_group, header.topic)
        if found is None:
            remark = "The broker's consumer filter data is not exist!Your expression may be wrong!"
            try:
                self._filter_compiler.compile(subscription.data.sub_string, connection)
                remark += " Or the limit of filters is reached, for this group, this address or all clients"
            except SqlError as e:
                remark += f" {e}"
            raise Refusal(ResponseCode.FILTER_DATA_NOT_EXIST, remark)
        known, expression = found
        if known.client_version < header.sub_version:
            raise Refusal(ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest")
        self._check_served(subscription.data.expression_type)
        return expression

    def _check_served(self, expression_type: str | None) -> None:
        if expression_type != SQL92 or not self._settings.enable_property_filter:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {expression_type}",
            )

    def _read(self, header: PullMessageRequestHeader, offset: int, wanted: PullFilter) -> GetResult:
        settings = self._settings
        count = min(max(header.max_msg_nums, 1), settings.max_transfer_count_on_message_in_memory)
        size = settings.max_transfer_bytes_on_message_in_memory
        if count <= SMALL_PULL:
            size = min(size, SMALL_PULL_BYTES)
        if header.max_msg_bytes is not None and header.max_msg_bytes > 0:
            size = min(size, header.max_msg_bytes)
        return self._store.get(
            header.topic, header.queue_id, offset, count, size, wanted.codes,
            None if wanted.properties is None else wanted,
        )  # fmt: skip

    def _count_found(self, header: PullMessageRequestHeader, result: GetResult) -> None:
        traffic = self._statistics.gets[header.topic, header.consumer_group]
        traffic.calls += 1
        traffic.messages += len(result.records)
        traffic.size += result.size

    def _found(self, header: PullMessageRequestHeader, opaque: int, result: GetResult) -> bytes:
        """Count messages, and return the frame with them, as `_answer` would: the next pull goes to the master."""
        self._count_found(header, result)
        head = _FOUND_HEAD % (result.next_begin_offset, result.min_offset, result.max_offset, opaque)
        return b"".join((PREFIX.pack(4 + len(head) + result.size, len(head)), head, *result.records))

    def _answer(  # noqa: PLR0917 - a pull has so many parts
        self,
        connection: Connection,
        command: RemotingCommand,
        header: PullMessageRequestHeader,
        offset: int,
        result: GetResult,
        code: ResponseCode,
    ) -> RemotingCommand:
        slaves_read = self._settings.slave_read_enable
        if code is _FOUND:
            self._count_found(header, result)
        else:
            self._statistics.pulls_missed += 1
            if code is ResponseCode.PULL_OFFSET_MOVED:
                logger.warning(
                    "%s pulls %s queue %d from offset %d, outside its range %d to %d: redirected to %d",
                    header.consumer_group, header.topic, header.queue_id, offset,
                    result.min_offset, result.max_offset, result.next_begin_offset,
                    extra=connection.log_peer,
                )  # fmt: skip
        return RemotingCommand.response(
            command,
            code,
            PullMessageResponseHeader(
                suggest_which_broker_id=self._suggested_broker(header, result) if slaves_read else MASTER_ID,
                next_begin_offset=self._next_offset(offset, result),
                min_offset=result.min_offset,
                max_offset=result.max_offset,
            ),
            remark=_FOUND_REMARK if code is _FOUND else result.status.name,
            parts=result.records,
        )

    def _code(self, status: GetStatus, offset: int) -> ResponseCode:
        # Compared first for speed: hashing an enum member is a Python call.
        if status is GetStatus.FOUND:
            return _FOUND
        if status in _OUTSIDE_OF_QUEUE and not self._corrects_offsets:
            # What is below the slave's first message is never copied, so only the master can tell.
            too_small = status is GetStatus.OFFSET_TOO_SMALL
            return ResponseCode.PULL_RETRY_IMMEDIATELY if too_small else ResponseCode.PULL_NOT_FOUND
        # Apache's rule: an empty queue has only offset 0, and another offset must be corrected, so such a pull
        # is not held.
        if status in _EMPTY and offset != 0:
            return ResponseCode.PULL_OFFSET_MOVED
        return _CODES[status]

    def _next_offset(self, offset: int, result: GetResult) -> int:
        if result.status in _OUTSIDE_OF_QUEUE and not self._corrects_offsets:
            return offset
        return result.next_begin_offset

    def _suggested_broker(self, header: PullMessageRequestHeader, result: GetResult) -> int:
        """Return the broker id that the group prefers to pull from next, as Apache's SubscriptionGroupConfig says."""
        group = self._groups.get(header.consumer_group)
        last = max(result.next_begin_offset - 1, result.min_offset)
        for _, position, _, _ in self._store.consume_queue_entries(header.topic, header.queue_id, last, 1):
            if group is None:
                break
            slow = is_far_behind(self._store, self._settings, position)
            return group.which_broker_when_consume_slowly if slow else group.broker_id
        return MASTER_ID


def _drop_unused(header: PullMessageRequestHeader) -> None:
    """Drop texts that are not needed any more, so that a held pull request does not hold megabytes."""
    if not header.sys_flag & PULL_SUBSCRIPTION:
        header.subscription = header.expression_type = None
    header.proxy_froward_client_id = None
