"""A real Apache Kafka that wants to know who calls: one broker, each kind of login on a listener of its own.

Certificates are made anew for every broker, by `openssl`.
"""

import subprocess
import tempfile
from pathlib import Path
from typing import Final, Self

from kafka import KafkaAdminClient
from kafka.admin import ScramMechanism, UserScramCredentialUpsertion

from tests.peer.artifacts import program
from tests.peer.kafka import KafkaServer

USER: Final = "shop"
PASSWORD: Final = "to-be-kept-secret"
PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


class Authority:
    """Makes certificates that those who trust it take.

    Attributes:
        certificate: Its own certificate, a PEM file.
    """

    def __init__(self, directory: Path, name: str) -> None:
        """Make one, with files in that directory."""
        self._files = directory / name
        self.certificate = self._files.with_suffix(".ca.pem")
        self._openssl("req", "-x509", *_NEW_KEY, "-keyout", self._key, "-out", self.certificate, "-subj", f"/CN={name}")

    def issue(self, name: str, *addresses: str) -> Path:
        """Make a certificate for a name and these addresses; returns a PEM file with it and its key."""
        request, certificate, key = (self._files.with_suffix(f".{name}.{kind}") for kind in ("csr", "crt", "key"))
        self._openssl("req", *_NEW_KEY, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        extensions = self._files.with_suffix(f".{name}.ext")
        extensions.write_text(f"subjectAltName={','.join(addresses) or f'DNS:{name}'}\n")
        signer = ("-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial")
        self._openssl("x509", "-req", "-in", request, "-out", certificate, *signer, "-extfile", extensions)
        both = self._files.with_suffix(f".{name}.pem")
        both.write_text(key.read_text() + certificate.read_text())
        return both

    @property
    def _key(self) -> Path:
        return self._files.with_suffix(".ca.key")

    def _openssl(self, *arguments: str | Path) -> None:
        subprocess.run([program("openssl"), *map(str, arguments)], check=True, capture_output=True, timeout=60)


_NEW_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class SecuredKafka:
    """A broker that takes logins at `SASL_PLAINTEXT`, and certificates at `SSL`, where it wants one of its client, too.

    Attributes:
        addresses: Where it listens, by protocol; its certificate is for 127.0.0.1 and no other name.
        authority: Who has signed its certificate, and whom it trusts.
        client: A certificate that it takes, with its key: a PEM file.
        stranger: An authority that has nothing to do with it.
    """

    def __init__(self) -> None:
        """Start it and return when it serves."""
        self._directory = tempfile.TemporaryDirectory(prefix="kafka-tls-")
        directory = Path(self._directory.name)
        self.authority, self.stranger = Authority(directory, "house"), Authority(directory, "stranger")
        self.client = self.authority.issue(USER)
        self._server = KafkaServer(protocols=("SASL_PLAINTEXT", "SSL"), settings=self._settings())
        self.addresses = self._server.addresses
        with KafkaAdminClient(bootstrap_servers=self._server.address) as admin:
            # The broker accepts one change of a user at a time.
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
                wanted = UserScramCredentialUpsertion(USER, mechanism, PASSWORD, iterations=4096)
                assert admin.alter_user_scram_credentials([wanted]) == {USER: None}

    def _settings(self) -> dict[str, str]:
        login = "listener.name.sasl_plaintext"
        return {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            f"{login}.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_{USER}="{PASSWORD}";',
            f"{login}.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
            f"{login}.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.authority.issue("broker", "IP:127.0.0.1")),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.certificate),
            "ssl.client.auth": "required",
        }

    def __enter__(self) -> Self:
        """Return itself, already running."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kill it and forget its data and its certificates."""
        self._server.__exit__()
        self._directory.cleanup()
