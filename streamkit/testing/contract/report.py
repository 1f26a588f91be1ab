"""The report of a contract run: which case held in which environment, as a page for people.

``pytest --contract-report=docs/capabilities.md`` writes it. Outcomes of environments that did not run are kept as
the file has them, so that a machine without one of the systems rewrites only what it saw.
"""

import json
import re
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from streamkit.binder.capabilities import Capability
from streamkit.testing.contract import BinderContract
from streamkit.testing.contract.environment import ContractEnvironment

__all__ = ["ContractReport"]

HELD: Final = "yes"
VIRTUAL_ONLY: Final = "on virtual time"
_RECORD: Final = "streamkit_contract_case"
_CAPABILITY: Final = "can "

Cells = dict[str, dict[str, str]]
"""Row, environment -> what the page says."""


class ContractReport:
    """A pytest plugin that notes the outcomes of contract cases, and writes them or compares them with a file."""

    def __init__(self, path: Path, *, write: bool) -> None:
        """Note nothing yet.

        Args:
            path: The page.
            write: Whether to write it; else the run fails if the page says something else than what was seen.
        """
        self._path = path
        self._write = write
        self._seen: Cells = {}
        self._stale: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attach the case and the environment to the report, which may be read in another process."""
        report = yield
        environment = getattr(item, "funcargs", {}).get("environment")
        cls = getattr(item, "cls", None)
        if call.when == "call" and isinstance(environment, ContractEnvironment) and cls is not None:
            cell = _outcome(report, environment)
            if cell is not None and issubclass(cls, BinderContract):
                capabilities = sorted(each.value for each in environment.capabilities)
                record = [
                    environment.name,
                    _sentence(getattr(item, "originalname", item.name)),
                    cell,
                    capabilities,
                ]
                report.user_properties.append((_RECORD, json.dumps(record)))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Gather what was attached."""
        for name, value in report.user_properties:
            if name == _RECORD:
                environment, sentence, cell, capabilities = json.loads(str(value))
                self._seen.setdefault(sentence, {})[environment] = cell
                for capability in Capability:
                    said = HELD if capability.value in capabilities else "no"
                    self._seen.setdefault(_CAPABILITY + capability.value, {})[environment] = said

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the page, or compare it."""
        if not self._seen or hasattr(session.config, "workerinput"):
            return
        known = read_page(self._path.read_text()) if self._path.exists() else {}
        if self._write:
            merged = {
                row: {**known.get(row, {}), **self._seen.get(row, {})} for row in {**known, **self._seen}
            }
            self._path.write_text(write_page(merged))
            return
        self._stale = [
            f"{environment}: {row} {cell!r}, the page says {known.get(row, {}).get(environment)!r}"
            for row, cells in self._seen.items()
            for environment, cell in cells.items()
            if known.get(row, {}).get(environment) != cell
        ]
        if self._stale and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say what is stale, and how to renew it."""
        if self._stale:
            terminalreporter.section(
                f"{self._path} is stale: run pytest --contract-report={self._path}", red=True
            )
            for line in self._stale:
                terminalreporter.line(line)


def _outcome(report: pytest.TestReport, environment: ContractEnvironment) -> str | None:
    """What the page says of a case; None where the run says nothing about it."""
    if report.skipped:
        reason = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else ""
        return VIRTUAL_ONLY if "only on virtual time" in reason else None
    if not report.passed:
        return None
    lacking = sorted(capability.value for capability in environment.lacking)
    return f"refused: {', '.join(lacking)}" if lacking else HELD


def _sentence(name: str) -> str:
    """A case's name in words, such as "The members of a group share its messages"."""
    return re.sub(r"_s(?=_|$)", "'s", name.removeprefix("test_")).replace("_", " ").capitalize()


def sections() -> Iterator[tuple[str, list[str]]]:
    """Yield the title of each group of cases, and its cases in words, in the order they are written."""
    for cls in BinderContract.__mro__:
        cases = [_sentence(name) for name in vars(cls) if name.startswith("test_")]
        if cases:
            yield (cls.__doc__ or cls.__name__).splitlines()[0].rstrip("."), cases


def write_page(cells: Mapping[str, Mapping[str, str]]) -> str:
    """Return the page; rows of cases that no longer exist are left out."""
    environments = sorted({name for row in cells.values() for name in row})
    lines = [
        "# What each binder can do",
        "",
        "Written by the contract suite out of what it saw: `pytest --contract-report=docs/capabilities.md`.",
        "*yes*: the case held. *refused*: the binder declares that it lacks a capability, and what asks for it is",
        "refused, at start or at `send`. *on virtual time*: the case takes hours, and runs only where time is virtual.",
        "",
        "## Capabilities",
        "",
        *_table(
            "the binder declares", [_CAPABILITY + each.value for each in Capability], environments, cells
        ),
    ]
    for title, sentences in sections():
        lines += ["", f"## {title}", "", *_table("what is true", sentences, environments, cells)]
    return "\n".join(lines) + "\n"


def _table(
    head: str, rows: list[str], environments: list[str], cells: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    yield "| " + " | ".join([head, *environments]) + " |"
    yield "|---" * (len(environments) + 1) + "|"
    for row in rows:
        said = [cells.get(row, {}).get(environment, "") for environment in environments]
        yield "| " + " | ".join([_escaped(row.removeprefix(_CAPABILITY)), *said]) + " |"


def read_page(text: str) -> Cells:
    """Return what a page says."""
    cells: Cells = {}
    environments: list[str] = []
    prefix = ""
    for line in text.splitlines():
        if not line.startswith("|") or line.startswith("|---"):
            continue
        head, *rest = (cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])
        if head in ("the binder declares", "what is true"):
            environments, prefix = rest, _CAPABILITY if head == "the binder declares" else ""
            continue
        row = prefix + head.replace(r"\|", "|")
        cells[row] = {name: said for name, said in zip(environments, rest, strict=True) if said}
    return cells


def _escaped(text: str) -> str:
    return text.replace("|", r"\|")
