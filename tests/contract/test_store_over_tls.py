"""A store in PostgreSQL as docs/admin.md says to use it: TLS, passwords in files, roles.

A server of its own, which takes nobody over the network without TLS and a password. Daemon,
collection and verbs find all of it in a service file and a password file.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from advisor.database import DatabaseAddress
from tests import postgresql
from tests.contract.test_serve import DECIDE, ask, fill, place, start
from tests.waiting import wait_for

pytestmark = pytest.mark.postgresql
__all__ = ("place", "start")
Run = Callable[..., Any]
Environment = dict[str, str]
HBA = """
local all advisor trust
hostssl all all 127.0.0.1/32 scram-sha-256
"""


def certify(folder: Path, host: str, owner: int) -> None:
    """Make an authority, ``ca.crt``, and a key with a certificate of it for a host."""
    day, now = timedelta(days=1), datetime.now(UTC)
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("ca", host)}
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"authority of {host}")])
    for name, key in keys.items():
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = (
            x509.CertificateBuilder()
            .subject_name(issuer if name == "ca" else subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - day)
            .not_valid_after(now + day)
            .add_extension(x509.BasicConstraints(ca=name == "ca", path_length=None), critical=True)
        )
        if name != "ca":
            made = made.add_extension(
                x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False
            )
        pem = made.sign(keys["ca"], hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        (folder / f"{name}.crt").write_bytes(pem)
    file = folder / f"{host}.key"
    file.write_bytes(
        keys[host].private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    file.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(file, owner, -1)


class Site:
    """A server over TLS, whose roles and files are those of a site."""

    def __init__(self, server: postgresql.Server, folder: Path, port: int) -> None:
        self.server, self.folder, self.port = server, folder, port
        server.sql(
            "CREATE ROLE daemon LOGIN PASSWORD 'of the daemon';"
            "CREATE ROLE looks LOGIN PASSWORD 'of who looks'"
        )
        server.sql("CREATE DATABASE site OWNER daemon")
        passwords = folder / "passwords"
        passwords.write_text(
            "*:*:site:daemon:of the daemon\n*:*:site:looks:of who looks\n*:*:site:advisor:wrong\n"
        )
        passwords.chmod(0o600)

    def environment(self, user: str = "daemon", **more: str) -> Environment:
        """Return the environment of a process of the site, which uses the store as a role."""
        service = {
            "host": "db.site",
            "hostaddr": "127.0.0.1",
            "port": str(self.port),
            "dbname": "site",
            "user": user,
            "sslmode": "verify-full",
            "sslrootcert": str(self.folder / "ca.crt"),
            **more,
        }
        file = self.folder / f"services-{user}-{len(more)}"
        file.write_text("[advisor]\n" + "".join(f"{k}={v}\n" for k, v in service.items()))
        return {
            "PGSERVICEFILE": str(file),
            "PGPASSFILE": str(self.folder / "passwords"),
            "ADVISOR_DB": "postgresql://?service=advisor",
        }


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    if why := postgresql.why_none():
        pytest.skip(why)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="adv-tls-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with postgresql.server(durable=False) as server:
            certify(folder, "db.site", server.folder.stat().st_uid)
            data = server.folder / "data"
            (data / "pg_hba.conf").write_text(HBA)
            (data / "postgresql.auto.conf").write_text(
                f"ssl = on\nssl_cert_file = '{folder / 'db.site.crt'}'\n"
                f"ssl_key_file = '{folder / 'db.site.key'}'\n"
            )
            server.stop()
            server.listen, server.port = "127.0.0.1", port
            server.start()
            yield Site(server, folder, port)


def said(environment: Environment, *words: object) -> subprocess.CompletedProcess[str]:
    """Run a verb with a site's environment."""
    command = [sys.executable, "-m", "advisor", *map(str, words)]
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, cwd="/"
    )


@pytest.fixture
def own(site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Environment:
    """The environment of the role that owns the database, also in this process."""
    environment = {**site.environment(), "XDG_STATE_HOME": str(tmp_path)}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return environment


def test_daemon_collection_and_verbs_use_a_store_over_tls(
    site: Site, own: Environment, place: Path, start: Run, tmp_path: Path
) -> None:
    fill(tmp_path / "advisor.db")
    moved = said(own, "store", "move", "--db", tmp_path / "advisor.db", "--to", own["ADVISOR_DB"])
    assert moved.returncode == 0, moved.stderr
    start(db=DatabaseAddress(own["ADVISOR_DB"]))
    for number in "123":
        decision = ask(place, DECIDE)["decision"]
        assert ask(place, {"v": 1, "op": "submitted", "decision": decision, "job": number})["ok"]
    linked = "SELECT count(*) FROM advisor.decisions WHERE job_id <> ''"
    wait_for(lambda: site.server.sql(linked, "site") == "3\n")
    collected = said(own, "collect", "--scheduler", "local", "--json")
    assert collected.returncode == 0 and not collected.stderr, collected.stderr
    connections = (
        "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)"
        " WHERE usename = 'daemon'"
    )
    assert int(site.server.sql(f"{connections} AND ssl AND version LIKE 'TLSv1.%'")) >= 2
    assert site.server.sql(f"{connections} AND NOT ssl") == "0\n"

    looks = {**own, **site.environment("looks")}
    refused = said(looks, "jobs", "--everybody")
    assert refused.returncode == 1 and refused.stderr.count("\n") == 1, refused.stderr
    site.server.sql(
        "GRANT USAGE ON SCHEMA advisor TO looks;"
        " GRANT SELECT ON ALL TABLES IN SCHEMA advisor TO looks",
        "site",
    )
    jobs = said(looks, "jobs", "--everybody", "--json")
    assert jobs.returncode == 0 and len(json.loads(jobs.stdout)["jobs"]) == 3, jobs.stderr
    assert said(looks, "report", "--json").returncode == 0
    policy = tmp_path / "policy.yaml"
    policy.write_text("version: 1\nmode: observe\n")
    writes = said(looks, "policy", "apply", policy)
    assert writes.returncode == 1 and "grants roles" in writes.stderr, writes.stderr
    assert writes.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("user", "wrong", "text"),
    [
        ("daemon", {"sslrootcert": "other/ca.crt"}, "certificate verify failed"),
        ("daemon", {"host": "db.other"}, "does not match host name"),
        ("daemon", {"sslmode": "disable"}, "no encryption"),
        ("advisor", {}, "password authentication failed"),
    ],
)
def test_what_is_wrong_with_tls_or_a_password_is_one_line(
    site: Site, user: str, wrong: dict[str, str], text: str
) -> None:
    other = site.folder / "other"
    if not other.exists():
        other.mkdir()
        certify(other, "db.other", os.geteuid())
    if "sslrootcert" in wrong:
        wrong = {"sslrootcert": str(site.folder / wrong["sslrootcert"])}
    refused = said(site.environment(user, **wrong), "jobs", "--everybody")
    assert refused.returncode == 1 and text in refused.stderr, refused.stderr
    assert refused.stderr.count("\n") == 1 and "of the daemon" not in refused.stderr
