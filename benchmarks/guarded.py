"""Brokers that check signatures and speak TLS, for measurements: their accounts and their settings.

The client that is measured may send to all topics and administrates nothing, so that its rights are looked up.
"""

import json
from pathlib import Path

from rocket_client import Credentials
from tests.certificates import authority

__all__ = ["ACCOUNTS", "KEYS", "OPERATOR", "apache_settings", "apache_tls", "settings_of"]

OPERATOR = Credentials("operator", "operator-secret")
"""The account of brokers, and of the client that makes topics."""
KEYS = Credentials("bench-app", "bench-app-secret")
"""The account whose sends are measured."""

ACCOUNTS = f"""\
accounts:
- accessKey: {OPERATOR.access_key}
  secretKey: {OPERATOR.secret_key}
  admin: true
- accessKey: {KEYS.access_key}
  secretKey: {KEYS.secret_key}
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
"""
"""The contents of `plain_acl.yml`."""

_OWN = json.dumps({"accessKey": OPERATOR.access_key, "secretKey": OPERATOR.secret_key})
_PROVIDERS = {
    f"{kind}MetadataProvider": f"org.apache.rocketmq.auth.{kind}.provider.Local{kind.title()}MetadataProvider"
    for kind in ("authentication", "authorization")
}


def settings_of(home: Path) -> dict[str, str]:
    """Write the accounts below a directory, and return the settings of the bundled broker with them, and with TLS."""
    (home / "conf").mkdir(parents=True, exist_ok=True)
    (home / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    access = {"aclEnable": "true", "rocketmqHome": str(home), "innerClientAuthenticationCredentials": _OWN}
    return access | _certificate()


def apache_settings(version: str) -> dict[str, str]:
    """Return the settings of Apache's broker that has these accounts: 5.3 takes over the file of 4.9."""
    if version.startswith("4."):
        return {"aclEnable": "true"}
    return _PROVIDERS | {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "migrateAuthFromV1Enabled": "true",
        "innerClientAuthenticationCredentials": _OWN,
    }


def apache_tls() -> dict[str, str]:
    """Return the system properties of Apache's servers that accept TLS connections beside plain ones."""
    return {"tls.test.mode.enable": "false", "tls.server.mode": "permissive"} | _certificate()


def _certificate() -> dict[str, str]:
    tls = authority().server()
    return {"tls.server.certPath": str(tls.certificate), "tls.server.keyPath": str(tls.key)}
