"""`authplane authserver`: both engines, both backends, as processes."""

from pathlib import Path

import httpx2
import pytest
from click.testing import CliRunner
from tests.support.authservers.server_process import Server, basic, entry
from tests.support.certificates import authority
from tests.support.certificates import server as issued
from tests.support.eventually import eventually

from authplane.cli.main import build_app

ENGINES = pytest.mark.parametrize("engine", ["grpcio", "pyvoy"])


@pytest.mark.real
@ENGINES
async def test_the_test_backend_decides_logs_and_counts(engine: str) -> None:
    server = Server()
    async with server.running("testserver", "--mode", "path", "--engine", engine):
        assert [(await server.ask(path)).status.code for path in ("/allow?token=hunter2", "/x")] == [0, 16]
        assert (await server.page("/readyz")).text == "ready\n"
        metrics = await server.metrics()
        assert {name: metrics[name] for name in metrics if name.startswith("checks")} == {
            "checks_total testserver allow": 1,
            "checks_total testserver deny": 1,
        }
        await server.says('"path":"/x"')
    assert len(server.decisions) == 2
    assert "hunter2" not in str(server.lines)


@pytest.mark.real
@ENGINES
async def test_users_of_a_file_are_let_in_and_changes_are_followed(engine: str, tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text(entry("ann", "secret-1"), encoding="utf-8")
    server = Server()
    arguments = ["htpasswd", "--file", str(users), "--auth-realm", "shop", "--engine", engine]
    async with server.running(*arguments, admin=False):
        allowed = await server.ask("/", authorization=basic("ann", "secret-1"))
        assert allowed.status.code == 0
        sent = {option.header.key: option.header.value for option in allowed.ok_response.headers}
        assert (sent["Auth-Username"], sent["Auth-Realm"]) == ("ann", "shop")
        assert "authorization" in allowed.ok_response.headers_to_remove
        denied = await server.ask("/", authorization=basic("ann", "wrong"))
        challenge = {option.header.key: option.header.value for option in denied.denied_response.headers}
        assert (denied.status.code, challenge["WWW-Authenticate"]) == (16, 'Basic realm="shop", charset="UTF-8"')
        assert (await server.ask("/")).status.code == 16
        users.write_text(entry("ann", "secret-2"), encoding="utf-8")

        async def changed() -> bool:
            return (await server.ask("/", authorization=basic("ann", "secret-2"))).status.code == 0

        await eventually(changed)
        assert (await server.ask("/", authorization=basic("ann", "secret-1"))).status.code == 16
    assert "secret-" not in str(server.lines)
    assert "ann" in {line["identity"] for line in server.decisions}


@pytest.mark.real
@ENGINES
async def test_http_checks_are_answered_too(engine: str) -> None:
    server = Server()
    async with (
        server.running("testserver", "--mode", "path", "--engine", engine, http=True),
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{server.http}") as client,
    ):
        assert (await client.get("/allow")).status_code == 200
        assert (await client.get("/x")).status_code == 401


STRANGERS = {
    "testserver": ("testserver",),
    "htpasswd": ("htpasswd", "--file", "users"),
    "policy": ("policy", "."),
    "serve": ("serve", "server.yaml"),
}
SERVER = """
apiVersion: authplane.dev/v1alpha1
kind: AuthorizationService
metadata: {name: server}
spec: {backends: [{name: all, testserver: {}}]}
"""


@pytest.mark.requirement("E22")
@pytest.mark.parametrize("where", [("--address", "0.0.0.0:0"), ("--address", ":0"), ("--http-address", "[::]:0")])
@pytest.mark.parametrize("command", STRANGERS.values(), ids=STRANGERS.keys())
def test_no_server_lets_other_machines_ask_without_a_certificate_by_accident(
    command: tuple[str, ...], where: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("server.yaml").write_text(SERVER, encoding="utf-8")
    # Certificates of its own do not tell a server who asks.
    for tls in ((), ("--tls-cert-path", "x", "--tls-key-path", "x")):
        result = CliRunner().invoke(build_app(), ["authserver", *command, *where, *tls])
        assert result.exit_code == 2
        assert "Use --tls-ca-path" in result.stderr
        assert len(result.stderr.splitlines()) == 1


@pytest.mark.requirement("E22")
def test_policies_are_never_asked_by_strangers(tmp_path: Path) -> None:
    arguments = ["authserver", "policy", str(tmp_path), "--address", ":0", "--public"]
    result = CliRunner().invoke(build_app(), arguments)
    assert result.exit_code == 2
    assert "policies trust what the proxy reports" in result.stderr


@pytest.mark.real
async def test_a_server_for_everybody_says_so() -> None:
    server = Server()
    async with server.running("testserver", "--engine", "grpcio", "--public", "--http-address", "0.0.0.0:0"):
        assert (await server.ask("/")).status.code == 0
        await server.says("accepting checks from other machines without client certificates")


@pytest.mark.real
@pytest.mark.requirement("F10")
@pytest.mark.parametrize(("mode", "warned"), [(0o644, True), (0o640, False), (0o600, False)])
async def test_a_secret_that_everybody_can_read_is_a_warning_and_is_not_shown(
    mode: int, warned: bool, tmp_path: Path
) -> None:
    users, key = tmp_path / "users", tmp_path / "tls.key"
    users.write_text(entry("ann", "secret-1"), encoding="utf-8")
    pair = issued("localhost")
    key.write_bytes(pair.key.reveal())
    (tmp_path / "tls.crt").write_bytes(pair.certificate)
    for file in (users, key):
        file.chmod(mode)
    server = Server()
    tls = ("--tls-cert-path", str(tmp_path / "tls.crt"), "--tls-key-path", str(key))
    async with server.running("htpasswd", "--file", str(users), "--engine", "grpcio", *tls, admin=False):
        pass
    said = [line.text for line in server.lines]
    named = [
        file
        for file in (users, key)
        if any("secret file is readable by every user" in line and str(file) in line for line in said)
    ]
    assert named == ([users, key] if warned else [])
    hidden = (*pair.key.reveal().decode().splitlines()[1:-1], users.read_text(encoding="utf-8").strip())
    assert not [line for line in said for secret in hidden if secret in line]


BAD = {
    "no users": (["htpasswd"], "No users are configured"),
    "no selector": (["htpasswd", "--file", "x", "--selector", "a in b"], "is not a label selector"),
    "no realm": (["htpasswd", "--file", "x", "--auth-realm", "a\x01"], "is not a realm"),
    "workers of grpcio": (["testserver", "--engine", "grpcio", "--workers", "2"], "Use --engine pyvoy"),
    "an unknown form": (["testserver", "--http-form", "other"], "is not a form of HTTP checks. Supported: "),
}


@pytest.mark.parametrize(("arguments", "words"), BAD.values(), ids=BAD.keys())
def test_what_cannot_be_served_is_one_sentence(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(build_app(), ["authserver", *arguments, "--address", "127.0.0.1:0"])
    assert result.exit_code == 2
    assert result.stderr.startswith("authplane: ")
    assert words in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.real
async def test_the_log_says_that_clients_need_certificates_unlike_with_contour_authserver(tmp_path: Path) -> None:
    pair = issued("localhost")
    for name, text in (("crt", pair.certificate), ("key", pair.key.reveal()), ("ca", authority().certificate)):
        (tmp_path / name).write_bytes(text)
    files = [f"--tls-{each}-path={tmp_path / name}" for each, name in (("cert", "crt"), ("key", "key"), ("ca", "ca"))]
    server = Server()
    async with server.running("testserver", "--engine", "grpcio", *files, admin=False):
        await server.says("requiring client certificates")


@pytest.mark.parametrize("backend", ["htpasswd", "testserver"])
def test_an_option_of_contour_authserver_oidc_is_explained(backend: str) -> None:
    refused = CliRunner().invoke(build_app(), ["authserver", backend, "--config=x"])
    assert refused.exit_code == 2
    assert refused.stderr.endswith(
        "Error: --config is an option of contour-authserver oidc, which authplane does not replace. Remove it.\n"
    )
