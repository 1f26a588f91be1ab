"""The TLS settings of a broker and a name server: Apache's keys, from the settings file and from ``tls.properties``.

Apache reads these keys from Java's system properties, and those of the second kind also from the file that
``tls.config.file`` names, whose values win. Here the settings file takes the place of the system properties.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from rocket_broker.errors import SettingError
from rocket_broker.settings import checks
from rocket_broker.settings.apache_settings import DEFAULT_ORIGIN, ApacheSettings, setting
from rocket_broker.settings.properties_file import Entry, read_properties
from rocket_remoting.tls.settings import ClientCertificates, ClientTls, ServerTls, TlsMode

__all__ = ["DEFAULT_TLS_FILE", "BrokerTlsSettings", "TlsSettings", "name_server_entries"]

DEFAULT_TLS_FILE = Path("/etc/rocketmq/tls.properties")
"""The file that Apache's servers read unless ``tls.config.file`` names another. `streamkit broker` and
`streamkit namesrv` read it if it exists."""

_FILE_KEY = "tls.config.file"
_CLIENT = "tls.client."
"""The start of the keys of a server's own connections; a name server opens none."""


@dataclass(init=False, repr=False, eq=False)
class TlsSettings(ApacheSettings):
    """The TLS settings that a broker and a name server share."""

    connects: ClassVar[bool] = False
    """Whether the server opens connections itself, so that it has settings ``tls.client.*``."""

    tls_config_file: str = setting(
        "",
        "File with the settings tls.server.* and tls.client.*, whose values win; it is read at the start. "
        "Default: /etc/rocketmq/tls.properties, if it exists.",
        key=_FILE_KEY,
        fixed=True,
    )
    tls_server_mode: str = setting(
        "",
        "Which connections are accepted: disabled (plain ones), permissive (both kinds on one port) or enforcing "
        "(TLS only); default: permissive if there is a certificate, else disabled.",
        key="tls.server.mode",
        check=checks.tls_mode,
        fixed=True,
    )
    tls_server_cert_path: str = setting(
        "",
        "PEM file with the server's certificate chain. A renewed file is taken without a restart.",
        key="tls.server.certPath",
        fixed=True,
    )
    tls_server_key_path: str = setting(
        "",
        "PEM file with the private key of the server's certificate; default: the certificate's file.",
        key="tls.server.keyPath",
        fixed=True,
    )
    tls_server_key_password: str = setting(
        "", "Password of the server's key, if it is encrypted.", key="tls.server.keyPassword", fixed=True, secret=True
    )
    tls_server_need_client_auth: str = setting(
        "none",
        "Whether clients are asked for a certificate: none, optional or require.",
        key="tls.server.need.client.auth",
        check=checks.client_certificates,
        fixed=True,
    )
    tls_server_trust_cert_path: str = setting(
        "",
        "PEM file with the certificates of the authorities that sign clients' certificates.",
        key="tls.server.trustCertPath",
        fixed=True,
    )
    tls_server_auth_client: bool = setting(
        True,
        "Verify the certificates of clients (Apache's default: false); only true is supported if clients are asked "
        "for one.",
        key="tls.server.authClient",
        fixed=True,
    )
    tls_test_mode_enable: bool = setting(
        False,
        "Apache's test mode (its default), in which servers make up a certificate and clients trust any; only "
        "false is supported.",
        key="tls.test.mode.enable",
        check=checks.no_test_mode,
        fixed=True,
    )

    @classmethod
    def from_entries(cls, entries: Iterable[Entry]) -> Self:
        entries = list(entries)
        settings = super().from_entries([*entries, *cls._entries_of_file(entries)])
        settings.server_tls()  # settings that contradict each other are an error of the start
        return settings

    @classmethod
    def _entries_of_file(cls, entries: list[Entry]) -> list[Entry]:
        named = [entry.value for entry in entries if entry.key == _FILE_KEY]
        if not named or not named[-1]:
            return []
        found = [entry for entry in read_properties(Path(named[-1])) if entry.value]  # an empty value is none
        return found if cls.connects else name_server_entries(found)

    def server_tls(self) -> ServerTls | None:
        """Return how the server accepts TLS; None if it accepts none.

        Raises:
            SettingError: The settings contradict each other.
        """
        mode = self.tls_server_mode or ("permissive" if self.tls_server_cert_path else "disabled")
        if mode == "disabled":
            return None
        if not self.tls_server_cert_path:
            raise self._wrong("tls.server.mode", mode, "TLS needs a certificate: set tls.server.certPath")
        demand = ClientCertificates(self.tls_server_need_client_auth)
        if demand is not ClientCertificates.NONE:
            if not self.tls_server_auth_client:
                raise self._wrong(
                    "tls.server.authClient", "false",
                    "a certificate that is not verified proves nothing; expected true, or tls.server.need.client.auth="
                    "none",
                )  # fmt: skip
            if not self.tls_server_trust_cert_path:
                raise self._wrong(
                    "tls.server.need.client.auth", demand.value,
                    "no authority is named that signs clients' certificates: set tls.server.trustCertPath",
                )  # fmt: skip
        return ServerTls(
            mode=TlsMode(mode),
            certificate=Path(self.tls_server_cert_path),
            key=_path(self.tls_server_key_path),
            key_password=self.tls_server_key_password or None,
            client_certificates=demand,
            trust_certificates=_path(self.tls_server_trust_cert_path),
        )

    def _wrong(self, key: str, value: str, problem: str) -> SettingError:
        return SettingError(key, value, self.origins.get(key, DEFAULT_ORIGIN), problem)


