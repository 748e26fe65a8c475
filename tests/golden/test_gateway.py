"""Whole translations of Gateways, HTTPRoutes and Backends, with Envoy's own judgement of each."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Golden
from tests.golden.test_contour import text_of, without_certificates
from tests.support.certificates import authority
from tests.support.envoy.validation import validate
from tests.support.mcp.lua_reader import SOURCE
from tests.support.resources.contour_documents import ECHO, World, secrets

from authplane.controlplane.graph.model.programming import NoProxy
from authplane.controlplane.render.dump import dump, json_text
from authplane.controlplane.render.envoy_bootstrap import static_bootstrap
from authplane.controlplane.status.status_json import Transitions
from authplane.resources.kinds.configuration import GatewaySettings

CASES = sorted(path.parent for path in (Path(__file__).parent / "gateway").glob("*/in.yaml"))
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def world_of(case: Path) -> World:
    return World([(case / "in.yaml").read_text(encoding="utf-8"), ECHO, secrets()])


def without_script(value: Any) -> Any:
    """Name the script that reads messages instead of showing it."""
    match value:
        case dict():
            return {key: without_script(each) for key, each in value.items()}
        case list():
            return [without_script(each) for each in value]
        case str() if value.endswith(SOURCE.decode()):
            return value.removesuffix(SOURCE.decode()) + "-- policy/mcp/reader.lua"
        case _:
            return value


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_resources_become_what_the_golden_file_shows(case: Path, golden: Golden) -> None:
    shown = dump(world_of(case).generation.rendered, show_secrets=False)
    golden.check(case / "out.yaml", text_of(without_script(without_certificates(shown))))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_statuses_are_what_the_golden_file_shows(case: Path, golden: Golden) -> None:
    statuses = world_of(case).generation.status(NoProxy())
    golden.check(case / "status.yaml", text_of(Transitions().records(statuses, NOW)))


@pytest.mark.real
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_envoy_accepts_every_golden_output(case: Path, tmp_path: Path) -> None:
    trusted = tmp_path / "ca.crt"
    trusted.write_bytes(authority().certificate)
    text = json_text(static_bootstrap(world_of(case).generation.rendered))
    # Where the CAs of this machine are is not for a test to know.
    verdict = await validate(text.replace(GatewaySettings().ca_file, str(trusted)))
    assert verdict.ok, verdict.output
