"""Kubeconfigs: as kubectl reads them, and what is not supported is an error, never ignored."""

from base64 import b64encode
from pathlib import Path
from typing import NamedTuple

import pytest

from authplane.core.secret import Secret
from authplane.runtime.kubernetes.exec_plugin import Issued, parse_credential
from authplane.runtime.kubernetes.kubeconfig import CredentialsError, ExecPlugin, Login, Pem, find_login, in_cluster

PLAIN = """\
apiVersion: v1
kind: Config
current-context: one
clusters:
- name: c
  cluster: {server: "https://api.example:6443/", certificate-authority: ca.pem}
contexts:
- name: one
  context: {cluster: c, user: u, namespace: shop}
- name: two
  context: {cluster: c, user: v}
users:
- name: u
  user: {client-certificate: tls.crt, client-key-data: %s}
- name: v
  user: {token: word}
"""


def test_contexts_users_and_relative_paths(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(PLAIN % b64encode(b"key").decode())
    assert find_login(file, "", {}) == Login(
        server="https://api.example:6443",
        namespace="shop",
        ca=Pem(path=str(tmp_path / "ca.pem")),
        certificate=Pem(path=str(tmp_path / "tls.crt")),
        key=Pem(content=Secret(b"key")),
    )
    assert find_login(file, "two", {}) == Login(
        server="https://api.example:6443", ca=Pem(path=str(tmp_path / "ca.pem")), token=Secret("word")
    )


def test_the_first_of_several_files_wins_and_missing_ones_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "b").write_text(PLAIN % "a2V5")
    (tmp_path / "a").write_text("current-context: two\nusers:\n- name: v\n  user: {token: other}\n")
    login = find_login(None, "", {"KUBECONFIG": f"{tmp_path}/none:{tmp_path}/a:{tmp_path}/b"})
    assert login.token == Secret("other")


def test_the_service_account_of_a_pod(tmp_path: Path) -> None:
    for name, text in (("token", "t"), ("ca.crt", "c"), ("namespace", "authplane\n")):
        (tmp_path / name).write_text(text)
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    assert in_cluster(environment, tmp_path) == Login(
        server="https://[fd00::1]:443",
        namespace="authplane",
        ca=Pem(path=str(tmp_path / "ca.crt")),
        token_file=str(tmp_path / "token"),
    )


def test_an_exec_plugin(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(
        _with_user(
            "{exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: ./bin/login, args: [a],"
            " env: [{name: X, value: y}], interactiveMode: Never, provideClusterInfo: true, installHint: Ask.}}"
        )
    )
    assert find_login(file, "", {}).exec_plugin == ExecPlugin(
        command=str(tmp_path / "bin/login"),
        args=("a",),
        env={"X": "y"},
        api_version="client.authentication.k8s.io/v1beta1",
        hint="Ask.",
        cluster={"server": "https://a:1"},
    )


class Case(NamedTuple):
    text: str
    says: str


def _with_user(user: str, cluster: str = "{server: 'https://a:1'}") -> str:
    return (
        f"current-context: x\nclusters: [{{name: c, cluster: {cluster}}}]\n"
        f"contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, user: {user}}}]\n"
    )


REFUSED = {
    "a proxy": Case(_with_user("{}", "{server: 'https://a:1', proxy-url: 'http://p'}"), "Proxies to the API server"),
    "no verification": Case(
        _with_user("{}", "{server: 'https://a:1', insecure-skip-tls-verify: true}"), "always verified"
    ),
    "no TLS to another machine": Case(_with_user("{}", "{server: 'http://a:1'}"), "has no TLS. Use https://."),
    "no address": Case(_with_user("{}", "{server: 'a:1'}"), "'a:1' is not the address of an API server"),
    "a password": Case(_with_user("{username: a, password: b}"), "Basic authentication"),
    "an auth provider": Case(
        _with_user("{auth-provider: {name: gcp}}"),
        "Auth providers are not supported. Use a token, a client certificate or exec.",
    ),
    "impersonation": Case(_with_user("{as: root}"), "Impersonation is not supported"),
    "half of a pair": Case(_with_user("{client-key: a}"), "only one of client-certificate and client-key. Set both."),
    "data that is not base64": Case(_with_user("{client-key-data: '%'}"), "client-key-data is not base64"),
    "a number as token": Case(_with_user("{token: 12}"), "token is not a string. Put it in quotes."),
    "an unknown plugin version": Case(
        _with_user("{exec: {apiVersion: v9, command: a}}"), "'v9' is not known. Supported: client.authentication"
    ),
    "a plugin for terminals": Case(
        _with_user("{exec: {apiVersion: client.authentication.k8s.io/v1, command: a, interactiveMode: Always}}"),
        "need no terminal.",
    ),
    "an unknown user": Case(_with_user("{}").replace("user: u", "user: w"), "has no user 'w'. Supported: u."),
    "no context": Case("clusters: []", "has no current-context. Use --context."),
    "not YAML": Case("a: [", "config:1: This is not YAML"),
    "a list": Case("[]", "is not a kubeconfig"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_supported_is_an_error(tmp_path: Path, case: Case) -> None:
    file = tmp_path / "config"
    file.write_text(case.text)
    with pytest.raises(CredentialsError) as raised:
        find_login(file, "", {})
    assert case.says in str(raised.value)


def test_no_cluster_at_all(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match=r"Use --kubeconfig\.$"):
        find_login(None, "", {"HOME": str(tmp_path)})
    with pytest.raises(CredentialsError, match="does not exist"):
        find_login(tmp_path / "none", "", {})


PLUGIN = ExecPlugin(command="login")
PRINTED = {
    b"": "no ExecCredential",
    b'{"kind": "ExecCredential", "apiVersion": "v0"}': "of version 'v0'",
    b'{"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1"}': "without status",
    b'{"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "status": {"clientKeyData": "k"}}': (
        "neither a token"
    ),
}


@pytest.mark.parametrize(("output", "says"), PRINTED.items())
def test_what_a_program_printed_is_unusable(output: bytes, says: str) -> None:
    with pytest.raises(CredentialsError, match=says):
        parse_credential(output, PLUGIN)


def test_credentials_of_a_program_expire() -> None:
    output = (
        b'{"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "status": '
        b'{"clientCertificateData": "C", "clientKeyData": "K", "expirationTimestamp": "1970-01-01T00:01:00Z"}}'
    )
    assert parse_credential(output, PLUGIN) == Issued(certificate=Secret(b"C\nK\n"), expires_at=60)
