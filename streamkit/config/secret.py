"""Recognise secrets in settings, and hide them.

Reports, errors, logs, endpoints and `repr` show settings only by the functions of this module. A secret is recognised
by its key or by its value:

    the key     my.db.password=…   SASL_JAAS_CONFIG=…   client-secret[0]=…      the whole value is hidden
    the value   amqp://me:…@host   host list me:…@a:1,me:…@b:2                  the password is hidden
                password=… in a JDBC URL, a JAAS login, a connection string, JSON
                Bearer …           -----BEGIN PRIVATE KEY-----…

In doubt a value is hidden: a hidden value can still be read in the settings file, but a published secret stays known.
"""

import re
from collections.abc import Mapping
from typing import Final

from streamkit.config.relaxed import kebab, parse_key

__all__ = ["HIDDEN", "is_secret", "shown", "shown_text", "without_secrets"]

HIDDEN: Final = "******"
"""The text that replaces a secret."""

_NAMES: Final = (
    "password", "passwd", "pwd", "passphrase", "passcode", "secret", "secretid", "token", "credential", "auth",
    "authorization", "privatekey", "secretkey", "accesskey", "apikey", "accountkey", "encryptionkey", "signingkey",
    "masterkey", "licensekey", "connectionstring", "accesssignature", "userinfo", "springapplicationjson",
    "vcapservices", "jaasconfig", "keystorekey",
)  # fmt: skip
"""Ends of keys of secrets, in letters only: the name of an environment variable has neither dots nor dashes.

`springapplicationjson` and `vcapservices` are JSON texts of many settings; the last two are Kafka's, a login with its
password (`sasl.jaas.config`) and a private key (`ssl.keystore.key`).
"""
_SECRET: Final = re.compile(f"(?:{'|'.join(_NAMES)})s?(?:value)?$")
_PASS: Final = re.compile(r"(?:^|[^a-z])pass[^a-z]*(?:value)?[^a-z]*$")
"""Matches `pass` as a word of its own, not as the end of `bypass`."""
_TABLE_OF_SECRETS: Final = re.compile("(?:passwords|secrets|tokens)$")
"""Matches names below which every value is a secret: `my.passwords.alice`."""
_SWITCHES: Final = ("true", "false", "none", "want", "need", "requested", "required")
"""Values of keys that end in `auth` and are switches, not secrets: `mail.smtp.auth`, `server.ssl.client-auth`."""

_PEM_KEY: Final = re.compile(
    r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
    r".*?(?:-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----|\Z)",
    re.DOTALL,
)
_LOGIN: Final = re.compile(r"\b(?P<scheme>Bearer|Basic)\s+[\w.~+/-]{8,}=*", re.IGNORECASE)
_ASSIGNMENT: Final = re.compile(
    r"""(?<![\w.-]) -*+ (?P<name>[A-Za-z][\w.\[\]-]*+) \s*+ = \s*+   # password=…  --my.password = …
        | ["'] (?P<quoted>[^"'\\]++) ["'] \s*+ : \s*+                # "password": …, in JSON""",
    re.VERBOSE,
)
_QUOTED: Final = r""""(?:[^"\\]|\\.)*+"?|'(?:[^'\\]|\\.)*+'?"""
_ASSIGNED: Final = re.compile(rf"{_QUOTED}|[^\s;&\"']++", re.DOTALL)
_IN_JSON: Final = re.compile(rf"{_QUOTED}|[^\s,}}\]]++", re.DOTALL)
_END_OF_AUTHORITY: Final = re.compile(r"[/?#\s\"']")
_PORT: Final = re.compile(r"\d*(?:[/?#,;\s\"')]|$)")
_IN_HOST_LIST: Final = re.compile(r"[^\s,;]++")
_USER: Final = re.compile(r"""(?:^|(?<=["'(=\[]))[^:@/"'(=\[]++:(?!//)""")


def is_secret(key: str) -> bool:
    """Return whether the value of a setting is a secret, judged by its key in any relaxed spelling."""
    segments = parse_key(key)
    if key.isupper():  # an environment variable's name
        segments = tuple(key.split("_"))
    if any(_TABLE_OF_SECRETS.search(_letters(segment)) for segment in segments[:-1]):
        return True
    return _SECRET.search(_letters(key)) is not None or _PASS.search(kebab(key)) is not None


def shown_text(key: str, text: str) -> str:
    """Return the value of a setting with secrets hidden.

    Args:
        key: The setting's key.
        text: Its value.

    Returns:
        `******` where the key says that the value is a secret, else the value without the secrets in it.
    """
    if text and is_secret(key) and not (text in _SWITCHES and _letters(key).endswith("auth")):
        return HIDDEN
    return without_secrets(text)


def shown(key: str, value: object) -> object:
    """Return a value of a settings object with secrets hidden, as by `shown_text`, also in lists and mappings."""
    match value:
        case str():
            return shown_text(key, value)
        case None | bool():
            return value
        case Mapping():
            return {name: shown(f"{key}.{name}", item) for name, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [shown(key, item) for item in value]
    return HIDDEN if is_secret(key) else value


def without_secrets(text: str) -> str:
    """Return a text, such as an error, with `******` in place of everything that looks like a secret.

    Hidden are passwords in URLs and host lists, values assigned to names of secrets, private keys in PEM, and what
    follows `Bearer` and `Basic`. The time it takes grows with the length of the text only.
    """
    text = _PEM_KEY.sub(HIDDEN, text)
    text = _without_passwords(text)
    text = _LOGIN.sub(lambda found: f"{found['scheme']} {HIDDEN}", text)
    return _without_assigned(text)


def _without_assigned(text: str) -> str:
    """Hide the values that are assigned to names of secrets."""
    parts: list[str] = []
    position = 0
    for found in _ASSIGNMENT.finditer(text):
        if found.start() < position or not is_secret(found["name"] or found["quoted"]):
            continue
        value = (_ASSIGNED if found["name"] else _IN_JSON).match(text, found.end())
        if value is None:
            continue
        quote = value[0][0] if value[0][0] in "\"'" else ""
        hidden = value[0] if value[0].startswith(HIDDEN) else f"{quote}{HIDDEN}{quote}"
        parts += [text[position : found.end()], hidden]
        position = value.end()
    return "".join(parts) + text[position:]


def _without_passwords(text: str) -> str:
    """Hide the passwords between a user's name and the `@` before a host."""
    first, *others = text.split("://")
    text = "://".join([first, *map(_without_password_in_url, others)])
    return _IN_HOST_LIST.sub(lambda found: _without_password_before_host(found[0]), text)


def _without_password_before_host(item: str) -> str:
    """Hide the password in `user:password@host`, an item of a list."""
    at = item.rfind("@")
    user = _USER.search(item, 0, max(at, 0))
    if user is None or not item[at + 1 : at + 2].strip("["):
        return item
    return f"{item[: user.end()]}{HIDDEN}{item[at:]}"


def _without_password_in_url(rest: str) -> str:
    """Hide the password in a URL.

    Args:
        rest: The URL behind its `://`, and the text behind the URL.
    """
    found = _END_OF_AUTHORITY.search(rest)
    end = len(rest) if found is None else found.start()
    at, colon = rest.rfind("@", 0, end), rest.find(":", 0, end)
    if at < 0 <= colon and not _PORT.match(rest, colon + 1):
        at = rest.rfind("@")  # a password with a character that URLs need encoded, such as /
    return f"{rest[: colon + 1]}{HIDDEN}{rest[at:]}" if 0 <= colon < at else rest


def _letters(key: str) -> str:
    return "".join(filter(str.isalpha, key)).lower()
