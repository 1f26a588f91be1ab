"""How the clients of a binder encrypt their connections: its TLS settings, for the client and for Spark."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rocket_remoting.tls.settings import ClientTls
from streamkit.config.settings_model import SettingsModel

__all__ = ["TlsProperties", "client_tls", "spark_options"]


class TlsProperties(SettingsModel):
    """`spring.cloud.stream.rocketmq.binder.tls.*`; Java's clients have them as system properties `tls.client.*`."""

    config_file: str | None = None
    """A file with Apache's settings `tls.client.*` (Apache's `tls.config.file`), instead of the settings below. Paths
    in it are relative to the working directory."""
    trust_cert_path: str | None = None
    """A PEM file with the certificates of trusted authorities. Unset: those that the operating system trusts."""
    cert_path: str | None = None
    """A PEM file with the client's certificate chain, for servers that ask for one."""
    key_path: str | None = None
    """A PEM file with the private key of that certificate. Unset: the key is in the certificate's file."""
    key_password: str | None = None
    """The password of that key, if it is encrypted. Spark jobs get no passwords; they read it from `config-file`."""
    auth_server: bool = True
    """Whether the certificates of name servers and brokers are verified. Java's clients do not do so by default."""
    check_host_name: bool = True
    """Whether a certificate must also name the host or IP address of the connection."""

    def _check(self) -> None:
        """Refuse a key without a certificate, and settings that are given together with `config_file`."""
        if self.key_path is not None and self.cert_path is None:
            raise ValueError("the key needs a certificate: set cert-path")
        if self.config_file is not None and self.model_fields_set - {"config_file"}:
            raise ValueError("config-file is in place of the other settings: leave them out, or write them there")


def client_tls(properties: TlsProperties) -> ClientTls:
    """Return the settings for the client.

    Raises:
        TlsError: `config-file` cannot be read, or has a wrong setting.
    """
    if properties.config_file is not None:
        from rocket_remoting.tls.properties import client_tls_of_file

        return client_tls_of_file(Path(properties.config_file))
    return ClientTls(
        trust_certificates=_path(properties.trust_cert_path),
        certificate=_path(properties.cert_path),
        key=_path(properties.key_path),
        key_password=properties.key_password,
        verify=properties.auth_server,
        check_host_name=properties.check_host_name,
    )


_SPARK_NAMES: Final = {
    "config_file": "tls.config.file",
    "trust_cert_path": "tls.client.trustCertPath",
    "cert_path": "tls.client.certPath",
    "key_path": "tls.client.keyPath",
}


def spark_options(properties: TlsProperties) -> Mapping[str, str]:
    """Return the options of Spark's format for the same encryption.

    Raises:
        ValueError: There is a password, which must not be in the plan of a query.
    """
    if properties.key_password is not None:
        raise ValueError("a password would be in the plans of queries: write it into a file, and set tls.config-file")
    options = {"useTLS": "true"}
    for field, name in _SPARK_NAMES.items():
        value = getattr(properties, field)
        if value is not None:
            options[name] = value
    if not properties.auth_server:
        options["tls.client.authServer"] = "false"
    if not properties.check_host_name:
        options["tls.client.checkHostName"] = "false"
    return options


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)
