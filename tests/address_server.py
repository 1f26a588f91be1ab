"""An HTTP server that answers with the addresses of name servers."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from threading import Thread


class AddressHttpServer(ThreadingHTTPServer):
    """The server. Tests may change its answer while it runs.

    Attributes:
        domain: ``host:port`` of the server.
        status: The status of answers.
        body: The body of answers.
        asked: The path of each request that has been answered.
    """

    daemon_threads = True

    def __init__(self, body: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.domain = f"127.0.0.1:{self.server_port}"
        self.status = 200
        self.body = body.encode()
        self.asked: SimpleQueue[str] = SimpleQueue()


class _Handler(BaseHTTPRequestHandler):
    server: AddressHttpServer

    def do_GET(self) -> None:
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(self.server.body)
        self.server.asked.put(self.path)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in http.server
        pass


@contextmanager
def running_address_server(body: str = "") -> Iterator[AddressHttpServer]:
    """Run a server in a thread while the block runs."""
    with AddressHttpServer(body) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
