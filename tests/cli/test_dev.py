"""`authplane dev`: what it makes is accepted by the code that runs in earnest, and says that it is not for that."""

import json
import os
import signal
import ssl
import stat
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import httpx2
import pytest
from click.testing import CliRunner, Result
from cryptography import x509
from tests.support.eventually import eventually
from tests.support.issuers.keyrings import verify
from tests.support.ports import free_port

from authplane.cli.main import build_app
from authplane.core.names import ObjectName
from authplane.core.problems import Problems
from authplane.devkit.local.dev_folder import DevFolder, DevFolderError, prepare_issuer
from authplane.devkit.local.dev_issuer import IssuerPlan, dev_token, serve_issuer
from authplane.policy.identity.tokens.issuer import Issuer, Reach
from authplane.policy.identity.tokens.issuer_url import parse_issuer_url
from authplane.policy.identity.tokens.token_outcome import Outcome, Reason, Refused, Verified
from authplane.policy.identity.workload_identity.certificate_identity import PeerCertificates
from authplane.policy.identity.workload_identity.spiffe import SpiffeId
from authplane.runtime.child_processes import Line, run_process
from authplane.runtime.issuers.issuers import IssuerOptions, follow_issuers
from authplane.runtime.servers.listen import TcpAddress
from authplane.sources.document_versions import Library

AGENT = "spiffe://cluster.local/ns/default/sa/agent"
ANY_PORT = TcpAddress(host="127.0.0.1", port=0)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(build_app(), ["dev", *arguments])


async def outcome(token: str, url: str, ca: Path) -> Outcome:
    """Verify a token as a server does that trusts the issuer."""
    parsed = parse_issuer_url(url, Problems())
    assert parsed is not None
    issuer = Issuer(url=parsed, reach=Reach(ca_file=str(ca), allow_private_network=True))
    async with follow_issuers([issuer], IssuerOptions()) as issuers:
        await issuers.tried(5)
        return verify(token, issuers, datetime.now(UTC).timestamp())


async def test_a_server_that_trusts_the_issuer_accepts_its_tokens(tmp_path: Path) -> None:
    async with serve_issuer(IssuerPlan(folder=tmp_path, address=ANY_PORT), datetime.now(UTC)) as running:
        made = invoke(
            "token", "--folder", str(tmp_path), "--sub", "alice", "--aud", "shop", "--aud", "bank",
            "--claim", "group=admin", "--claim", 'roles:=["reader", 1, true]',
        )  # fmt: skip
        assert (made.exit_code, made.stderr) == (0, "")
        found = await outcome(made.stdout.strip(), running.url, running.ca_file)
        assert isinstance(found, Verified)
        claims = found.plain_claims()
        assert claims.pop("exp") - claims.pop("iat") == 3600
        assert claims == {
            "iss": running.url,
            "sub": "alice",
            "aud": ["shop", "bank"],
            "group": "admin",
            "roles": ["reader", 1.0, True],
        }


async def test_a_token_that_has_ended_is_refused_for_that_alone(tmp_path: Path) -> None:
    async with serve_issuer(IssuerPlan(folder=tmp_path, address=ANY_PORT), datetime.now(UTC)) as running:
        token = invoke("token", "--folder", str(tmp_path), "--sub", "alice", "--expires", "-1h").stdout.strip()
        found = await outcome(token, running.url, running.ca_file)
        assert isinstance(found, Refused)
        assert (found.reason, found.issuer) == (Reason.EXPIRED, running.url)


