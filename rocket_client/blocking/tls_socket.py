"""An encrypted socket that behaves as a plain one in non-blocking mode, for `Pipeline`."""

import errno
import ssl

from rocket_remoting.tls.contexts import tls_problem

__all__ = ["TlsSocket"]


class TlsSocket:
    """An encrypted socket whose handshake is complete.

    It raises `BlockingIOError` where the plain socket would, and other errors with a text that names TLS.

    Args:
        sock: The socket, in non-blocking mode.
    """

    __slots__ = ("_socket",)

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._socket = sock

    def fileno(self) -> int:
        """Return the file descriptor."""
        return self._socket.fileno()

    @property
    def has_pending(self) -> bool:
        """Whether decrypted bytes wait, so that there is something to read although the socket is not readable."""
        return self._socket.pending() > 0

    def send(self, data: memoryview) -> int:
        """Encrypt and send the beginning of the data; return the number of its bytes.

        Raises:
            BlockingIOError: The socket takes no bytes now; call again with the same data.
            OSError: The connection ended.
        """
        try:
            return self._socket.send(data)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            raise BlockingIOError from None
        except ssl.SSLError as error:
            raise _broken(error) from error

    def recv_into(self, buffer: memoryview) -> int:
        """Decrypt into the buffer what has arrived; return the number of bytes, 0 at the end of the stream.

        Raises:
            BlockingIOError: Nothing has arrived.
            OSError: The connection ended.
        """
        count = 0
        try:
            while count < len(buffer):
                read = self._socket.recv_into(buffer[count:])  # one record of at most 16 KiB each time
                if not read:
                    break
                count += read
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if not count:
                raise BlockingIOError from None
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            pass
        except ssl.SSLError as error:
            if not count:
                raise _broken(error) from error
        return count

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def _broken(error: ssl.SSLError) -> OSError:
    return OSError(errno.ECONNABORTED, f"the peer broke the TLS protocol, or refused: {tls_problem(error)}")
