"""What consumers read, and how far they are."""

import asyncio

from hypothesis import strategies as st

from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.codes import ResponseCode as Answer
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import (
    CloneGroupOffsetRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    QueryMessageRequestHeader,
    ResetOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
    ViewMessageRequestHeader,
)
from rocket_remoting.wire.message_id import parse_offset_id
from rocket_remoting.wire.record import decode_records
from rocket_remoting.wire.sys_flag import (
    PULL_COMMIT_OFFSET,
    PULL_SUBSCRIPTION,
    PULL_SUSPEND,
)
from tests.end_to_end.raw_client import pull_header
from tests.state_campaign.conversation import (
    OK,
    Conversation,
    Held,
    clients,
    groups,
    queue_ids,
    step,
    subscriptions,
    topics,
)
from tests.state_campaign.model import Sent
from tests.state_campaign.stage import RESERVED_SECONDS

__all__ = ["Pulling"]

PULLED = (OK, Answer.PULL_NOT_FOUND, Answer.PULL_RETRY_IMMEDIATELY, Answer.PULL_OFFSET_MOVED)
"""Answers to pulls that were not refused."""


class Pulling(Conversation):
    """What consumers do."""

    @step(
        client=clients,
        group=groups,
        topic=topics,
        queue_id=queue_ids,
        back=st.sampled_from([0, 1, 5, 100, 10**6]),
        wanted=subscriptions,
        most=st.sampled_from([1, 32, 4096]),
        commits=st.booleans(),
    )
    def pull(
        self,
        *,
        client: int,
        group: str,
        topic: str,
        queue_id: int,
        back: int,
        wanted: str,
        most: int,
        commits: bool,
    ) -> None:
        """From so many messages before the end, at most to the first one."""
        end = self.stage.store.max_offset(topic, queue_id)
        offset = max(self.stage.store.min_offset(topic, queue_id), end - back)
        sys_flag = PULL_SUBSCRIPTION | (PULL_COMMIT_OFFSET if commits else 0)
        header = pull_header(
            topic, offset, consumer_group=group, queue_id=queue_id, max_msg_nums=most, sys_flag=sys_flag,
            commit_offset=offset, subscription=wanted.removeprefix("sql: "),
            expression_type="SQL92" if wanted.startswith("sql") else "TAG",
        )  # fmt: skip
        answer = self.ask(client, Code.PULL_MESSAGE, header)
        if commits and answer.code in PULLED and answer.remark != "OFFSET_RESET":
            self.model.committed[group, topic, queue_id] = offset
            self.model.doubtful.discard((group, topic, queue_id))
        if answer.code == OK:
            self.check_pulled(answer, (topic, queue_id), offset, wanted)
        elif wanted == "*" and queue_id < self.model.readable(topic) and answer.remark != "OFFSET_RESET":
            acknowledged = self.model.acknowledged[topic, queue_id].items()
            missed = [n for n, sent in acknowledged if n >= offset and self.is_kept(sent)]
            self.require(
                not missed,
                "pull finds nothing",
                f"{answer.remark} at {offset} of {topic} {queue_id}, there is {missed[:3]}",
            )

    def check_pulled(self, answer: RemotingCommand, queue: tuple[str, int], offset: int, wanted: str) -> None:
        """See that a pull's answer has what it must have, as far as the model knows, and nothing else."""
        behind = answer.header(PullMessageResponseHeader).next_begin_offset
        got = {message.queue_offset: message for message in decode_records(answer.body)}
        self.require(all(offset <= n < behind for n in got), "pull", f"from {offset} to {behind}: {sorted(got)}")
        for number, sent in self.model.acknowledged[queue].items():
            if offset <= number < behind and not wanted.startswith("sql") and self.is_kept(sent):
                fits = wanted == "*" or sent.tag in wanted.split(" || ")
                self.require(
                    (number in got) == fits,
                    "filter",
                    f"{sent} at {number} of {queue} pulled for {wanted}: {sorted(got)}",
                )
            if number in got:
                self.require(
                    bytes(got[number].body) == sent.body,
                    "other message in place",
                    f"{sent} at {number} of {queue}",
                )

    @step(
        client=clients,
        group=groups,
        topic=topics,
        queue_id=queue_ids,
        wanted=st.sampled_from(["*", "A"]),
        number=st.sampled_from([1, 1, 100]),
        seconds=st.integers(1, 60),
    )
    def hold(
        self, *, client: int, group: str, topic: str, queue_id: int, wanted: str, number: int, seconds: int
    ) -> None:
        """Pulls that wait at the end of a queue."""
        end = self.stage.store.max_offset(topic, queue_id)
        header = pull_header(
            topic, end, consumer_group=group, queue_id=queue_id, sys_flag=PULL_SUBSCRIPTION | PULL_SUSPEND,
            suspend_timeout_millis=seconds * 1000, subscription=wanted,
        )  # fmt: skip

        async def invoke() -> None:
            connection = (await self.stage.at_broker(client)).connection
            for _ in range(number):
                future = connection.invoke_async(Code.PULL_MESSAGE, header, timeout=10**6)
                future.add_done_callback(_take_note)
                self.held.append(Held(future, (topic, queue_id), end, self.stage.now + seconds, wanted == "*"))

        self.run(invoke())

    def is_kept(self, sent: Sent) -> bool:
        """Whether the message is too young to be deleted."""
        return sent.at > self.stage.now - RESERVED_SECONDS

    @step(client=clients, topic=topics, index=st.integers(0, 9))
    def query_by_key(self, *, client: int, topic: str, index: int) -> None:
        """By a key that is one message's own, then by its offset id."""
        sent = [
            m
            for queue, messages in self.model.acknowledged.items()
            if queue[0] == topic
            for m in messages.values()
            if m.unique_key
        ]
        if not sent:
            return
        message = sent[-1 - index % len(sent)]
        is_kept = self.is_kept(message)
        header = QueryMessageRequestHeader(
            topic=topic,
            key=message.unique_key,
            max_num=32,
            begin_timestamp=0,
            end_timestamp=2**60,
            unique_key_query=True,
        )
        answer = self.ask(client, Code.QUERY_MESSAGE, header)
        bodies = [bytes(found.body) for found in decode_records(answer.body)]
        self.require(not is_kept or message.body in bodies, "query by key", f"{message}: {answer.remark} {bodies}")
        header_of_id = ViewMessageRequestHeader(offset=parse_offset_id(message.message_id)[2])
        viewed = self.ask(client, Code.VIEW_MESSAGE_BY_ID, header_of_id)
        if is_kept:
            self.require(
                viewed.code == OK and bytes(decode_records(viewed.body)[0].body) == message.body,
                "view by id",
                f"{message}: {viewed.remark}",
            )

    @step(
        client=clients,
        topic=topics,
        key=st.sampled_from(["k0", "k2", "k999", "none"]),
        begin=st.integers(-4000, 0),
        length=st.integers(0, 4000),
    )
    def query_by_time(self, *, client: int, topic: str, key: str, begin: int, length: int) -> None:
        """By a key that many messages have, and others collide with, in a span of time."""
        first = self.stage.now_ms + begin * 1000
        header = QueryMessageRequestHeader(
            topic=topic, key=key, max_num=64, begin_timestamp=first, end_timestamp=first + length * 1000
        )
        answer = self.ask(client, Code.QUERY_MESSAGE, header)
        for message in decode_records(answer.body):
            self.require(message.topic == topic, "query by key", f"{message!r} for {key} of {topic}")

    @step(
        client=clients,
        group=groups,
        topic=topics,
        queue_id=queue_ids,
        offset=st.sampled_from([0, 1, 3, 10**9]),
    )
    def commit(self, *, client: int, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Commit an offset, which may be far beyond the queue's end."""
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset
        )
        answer = self.ask(client, Code.UPDATE_CONSUMER_OFFSET, header)
        if answer.code == OK and answer.remark is None:
            self.model.committed[group, topic, queue_id] = offset
            self.model.doubtful.discard((group, topic, queue_id))
        self.look_up(client, group, topic, queue_id)

    @step(client=clients, index=st.integers(0, 9))
    def query_offset(self, *, client: int, index: int) -> None:
        """Ask for one of the committed offsets."""
        if self.model.committed:
            known = list(self.model.committed)
            self.look_up(client, *known[-1 - index % len(known)])

    def look_up(self, client: int, group: str, topic: str, queue_id: int) -> None:
        """Ask for a committed offset; of one that may have changed, take the answer for right."""
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=group, topic=topic, queue_id=queue_id, set_zero_if_not_found=False
        )
        answer = self.ask(client, Code.QUERY_CONSUMER_OFFSET, header)
        found = answer.header(QueryConsumerOffsetResponseHeader).offset if answer.code == OK else None
        key = group, topic, queue_id
        if key not in self.model.doubtful:
            offset = self.model.committed.get(key)
            self.require(found == offset, "committed offset", f"{key} is at {found}, {offset} was committed")
        elif found is not None:
            self.model.committed[key] = found

    @step(
        client=clients,
        group=groups,
        topic=topics,
        seconds=st.sampled_from([-1, 0, 60, 3600]),
        force=st.booleans(),
        queue_id=st.sampled_from([-1, -1, 0]),
    )
    def reset_offset(self, *, client: int, group: str, topic: str, seconds: int, force: bool, queue_id: int) -> None:
        """Set a group back to a time, or to the end."""
        header = ResetOffsetRequestHeader(
            topic=topic, group=group, queue_id=queue_id, is_force=force,
            timestamp=-1 if seconds < 0 else self.stage.now_ms - seconds * 1000,
        )  # fmt: skip
        self.ask(client, Code.INVOKE_BROKER_TO_RESET_OFFSET, header)
        for number in range(self.model.readable(topic) or 8):
            self.doubt(group, topic, number)

    @step(client=clients, source=groups, clone=groups, topic=topics)
    def clone_offsets(self, *, client: int, source: str, clone: str, topic: str) -> None:
        """Give a group another one's offsets."""
        header = CloneGroupOffsetRequestHeader(src_group=source, dest_group=clone, topic=topic, offline=True)
        self.ask(client, Code.CLONE_GROUP_OFFSET, header)
        for _, _, queue_id in [key for key in self.model.committed if key[0] in {source, clone} and key[1] == topic]:
            self.doubt(clone, topic, queue_id)

    def doubt(self, group: str, topic: str, queue_id: int) -> None:
        """Take any offset of the group for right until the next commit."""
        self.model.doubtful.add((group, topic, queue_id))
        self.model.committed.setdefault((group, topic, queue_id), 0)


def _take_note(future: "asyncio.Future[RemotingCommand]") -> None:
    """Take note of how a future ended, so that no warning tells that nobody did."""
    if not future.cancelled():
        future.exception()
