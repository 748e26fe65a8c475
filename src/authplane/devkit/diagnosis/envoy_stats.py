"""Envoy's counts of native decisions.

The RBAC filter counts the requests that each rule grants, by the rule's name. It has one number for all requests that
no rule grants. Rules whose names are not those of entries call out to the policy server, which has its own counts.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

from authplane.devkit.diagnosis.tallies import By, Effect, Tally

_COUNTERS: Final = r"^http\.gateway\.(rbac|ext_authz)\."
STATS: Final = f"/stats?format=json&usedonly&type=Counters&filter={quote(_COUNTERS)}"
"""The page of Envoy's admin interface that `parse_envoy_stats` reads."""

_ENTRY: Final = re.compile(
    r"http\.gateway\.rbac\.(?P<shadow>shadow\.)?policy\."
    r"(?P<policy>[^/~]+/[^/]+)/(?P<rule>[^/]*)/(?P<entry>[^/#]+)(?:#\d+)?\.(?P<outcome>allowed|shadow_allowed)"
)
_WOULD_DENY: Final = re.compile(r"http\.gateway\.rbac\.shadow\.policy\.~none/(?P<policy>[^/]+/[^/]+)\.shadow_allowed")
_DENIED: Final = "http.gateway.rbac.denied"
_UNANSWERED: Final = "http.gateway.ext_authz.error"


class StatsInvalidError(Exception):
    """The page is not one of Envoy's; the message is the rest of a sentence that begins with the address."""


def parse_envoy_stats(page: bytes) -> tuple[Tally, ...]:
    """Return Envoy's decisions for the targets of Gateways; raises `StatsInvalidError`."""
    return tuple(tally for name, count in _counters(page) if (tally := _tally(name, count)) is not None)


def _counters(page: bytes) -> Iterator[tuple[str, int]]:
    try:
        stats: Any = json.loads(page)["stats"]
        for each in stats:
            if "name" in each:
                yield str(each["name"]), int(each["value"])
    except (ValueError, OverflowError, KeyError, TypeError, RecursionError) as error:
        raise StatsInvalidError("did not answer with the statistics of Envoy") from error


def _tally(name: str, count: int) -> Tally | None:
    if name == _DENIED:
        return Tally(by=By.ENVOY, denied=count)
    if name == _UNANSWERED:
        return Tally(by=By.ENVOY, undecided=count)
    if would := _WOULD_DENY.fullmatch(name):
        return Tally(by=By.ENVOY, policy=would["policy"], effect=Effect.SHADOW, denied=count)
    found = _ENTRY.fullmatch(name)
    if found is None:
        return None
    effect = Effect.DECIDED if found["outcome"] == "allowed" else Effect.ONE_OF_SEVERAL
    return Tally(
        by=By.ENVOY,
        policy=found["policy"],
        rule=found["rule"],
        entry=found["entry"],
        effect=Effect.SHADOW if found["shadow"] else effect,
        allowed=count,
    )
