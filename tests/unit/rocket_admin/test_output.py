"""Tables and lines of JSON, as commands print them."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime

import pytest

from rocket_admin.broker_answers import BrokerFailure
from rocket_admin.commands.output import Column, Output, plain
from rocket_remoting import ConnectError
from tests.unit.rocket_admin.terminal import Screen


@dataclass(frozen=True, kw_only=True)
class Tea:
    """What is printed."""

    name: str
    cups: int | None = None


LONG = "a long name of a tea from Assam"
COLUMNS: list[Column[Tea]] = [
    Column(title="TEA", text=lambda tea: tea.name, may_wrap=True),
    Column(title="CUPS", text=lambda tea: tea.cups, is_number=True),
]


@pytest.mark.parametrize(
    ("columns", "lines"),
    [
        ("", ["TEA                               CUPS", f"{LONG}  1,200", "sencha                               -"]),
        ("20", ["TEA             CUPS", "a long name    1,200", "of a tea from", "Assam", "sencha             -"]),
        ("8", ["TEA            CUPS", "a long name   1,200", "of a tea", "from Assam", "sencha            -"]),
    ],
    ids=["no terminal", "narrow", "too narrow"],
)
def test_table_is_as_wide_as_the_terminal_allows(
    columns: str, lines: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Texts continue on the next line, at a space if there is one; numbers are never broken."""
    monkeypatch.setenv("COLUMNS", columns)
    Output(as_json=False).table([Tea(name=LONG, cups=1200), Tea(name="sencha")], COLUMNS)
    assert capsys.readouterr().out.splitlines() == lines


def test_stream_is_one_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """With one heading, however many rows there are; and a heading alone for none."""
    monkeypatch.setenv("COLUMNS", "")

    async def teas(number: int) -> AsyncIterator[Tea]:
        for cups in range(number):
            yield Tea(name="sencha", cups=cups)

    asyncio.run(Output(as_json=False).stream(teas(250), COLUMNS))
    lines = capsys.readouterr().out.splitlines()
    assert (len(lines), sum("TEA" in line for line in lines)) == (251, 1)
    asyncio.run(Output(as_json=False).stream(teas(0), COLUMNS))
    assert capsys.readouterr().out.splitlines() == ["TEA  CUPS"]
    asyncio.run(Output(as_json=True).stream(teas(2), COLUMNS))
    assert [json.loads(line)["cups"] for line in capsys.readouterr().out.splitlines()] == [0, 1]


def test_preview_is_replaced_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the next preview, and by the table of the round."""
    screen = Screen()
    monkeypatch.setattr("sys.stdout", screen)
    output = Output(as_json=False, watch=1, rounds=1)

    async def work() -> None:
        output.preview([Tea(name="sencha")], COLUMNS, "1 tea so far.")
        output.preview([Tea(name="oolong")], COLUMNS, "2 teas so far.")
        output.table([Tea(name="assam")], COLUMNS)

    asyncio.run(output.repeat(work))
    assert [text.split()[-2] for text in screen.tables()] == ["sencha", "oolong", "assam"]


def test_preview_is_not_printed_into_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing could be replaced there."""
    Output(as_json=False, watch=1).preview([Tea(name="sencha")], COLUMNS, "1 tea so far.")
    assert capsys.readouterr() == ("", "")


def test_control_characters_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Names and remarks come from other programs."""
    strange = Tea(name="\x1b[2J\x9b\u202fsencha")
    for output in (Output(as_json=False), Output(as_json=True)):
        output.table([strange], COLUMNS)
        output.warn(strange.name)
        printed = capsys.readouterr()
        assert not {"\x1b", "\x9b"} & set(printed.out + printed.err)
    assert json.loads(printed.out) == {"name": strange.name}


def test_json_has_no_field_that_is_not_known() -> None:
    """In nested objects, too; times are in UTC."""
    time = datetime.fromisoformat("2026-11-26T14:30:00+02:00")
    assert plain({"teas": (Tea(name="sencha"), Tea(name="oolong", cups=0)), "at": time}) == {
        "teas": [{"name": "sencha"}, {"name": "oolong", "cups": 0}],
        "at": "2026-11-26T12:30:00.000Z",
    }


def test_round_that_fails_does_not_end_the_watching(capsys: pytest.CaptureFixture[str]) -> None:
    """The server may be back in the next one."""
    output = Output(as_json=False, watch=0.001, rounds=3)
    rounds = iter([None, ConnectError("127.0.0.1:1", "refused"), None])

    async def work() -> None:
        if error := next(rounds):
            raise error
        output.say("tea")

    asyncio.run(output.repeat(work))
    printed = capsys.readouterr()
    assert printed.out == "tea\ntea\n"
    assert printed.err == "cannot connect to 127.0.0.1:1: refused\n"


def test_broker_that_did_not_answer_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """With its address and what is missing."""
    output = Output(as_json=True)
    output.failures([BrokerFailure(broker_name="b", address="127.0.0.1:1", reason="refused")], "its teas are missing")
    assert output.has_failures
    assert capsys.readouterr().err == "broker b at 127.0.0.1:1: its teas are missing: refused\n"
