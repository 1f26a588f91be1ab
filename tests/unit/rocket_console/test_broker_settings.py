"""The settings of brokers, which may be secrets."""

from rocket_console.pages.brokers import shown_settings


def test_what_seems_a_secret_is_hidden() -> None:
    """Apache's brokers of 5.x return passwords as they are; viewers must not see them."""
    secrets = {
        "innerClientAuthenticationCredentials": '{"accessKey":"a","secretKey":"b"}',
        "initAuthenticationUser": '{"username":"a","password":"b"}',
        "tls.server.keyPassword": "b",
    }
    others = {"brokerName": "broker-a", "someToken": ""}
    assert shown_settings(secrets | others) == dict.fromkeys(secrets, "******") | others
