"""What the page on bootstraps shows is so."""

import json

import pytest
from tests.dataplane.runtime.test_bootstrap_native import CASES
from tests.support.pages import ROOT, blocks, read

from authplane.core.feature_flags import FeatureFlags
from authplane.xds.bootstrap.xds_bootstrap import Bootstrap, parse_bootstrap

PAGE = ROOT / "docs" / "reference" / "grpc-bootstrap.md"


@pytest.mark.requirement("BS-5")
def test_the_bootstrap_on_the_page_is_usable() -> None:
    (shown,) = [block.text for block in blocks(PAGE) if block.language == "json"]
    assert isinstance(parse_bootstrap(shown.encode(), FeatureFlags()), Bootstrap)


def test_the_problems_on_the_page_are_said_so() -> None:
    server = {"server_uri": "a:1", "channel_creds": [{}], "call_creds": [{"type": "jwt_token_file"}]}
    other = {"server_uri": "", "channel_creds": [{"type": "insecure"}]}
    authorities = {"east.example": {"xds_servers": [other]}}
    value = {"xds_servers": [server], "authorities": authorities, "node": "a"}
    made = parse_bootstrap(json.dumps(value).encode(), FeatureFlags())
    assert isinstance(made, tuple)
    (shown,) = [block.text for block in blocks(PAGE) if block.language == "text"]
    assert sorted(shown.splitlines()) == sorted(map(str, made))


def test_every_difference_from_grpc_is_on_the_page_and_no_other() -> None:
    table = read(PAGE).split("## What differs")[1].splitlines()
    rows = {row.split(" | ")[0].removeprefix("| "): row.split(" | ")[-1].removesuffix(" |") for row in table}
    known = {name: case.differs for name, case in CASES.items() if case.differs}
    assert {name: why for name, why in rows.items() if name and name in CASES} == known
    assert len([row for row in table if row.startswith("| ")]) == len(known) + 1
