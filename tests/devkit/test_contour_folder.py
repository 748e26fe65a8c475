"""Folders of Contour's resources become folders of authplane: what is taken over, changed and set aside."""

from pathlib import Path

import pytest
from tests.support.resources.contour_manifests import ORIGIN, PROXY, manifests

from authplane.core.problems import Severity
from authplane.devkit.scaffold.check_files import check_files
from authplane.devkit.scaffold.contour_documents import MoveError, read_documents
from authplane.devkit.scaffold.contour_folder import Moved, move_folder
from authplane.devkit.scaffold.write_folder import WriteError, write_files

CERTIFICATE = "\napiVersion: cert-manager.io/v1\nkind: Certificate\nmetadata: {name: c}\n"


def whole() -> dict[str, str]:
    files = manifests()
    return files | {"auth/server.yaml": f"{files['auth/server.yaml']}---{CERTIFICATE}"}


def moved(root: Path, files: dict[str, str]) -> Moved:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    found = move_folder(read_documents(root))
    errors = [each for each in check_files(found.files).findings if each.problem.severity is Severity.ERROR]
    assert errors == []
    assert {name: (root / name).read_text(encoding="utf-8") for name in files} == files
    return found


@pytest.mark.requirement("IN-2")
def test_a_whole_folder_moves_with_its_authorization_service(tmp_path: Path) -> None:
    found = moved(tmp_path, whole())
    assert set(found.files) == {
        "auth/server.yaml",
        "auth/users.yaml",
        "shop.yaml",
        "secrets.yaml",
        "authserver-htpasswd.yaml",
        "endpoints-htpasswd.yaml",
        ".tls/auth-htpasswd/tls.crt",
        ".tls/auth-htpasswd/tls.key",
    }
    assert "# The shop." in found.files["shop.yaml"]
    assert "Deployment" not in found.files["auth/server.yaml"]
    assert "10.1.2.3" not in found.files["auth/server.yaml"]
    assert found.files[".tls/auth-htpasswd/tls.crt"].startswith("-----BEGIN CERTIFICATE-----")
    assert found.private == {
        "auth/users.yaml",
        "secrets.yaml",
        ".tls/auth-htpasswd/tls.crt",
        ".tls/auth-htpasswd/tls.key",
    }
    backend = found.files["authserver-htpasswd.yaml"].partition("backends:\n")[2]
    assert backend == (
        "  - name: htpasswd\n"
        "    htpasswd:\n"
        "      folder: . # Secrets with the annotation projectcontour.io/auth-type: basic\n"
        '      realm: "shop"\n'
        '      selector: "team=shop"\n'
        '      namespaces: ["auth", "shop"]\n'
    )
    [new] = found.servers
    assert (new.port, new.secure, new.certificate) == (9444, True, ".tls/auth-htpasswd/tls.crt")
    assert "port: 9444" in found.files["endpoints-htpasswd.yaml"]
    assert any("authplane left out --tls-ca-path" in each for each in found.changed)
    assert any("forwardCredentials" in each for each in found.changed)
    assert any("with endpoints-htpasswd.yaml, Envoy sends requests to 127.0.0.1:9444" in each for each in found.changed)
    assert found.left == ("Certificate (1): authplane does not use these documents.",)
    assert found.warnings == 0


def test_what_kubectl_prints_loses_what_the_api_server_added(tmp_path: Path) -> None:
    listed = """
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Service
  metadata:
    name: shop
    uid: 7c0f
    resourceVersion: "12"
    managedFields: [{manager: kubectl}]
    annotations: {kubectl.kubernetes.io/last-applied-configuration: '{"secret": 1}'}
  spec: {ports: [{name: http, port: 80}]}
  status: {loadBalancer: {}}
- apiVersion: v1
  kind: Pod
  metadata: {name: shop}
"""
    files = whole() | {"shop.yaml": f"{PROXY}---{ORIGIN.partition('---')[2]}", "dump.yaml": listed}
    found = moved(tmp_path, files)
    for gone in ("uid", "resourceVersion", "managedFields", "last-applied", "status", "Pod"):
        assert gone not in found.files["dump.yaml"]
    assert found.changed[0] == (
        "dump.yaml: authplane wrote each item of a List (1 in all) as a document, without status and"
        " fields of the API server."
    )


