"""SSL contexts from files: TLS 1.2 and later, and renewed when the files change.

Nothing watches the files. A context is needed when a connection begins, and then the times and sizes of the files are
compared with those of the last load, on a server at most once in `SECONDS_BETWEEN_CHECKS`.
"""

import logging
import ssl
from functools import lru_cache
from pathlib import Path
from typing import NoReturn

from rocket_remoting.file_stamp import FileStamp, file_stamp
from rocket_remoting.tls.settings import ClientCertificates, ClientTls, ServerTls
from rocket_remoting.wire.errors import TlsError

__all__ = ["ServerContext", "client_context", "tls_problem"]

logger = logging.getLogger("rocket_remoting")

SECONDS_BETWEEN_CHECKS = 1.0

_State = tuple[FileStamp | None, ...]


class ServerContext:
    """The context of a server, which takes renewed files without a restart.

    Files that cannot be used, such as a new certificate whose key is not there yet, are reported once in the log; the
    former context stays in use until the files change again.

    Args:
        settings: The settings.

    Attributes:
        settings: The settings.

    Raises:
        TlsError: A file cannot be used.
    """

    __slots__ = ("_context", "_next_check", "_state", "settings")

    def __init__(self, settings: ServerTls) -> None:
        self.settings = settings
        # The state is read before the files: a file that is renewed meanwhile is loaded again at the next check.
        self._state = _state(*self._files)
        self._context = _server_context(settings)
        self._next_check = 0.0

    @property
    def _files(self) -> tuple[Path | None, ...]:
        settings = self.settings
        return settings.certificate, settings.key, settings.trust_certificates

    def current(self, now: float) -> ssl.SSLContext:
        """Return the context for a new connection.

        Args:
            now: The loop's time in seconds.
        """
        if now >= self._next_check:
            self._next_check = now + SECONDS_BETWEEN_CHECKS
            state = _state(*self._files)
            if state != self._state:
                self._state = state
                try:
                    self._context = _server_context(self.settings)
                except TlsError as error:
                    logger.error("the renewed TLS files are not used, the former stay in use: %s", error)
                else:
                    logger.info("the TLS files were renewed: new connections use %s", self.settings.certificate)
        return self._context


def client_context(settings: ClientTls) -> ssl.SSLContext:
    """Return the context for a client's new connection; it is loaded again when a file has changed.

    Raises:
        TlsError: A file cannot be used.
    """
    return _client_context(settings, _state(settings.certificate, settings.key, settings.trust_certificates))


@lru_cache(maxsize=16)
def _client_context(settings: ClientTls, state: _State) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = settings.verify and settings.check_host_name
    if not settings.verify:
        context.verify_mode = ssl.CERT_NONE
    elif settings.trust_certificates is None:
        context.load_default_certs()
    else:
        _load_authorities(context, settings.trust_certificates)
    if settings.certificate is not None:
        _load_certificate(context, settings.certificate, settings.key, settings.key_password)
    return context


def _server_context(settings: ServerTls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A client could make the server compute one handshake after the other on the same connection.
    context.options |= ssl.OP_NO_RENEGOTIATION
    _load_certificate(context, settings.certificate, settings.key, settings.key_password)
    if settings.client_certificates is not ClientCertificates.NONE:
        assert settings.trust_certificates is not None, "ServerTls checks it"
        _load_authorities(context, settings.trust_certificates)
        required = settings.client_certificates is ClientCertificates.REQUIRE
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return context


def _load_certificate(context: ssl.SSLContext, certificate: Path, key: Path | None, password: str | None) -> None:
    def no_password() -> NoReturn:  # without it OpenSSL would ask on the terminal
        raise TlsError(f"the key {key or certificate} is encrypted: set its password")

    for file in (certificate, key):
        if file is not None:
            _expect_readable(file)
    try:
        context.load_cert_chain(certificate, key, password or no_password)
    except ssl.SSLError as error:
        hint = " or the password is wrong" if password else ""
        both = f"{certificate} and the key {key}" if key is not None else str(certificate)
        raise TlsError(
            f"the certificate {both} cannot be used: one of them is not PEM, they do not belong together{hint} "
            f"({tls_problem(error)})"
        ) from error
    except ValueError as error:  # a password that is too long
        raise TlsError(f"the key {key or certificate} cannot be read: {error}") from error


def _load_authorities(context: ssl.SSLContext, file: Path) -> None:
    _expect_readable(file)
    try:
        context.load_verify_locations(file)
    except ssl.SSLError as error:
        raise TlsError(
            f"the trusted certificates {file} cannot be used: they are not PEM ({tls_problem(error)})"
        ) from error


def _expect_readable(file: Path) -> None:
    try:
        with file.open("rb"):
            pass
    except OSError as error:
        raise TlsError(f"the TLS file {file} cannot be read: {error.strerror or error}") from error


def _state(*files: Path | None) -> _State:
    return tuple(None if file is None else file_stamp(file) for file in files)


def tls_problem(error: ssl.SSLError) -> str:
    """Return the text of an SSL error without OpenSSL's codes and source lines."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not accepted: {error.verify_message}"
    return (error.reason or str(error)).replace("_", " ").lower()
