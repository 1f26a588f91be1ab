"""The lines of the audit log: whole names, lengths of bodies, and nothing that somebody could forge."""

import json
from pathlib import Path
from typing import Any

import pytest

from rocket_console.access.audit_log import LONGEST_FIELD, LONGEST_NAME, AuditLog
from rocket_console.access.roles import Role
from rocket_console.access.sessions import Session

ANN = Session(role=Role.OPERATOR, user="ann", csrf_token=None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of a log."""
    return tmp_path / "audit.log"


def recorded(path: Path, **facts: Any) -> dict[str, Any]:
    """Record a change in a new log, and return its only line."""
    log = AuditLog(path)
    log.record("topic.create", "done", session=ANN, host="10.0.0.7", **{"names": {}, **facts})
    log.close()
    (line,) = path.read_bytes().split(b"\n")[:-1]
    assert line.isascii()
    found: dict[str, Any] = json.loads(line)
    return found


def test_names_are_whole_up_to_the_limits_of_the_protocol(path: Path) -> None:
    """Also that of a retry topic, and the ids of all rows that one step changes."""
    names = {"topic": "%RETRY%" + "g" * 255}
    fields = {"rows": " ".join(f"{number:064}" for number in range(100)), "body_bytes": 4096}
    assert recorded(path, names=names, fields=fields)["names"] == {**names, **fields}


def test_longer_texts_are_cut(path: Path) -> None:
    """With their length, so that nobody can fill the files with a few lines."""
    line = recorded(path, names={"id": "x" * 10_000}, fields={"where": "y" * 10_000}, remark="z" * 10_000)
    assert line["names"] == {
        "id": f"{'x' * LONGEST_NAME}... (10000 characters)",
        "where": f"{'y' * LONGEST_FIELD}... (10000 characters)",
    }
    assert line["remark"].endswith("... (10000 characters)")


@pytest.mark.parametrize(
    "text", ['a\n{"answer":"done"}', "a\r\nb", "a\x00\x1b[2K", "a\u2028b\x85c", '"}, {"', "\ud800"]
)
def test_no_text_forges_a_line(path: Path, text: str) -> None:
    """Whatever a name, a field or a remark has, it stays one line, with these values."""
    line = recorded(path, names={"topic": text}, fields={"keys": text}, remark=text)
    assert (line["names"], line["remark"], line["answer"]) == ({"topic": text, "keys": text}, text, "done")
