"""Certificates for tests of TLS, made once for each process that runs tests."""

import atexit
import shutil
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from rocket_remoting.tls.settings import ClientCertificates, ClientTls, ServerTls, TlsMode

PASSWORD = "swordfish"


@dataclass(frozen=True)
class Authority:
    """A certificate authority with its file, and files of certificates that it has signed."""

    directory: Path
    ca: trustme.CA

    @property
    def file(self) -> Path:
        """The authority's own certificate."""
        return self.directory / "ca.pem"

    def issue(self, name: str, *hosts: str, expired: bool = False, password: str | None = None) -> tuple[Path, Path]:
        """Write a certificate for hosts; return its file and that of its key.

        Args:
            name: Name of the files.
            hosts: Host names and addresses.
            expired: Whether it was valid until yesterday only.
            password: Encrypts the key.
        """
        until = datetime.now(UTC) - timedelta(days=1) if expired else None
        issued = self.ca.issue_cert(*hosts, common_name=name, not_after=until)
        certificate, key = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        key.write_bytes(_encrypted(issued.private_key_pem.bytes(), password))
        return certificate, key

    def server(
        self,
        mode: TlsMode = TlsMode.PERMISSIVE,
        clients: ClientCertificates = ClientCertificates.NONE,
        *,
        expired: bool = False,
    ) -> ServerTls:
        """Return the settings of a server at this machine's loopback addresses, or the names of memory transports."""
        name = "expired" if expired else "server"
        certificate, key = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        if not certificate.exists():
            self.issue(name, "127.0.0.1", "localhost", "broker", expired=expired)
        return ServerTls(
            mode=mode, certificate=certificate, key=key, client_certificates=clients, trust_certificates=self.file
        )

    def client(self, *, signed_by: "Authority | None" = None) -> ClientTls:
        """Return the settings of a client that trusts this authority; with a certificate of `signed_by`, if given."""
        if signed_by is None:
            return ClientTls(trust_certificates=self.file)
        certificate, key = signed_by.directory / "client.pem", signed_by.directory / "client.key"
        if not certificate.exists():
            signed_by.issue("client", "client.example")
        return ClientTls(trust_certificates=self.file, certificate=certificate, key=key)


def authority(name: str = "ours") -> Authority:
    """Return the certificate authority of that name."""
    return _authority(name)


@cache
def _authority(name: str) -> Authority:
    directory = Path(tempfile.mkdtemp(prefix=f"certificates-{name}-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    made = Authority(directory, trustme.CA(organization_name=name))
    made.ca.cert_pem.write_to_path(made.file)
    return made


def _encrypted(key: bytes, password: str | None) -> bytes:
    """Return a private key in PKCS #8, the form that Java's clients read, encrypted if there is a password."""
    encryption = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
    return load_pem_private_key(key, None).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
