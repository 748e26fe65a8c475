"""The messages of the authorization filter."""

from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest
from envoy.extensions.filters.http.ext_authz.v3 import ext_authz_pb2 as pb
from google.protobuf.any_pb2 import Any
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from authplane.controlplane.graph.model.route_authorization import (
    AuthorizationService,
    CheckedBody,
    FailClosed,
    FailOpen,
    HeaderNames,
    NameTest,
    OverGrpc,
    OverHttp,
    Shadow,
)
from authplane.controlplane.render.ext_authz_filter import (
    manner_of,
    render_check,
    render_disabled,
    render_filter,
    set_shadow_mode,
)
from authplane.controlplane.render.newer_fields import newer_messages
from authplane.core.timeouts import After, Disabled, UseDefault

GRPC: Final = AuthorizationService(
    cluster="extension/auth/testserver",
    protocol=OverGrpc(authority="extension.auth.testserver"),
    timeout=UseDefault(),
    on_failure=FailClosed(),
)
COMMON: Final = {
    "transportApiVersion": "V3",
    "statusOnError": {"code": "Forbidden"},
    "includePeerCertificate": True,
    "validateMutations": True,
    "decoderHeaderMutationRules": {
        "disallowExpression": {"regex": "^(:path|content-length|transfer-encoding|connection|te|upgrade)$"},
        "disallowIsError": True,
    },
}


def shown(message: Message) -> dict[str, object]:
    """Return a message as people see it: packed, with the fields that only newer Envoys know."""
    packed = Any()
    packed.Pack(message)
    found = dict(MessageToDict(packed, descriptor_pool=newer_messages()))
    del found["@type"]
    return found


def rendered(service: AuthorizationService, *, clear_route_cache: bool = False) -> dict[str, object]:
    return shown(render_filter(manner_of(service), service, clear_route_cache=clear_route_cache))


@pytest.mark.requirement("EN-3")
@pytest.mark.requirement("EN-4")
@pytest.mark.requirement("AZ-19")
def test_a_service_asked_over_grpc() -> None:
    assert rendered(GRPC, clear_route_cache=True) == COMMON | {
        "clearRouteCache": True,
        "grpcService": {
            "envoyGrpc": {"clusterName": "extension/auth/testserver", "authority": "extension.auth.testserver"}
        },
    }


@pytest.mark.requirement("EN-5")
def test_a_service_asked_over_http() -> None:
    service = AuthorizationService(
        cluster="extension/auth/web",
        protocol=OverHttp(
            path_prefix="/verify",
            request_headers=(HeaderNames(test=NameTest.EXACT, text="a"), HeaderNames(test=NameTest.PREFIX, text="b")),
            upstream_headers=(
                HeaderNames(test=NameTest.SUFFIX, text="c", ignore_case=True),
                HeaderNames(test=NameTest.CONTAINS, text="d"),
            ),
        ),
        timeout=UseDefault(),
        on_failure=FailOpen(),
        body=CheckedBody(most_bytes=5, partial=True, as_bytes=True),
    )
    assert rendered(service) == COMMON | {
        "failureModeAllow": True,
        "allowedHeaders": {"patterns": [{"exact": "a"}, {"prefix": "b"}]},
        "withRequestBody": {"maxRequestBytes": 5, "allowPartialMessage": True, "packAsBytes": True},
        "httpService": {
            # A timeout has to be written here: none would be for ever.
            "serverUri": {"uri": "http://dummy/", "cluster": "extension/auth/web", "timeout": "0.200s"},
            "pathPrefix": "/verify",
            "authorizationResponse": {
                "allowedUpstreamHeaders": {"patterns": [{"suffix": "c", "ignoreCase": True}, {"contains": "d"}]}
            },
        },
    }


TIMEOUTS: Final = {UseDefault(): None, Disabled(): "0s", After(timedelta(milliseconds=1500)): "1.500s"}


