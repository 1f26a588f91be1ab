"""Records frames between Apache's Java client, name server and broker into `tests/wire/golden`."""

import json
import socket
import struct
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tests.peer.apache import ApacheBroker
from tests.peer.artifacts import VERSIONS
from tests.peer.java_client import JavaClient, JavaMessage
from tests.peer.json_peer import PeerError
from tests.ports import free_ports

GOLDEN = Path(__file__).parent / "golden"
HEADER_ENCODINGS: tuple[Literal["JSON", "ROCKETMQ"], ...] = ("JSON", "ROCKETMQ")
RESPONSE, ONEWAY = 1, 2

# What was not on the wire: the driver's own fields, and properties that the consuming client adds.
TOLD_BY_LISTENER = ("event", "consumer", "batch", "failed")
ADDED_BY_CONSUMER = ("MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME")


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame as it passed the proxy."""

    connection: int
    from_client: bool
    data: bytes
    expect: dict[str, Any]

    @property
    def code(self) -> int:
        """The request or response code."""
        return int(self.expect["code"])

    @property
    def is_response(self) -> bool:
        """Return whether it answers another frame."""
        return bool(self.expect["flag"] & RESPONSE)

    def answers(self, request: "Frame") -> bool:
        """Return whether it is the answer to `request`."""
        return (
            self.is_response
            and self.from_client != request.from_client
            and self.connection == request.connection
            and self.expect["opaque"] == request.expect["opaque"]
        )


def parse(data: bytes) -> dict[str, Any]:
    """Read one frame: total length, header length with the encoding in its top byte, header, body."""
    total, header_length = struct.unpack_from(">ii", data)
    encoding, header_length = header_length >> 24, header_length & 0xFFFFFF
    assert total == len(data) - 4
    header, body = data[8 : 8 + header_length], data[8 + header_length :]
    fields = _parse_json(header) if encoding == 0 else _parse_binary(header)
    return {**fields, "encoding": ("JSON", "ROCKETMQ")[encoding], "body_hex": body.hex()}


def _parse_json(header: bytes) -> dict[str, Any]:
    reported = json.loads(header)
    names = ("code", "flag", "opaque", "language", "version")
    return {
        **{name: reported[name] for name in names},
        "remark": reported.get("remark"),
        "ext_fields": reported.get("extFields") or {},
    }


def _parse_binary(header: bytes) -> dict[str, Any]:
    code, language, version, opaque, flag, remark_length = struct.unpack_from(">hbhiii", header)
    assert language == 0, "Java's own code"
    at = 17
    remark = header[at : at + remark_length].decode() if remark_length else None
    at += remark_length
    (fields_length,) = struct.unpack_from(">i", header, at)
    at += 4
    assert at + fields_length == len(header)
    fields = {}
    while at < len(header):
        (length,) = struct.unpack_from(">h", header, at)
        key = header[at + 2 : at + 2 + length].decode()
        at += 2 + length
        (length,) = struct.unpack_from(">i", header, at)
        fields[key] = header[at + 4 : at + 4 + length].decode()
        at += 4 + length
    return {
        "code": code,
        "flag": flag,
        "opaque": opaque,
        "language": "JAVA",
        "version": version,
        "remark": remark,
        "ext_fields": fields,
    }


class Proxy:
    """Forwards frames to a server and records them.

    `rewrite` changes what is forwarded, not what is recorded: the route must lead clients to the proxy.
    """

    def __init__(self, upstream: int, rewrite: Callable[[bytes], bytes] = bytes) -> None:
        """Listen on a free port before the server on port `upstream`."""
        self.frames: list[Frame] = []
        self._upstream = upstream
        self._rewrite = rewrite
        # A port of five digits, as the one it replaces in route answers.
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._changed = threading.Condition()
        threading.Thread(target=self._accept, daemon=True).start()

    def await_frame(self, chosen: Callable[[Frame], bool], timeout: float = 30.0) -> Frame:
        """Return the first recorded frame that is `chosen`, waiting for it."""
        with self._changed:
            if not self._changed.wait_for(lambda: any(map(chosen, self.frames)), timeout):
                raise TimeoutError("the frame never passed")
            return next(filter(chosen, self.frames))

    def forget(self) -> None:
        """Drop what was recorded so far."""
        with self._changed:
            self.frames.clear()

    def _accept(self) -> None:
        connection = 0
        while True:
            client, _ = self._listener.accept()
            server = socket.create_connection(("127.0.0.1", self._upstream))
            connection += 1
            for source, target, from_client in ((client, server, True), (server, client, False)):
                arguments = (connection, from_client, source, target)
                threading.Thread(target=self._pass_on, args=arguments, daemon=True).start()

    def _pass_on(self, connection: int, from_client: bool, source: socket.socket, target: socket.socket) -> None:
        buffer = b""
        try:
            while received := source.recv(65536):
                buffer += received
                while len(buffer) >= 4 and len(buffer) >= 4 + int.from_bytes(buffer[:4]):
                    size = 4 + int.from_bytes(buffer[:4])
                    data, buffer = buffer[:size], buffer[size:]
                    frame = Frame(connection, from_client, data, parse(data))
                    with self._changed:
                        self.frames.append(frame)
                        self._changed.notify_all()
                    target.sendall(self._rewrite(data))
        except OSError:
            pass  # either side went away, which ends the connection for both
        finally:
            target.close()


@dataclass(slots=True)
class Recording:
    """The servers, the proxies before them, and the Java client."""

    broker: ApacheBroker
    names: Proxy
    wire: Proxy
    java: JavaClient
    topic: str
    received: list[JavaMessage]

    def converse(self) -> None:
        """Send everything that is to be recorded, with the Java client."""
        at = self.names.address
        group = f"group-{self.topic}"
        shrinking = f"shrinking-{self.topic}"
        self._make(self.topic)
        self._make(shrinking, queues=2)
        # The route is asked once: the client goes on with queues that are gone.
        with self.java.producer(at, compressOver=200, pollNameServerMs=60_000) as producer:
            sent = producer.send(self.topic, "plain", tags="tag-a", keys="key-1 key-2", properties={"x": "y"})
            producer.send(self.topic, "compressed " * 30, flag=7)
            producer.send(self.topic, "one way", mode="oneway")
            producer.send(self.topic, "first", "second", mode="batch", tags="tag-b")
            producer.send(self.topic, "later", delayLevel=1)
            producer.send(shrinking, "known with two queues")
            self._make(shrinking, queues=1)
            for call in (
                # Round robin: one of two goes to the queue that is gone, which 4.9 retries on the other.
                lambda: producer.send(shrinking, "one", "two"),
                lambda: producer.offsets(f"absent-{self.topic}"),
            ):
                try:
                    call()
                except PeerError as error:
                    print(f"  refused as meant: {error}".splitlines()[0])
            producer.offsets(self.topic, timestamp=1)
            producer.query(self.topic, "key-1")
            producer.view(self.topic, through(self.wire, sent[0]["offsetId"]))
        first = self.java.consumer(at, group, {self.topic: "*"}, failTimes=1, failBody="plain", persistOffsetsMs=200)
        self.received = first.take(7)
        second = self.java.consumer(at, group, {self.topic: "*"})
        second.stop()
        self.wire.await_frame(code(15))
        # A pull that finds nothing is held for 15 s.
        self.wire.await_frame(pull(19, self.topic, self.wire))
        first.stop()
        ordered = self.java.consumer(at, f"ordered-{self.topic}", self.topic, mode="orderly")
        ordered.take(6)
        ordered.stop()
        for command in (
            ["topicStatus", "-t", self.topic],
            ["consumerProgress", "-g", group],
            ["clusterList"],
        ):
            self.java.mqadmin(at, *command)

    def _make(self, topic: str, queues: int = 1) -> None:
        number = str(queues)
        where = ("-b", self.wire.address, "-t", topic)
        self.java.mqadmin(self.names.address, "updateTopic", *where, "-r", number, "-w", number)


def through(wire: Proxy, offset_id: str) -> str:
    """Return an offset id (the broker's address, port and offset in hex) with the proxy's port."""
    return f"{offset_id[:8]}{wire.port:08X}{offset_id[16:]}"


def code(number: int, **fields: str) -> Callable[[Frame], bool]:
    """Return a predicate of requests by code and header fields."""

    def chosen(frame: Frame) -> bool:
        reported = frame.expect["ext_fields"]
        return (
            not frame.is_response
            and frame.code == number
            and all(reported.get(name) == value for name, value in fields.items())
        )

    return chosen


def answered(codes: tuple[int, ...], chosen: Callable[[Frame], bool], wire: Proxy) -> Callable[[Frame], bool]:
    """Return a predicate of requests answered with one of these codes."""

    def both(frame: Frame) -> bool:
        return chosen(frame) and any(other.answers(frame) and other.code in codes for other in wire.frames)

    return both


def pull(answer: int, topic: str, wire: Proxy) -> Callable[[Frame], bool]:
    """Return a predicate of pulls from a topic answered with a code."""
    return answered((answer,), code(11, topic=topic), wire)


def choices(recording: Recording) -> dict[str, tuple[Proxy, Callable[[Frame], bool]]]:
    """Return the requests to keep: name to proxy and predicate."""
    topic, names, wire = recording.topic, recording.names, recording.wire
    retry = f"%RETRY%group-{topic}"
    return {
        "route": (names, code(105, topic=topic)),
        "route-unknown": (names, code(105, topic=f"absent-{topic}")),
        "cluster-info": (names, code(106)),
        "create-topic": (wire, code(17, topic=topic)),
        "send": (wire, code(310, b=topic, h="0")),
        "send-compressed": (wire, code(310, b=topic, h="7")),
        "send-oneway": (wire, lambda frame: code(310)(frame) and frame.expect["flag"] == ONEWAY),
        "send-batch": (wire, code(320)),
        "send-refused": (wire, answered((1, 29), code(310, b=f"shrinking-{topic}"), wire)),
        "heartbeat": (
            wire,
            lambda frame: code(34)(frame) and retry.encode().hex() in frame.expect["body_hex"],
        ),
        "consumer-list": (wire, code(38)),
        "notify-consumer-ids": (wire, code(40)),
        "query-offset": (wire, code(14, topic=topic)),
        "update-offset": (wire, code(15)),
        "pull-found": (wire, pull(0, topic, wire)),
        "pull-retry-topic": (wire, pull(0, retry, wire)),
        "pull-not-found": (wire, pull(19, topic, wire)),
        "send-back": (wire, code(36)),
        "lock": (wire, code(41)),
        "unlock": (wire, code(42)),
        "unregister": (wire, code(35)),
        "min-offset": (wire, code(31)),
        "max-offset": (wire, code(30)),
        "search-offset": (wire, code(29)),
        "earliest-store-time": (wire, code(32)),
        "query-message": (wire, code(12)),
        "view-message": (wire, code(33)),
        "topic-stats": (wire, code(202, topic=topic)),
        "consume-stats": (wire, code(208, consumerGroup=f"group-{topic}")),
    }


def keep(recording: Recording, encoding: str) -> None:
    """Write one file for each chosen request and each answer to one."""
    version = recording.broker.version
    for name, (proxy, chosen) in choices(recording).items():
        request = next(filter(chosen, proxy.frames), None)
        if request is None:
            print(f"  {version} {encoding} sent no {name}", file=sys.stderr)
            continue
        write(version, encoding, f"{name}-request", request)
        answer = next((frame for frame in proxy.frames if frame.answers(request)), None)
        if answer is not None:
            records = records_in(recording, request) if name.startswith("pull-found") else None
            write(version, encoding, f"{name}-response", answer, records)


def records_in(recording: Recording, request: Frame) -> list[dict[str, Any]]:
    """Return what Java's listener received of a pull's records, in order."""
    start = int(request.expect["ext_fields"]["queueOffset"])
    seen = [message.raw for message in recording.received if not message.raw["reconsumeTimes"]]
    records = []
    for raw in sorted(seen, key=lambda raw: int(raw["offset"])):
        if raw["offset"] >= start and "DELAY" not in raw["properties"]:
            kept = {key: value for key, value in raw.items() if key not in ("event", "consumer", "batch", "failed")}
            shown = kept["properties"]
            kept["properties"] = {key: shown[key] for key in shown if key not in ADDED_BY_CONSUMER}
            records.append(kept)
    return records


def write(version: str, encoding: str, name: str, frame: Frame, records: list[dict[str, Any]] | None = None) -> None:
    """Write one golden file."""
    content: dict[str, Any] = {
        "name": name,
        "client_version": version,
        "direction": "response" if frame.is_response else "request",
        "hex": frame.data.hex(),
        "expect": frame.expect,
    }
    if records is not None:
        content["records"] = records
    path = GOLDEN / f"{version}-{encoding.lower()}-{name}.json"
    path.write_text(json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def record(version: str) -> None:
    """Record all frames of one version."""
    name_server_port, broker_port = ports = free_ports()
    wire = Proxy(broker_port)
    # Only name server answers hold the broker's address; both ports have five digits.
    old, new = f"127.0.0.1:{broker_port}".encode(), wire.address.encode()
    names = Proxy(name_server_port, rewrite=lambda data: data.replace(old, new))
    conf = {"namesrvAddr": names.address, "messageDelayLevel": "1s " * 17 + "1s"}
    with ApacheBroker(version, ports=ports, settings=conf) as broker:
        registered = names.await_frame(code(103))
        write(version, "JSON", "register-broker-request", registered)
        answer = names.await_frame(lambda frame: frame.answers(registered))
        write(version, "JSON", "register-broker-response", answer)
        for encoding in HEADER_ENCODINGS:
            print(version, encoding)
            names.forget()
            wire.forget()
            with JavaClient(version, serialize=encoding) as java:
                recording = Recording(broker, names, wire, java, f"golden-{encoding.lower()}", [])
                recording.converse()
                keep(recording, encoding)


def main() -> None:
    """Record the frames of all versions."""
    GOLDEN.mkdir(exist_ok=True)
    for path in GOLDEN.glob("*.json"):
        path.unlink()
    for version in VERSIONS:
        record(version)
    print(f"{sum(path.stat().st_size for path in GOLDEN.glob('*.json')) // 1024} KiB in {GOLDEN}")


if __name__ == "__main__":
    main()
