"""The names that stand in documents, statuses, logs and metrics, each written out: other programs read them."""

from enum import StrEnum
from typing import Final

import pytest

from authplane.authserver.records.decision_record import Conclusion
from authplane.cel.check.expression_lint import Doubt
from authplane.cel.check.expression_outcome import Code
from authplane.cel.syntax.expression_problem import Reason as CelReason
from authplane.dataplane.filters.extauthz.check_messages.wire import CACHE_NAMESPACE
from authplane.policy.decide.denials import RESOURCE
from authplane.policy.decide.match_rules import Miss
from authplane.policy.external_authorization.check_hops import HOPS, HOPS_HEADER
from authplane.policy.identity.tokens.token_outcome import Reason
from authplane.policy.identity.workload_identity.peer_outcome import Why
from authplane.policy.mcp.base_methods import BaseMode
from authplane.policy.mcp.expression_context import Unfit
from authplane.policy.mcp.mcp_answers import DenialFormat
from authplane.policy.mcp.mcp_refusal import Fault
from authplane.policy.mcp.mcp_versions import ProtocolVersion
from authplane.policy.placement.placement_model import Decider
from authplane.policy.rules.access_settings import Composition, Placement
from authplane.policy.verdicts.verdict import Would

NAMES: Final[dict[type[StrEnum], str]] = {
    Doubt: (
        "Constant NegationOnly UnguardedField AbsorbedError UpperCaseHeader NeverInt IntArithmetic "
        "ImpreciseInt UnanchoredPattern AllOfNothing"
    ),
    Code: (
        "no_such_key no_such_overload index_out_of_range arithmetic conversion regex too_costly not_bool "
        "nul_in_input not_unicode string_too_long input_too_large number_out_of_range wrong_type tripped "
        "evaluation_failed"
    ),
    CelReason: "Syntax Undeclared NotAllowed Type NotBool TooLarge TooCostly Regex Shadowing",
    Miss: (
        "no_peer_identity no_token peer_not_listed bad_token bad_workload_token other_issuer "
        "other_audience scope_missing issuer_not_ready token_not_reviewed too_many_failures"
    ),
    Composition: "All Any",
    Placement: "Auto CallOut",
    Would: "allow deny unknown",
    DenialFormat: "http403 jsonrpc200",
    BaseMode: "AnySource MatchedSource Explicit",
    Unfit: "nul_in_input integer_too_large",
    Fault: (
        "path_not_canonical http_method_unsupported no_sessions_in_this_version method_override upgrade "
        "header_repeated header_misspelt content_type encoded_body body_missing body_unexpected "
        "body_truncated body_too_large accept_without_event_stream session_id not_json "
        "duplicate_member batch_unsupported not_a_message member_lookalike jsonrpc_version id method "
        "method_with_result response_unexpected params subject arguments protocol_version_unknown "
        "envelope header_mismatch"
    ),
    ProtocolVersion: "2024-11-05 2025-03-26 2025-06-18 2025-11-25 2026-07-28",
    Why: (
        "no_peer_certificate certificate_too_large certificate_malformed "
        "certificate_without_exactly_one_uri not_a_spiffe_id spiffe_id_without_path "
        "certificate_of_an_authority certificate_self_signed certificate_not_for_clients "
        "certificate_not_yet_valid certificate_expired trust_domain_not_allowed principal_differs "
        "issuer_not_of_this_kind audience_missing subject_malformed claims_malformed legacy_token "
        "token_not_acceptable token_review_denied token_review_without_audience token_not_reviewed "
        "workloads_differ"
    ),
    Decider: ("Nobody, Envoy, Envoy and policy server, Policy server, gRPC server, gRPC server and policy server"),
    Conclusion: "allow deny unavailable failed",
    Reason: (
        "token_too_large token_malformed alg_not_allowed typ_not_allowed crit_not_supported "
        "issuer_unknown issuer_not_ready key_unknown key_ambiguous signature_wrong claims_malformed "
        "token_expired token_not_yet_valid token_too_old too_many_failures"
    ),
}


@pytest.mark.parametrize(("names", "written"), NAMES.items(), ids=lambda each: getattr(each, "__name__", ""))
def test_names_stay_as_they_are(names: type[StrEnum], written: str) -> None:
    assert [each.value for each in names] == written.split(", " if ", " in written else None)


def test_keys_that_services_and_routes_use_stay_as_they_are() -> None:
    assert (CACHE_NAMESPACE, HOPS, HOPS_HEADER, RESOURCE) == (
        "authplane.decision_cache",
        "authplane.hops",
        "x-authplane-hops",
        "authplane.resource",
    )
