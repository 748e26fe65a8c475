"""How Envoy calls an authorization service: an ``authorization`` block and its ExtensionService, as one value."""

import re
from typing import Final

from authplane.controlplane.graph.httpproxy.extension_refs import field_words, service_words
from authplane.controlplane.graph.model.route_authorization import (
    AuthorizationService,
    CheckedBody,
    FailClosed,
    FailOpen,
    HeaderNames,
    NameTest,
    OverGrpc,
    OverHttp,
    Protocol,
)
from authplane.controlplane.graph.model.upstreams import Extension, HttpVersion
from authplane.core.problems import Problems
from authplane.core.timeouts import Timeout, UseDefault, parse_schema_timeout
from authplane.resources.kinds.contour_policies import AllowedHeader, Authorization, AuthPolicy, RequestBody

_PATH: Final = re.compile(r"/[!$&-;=@-Z_a-z~%]*")
"""What a path may start with: no query, no fragment, nothing that two servers read differently."""


def build_service(
    written: Authorization, extension: Extension, where: str, problems: Problems
) -> AuthorizationService | None:
    """Return how Envoy calls the service; None after an error. ``where`` names the block in messages."""
    protocol = _protocol(written, extension, where, problems)
    timeout = _timeout(written, extension, where, problems)
    if protocol is None or timeout is None:
        return None
    return AuthorizationService(
        cluster=extension.cluster,
        protocol=protocol,
        timeout=timeout,
        on_failure=FailOpen() if written.fail_open else FailClosed(),
        body=_body(written.with_request_body),
    )


def require_no_context(policy: AuthPolicy | None, where: str, problems: Problems) -> bool:
    """Report context that would not reach a service over HTTP; return whether there is none."""
    if policy is None or not policy.context:
        return True
    with problems.at("authPolicy", "context"):
        problems.add(
            "AuthContextForHTTP", f"{field_words(where, 'AuthPolicy', 'Context')} are only applied to grpc service type"
        )
    return False


def _protocol(written: Authorization, extension: Extension, where: str, problems: Problems) -> Protocol | None:
    if written.service_type == "http":
        return _over_http(written, where, problems)
    settled = True
    if written.http_settings is not None:
        settled = False
        with problems.at("httpSettings"):
            problems.add("AuthBadHTTPSettings", "httpSettings can only be set when serviceType is 'http'")
    if extension.version is not HttpVersion.HTTP2:
        settled = False
        with problems.at("serviceType"):
            problems.add(
                "AuthProtocolMismatch",
                f'{service_words(where, extension.object_name)} uses "{extension.version.value}", '
                "but Envoy sends gRPC checks only over h2 or h2c. Change its protocol, or set serviceType to http.",
            )
    return OverGrpc(authority=extension.authority) if settled else None


def _over_http(written: Authorization, where: str, problems: Problems) -> OverHttp | None:
    settled = require_no_context(written.auth_policy, where, problems)
    settings = written.http_settings
    if settings is None:
        return OverHttp() if settled else None
    with problems.at("httpSettings"):
        if settings.path_prefix and not _PATH.fullmatch(settings.path_prefix):
            settled = False
            with problems.at("pathPrefix"):
                problems.add(
                    "AuthBadHTTPSettings",
                    f"{field_words(where, 'HTTPServerSettings', 'PathPrefix')} is not a path."
                    " Use one such as '/verify'.",
                )
        asked = _header_names(settings.allowed_authorization_headers, "AllowedAuthorizationHeaders", where, problems)
        answered = _header_names(settings.allowed_upstream_headers, "AllowedUpstreamHeaders", where, problems)
    if not settled or asked is None or answered is None:
        return None
    return OverHttp(path_prefix=settings.path_prefix, request_headers=asked, upstream_headers=answered)


def _header_names(
    written: tuple[AllowedHeader, ...], field: str, where: str, problems: Problems
) -> tuple[HeaderNames, ...] | None:
    names = []
    wrong = False
    for index, each in enumerate(written):
        given = [test for test in NameTest if getattr(each, test.value)]
        if len(given) == 1:
            # Envoy has headers in lower case only: any other rule would never match.
            text = str(getattr(each, given[0].value)).lower()
            names.append(HeaderNames(test=given[0], text=text, ignore_case=each.ignore_case))
            continue
        wrong = True
        what = (
            "only one of prefix, suffix, exact, and contains should be set in the allowedHeader"
            if given
            else "one of prefix, suffix, exact or contains is required for each allowedHeader"
        )
        with problems.at(field[0].lower() + field[1:], index):
            problems.add(
                "AuthBadAllowedHeader", f"{field_words(where, 'HTTPServerSettings', field)} is invalid: {what}"
            )
    return None if wrong else tuple(names)


def _timeout(written: Authorization, extension: Extension, where: str, problems: Problems) -> Timeout | None:
    text = written.response_timeout
    timeout = parse_schema_timeout(text)
    if timeout is None:
        with problems.at("responseTimeout"):
            problems.add(
                "AuthResponseTimeoutInvalid",
                f'{field_words(where, "ResponseTimeout")} is invalid: unable to parse timeout string "{text}": '
                f'time: invalid duration "{text}"',
            )
        return None
    return extension.response_timeout if isinstance(timeout, UseDefault) else timeout


def _body(written: RequestBody | None) -> CheckedBody | None:
    if written is None:
        return None
    return CheckedBody(
        most_bytes=written.max_request_bytes,
        partial=written.allow_partial_message,
        as_bytes=written.pack_as_bytes,
    )