def test_what_authplane_refuses_is_set_aside_with_its_problems(tmp_path: Path) -> None:
    other = PROXY.replace("name: shop}\nspec", "name: vpn}\nspec").replace("fqdn: shop", "fqdn: vpn")
    files = whole() | {
        "vpn.yaml": other.replace("tls: {", "ipAllowPolicy: [{source: Peer, cidr: 10.0.0.0/8}]\n    tls: {")
    }
    found = moved(tmp_path, files)
    assert "vpn.yaml" not in found.files
    assert "ipAllowPolicy" in found.files[".not-moved/vpn.yaml"].partition("apiVersion")[0]
    assert ".not-moved/vpn.yaml" in found.private
    assert any(each.startswith("HTTPProxy default/vpn: ") for each in found.left)
    assert any("--force" in each for each in found.left)


def test_a_missing_secret_sets_its_host_aside(tmp_path: Path) -> None:
    found = moved(tmp_path, whole() | {"secrets.yaml": whole()["secrets.yaml"].replace("shop-tls", "other-tls")})
    assert any("shop-tls" in each for each in found.left)
    assert ".not-moved/shop.yaml" in found.files


def test_a_host_is_not_left_to_a_wildcard(tmp_path: Path) -> None:
    wildcard = PROXY.replace("name: shop}\nspec", "name: all}\nspec").replace("fqdn: shop.", "fqdn: '*.")
    wildcard = wildcard.replace("'*.example", "'*.example'")
    refused = PROXY.replace("tls: {", "ipAllowPolicy: [{source: Peer, cidr: 10.0.0.0/8}]\n    tls: {")
    files = whole() | {"shop.yaml": f"{refused}---{wildcard}---{ORIGIN}"}
    with pytest.raises(
        MoveError, match=r"HTTPProxy default/all would receive its requests. .* correct HTTPProxy default/shop"
    ):
        moved(tmp_path, files)


def test_settings_that_protect_every_host_are_never_set_aside(tmp_path: Path) -> None:
    configuration = """
apiVersion: projectcontour.io/v1alpha1
kind: ContourConfiguration
metadata: {name: contour}
spec: {globalExtAuth: {extensionRef: {name: missing, namespace: auth}}}
"""
    with pytest.raises(MoveError, match="Settings of the whole gateway have errors") as caught:
        moved(tmp_path, whole() | {"contour.yaml": configuration})
    assert ["missing" in each.problem.message for each in caught.value.findings] == [True]


def test_sign_in_by_browser_is_not_moved(tmp_path: Path) -> None:
    files = whole()
    files["auth/server.yaml"] = files["auth/server.yaml"].replace("args: [htpasswd,", "args: [oidc, --config=/x,")
    found = moved(tmp_path, files)
    assert found.servers == ()
    assert "10.1.2.3" in found.files["auth/server.yaml"]
    assert any("contour-authserver oidc" in each and "Keep this server" in each for each in found.left)


def test_the_test_server_decides_by_path_as_before(tmp_path: Path) -> None:
    files = whole()
    files["auth/server.yaml"] = files["auth/server.yaml"].replace(
        "args: [htpasswd, --address=:9443, --auth-realm, shop,", "args: [testserver, --address=:7000, --old=1,"
    )
    found = moved(tmp_path, files)
    assert "mode: path" in found.files["authserver-htpasswd.yaml"]
    assert [each.port for each in found.servers] == [7000]
    assert any("authplane does not know --old" in each for each in found.left)


def test_a_folder_without_resources_and_bad_yaml_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MoveError, match="Use a folder with HTTPProxies"):
        moved(tmp_path, {"a.yaml": CERTIFICATE})
    with pytest.raises(MoveError, match=r"b.yaml:3.*Correct the YAML first"):
        moved(tmp_path, {"b.yaml": "a: 1\nb: [\n"})


