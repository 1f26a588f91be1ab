"""One child process: lines in, lines out, gone when its pipe closes."""

import collections
import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


class ChildProcess:
    """A running process; `on_line` sees each line it prints, and `on_end` its end, in a reader thread.

    Its standard error goes to the file `log`. The last lines of both are part of every error raised here.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        environment: Mapping[str, str] | None = None,
        on_line: Callable[[str], None] | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        """Start it, with `environment` beside this process's own."""
        self._log = log
        self._on_line = on_line
        self._on_end = on_end
        self._printed: collections.deque[str] = collections.deque(maxlen=50)
        self._changed = threading.Condition()
        self._ended = False
        with log.open("wb") as errors:
            # A session of its own, so that Ctrl-C reaches only the tests: the child ends when the pipe to it closes.
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=log.parent,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, name=f"child {self._child.pid}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The operating system's id of the process."""
        return self._child.pid

    @property
    def running(self) -> bool:
        """Whether the process is still there."""
        return self._child.poll() is None

    def write(self, line: str) -> None:
        """Send one line to its standard input."""
        if self._child.stdin is None:
            raise RuntimeError("the process has no standard input")
        self._child.stdin.write(line.encode() + b"\n")
        self._child.stdin.flush()

    def await_line(self, line: str, timeout: float) -> None:
        """Return once it has printed `line`.

        Raises:
            TimeoutError: It did not in time.
            subprocess.SubprocessError: It ended first.
        """
        with self._changed:
            came = self._changed.wait_for(lambda: line in self._printed or self._ended, timeout)
            if line in self._printed:
                return
        if came:
            raise subprocess.SubprocessError(f"it ended before it printed {line!r}:\n{self.tail()}")
        raise TimeoutError(f"it did not print {line!r} in {timeout} s:\n{self.tail()}")

    def tail(self) -> str:
        """Return the last lines of what it printed and logged."""
        logged = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        return "\n".join([*self._printed, *logged[-20:]])

    def stop(self, timeout: float) -> None:
        """Close its standard input, on which it ends by itself, and wait; kill it when it does not."""
        if self._child.stdin is not None:
            try:
                self._child.stdin.close()
            except BrokenPipeError:
                pass  # the process ended before it read the last line
        try:
            self._child.wait(timeout)
        except subprocess.TimeoutExpired:
            self._child.kill()
        self._release()

    def kill(self) -> None:
        """End it at once."""
        self._child.kill()
        self._release()

    def _release(self) -> None:
        self._child.wait()
        self._reader.join()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None and not pipe.closed:
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass  # closing flushes lines that the killed process has not read

    def _read(self) -> None:
        for raw in self._child.stdout or ():
            line = raw.decode(errors="replace").rstrip("\n")
            with self._changed:
                self._printed.append(line)
                self._changed.notify_all()
            if self._on_line is not None:
                self._on_line(line)
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        if self._on_end is not None:
            self._on_end()
