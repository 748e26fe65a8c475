"""`authplane validate` warns of users that no server accepts, and of checks that end before bcrypt does."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.support.resources.contour_manifests import manifests

from authplane.cli.main import build_app

SERVER = """
apiVersion: authplane.dev/v1alpha1
kind: AuthorizationService
metadata: {name: htpasswd, namespace: auth}
spec: {backends: [{name: htpasswd, htpasswd: {folder: .}}]}
"""
TIMEOUT = "authorization: {extensionRef"


def warned(folder: Path, **files: str) -> list[str]:
    for name, text in (manifests() | {f"{name}.yaml": text for name, text in files.items()}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    found = CliRunner().invoke(build_app(), ["validate", str(folder), "-o", "json"])
    assert found.exit_code == 0, found.output
    return [f"{Path(each['file']).name}:{each['line']} {each['reason']}" for each in json.loads(found.stdout)]


HOST = manifests()["shop.yaml"]
CASES = {
    "nothing tells that it checks passwords": ({}, []),
    "no timeout": ({"server": SERVER}, ["server.yaml:35 ResponseTimeoutShort"]),
    "of the host": (
        {"server": SERVER, "shop": HOST.replace(TIMEOUT, TIMEOUT.replace("{", "{responseTimeout: 5s, "))},
        [],
    ),
    "another server": ({"server": SERVER.replace("htpasswd: {folder: .}", "testserver: {}")}, []),
}


@pytest.mark.parametrize(("files", "want"), CASES.values(), ids=CASES.keys())
def test_a_short_timeout_before_passwords_is_a_warning(tmp_path: Path, files: dict[str, str], want: list[str]) -> None:
    assert warned(tmp_path, **files) == want


def test_a_hash_that_no_server_accepts_is_a_warning(tmp_path: Path) -> None:
    users = manifests()["auth/users.yaml"] + "    bob:rqXexS6ZhobKA\n"
    assert warned(tmp_path, **{"auth/users": users}) == ["users.yaml:12 HashUnknown"]
