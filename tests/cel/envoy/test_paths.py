"""Envoy takes the same paths for canonical as the policy engine."""

from itertools import product
from typing import Final

import pytest
import re2  # type: ignore[import-untyped]

from authplane.cel.check.regex_patterns import pattern_size
from authplane.cel.envoy.fitness import LARGEST_PATTERN
from authplane.cel.envoy.plain_paths import CANONICAL
from authplane.policy.mcp.header_front import canonical_path

PARTS: Final = ("", "/", ".", "..", "...", "a", "%20", "%C3", "%2F", "%2e", ";", "\\", "~", "#", "?", "é", " ", "\n")


@pytest.mark.slow
def test_every_path_of_a_few_parts_is_judged_as_in_the_engine() -> None:
    paths = {"".join(parts) for parts in product(PARTS, repeat=4)}
    different = [path for path in paths if (re2.fullmatch(CANONICAL, path) is not None) != bool(canonical_path(path))]
    assert different == []


def test_envoy_accepts_the_pattern() -> None:
    assert pattern_size(f"^(?:{CANONICAL})$") <= LARGEST_PATTERN
