"""The TLS settings of clients and servers, with Apache's meanings and safe defaults.

Importing this module does not load `ssl`, so that clients without TLS start fast.
"""

from enum import Enum
from pathlib import Path

import msgspec

__all__ = ["ClientCertificates", "ClientTls", "ServerTls", "TlsMode"]


class TlsMode(Enum):
    """Which connections a server accepts (Apache's ``tls.server.mode``)."""

    DISABLED = "disabled"
    """Plain ones."""
    PERMISSIVE = "permissive"
    """Plain and encrypted ones, on the same port: the first byte decides."""
    ENFORCING = "enforcing"
    """Encrypted ones."""


class ClientCertificates(Enum):
    """Whether a server asks clients for certificates (Apache's ``tls.server.need.client.auth``).

    A certificate that a client sends is always verified.
    """

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


class _TlsSettings(msgspec.Struct, frozen=True):
    """Base of TLS settings; their repr omits the password."""

    def __repr__(self) -> str:
        values = [f"{name}={value!r}" for name, value in self.__rich_repr__()]
        return f"{type(self).__name__}({', '.join(values)})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [(name, getattr(self, name)) for name in self.__struct_fields__ if name != "key_password"]


class ClientTls(_TlsSettings, frozen=True, kw_only=True):
    """How a client encrypts its connections and whom it trusts."""

    trust_certificates: Path | None = None
    """PEM file with the certificates of the authorities that are trusted (Apache's ``tls.client.trustCertPath``).
    Unset: those that the system trusts."""
    certificate: Path | None = None
    """PEM file with this client's certificate chain (``tls.client.certPath``). Unset: the client shows none."""
    key: Path | None = None
    """PEM file with the certificate's private key (``tls.client.keyPath``). Unset: it is in the file of the
    certificate."""
    key_password: str | None = None
    """Password of an encrypted key (``tls.client.keyPassword``)."""
    verify: bool = True
    """Whether the server's certificate must be signed by a trusted authority (``tls.client.authServer``). Apache's
    default is false."""
    check_host_name: bool = True
    """Whether the certificate must also be for the host or IP address that the client connects to. Apache's clients
    never check that."""

    def __post_init__(self) -> None:
        if self.key is not None and self.certificate is None:
            raise ValueError(f"TLS: the key {self.key} needs a certificate: set certificate too")


class ServerTls(_TlsSettings, frozen=True, kw_only=True):
    """The certificate of a server, and what it demands of clients."""

    mode: TlsMode
    """Which connections are accepted; with `TlsMode.DISABLED` the server needs no `ServerTls`."""
    certificate: Path
    """PEM file with the server's certificate chain (Apache's ``tls.server.certPath``)."""
    key: Path | None = None
    """PEM file with its private key (``tls.server.keyPath``). Unset: it is in the file of the certificate."""
    key_password: str | None = None
    """Password of an encrypted key (``tls.server.keyPassword``)."""
    client_certificates: ClientCertificates = ClientCertificates.NONE
    """Whether clients need a certificate."""
    trust_certificates: Path | None = None
    """PEM file with the certificates of the authorities that sign clients' certificates
    (``tls.server.trustCertPath``)."""

    def __post_init__(self) -> None:
        if self.client_certificates is not ClientCertificates.NONE and self.trust_certificates is None:
            raise ValueError(
                f"TLS: client certificates are {self.client_certificates.value}, but no authority is named that "
                "signs them: set trust_certificates"
            )