def test_names_of_others_do_not_become_paths_or_documents(tmp_path: Path) -> None:
    files = whole()
    bad = "../../../evil\\nkind: HTTPProxy"
    files["auth/server.yaml"] = files["auth/server.yaml"].replace(
        "Deployment\nmetadata: {name: htpasswd,", f'Deployment\nmetadata: {{name: "{bad}",'
    )
    assert bad in files["auth/server.yaml"]
    found = moved(tmp_path, files)
    assert "authserver-evil-kind-httpproxy.yaml" in found.files
    assert not any(".." in name for name in found.files)
    assert not any("\nkind: HTTPProxy" in text for name, text in found.files.items() if name.startswith("authserver"))


def test_nothing_is_written_outside_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "auth").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(WriteError, match="leads to a path outside"):
        write_files(tmp_path / "new", {"auth/a.yaml": "a"}, private=frozenset(), force=True)
    assert list((tmp_path / "elsewhere").iterdir()) == []


CLUSTER = """
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Secret, metadata: {name: db-password, namespace: payroll}, stringData: {password: hunter2}}
- {apiVersion: v1, kind: Secret, metadata: {name: shop-tls, namespace: payroll}, stringData: {password: hunter2}}
- {apiVersion: v1, kind: Secret, metadata: {name: sh.helm.release.v1.x}, type: helm.sh/release.v1, data: {release: "@"}}
- {apiVersion: v1, kind: Service, metadata: {name: kube-dns, namespace: kube-system}, spec: {ports: [{port: 53}]}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: kube-root-ca.crt}, data: {ca.crt: x}}
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {name: kube-dns-1, namespace: kube-system, labels: {kubernetes.io/service-name: kube-dns}}
  addressType: IPv4
  endpoints: [{addresses: [10.0.0.2]}]
  ports: [{port: 53}]
- {apiVersion: v1, kind: ConfigMap, metadata: {name: contour, namespace: projectcontour}, data: {contour.yaml: "{}"}}
"""


def test_only_what_resources_refer_to_leaves_the_cluster(tmp_path: Path) -> None:
    found = moved(tmp_path, whole() | {"cluster.yaml": CLUSTER})
    text = "\n".join(found.files.values())
    assert [word for word in ("hunter2", "helm", "kube-dns", "kube-root-ca", "htpasswd-tls") if word in text] == []
    for kept in ("shop-tls", "passwords", "contour.yaml"):
        assert kept in text
    told = "no other resource of the folder refers to it."
    assert found.left == (
        f"ConfigMap default/kube-root-ca.crt: {told}",
        f"EndpointSlice kube-system/kube-dns-1: {told}",
        f"Secret default/sh.helm.release.v1.x, payroll/db-password, payroll/shop-tls: {told}",
        f"Service kube-system/kube-dns: {told}",
        "Certificate (1): authplane does not use these documents.",
    )
    assert found.missing == ()


def test_an_export_without_configuration_deployments_and_addresses_is_told(tmp_path: Path) -> None:
    files = whole()
    plain = PROXY.replace("name: shop}\nspec", "name: plain}\nspec").replace("fqdn: shop", "fqdn: plain")
    plain = "".join(line for line in plain.splitlines(keepends=True) if "authorization" not in line)
    extension = files["auth/server.yaml"].split("---")
    files["auth/server.yaml"] = "---".join(each for each in extension if "Deployment" not in each)
    files = {name: _without_slices(text) for name, text in (files | {"plain.yaml": plain}).items()}
    found = moved(tmp_path, files)
    assert found.missing == (
        "The folder has no configuration of Contour. If Contour's configuration sets globalExtAuth,"
        " authplane would serve "
        "plain.example without authorization. "
        "Export configmaps and contourconfigurations and run init again with --force.",
        "The folder has no Deployment for Service auth/htpasswd, which an ExtensionService uses. If this Service runs "
        "contour-authserver, export deployments and run init again with --force; init then replaces"
        " contour-authserver.",
        "The folder has no EndpointSlices, so Envoy does not know the addresses of Services. "
        "Export endpointslices and run init again with --force.",
    )


