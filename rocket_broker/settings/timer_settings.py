"""The settings of the timers: names and defaults are those of Apache 5.x's ``MessageStoreConfig``."""

from pathlib import Path

import msgspec

__all__ = ["PRECISIONS_MS", "TimerSettings"]

PRECISIONS_MS = (100, 200, 500, 1000)
"""The allowed values of ``timerPrecisionMs``."""
SLOTS = 7 * 24 * 3600
_BLANK_SLOTS = 60


class TimerSettings(msgspec.Struct, frozen=True):
    """The settings of the timers of one store.

    Attributes:
        root: Directory of the store.
        precision_ms: Milliseconds of a moment, and so the maximum lateness of a message.
        roll_window_slots: Maximum moments between the present and a timer; messages that are due later roll.
        wheel_slots: Half of the wheel's slots. Apache's brokers open only a wheel of this size, at any precision.
        log_file_size: Size of a timer log file in bytes.
        flush_interval_ms: Milliseconds between two flushes of the timers' files.
    """

    root: Path
    precision_ms: int = 1000
    roll_window_slots: int = 2 * 24 * 3600
    wheel_slots: int = SLOTS
    log_file_size: int = 100 * 1024 * 1024
    flush_interval_ms: int = 1000

    def __post_init__(self) -> None:
        """Reduce the roll window to the wheel's size, as Apache's brokers do."""
        most = self.wheel_slots - _BLANK_SLOTS
        if not 2 <= self.roll_window_slots <= most:
            msgspec.structs.force_setattr(self, "roll_window_slots", most)

    @property
    def wheel_path(self) -> Path:
        """File of the timer wheel."""
        return self.root / "timerwheel"

    @property
    def log_path(self) -> Path:
        """Directory of the timer log."""
        return self.root / "timerlog"

    @property
    def checkpoint_path(self) -> Path:
        """File with the progress of the timers."""
        return self.root / "config" / "timercheck"
