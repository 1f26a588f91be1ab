"""Commands are explained with names instead of numbers."""

from datetime import UTC, datetime, timedelta

from rocket_admin.wire.conversation import MOST_PENDING, Conversation, ExplainedCommand
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers.sending import SendMessageRequestHeader, SendMessageRequestHeaderV2

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
FIELDS = {
    "producer_group": "shop",
    "topic": "orders",
    "default_topic": "TBW102",
    "default_topic_queue_nums": 4,
    "queue_id": 3,
    "sys_flag": 0x4 | 0x1 | 0x200,
    "born_timestamp": 1_767_268_800_123,
    "flag": 0,
    "properties": "TAGS\x01tea\x02KEYS\x01k1\x02",
}


def explained(command: RemotingCommand, *, shows_bodies: bool = False) -> ExplainedCommand:
    """Explain one command of a client."""
    return Conversation(1, "here:9876", shows_bodies=shows_bodies).explain(command, NOON, by_client=True)


def asked(code: int, opaque: int = 0, **fields: str) -> RemotingCommand:
    """Return a request with the fields."""
    command = RemotingCommand.request(code, ext_fields=fields)
    command.opaque = opaque
    return command


def test_short_names_of_a_send_are_written_out() -> None:
    """The short and the long form of a send read the same, flags, times and properties included."""
    short = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, SendMessageRequestHeaderV2(**FIELDS))  # type: ignore[arg-type]
    long = RemotingCommand.request(RequestCode.SEND_MESSAGE, SendMessageRequestHeader(**FIELDS))  # type: ignore[arg-type]
    fields = explained(short).fields
    assert fields == explained(long).fields
    assert fields["topic"] == "orders"
    assert fields["sysFlag"] == "COMPRESSED|PREPARED|ZSTD"
    assert fields["bornTimestamp"] == "2026-01-01T12:00:00.123Z"
    assert fields["properties"] == {"TAGS": "tea", "KEYS": "k1"}


def test_response_names_its_request_and_the_time() -> None:
    """Numbers of the two ends are told apart: both may have a request 7."""
    talk = Conversation(2, "here:9876")
    talk.explain(asked(RequestCode.GET_MAX_OFFSET, 7), NOON, by_client=True)
    talk.explain(asked(RequestCode.GET_CONSUMER_RUNNING_INFO, 7), NOON, by_client=False)
    answer = RemotingCommand.response(asked(0, 7), ResponseCode.TOPIC_NOT_EXIST, remark="no topic")
    said = talk.explain(answer, NOON + timedelta(milliseconds=1.5), by_client=False)
    assert (said.kind, said.name, said.answers, said.milliseconds) == (
        "response", "TOPIC_NOT_EXIST", "GET_MAX_OFFSET", 1.5,
    )  # fmt: skip
    assert said.failed
    assert talk.explain(answer, NOON, by_client=True).answers == "GET_CONSUMER_RUNNING_INFO"
    assert talk.explain(answer, NOON, by_client=True).answers is None


def test_secrets_are_hidden() -> None:
    """Signatures and keys appear nowhere; bodies only where they are asked for."""
    command = asked(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, accessKey="me", secretKey="s3cret", Signature="s1gned")
    command.body = b'{"password":"s3cret"}'
    assert "s3cret" not in repr(explained(command))
    assert "s1gned" not in repr(explained(command))
    assert explained(command).fields["accessKey"] == "me"
    assert explained(command, shows_bodies=True).body == '{"password":"s3cret"}'


def test_strange_values_are_shown_as_they_are() -> None:
    """Unknown codes, flags that are no numbers, times far away."""
    said = explained(asked(9999, sysFlag="x", bornTimestamp="9" * 18, commitOrRollback="5"))
    assert said.name == "code 9999"
    assert said.fields == {"sysFlag": "x", "bornTimestamp": "9" * 18, "commitOrRollback": "5"}
    unknown = explained(asked(RequestCode.PULL_MESSAGE, sysFlag=str(2 | 64)))
    assert unknown.fields["sysFlag"] == "SUSPEND|64"


def test_requests_without_responses_are_forgotten() -> None:
    """A peer that never answers does not fill the memory."""
    talk = Conversation(1, "here:9876")
    for opaque in range(MOST_PENDING + 1):
        talk.explain(asked(RequestCode.HEART_BEAT, opaque), NOON, by_client=True)
    assert talk.request_code(RemotingCommand.response(asked(0, 0)), by_client=False) is None
    assert talk.request_code(RemotingCommand.response(asked(0, 1)), by_client=False) == RequestCode.HEART_BEAT
