"""The file of what a campaign has finished, one JSON object a line, which the same command continues."""

import json
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Report = TypeVar("Report", bound="DataclassInstance")


class Record(Generic[Report]):
    """The reports of a file, and the further ones that are added to it.

    Attributes:
        reports: In the order in which they were added.
    """

    def __init__(self, file: Path, kind: type[Report]) -> None:
        """Read the file, if there is one; `kind` is the dataclass of its reports, whose fields are JSON's types."""
        self.reports: list[Report] = []
        self._file = file
        if file.exists():
            self.reports = [kind(**json.loads(line)) for line in file.read_text().splitlines()]

    def add(self, report: Report) -> None:
        """Append a report to the file, without its field `logs`."""
        self.reports.append(report)
        values: dict[str, Any] = asdict(report)
        values.pop("logs", None)
        with self._file.open("a") as file:
            file.write(f"{json.dumps(values)}\n")


def revision() -> str:
    """Return the commit that is checked out."""
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True).stdout.strip()
