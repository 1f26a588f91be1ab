"""The report of a contract run, a Markdown page: which case passed in which environment.

``pytest --contract-report=docs/capabilities.md`` writes it. The outcomes of environments that did
not run are kept, so a machine without one of the systems rewrites only the other columns.
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
"""The text of each cell, by row and environment."""


class ContractReport:
    """A pytest plugin that writes the outcomes of contract cases to a page, or compares them with it."""

    def __init__(self, path: Path, *, write: bool) -> None:
        """Make the plugin of one test run.

        Args:
            path: The page.
            write: True to write the page; False to fail the run if an outcome differs from the page.
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
        """Collect the outcomes that were attached to the reports."""
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
            merged = {row: {**known.get(row, {}), **self._seen.get(row, {})} for row in {**known, **self._seen}}
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
        """Print the stale cells and the command that renews the page."""
        if self._stale:
            terminalreporter.section(f"{self._path} is stale: run pytest --contract-report={self._path}", red=True)
            for line in self._stale:
                terminalreporter.line(line)


def _outcome(report: pytest.TestReport, environment: ContractEnvironment) -> str | None:
    """Return the cell of a case, or None if its cell is to stay."""
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


_INTRODUCTION = """\
See what each binder can do on each broker. The contract suite writes this page from the results of its cases:
`pytest --contract-report=docs/capabilities.md`.

- *yes*: the case passed.
- *refused*: the binder lacks the capability after the colon. An application that asks for it is refused, at the start
  or at `send`.
- *on virtual time*: the case takes hours, so it runs only in the environments with virtual time.""".splitlines()


def write_page(cells: Mapping[str, Mapping[str, str]]) -> str:
    """Return the page; rows of cases that no longer exist are left out."""
    environments = sorted({name for row in cells.values() for name in row})
    lines = [
        "# What each binder can do",
        "",
        *_INTRODUCTION,
        "",
        "## Capabilities",
        "",
        *_table("the binder declares", [_CAPABILITY + each.value for each in Capability], environments, cells),
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
    """Return the cells of a page."""
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