async def test_keys_outlive_the_issuer_and_the_documents_say_what_it_is(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    async with serve_issuer(IssuerPlan(folder=tmp_path, address=ANY_PORT), now) as running:
        token = dev_token(tmp_path, {"sub": "alice"}, now=now, lifetime=timedelta(hours=1))
        port = int(running.url.rpartition(":")[2])
    again = IssuerPlan(folder=tmp_path, address=TcpAddress(host="127.0.0.1", port=port))
    async with serve_issuer(again, now) as running:
        assert isinstance(await outcome(token, running.url, running.ca_file), Verified)
        trusted = ssl.create_default_context(cafile=str(running.ca_file))
        async with httpx2.AsyncClient(base_url=running.url, verify=trusted) as client:
            configuration = (await client.get("/.well-known/openid-configuration")).json()
            assert configuration["issuer"] == running.url
            assert "not for production" in configuration["service_documentation"]
            [key] = (await client.get(configuration["jwks_uri"])).json()["keys"]
            assert (sorted(key), key["kid"][:4]) == (["alg", "crv", "kid", "kty", "use", "x", "y"], "dev-")
            assert [(await client.get("/signing.key")).status_code, (await client.post("/jwks")).status_code] == [
                404,
                405,
            ]


def test_what_is_kept_is_for_its_owner_and_says_what_it_is(tmp_path: Path) -> None:
    folder = prepare_issuer(tmp_path / "dev", "127.0.0.1", datetime.now(UTC))
    assert {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in folder.root.iterdir()} == dict.fromkeys(
        ["NOT-FOR-PRODUCTION.txt", "ca.crt", "ca.key", "issuer.crt", "issuer.key", "signing.key"], "0o600"
    )
    assert "not for production" in str(x509.load_pem_x509_certificate(folder.ca.read_bytes()).subject)
    assert DevFolder(folder.root) == folder


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(DevFolderError, match=r"Cannot write .*file"):
        prepare_issuer(tmp_path / "file", "localhost", datetime.now(UTC))


def test_a_certificate_for_a_workload_proves_its_id(tmp_path: Path) -> None:
    result = invoke("spiffe", "--folder", str(tmp_path), "--id", AGENT, "-o", "json")
    assert result.exit_code == 0, result.stderr
    made = json.loads(result.stdout)
    assert made == {
        "id": AGENT,
        "certificate": str(tmp_path / "agent.crt"),
        "key": str(tmp_path / "agent.key"),
        "ca": str(tmp_path / "spiffe-ca.crt"),
    }
    shown = quote(Path(made["certificate"]).read_text(encoding="utf-8"))
    found = PeerCertificates().identify(AGENT, shown, {"cluster.local"}, datetime.now(UTC).timestamp())
    assert found == SpiffeId("cluster.local", "/ns/default/sa/agent")
    certificate = x509.load_pem_x509_certificate(Path(made["certificate"]).read_bytes())
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(Path(made["ca"]).read_bytes()))


def test_the_files_of_another_workload_are_not_overwritten(tmp_path: Path) -> None:
    first = invoke("spiffe", "--folder", str(tmp_path), "--id", AGENT)
    again = invoke("spiffe", "--folder", str(tmp_path), "--id", AGENT)
    other = invoke("spiffe", "--folder", str(tmp_path), "--id", "spiffe://other.example/agent")
    named = invoke("spiffe", "--folder", str(tmp_path), "--id", "spiffe://other.example/agent", "--name", "second")
    assert [each.exit_code for each in (first, again, other, named)] == [0, 0, 1, 0]
    assert "Set --name to another name" in other.stderr
    assert f"certificate  {tmp_path / 'agent.crt'}" in first.stdout


def test_certificates_for_machines_are_for_servers_and_for_clients(tmp_path: Path) -> None:
    names = ["control.internal", "edge.internal", "10.0.0.1"]
    result = invoke("tls", "--folder", str(tmp_path), *names, "-o", "json")
    assert result.exit_code == 0, result.stderr
    files = [{"name": each, "certificate": f"{tmp_path}/{each}.crt", "key": f"{tmp_path}/{each}.key"} for each in names]
    assert json.loads(result.stdout) == {"ca": str(tmp_path / "tls-ca.crt"), "certificates": files}
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(tmp_path / "tls-ca.crt"))
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_cert_chain(tmp_path / "control.internal.crt", tmp_path / "control.internal.key")
    client = ssl.create_default_context(cafile=str(tmp_path / "tls-ca.crt"))
    client.load_cert_chain(tmp_path / "edge.internal.crt", tmp_path / "edge.internal.key")
    shown = shake_hands(server, client, "control.internal")
    assert shown == (("DNS", "edge.internal"),)


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> object:
    """Let both meet in memory, and return the names that the client shows."""
    pipes = [ssl.MemoryBIO() for _ in range(2)]
    sides = [
        client.wrap_bio(pipes[0], pipes[1], server_hostname=name),
        server.wrap_bio(pipes[1], pipes[0], server_side=True),
    ]
    for _ in range(4):
        for side in sides:
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    found = sides[1].getpeercert()
    return (found or {}).get("subjectAltName")


def test_certificates_for_machines_can_be_secrets(tmp_path: Path) -> None:
    file = tmp_path / "secrets.yaml"
    result = invoke("tls", "--folder", str(tmp_path / "dev"), "edge.internal", "--secrets", str(file))
    assert result.exit_code == 0, result.stderr
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    library = Library()
    library.changed("secrets.yaml", file.read_bytes())
    secrets = library.current().resources.secrets
    assert {str(name): secret.type for name, secret in secrets.items()} == {
        "default/edge.internal": "kubernetes.io/tls",
        "default/workloads-ca": "Opaque",
    }
    ca = secrets[ObjectName("default", "workloads-ca")].value("ca.crt")
    assert ca is not None
    assert ca.reveal() == (tmp_path / "dev" / "spiffe-ca.crt").read_bytes()


