"""Errors of the remoting layer.

::

    RemotingError
    ├── LocalProtocolError      this end was asked to send something that the protocol cannot encode
    ├── RemoteProtocolError     the peer sent something that the protocol does not allow
    ├── ConnectError            no connection to .address
    ├── ConnectionLost          the connection to .address ended before an answer came
    ├── RequestTimeout          .address did not answer within .timeout seconds
    ├── TooManyRequests         too many unanswered requests, or too many unsent bytes, on one connection
    ├── TlsError                a certificate, a key or the trusted certificates cannot be used
    └── ResponseError           the peer answered with .code and .remark instead of success

The type tells which side is wrong: a `LocalProtocolError` is an error of this end, a `RemoteProtocolError` of the peer.
"""

from rocket_remoting.wire.codes import request_name, response_name


def seconds_text(seconds: float) -> str:
    """Return a number of seconds as text: two digits below ten, whole from ten on, such as `0.05`, `3` and `15`."""
    return f"{seconds:.2g}" if seconds < 9.5 else f"{seconds:.0f}"


class RemotingError(Exception):
    """Base of all errors of this package."""


class LocalProtocolError(RemotingError):
    """This end was asked to send something that the protocol cannot encode."""


class RemoteProtocolError(RemotingError):
    """The peer sent something that the protocol does not allow."""


class ConnectError(RemotingError):
    """No connection to `address` could be opened."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"cannot connect to {address}: {reason}")
        self.address = address
        self.reason = reason

    def __reduce__(self) -> tuple[type["ConnectError"], tuple[str, str]]:
        return type(self), (self.address, self.reason)


class ConnectionLost(RemotingError):  # noqa: N818 - a state, not a mistake
    """The connection to `address` ended before the response came, or was closed when a request was sent."""

    def __init__(self, address: str, reason: str = "connection closed") -> None:
        super().__init__(f"connection to {address} lost: {reason}")
        self.address = address
        self.reason = reason

    def __reduce__(self) -> tuple[type["ConnectionLost"], tuple[str, str]]:
        return type(self), (self.address, self.reason)


class RequestTimeout(RemotingError):  # noqa: N818 - a state, not a mistake
    """`address` did not answer `request_code` within `timeout` seconds. It may have handled the request."""

    def __init__(self, address: str, request_code: int, timeout: float) -> None:
        super().__init__(f"{request_name(request_code)} to {address}: no answer within {seconds_text(timeout)} s")
        self.address = address
        self.request_code = request_code
        self.timeout = timeout

    def __reduce__(self) -> tuple[type["RequestTimeout"], tuple[str, int, float]]:
        return type(self), (self.address, self.request_code, self.timeout)


class TooManyRequests(RemotingError):  # noqa: N818 - a state, not a mistake
    """A connection has as many unanswered requests or unsent bytes as its limits allow."""


class TlsError(RemotingError):
    """A certificate, a key or the file of trusted certificates cannot be used."""


class ResponseError(RemotingError):
    """`address` answered `request_code` with `code` (see `ResponseCode`) and `remark` instead of success."""

    def __init__(self, code: int, remark: str | None = None, *, address: str = "", request_code: int = -1) -> None:
        request = f"{request_name(request_code)} " if request_code >= 0 else ""
        place = f"to {address} " if address else ""
        super().__init__(f"{request}{place}answered {response_name(code)}: {remark or 'no remark'}")
        self.code = code
        self.remark = remark
        self.address = address
        self.request_code = request_code

    def __reduce__(self) -> tuple[object, tuple[int, str | None, str, int]]:
        return _response_error, (self.code, self.remark, self.address, self.request_code)


def _response_error(code: int, remark: str | None, address: str, request_code: int) -> ResponseError:
    return ResponseError(code, remark, address=address, request_code=request_code)