def _without_slices(text: str) -> str:
    return "---".join(each for each in text.split("---") if "kind: EndpointSlice" not in each)


def test_fields_without_effect_and_dropped_flags_are_told(tmp_path: Path) -> None:
    files = whole()
    proxy = PROXY.replace(
        "routes: [{", "routes: [{retryPolicy: {count: 2}, rateLimitPolicy: {local: {requests: 1, unit: second}}, "
    ).replace("fqdn:", "corsPolicy: {allowOrigin: ['*'], allowMethods: [GET]}\n    fqdn:")
    files["shop.yaml"] = f"{proxy}---{ORIGIN}"
    files["auth/server.yaml"] = files["auth/server.yaml"].replace(
        "args: [htpasswd,", "args: [htpasswd, '--metrics-address=:8080',"
    )
    found = moved(tmp_path, files)
    told = "has no effect, because authplane does not support it. Resources with this field: HTTPProxy/default/shop."
    assert [each for each in found.changed if "no effect" in each] == [
        f"{field} {told}" for field in ("corsPolicy", "rateLimitPolicy", "retryPolicy")
    ]
    assert (
        "Deployment auth/htpasswd: authplane left out --metrics-address :8080. authplane authserver serves metrics on "
        "127.0.0.1:9091. Set --metrics-address to use another address."
    ) in found.changed
    port = "127.0.0.1:9444, instead of the addresses in auth/htpasswd-x1. The port is not 9443, because authplane run"
    assert any(each.endswith(f"{port} uses that port.") for each in found.changed)


def test_an_included_proxy_names_its_root_as_the_reason_why_it_is_not_moved(tmp_path: Path) -> None:
    root = PROXY.replace("routes: [{", "includes: [{name: cart, conditions: [{prefix: /cart}]}]\n  rutes: [{")
    cart = """
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: cart}
spec: {routes: [{services: [{name: shop, port: 80}]}]}
"""
    found = moved(tmp_path, whole() | {"shop.yaml": f"{root}---{cart}---{ORIGIN}"})
    assert (
        "HTTPProxy default/cart: authplane did not move HTTPProxy default/shop, which includes it."
        " Correct HTTPProxy default/shop." in found.left
    )


def test_envoy_waits_long_enough_for_passwords(tmp_path: Path) -> None:
    why = "By default, Envoy waits 200 ms and then answers 403, but bcrypt takes longer."
    found = moved(tmp_path, whole())
    assert f"  # {why}\n  timeoutPolicy:\n    response: 5s\n  services:" in found.files["auth/server.yaml"]
    assert f"ExtensionService auth/htpasswd: authplane set timeoutPolicy.response to 5s. {why}" in found.changed


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("timeoutPolicy: {response: 1s}", "{response: 1s}"),
        ("timeoutPolicy: {idleConnection: 9s}", "idleConnection: 9s\n    response: 5s"),
        ("protocol: h2\n      # odd\n  protocolVersion: v3", "protocolVersion: v3"),
    ],
)
def test_a_written_timeout_stays(tmp_path: Path, written: str, kept: str) -> None:
    files = whole()
    files["auth/server.yaml"] = files["auth/server.yaml"].replace(
        "spec:\n  services:", f"spec:\n  {written}\n  services:"
    )
    found = moved(tmp_path, files)
    assert kept in found.files["auth/server.yaml"]
    assert found.warnings == 0


def test_users_that_no_server_accepts_are_told(tmp_path: Path) -> None:
    files = whole()
    files["auth/users.yaml"] += "    bob:rqXexS6ZhobKA\n"
    found = moved(tmp_path, files)
    [told] = [each for each in found.changed if "Secret auth/passwords" in each]
    assert told.startswith("Secret auth/passwords: Line 2: ")
    assert "rqXexS6ZhobKA" not in told