@pytest.mark.parametrize("name", ["spiffe-ca", "tls-ca", "agent"])
def test_other_files_are_not_overwritten_with_certificates_of_machines(tmp_path: Path, name: str) -> None:
    invoke("spiffe", "--folder", str(tmp_path), "--id", AGENT)
    invoke("tls", "--folder", str(tmp_path), "edge.internal")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    result = invoke("tls", "--folder", str(tmp_path), name)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


BAD = {
    "no name of a machine": (["tls", "../x"], 2, "is not a DNS name or an IP address"),
    "a machine for too long": (["tls", "x", "--expires", "9000h"], 2, "above 0s and up to 2160h"),
    "tools for other machines": (["tools", "--address", ":9082"], 2, "Use a loopback address"),
    "no issuer yet": (["token", "--sub", "alice", "--folder", "none"], 1, "authplane dev issuer --folder none"),
    "a claim without a value": (["token", "--sub", "a", "--claim", "group"], 2, "is not a claim"),
    "a claim that has an option": (
        ["token", "--sub", "a", "--claim", "exp=1"],
        2,
        "has its own option. Use --expires.",
    ),
    "a claim twice": (["token", "--sub", "a", "--claim", "x=1", "--claim", "x=2"], 2, "is set twice. Remove one"),
    "a claim that is no JSON": (["token", "--sub", "a", "--claim", "x:={"], 2, "not JSON"),
    "no duration": (["token", "--sub", "a", "--expires", "soon"], 2, "is not a duration"),
    "no address of an issuer": (["token", "--sub", "a", "--issuer", "http://x"], 2, "is not an issuer URL"),
    "another URI": (["spiffe", "--id", "https://a.example"], 2, "is not a workload's SPIFFE ID"),
    "a trust domain": (["spiffe", "--id", "spiffe://a.example"], 2, "it has no path"),
    "too long": (["spiffe", "--id", AGENT, "--expires", "9000h"], 2, "above 0s and up to 2160h"),
    "a name that leads elsewhere": (["spiffe", "--id", AGENT, "--name", "../x"], 2, "is not a valid file name"),
    "every interface": (["issuer", "--address", ":9445"], 2, "add --public"),
    "another machine's": (["issuer", "--address", "192.0.2.1:1"], 2, "add --public"),
    "no address": (["issuer", "--address", "x"], 2, "is not an address"),
    "no host": (["issuer", "--name", "a host"], 2, "is not a host"),
    "a socket": (["issuer", "--address", "unix:/tmp/x"], 2, "unix socket"),
}


@pytest.mark.parametrize(("arguments", "status", "words"), BAD.values(), ids=BAD.keys())
def test_a_mistake_is_one_sentence(
    arguments: list[str], status: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke(*arguments)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (status, "", 1)
    assert words in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.real
async def test_the_command_serves_until_it_is_stopped_and_says_how_to_trust_it(tmp_path: Path) -> None:
    lines: list[str] = []

    async def sink(line: Line) -> None:
        lines.append(line.text)

    port = free_port()
    argv = [sys.executable, "-m", "authplane", "dev", "issuer", "--address", f"127.0.0.1:{port}"]
    async with run_process([*argv, "--folder", str(tmp_path)], sink=sink, grace=5) as child:

        async def told() -> bool:
            return any("authplane dev token" in line for line in lines)

        await eventually(told)
        os.kill(child.pid, signal.SIGTERM)

        async def ended() -> bool:
            return child.status is not None

        await eventually(ended)
        assert child.status == 0
    text = "\n".join(lines)
    assert f"issuerUrl: https://127.0.0.1:{port}" in text
    assert f'"caFile": "{tmp_path / "ca.crt"}", "allowPrivateNetwork": true' in text
    assert "not for production" in text


@pytest.mark.parametrize("command", ["issuer", "token", "spiffe"])
def test_every_command_has_an_example(command: str) -> None:
    assert f"Example: authplane dev {command}" in " ".join(invoke(command, "--help").stdout.split())


def test_a_folder_without_an_issuer_is_an_error_that_names_both_ways(tmp_path: Path) -> None:
    result = invoke("token", "--folder", str(tmp_path / "none"), "--sub", "alice")
    assert result.exit_code != 0
    assert "Pass the folder of the issuer that your gateway trusts, or start a new issuer" in " ".join(
        result.stderr.split()
    )
