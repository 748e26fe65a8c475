"""Of resources with fields changed at random grpcio's own client and ours refuse the same, with known exceptions."""

import asyncio
from dataclasses import replace
from random import Random
from typing import Final

import pytest
from tests.dataplane.config.generated import changed
from tests.dataplane.config.test_oracle import DECODERS, TABLES, Script
from tests.support.grpc.native_client import native_verdicts

from authplane.core.problems import Problem
from authplane.dataplane.filters.standard_filters import standard_registry
from authplane.xds.client.watched_types import Invalid

AMOUNT: Final = 250
KNOWN: Final = frozenset(
    {
        ("headers", "NameMissing"),
        ("headers", "MatcherMissing"),  # in the filter for faults, where grpcio does not read them
        ("prefix_match", "MatcherEmpty"),
        ("suffix_match", "MatcherEmpty"),
        ("contains_match", "MatcherEmpty"),
        ("name", "NameMissing"),
        ("treat_missing_header_as_empty", "MatcherUnsupported"),
        ("default_value", "ValueMissing"),
        ("dynamic_metadata", "MatchUnsupported"),
        ("filter_state", "MatchUnsupported"),
        ("tls_context", "MatchUnsupported"),
        ("direct_source_prefix_ranges", "MatchUnsupported"),
        ("address_suffix", "MatchUnsupported"),
        ("suffix_len", "MatchUnsupported"),
        ("filter_chain_matcher", "Unsupported"),
        ("listener_filters", "Unsupported"),
        ("match_typed_subject_alt_names", "Unsupported"),
        ("custom_tls_certificate_selector", "Unsupported"),
        ("max_verify_depth", "Unsupported"),
        ("trust_chain_verification", "Unsupported"),
        ("auto_sni_san_validation", "Unsupported"),
        ("route_config_name", "NameMissing"),
        ("regex", "RegexInvalid"),
        ("delay", "DelayMissing"),
        ("abort", "AbortMissing"),
        ("protocol", "ProtocolUnsupported"),
        ("port_value", "PortInvalid"),  # of a name of DNS
        ("matcher", "MatcherUnsupported"),
        ("type_url", "Missing"),  # of what overrides a filter on a route that is skipped
        ("domains", "DomainInvalid"),
    }
)
"""Fields and reasons by which we refuse what grpcio takes; docs/reference/grpc-differences.md says why."""


@pytest.mark.real
@pytest.mark.parametrize("kind", TABLES)
def test_we_refuse_what_grpcio_refuses_and_little_else(kind: str) -> None:
    random = Random(f"{kind} 1")  # noqa: S311 (the same resources every time)
    bases = [case.resource for case in TABLES[kind].values() if case.taken and case.ours is None]
    script = Script()
    for number in range(AMOUNT):
        script.add(kind, str(number), changed(random.choice(bases), random))
    wanted = set(script.keys.values())
    verdicts = asyncio.run(
        native_verdicts(script.resources, wanted, targets=script.targets, addresses=script.addresses)
    )
    decode, scope = DECODERS[kind]
    wrong: list[str] = []
    refused = 0
    for key in script.keys.values():
        got = decode(script.resources[key], replace(scope, registry=standard_registry()))
        refused += isinstance(got, Invalid)
        if verdicts[key] and not isinstance(got, Invalid):
            wrong.append(f"only grpcio: {verdicts[key]}")
        elif not verdicts[key] and isinstance(got, Invalid):
            wrong += [f"only we: {each}" for each in got.problems if not _is_known(each)]
    assert wrong == []
    assert AMOUNT * 0.1 < refused < AMOUNT * 0.9


def _is_known(problem: Problem) -> bool:
    names = [step for step in problem.path if isinstance(step, str)]
    # grpcio does not read the metadata of routes.
    return (names[-1], problem.reason) in KNOWN or ("routes" in names and "metadata" in names)
