"""A client's TLS settings from a file of Apache's, ``tls.properties``."""

from collections.abc import Mapping
from pathlib import Path

from rocket_remoting.tls.settings import ClientTls
from rocket_remoting.wire.errors import TlsError

__all__ = ["client_tls_of", "client_tls_of_file"]

_PATHS = {
    "tls.client.trustCertPath": "trust_certificates",
    "tls.client.certPath": "certificate",
    "tls.client.keyPath": "key",
}
_SWITCHES = {"tls.client.authServer": "verify", "tls.client.checkHostName": "check_host_name"}
_PASSWORD = "tls.client.keyPassword"
_TEST_MODE = "tls.test.mode.enable"


def client_tls_of_file(path: Path) -> ClientTls:
    """Return the settings ``tls.client.*`` of a file; those of servers are passed over, and so are empty values.

    Raises:
        TlsError: The file cannot be read, or has an unknown key or a wrong value.
    """
    import javaproperties  # most clients have no such file

    try:
        with path.open(encoding="utf-8") as file:
            values = javaproperties.load(file)
    except (OSError, UnicodeDecodeError, javaproperties.InvalidUEscapeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TlsError(f"the TLS settings {path} cannot be read: {reason}") from error
    return client_tls_of({key: value.strip() for key, value in values.items()}, str(path))


def client_tls_of(values: Mapping[str, str], origin: str) -> ClientTls:
    """Return the settings with Apache's keys.

    Args:
        values: The texts by their keys.
        origin: Where they were written, for errors.

    Raises:
        TlsError: A key is unknown, or a value is wrong.
    """
    fields: dict[str, object] = {}
    for key, value in values.items():
        if not value or key.startswith("tls.server."):
            continue
        if key in _PATHS:
            fields[_PATHS[key]] = Path(value)
        elif key == _PASSWORD:
            fields["key_password"] = value
        elif key in _SWITCHES or key == _TEST_MODE:
            if value.lower() not in ("true", "false"):
                raise TlsError(f"{origin}: {key}={value}: expected true or false")
            is_set = value.lower() == "true"
            if key in _SWITCHES:
                fields[_SWITCHES[key]] = is_set
            elif is_set:
                raise TlsError(
                    f"{origin}: {key}=true: there is no test mode, in which any server is trusted; remove it, and set "
                    "tls.client.trustCertPath, or tls.client.authServer=false"
                )
        else:
            known = ", ".join([*_PATHS, _PASSWORD, *_SWITCHES])
            raise TlsError(f"{origin}: unknown key {key}; known are {known}")
    try:
        return ClientTls(**fields)  # type: ignore[arg-type]  # the tables above name the fields and their types
    except ValueError as error:
        raise TlsError(f"{origin}: {error}") from error
