"""Cases: which members of which groups receive a message."""

from streamkit.binder.capabilities import Capability
from streamkit.messaging.message import Message
from streamkit.testing.contract.scenario import Scenario, case, needs, refused


def numbers(messages: list[Message[bytes]]) -> list[int]:
    """Return the numbers in the payloads, sorted."""
    return sorted(int(message.payload) for message in messages)


class GroupCases:
    """Groups and broadcasting."""

    @case
    async def test_every_group_receives_every_message(self, s: Scenario) -> None:
        """Two groups of one topic each receive each message once."""
        topic = await s.topic()
        first = await s.record(topic, s.name("first"))
        second = await s.record(topic, s.name("second"))
        for number in range(10):
            await s.send(topic, str(number))
        assert numbers(await first.settled(10)) == list(range(10))
        assert numbers(await second.settled(10)) == list(range(10))

    @case
    async def test_the_members_of_a_group_share_its_messages(self, s: Scenario) -> None:
        """Each message goes to one member, and each member receives some."""
        topic, group = await s.topic(partitions=4), s.name("group")
        members = [await s.record(topic, group) for _ in range(2)]

        async def each_has_something() -> bool:
            await s.send(topic, "to see who is there")
            return all(member.items for member in members)

        await s.until("something for each member", each_has_something)
        await s.nothing_more()
        for number in range(40):
            await s.send(topic, str(number))

        def heard() -> list[list[Message[bytes]]]:
            return [[m for m in member.items if m.payload.isdigit()] for member in members]

        async def all_came() -> bool:
            return sum(map(len, heard())) >= 40

        await s.until("all messages", all_came)
        await s.nothing_more()
        assert numbers([message for own in heard() for message in own]) == list(range(40))
        assert all(heard())

    @case
    async def test_the_other_members_take_over_when_a_member_leaves(self, s: Scenario) -> None:
        """After a member has stopped, the others receive all messages."""
        topic, group = await s.topic(), s.name("group")
        app = await s.consume(topic, group, _ignore)
        staying = await s.record(topic, group)
        await s.nothing_more()
        await app.stop()
        await s.nothing_more()
        for number in range(20):
            await s.send(topic, str(number))
        assert numbers(await staying.settled(20)) == list(range(20))

    @case
    async def test_a_group_receives_messages_that_were_sent_while_it_had_no_members(self, s: Scenario) -> None:
        """A group that has existed receives the messages that were sent while none of its members ran."""
        if s.lacks(Capability.DURABLE_GROUP):
            return
        topic, group = await s.topic(), s.name("group")
        before = s.recorder("before")

        app = await s.consume(topic, group, before.listen_to_text)
        await s.send(topic, "0")
        await before.wait(1)
        await s.nothing_more()
        await app.stop()
        for number in range(1, 6):
            await s.send(topic, str(number))
        after = await s.record(topic, group)
        assert numbers(await after.settled(5)) == [1, 2, 3, 4, 5]

    @case
    async def test_a_required_group_receives_messages_that_were_sent_before_its_first_member_came(
        self, s: Scenario
    ) -> None:
        """A producer's `required-groups` keeps messages for these groups."""
        if s.lacks(Capability.DURABLE_GROUP):
            return
        topic, group = await s.topic(), s.name("group")
        sender = await s.start(s.producer(topic, {"producer.required-groups": group}))
        for number in range(5):
            await sender.bridge.asend("output", str(number))
        late = await s.record(topic, group)
        assert numbers(await late.settled(5)) == list(range(5))

    @case
    async def test_an_anonymous_consumer_receives_messages_sent_after_its_start(self, s: Scenario) -> None:
        """Without a group, each consumer receives every new message and no earlier one."""
        topic = await s.topic()
        witness = await s.record(topic, s.name("group"))
        await s.send(topic, "0")
        # The past is what others could receive: a broker may have stored more than its queues show yet.
        await witness.wait(1)
        first = await s.record(topic, None)
        second = await s.record(topic, None)
        await s.send(topic, "1")
        assert numbers(await first.settled(1)) == [1]
        assert numbers(await second.settled(1)) == [1]

    @case
    async def test_in_broadcast_mode_every_member_receives_every_message(self, s: Scenario) -> None:
        """A binder without the capability refuses the setting at the start."""
        topic, group = await s.topic(), s.name("group")
        if s.lacks(Capability.BROADCAST):
            await refused(s.consume(topic, group, _ignore, broadcast=True))
            return
        first = await s.record(topic, group, broadcast=True, start="earliest")
        second = await s.record(topic, group, broadcast=True, start="earliest")
        for number in range(5):
            await s.send(topic, str(number))
        assert numbers(await first.settled(5)) == [0, 1, 2, 3, 4]
        assert numbers(await second.settled(5)) == [0, 1, 2, 3, 4]

    @case
    @needs(Capability.BROADCAST)
    async def test_a_failed_broadcast_message_is_dropped_after_its_attempts(self, s: Scenario) -> None:
        """In broadcast mode nothing is redelivered; the next message follows."""
        topic, group = await s.topic(), s.name("group")
        calls = s.recorder("calls")

        async def fail_first(payload: str) -> None:
            calls.add(payload)
            if payload == "bad":
                raise ValueError(payload)

        await s.consume(topic, group, fail_first, broadcast=True, start="earliest")
        await s.send(topic, "bad")
        await calls.wait(3)
        await s.send(topic, "good")
        assert await calls.settled(4) == ["bad", "bad", "bad", "good"]


async def _ignore(payload: str) -> None:
    """A listener that does nothing."""
