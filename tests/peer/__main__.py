"""`python -m tests.peer`: get and compile all foreign programs of the tests, once per machine."""

import time
from collections.abc import Callable
from functools import partial

from tests.peer import chromium, database_servers
from tests.peer.artifacts import PROGRAMS, PeersUnavailableError, class_path
from tests.peer.go_client import go_program


def main() -> None:
    """Get them one after the other, since Maven's local repository is not safe for concurrent use."""
    programs: dict[str, Callable[[], object]] = {name: partial(class_path, name) for name in PROGRAMS}
    programs["go"] = go_program
    programs |= database_servers.prepared() | {"chromium": chromium.chromium}
    for name, make in programs.items():
        begun = time.monotonic()
        try:
            make()
        except PeersUnavailableError as error:
            print(f"{name}: {error}", flush=True)
        else:
            print(f"{name}: ready after {time.monotonic() - begun:.1f} s", flush=True)


if __name__ == "__main__":
    main()
