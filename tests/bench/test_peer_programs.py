"""Where the benchmark of other authorization services takes their programs from."""

from pathlib import Path

import pytest
from bench.peer_programs import CONTOUR_AUTHSERVER, OPA, program

GO = """#!/bin/sh
echo "$*" >> "$CALLED"
for last; do :; done
while [ "$1" != -o ]; do shift; done
echo '#!/bin/sh' > "$2"
"""
"""Stands in for Go: notes how it was called, and writes an empty program."""
BROKEN = """#!/bin/sh
echo "module not available" >&2
exit 1
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the benchmark a cache of its own, and a folder that precedes others on the path."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    monkeypatch.setenv("CALLED", str(tmp_path / "called"))
    monkeypatch.delenv("PEERS", raising=False)
    return tmp_path


def install(place: Path, go: str) -> None:
    path = place / "bin" / "go"
    path.write_text(go, encoding="ascii")
    path.chmod(0o755)


async def test_peers_names_a_folder_with_programs(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = place / "given"
    given.mkdir()
    (given / "contour-authserver").touch()
    monkeypatch.setenv("PEERS", str(given))
    assert await program(CONTOUR_AUTHSERVER) == given / "contour-authserver"


async def test_a_program_that_is_missing_is_left_out_with_one_line(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await program(CONTOUR_AUTHSERVER) is None
    [line] = capsys.readouterr().out.splitlines()
    assert line == "  left out: contour-authserver. Set PEERS to a folder that contains the program."
    assert not (place / "cache").exists()


@pytest.mark.real
async def test_a_module_is_built_once_for_each_version(place: Path) -> None:
    install(place, GO)
    first, second = await program(OPA), await program(OPA)
    assert first == second == place / "cache" / "authplane-bench" / f"{OPA.name}@{OPA.version}" / OPA.name
    [called] = (place / "called").read_text(encoding="ascii").splitlines()
    assert called.endswith(OPA.package)
    assert f"require {OPA.module} {OPA.version}" in (first.parent / "go.mod").read_text(encoding="ascii")


@pytest.mark.real
async def test_a_module_that_cannot_be_built_is_left_out_with_the_reason(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(place, BROKEN)
    assert await program(OPA) is None
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"  left out: {OPA.name} {OPA.version}. Cannot build it: module not available"
