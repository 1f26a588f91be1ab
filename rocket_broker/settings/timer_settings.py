"""What the timers are told: names and defaults are those of Apache 5.x's ``MessageStoreConfig``."""

from dataclasses import dataclass
from pathlib import Path

__all__ = ["PRECISIONS_MS", "TimerSettings"]

PRECISIONS_MS = (100, 200, 500, 1000)
"""What ``timerPrecisionMs`` may be."""
SLOTS = 7 * 24 * 3600
_BLANK_SLOTS = 60


@dataclass(frozen=True, slots=True)
class TimerSettings:
    """The settings of the timers of one store.

    Attributes:
        root: Directory of the store.
        precision_ms: Length of a moment: a message is delivered so much late at most.
        roll_window_slots: So many moments ahead a timer is put at most; what is further away is rolled on.
        wheel_slots: Half of the wheel's slots; Apache's figure whatever the precision, so nothing else opens there.
        log_file_size: Size of a timer log file.
        flush_interval_ms: Time between two flushes of the timers' files.
    """

    root: Path
    precision_ms: int = 1000
    roll_window_slots: int = 2 * 24 * 3600
    wheel_slots: int = SLOTS
    log_file_size: int = 100 * 1024 * 1024
    flush_interval_ms: int = 1000

    def __post_init__(self) -> None:
        """See that the window fits the wheel, as Apache's brokers do."""
        most = self.wheel_slots - _BLANK_SLOTS
        if not 2 <= self.roll_window_slots <= most:
            object.__setattr__(self, "roll_window_slots", most)

    @property
    def wheel_path(self) -> Path:
        """The file of the wheel."""
        return self.root / "timerwheel"

    @property
    def log_path(self) -> Path:
        """Directory of the timer log."""
        return self.root / "timerlog"

    @property
    def checkpoint_path(self) -> Path:
        """The file that says how far the timers are."""
        return self.root / "config" / "timercheck"