@dataclass(init=False, repr=False, eq=False)
class BrokerTlsSettings(TlsSettings):
    """The TLS settings of a broker, which also connects to name servers."""

    connects: ClassVar[bool] = True

    use_tls: bool = setting(
        False,
        "Connect to the name servers with TLS; default: true if tls.server.mode is enforcing, else false.",
        key="useTLS",
        fixed=True,
    )
    tls_client_trust_cert_path: str = setting(
        "",
        "PEM file with the certificates of the authorities that sign name servers' certificates; default: those that "
        "the system trusts.",
        key="tls.client.trustCertPath",
        fixed=True,
    )
    tls_client_cert_path: str = setting(
        "",
        "PEM file with the certificate chain that the broker shows to name servers.",
        key="tls.client.certPath",
        fixed=True,
    )
    tls_client_key_path: str = setting(
        "",
        "PEM file with the private key of that certificate; default: the certificate's file.",
        key="tls.client.keyPath",
        fixed=True,
    )
    tls_client_key_password: str = setting(
        "", "Password of that key, if it is encrypted.", key="tls.client.keyPassword", fixed=True, secret=True
    )
    tls_client_auth_server: bool = setting(
        True,
        "Verify the certificates of name servers (Apache's default: false).",
        key="tls.client.authServer",
        fixed=True,
    )
    tls_client_check_host_name: bool = setting(
        True,
        "Whether a name server's certificate must be for the host in namesrvAddr (no key of Apache's, which never "
        "checks that).",
        key="tls.client.checkHostName",
        fixed=True,
    )

    def client_tls(self) -> ClientTls | None:
        """Return how the broker encrypts its connections to name servers; None for plain ones.

        Raises:
            SettingError: The settings contradict each other.
        """
        server = self.server_tls()
        by_default = server is not None and server.mode is TlsMode.ENFORCING
        if not (self.use_tls if "useTLS" in self.origins else by_default):
            return None
        if self.tls_client_key_path and not self.tls_client_cert_path:
            raise self._wrong(
                "tls.client.keyPath", self.tls_client_key_path, "the key needs a certificate: set tls.client.certPath"
            )
        return ClientTls(
            trust_certificates=_path(self.tls_client_trust_cert_path),
            certificate=_path(self.tls_client_cert_path),
            key=_path(self.tls_client_key_path),
            key_password=self.tls_client_key_password or None,
            verify=self.tls_client_auth_server,
            check_host_name=self.tls_client_check_host_name,
        )

    @classmethod
    def from_entries(cls, entries: Iterable[Entry]) -> Self:
        settings = super().from_entries(entries)
        settings.client_tls()
        return settings


def name_server_entries(entries: Iterable[Entry]) -> list[Entry]:
    """Return the TLS entries among a broker's that a name server has too."""
    return [entry for entry in entries if entry.key.startswith("tls.") and not entry.key.startswith(_CLIENT)]


def _path(text: str) -> Path | None:
    return Path(text) if text else None
