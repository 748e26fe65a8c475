"""Whole translations, one for each behaviour, with Envoy's own judgement of each."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.conftest import Golden
from tests.support.envoy.validation import validate
from tests.support.resources.contour_documents import AUTH, ECHO, World, secrets

from authplane.controlplane.graph.model.programming import NoProxy
from authplane.controlplane.render.dump import dump, json_text
from authplane.controlplane.render.envoy_bootstrap import static_bootstrap
from authplane.controlplane.status.status_json import Transitions

CASES = sorted(path.parent for path in (Path(__file__).parent / "contour").glob("*/in.yaml"))
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ORDER = ["envoy.filters.http.header_mutation", "envoy.filters.http.ext_authz", "envoy.filters.http.router"]


def world_of(case: Path) -> World:
    return World([(case / "in.yaml").read_text(encoding="utf-8"), ECHO, AUTH, secrets()])


def without_certificates(value: Any) -> Any:
    """Replace bytes that differ in every run."""
    if isinstance(value, dict):
        return {key: "…" if key == "inlineBytes" else without_certificates(each) for key, each in value.items()}
    return [without_certificates(each) for each in value] if isinstance(value, list) else value


def text_of(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_resources_become_what_the_golden_file_shows(case: Path, golden: Golden) -> None:
    generation = world_of(case).generation
    golden.check(case / "out.yaml", text_of(without_certificates(dump(generation.rendered, show_secrets=False))))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_statuses_are_what_the_golden_file_shows(case: Path, golden: Golden) -> None:
    statuses = world_of(case).generation.status(NoProxy())
    golden.check(case / "status.yaml", text_of(Transitions().records(statuses, NOW)))


@pytest.mark.real
@pytest.mark.requirement("X15")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_envoy_accepts_every_golden_output(case: Path) -> None:
    verdict = await validate(json_text(static_bootstrap(world_of(case).generation.rendered)))
    assert verdict.ok, verdict.output


@pytest.mark.requirement("EN-2")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_filters_have_the_same_order_on_every_listener(case: Path) -> None:
    rendered = dump(world_of(case).generation.rendered, show_secrets=False)
    for listener in rendered["listeners"]:
        for chain in listener["filterChains"]:
            filters = [each["name"].partition("/")[0] for each in chain["filters"][0]["typedConfig"]["httpFilters"]]
            assert filters == sorted(filters, key=ORDER.index)
            assert filters[-1] == "envoy.filters.http.router"
            assert filters.count("envoy.filters.http.router") == 1
