"""`authplane bootstrap --follow-tls`: a real Envoy takes renewed files for the control plane without a restart."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
from click.testing import CliRunner
from cryptography import x509
from tests.support.certificates import authority
from tests.support.eventually import START_LIMIT, eventually
from tests.support.ports import free_port

from authplane.cli.main import build_app
from authplane.devkit.identities.throwaway_certificates import KeyPair, Leaf, Usage, create_authority, issue
from authplane.runtime.child_processes import Line, run_process
from authplane.runtime.envoy_process import envoy_binary

NODE: Final = "edge.internal"
_NUMBERS: Final[Iterator[int]] = count(1)


def new_certificate(ca: KeyPair) -> KeyPair:
    leaf = Leaf(name=NODE, usage=Usage.CLIENT, dns=(NODE,))
    return issue(ca, leaf, now=datetime.now(UTC), lifetime=timedelta(days=1))


def mount(folder: Path, pair: KeyPair, ca: KeyPair) -> None:
    """Change the files as the kubelet changes a mounted Secret: by moving a link."""
    data = folder / f"..{next(_NUMBERS)}"
    data.mkdir(parents=True)
    for name, content in (("tls.crt", pair.certificate), ("tls.key", pair.key.reveal()), ("ca.crt", ca.certificate)):
        (data / name).write_bytes(content)
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(Path("..data") / name)
    (folder / "..new").symlink_to(data.name)
    (folder / "..new").replace(folder / "..data")


def serial(pair: KeyPair) -> int:
    return x509.load_pem_x509_certificate(pair.certificate).serial_number


def bootstrap(tls: Path, *more: str) -> Any:
    files = [f"--tls-{option}-path={tls / name}" for option, name in FILES.items()]
    done = CliRunner().invoke(build_app(), ["bootstrap", f"--address=127.0.0.1:{free_port()}", *files, *more])
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


FILES: Final = {"ca": "ca.crt", "cert": "tls.crt", "key": "tls.key"}


async def ignore(_: Line) -> None: ...


@pytest.mark.requirement("KI-7")
@pytest.mark.real
async def test_envoy_follows_a_mounted_secret(tmp_path: Path) -> None:
    first, tls, run = new_certificate(authority()), tmp_path / "tls", tmp_path / "run"
    mount(tls, first, authority())
    run.mkdir()
    admin = free_port()
    config = bootstrap(tls, f"--follow-tls={run}", f"--admin=127.0.0.1:{admin}")
    (run / "envoy.json").write_text(json.dumps(config), encoding="utf-8")
    argv = [str(envoy_binary()), "--config-path", str(run / "envoy.json"), "--use-dynamic-base-id"]
    async with run_process(argv, sink=ignore), httpx2.AsyncClient(base_url=f"http://127.0.0.1:{admin}") as client:

        async def has(expected: KeyPair, ca: KeyPair) -> bool:
            try:
                [shown] = (await client.get("/certs")).json()["certificates"]
            except (httpx2.HTTPError, ValueError):
                return False
            chains = [int(each["serial_number"], 16) for each in shown["cert_chain"]]
            trusted = [int(each["serial_number"], 16) for each in shown["ca_cert"]]
            return chains == [serial(expected)] and trusted == [serial(ca)]

        await eventually(lambda: has(first, authority()), limit=START_LIMIT)
        renewed, other = (
            new_certificate(authority()),
            create_authority("other", now=datetime.now(UTC), lifetime=timedelta(days=1)),
        )
        mount(tls, renewed, other)
        await eventually(lambda: has(renewed, other))


def test_the_files_lead_to_keys_and_contain_none(tmp_path: Path) -> None:
    mount(tmp_path / "tls", new_certificate(authority()), authority())
    (tmp_path / "run").mkdir()
    bootstrap(tmp_path / "tls", f"--follow-tls={tmp_path / 'run'}")
    written = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "run").iterdir()}
    assert written.keys() == {"control-ca.json", "control-certificate.json"}
    assert str(tmp_path / "tls" / "tls.key") in written["control-certificate.json"]
    assert "PRIVATE" not in "".join(written.values())


WRONG: Final = {
    "no files": (["--follow-tls=/tmp"], "--follow-tls needs TLS files."),
    "no folder": (["--follow-tls=/nowhere"], "Cannot write /nowhere/control-certificate.json: No such file"),
}


@pytest.mark.parametrize(("options", "words"), WRONG.values(), ids=WRONG.keys())
def test_what_cannot_be_followed_is_an_error(options: list[str], words: str, tmp_path: Path) -> None:
    mount(tmp_path, new_certificate(authority()), authority())
    files = [f"--tls-{option}-path={tmp_path / name}" for option, name in FILES.items()]
    given = options if "/tmp" in options[0] else [*options, *files]  # noqa: S108 (nothing is written there)
    done = CliRunner().invoke(build_app(), ["bootstrap", "--address=control.internal:18000", *given])
    assert done.exit_code != 0
    assert words in done.output