@pytest.mark.requirement("AZ-17")
@pytest.mark.parametrize(("timeout", "want"), TIMEOUTS.items(), ids=str)
def test_a_check_waits_as_long_as_is_set(timeout: UseDefault | Disabled | After, want: str | None) -> None:
    service = AuthorizationService(
        cluster="c", protocol=OverGrpc(authority="a"), timeout=timeout, on_failure=FailClosed()
    )
    asked = {"envoyGrpc": {"clusterName": "c", "authority": "a"}} | ({"timeout": want} if want else {})
    assert rendered(service) == COMMON | {"grpcService": asked}


def test_a_filter_without_a_service_calls_none() -> None:
    found = shown(render_filter(manner_of(GRPC), None, clear_route_cache=False))
    assert found == COMMON | {"grpcService": {"envoyGrpc": {"clusterName": "authplane/nobody"}}}


@pytest.mark.requirement("EN-8")
def test_a_route_adds_its_context_and_where_the_filter_does_not_know_it_the_service() -> None:
    context = {"contextExtensions": {"a": "1", "b": "2"}}
    assert shown(render_check(None, (("a", "1"), ("b", "2")))) == {"checkSettings": context}
    grpc = {"grpcService": {"envoyGrpc": {"clusterName": "extension/auth/testserver",
                                          "authority": "extension.auth.testserver"}}}  # fmt: skip
    assert shown(render_check(GRPC, (("a", "1"), ("b", "2")))) == {"checkSettings": context | grpc}


def test_shadow_mode_is_a_field_that_newer_envoys_read() -> None:
    message = pb.ExtAuthz(stat_prefix="x", clear_route_cache=True)
    set_shadow_mode(message)
    # Field 32 with wire type 0: two bytes of tag, one of value.
    assert message.SerializeToString(deterministic=True) == (
        pb.ExtAuthz(stat_prefix="x", clear_route_cache=True).SerializeToString() + b"\x80\x02\x01"
    )
    assert shown(message) == {"statPrefix": "x", "clearRouteCache": True, "shadowMode": True}


def test_a_host_that_is_only_tried_out_asks_in_shadow_mode() -> None:
    service = AuthorizationService(cluster="c", protocol=GRPC.protocol, timeout=GRPC.timeout, on_failure=Shadow())
    found = rendered(service)
    assert (found["shadowMode"], found.get("failureModeAllow", False)) == (True, False)


STATUSES: Final = {FailClosed(): "Forbidden", FailClosed(status=503): "ServiceUnavailable", FailOpen(): "Forbidden",
                   Shadow(): "Forbidden"}  # fmt: skip


@pytest.mark.parametrize(("on_failure", "status"), STATUSES.items(), ids=str)
def test_without_an_answer_a_request_gets_a_status_and_passes_only_if_the_author_said_so(
    on_failure: FailClosed | FailOpen | Shadow, status: str
) -> None:
    found = rendered(replace(GRPC, on_failure=on_failure))
    assert found["statusOnError"] == {"code": status}
    assert found.get("failureModeAllow", False) == isinstance(on_failure, FailOpen)
    assert found.get("shadowMode", False) == isinstance(on_failure, Shadow)


def test_an_http_filter_without_a_service_calls_none() -> None:
    names = (HeaderNames(test=NameTest.EXACT, text="a"),)
    service = replace(GRPC, protocol=OverHttp(path_prefix="/verify", request_headers=names, upstream_headers=names))
    found = shown(render_filter(manner_of(service), None, clear_route_cache=False))
    assert found == COMMON | {
        "allowedHeaders": {"patterns": [{"exact": "a"}]},
        "httpService": {"serverUri": {"uri": "http://dummy/", "cluster": "authplane/nobody", "timeout": "0.200s"}},
    }


def test_a_route_can_switch_the_filter_off() -> None:
    assert shown(render_disabled()) == {"disabled": True}
