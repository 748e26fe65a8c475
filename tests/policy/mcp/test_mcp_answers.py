import json
from typing import Final

import httpx2
import pytest
from mcp.client.auth.utils import extract_field_from_www_auth, extract_resource_metadata_from_www_auth
from mcp.client.auth.utils import extract_scope_from_www_auth as scope_that_a_client_finds
from mcp_types import JSONRPCError, jsonrpc_message_adapter
from tests.support.mcp.posted_messages import argument, message, post

from authplane.policy.check.answer_headers import may_send
from authplane.policy.mcp.challenge import BadToken, Challenge, NoToken, fit_scope, fit_url
from authplane.policy.mcp.mcp_answers import (
    DenialFormat,
    McpAnswer,
    refusal_message,
    render_denial,
    render_insufficient_scope,
    render_refusal,
    render_unauthenticated,
)
from authplane.policy.mcp.mcp_calls import EndSession, McpCall, OpenStream
from authplane.policy.mcp.mcp_refusal import Fault, McpRefusal, refuse
from authplane.policy.mcp.mcp_versions import ASSUMED

JSON: Final = ("content-type", "application/json")
METADATA: Final = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp"
CHALLENGE: Final = Challenge(realm="mcp", resource_metadata=METADATA, scopes=("tools:read", "tools:call"))


def call(body: object) -> McpCall:
    read = post(body)
    assert not isinstance(read, McpRefusal)
    return read


def response(answer: McpAnswer) -> httpx2.Response:
    assert all(may_send(name, value) for name, value in answer.headers)
    return httpx2.Response(answer.http_status, headers=list(answer.headers), content=answer.body.encode())


def test_a_denial_is_403_with_an_error_under_the_id_of_the_request() -> None:
    assert render_denial(call(message(id='a\u00e9"')), DenialFormat.HTTP403) == McpAnswer(
        http_status=403,
        headers=(JSON,),
        body='{"jsonrpc":"2.0","id":"a\\u00e9\\"","error":{"code":-32003,"message":"Access denied."}}',
    )


def test_a_denial_can_have_the_form_of_the_upstream_project() -> None:
    assert render_denial(call(message(id=12)), DenialFormat.JSONRPC200) == McpAnswer(
        http_status=200,
        headers=(JSON,),
        body='{"jsonrpc":"2.0","id":12,"error":{"code":403,"message":"Access to this tool is forbidden."}}',
    )


@pytest.mark.parametrize("denial_format", DenialFormat)
@pytest.mark.parametrize(
    "denied",
    [
        call(message(id=...)),
        call(message("notifications/initialized", id=...)),
        call({"jsonrpc": "2.0", "id": 1, "result": {}}),
        OpenStream(version=ASSUMED),
        EndSession(version=ASSUMED, session="s"),
    ],
)
def test_who_waits_for_no_answer_gets_a_bare_403(denied: McpCall, denial_format: DenialFormat) -> None:
    assert render_denial(denied, denial_format) == McpAnswer(http_status=403)


@pytest.mark.parametrize("id_", [0, -7, 12345678901234567890, "", "x", "\u2028</script>", 'a\n"b\\'])
def test_the_official_sdk_reads_the_error_and_its_id(id_: int | str) -> None:
    answer = render_denial(call(message(id=id_)), DenialFormat.HTTP403, message='say "no"\r\n')
    read = jsonrpc_message_adapter.validate_json(answer.body)
    assert isinstance(read, JSONRPCError)
    assert (read.id, read.error.code, read.error.message) == (id_, -32003, 'say "no"\r\n')
    assert answer.body.isascii()
    assert answer.body.isprintable()


@pytest.mark.requirement("M7")
def test_codes_of_denials_are_outside_of_what_mcp_reserves_and_statuses_tell_the_truth() -> None:
    denied = call(message())
    answers = [
        render_denial(denied, DenialFormat.HTTP403),
        render_insufficient_scope("1", CHALLENGE),
        render_unauthenticated("1", CHALLENGE, NoToken()),
        render_unauthenticated("1", CHALLENGE, BadToken()),
    ]
    codes = [json.loads(answer.body)["error"]["code"] for answer in answers]
    assert [answer.http_status for answer in answers] == [403, 403, 401, 401]
    assert all(-32019 <= code <= -32000 and code not in {-32000, -32001, -32002} for code in codes)


@pytest.mark.requirement("A2")
def test_a_request_without_a_good_token_is_401_with_a_challenge() -> None:
    missing, bad = (render_unauthenticated("1", CHALLENGE, cause) for cause in (NoToken(), BadToken()))
    tail = f'scope="tools:read tools:call", resource_metadata="{METADATA}"'
    assert missing == McpAnswer(
        http_status=401,
        headers=(("www-authenticate", f'Bearer realm="mcp", {tail}'), JSON),
        body='{"jsonrpc":"2.0","id":1,"error":{"code":-32004,'
        '"message":"Authentication required. Send a bearer token."}}',
    )
    assert bad.headers[0] == ("www-authenticate", f'Bearer realm="mcp", error="invalid_token", {tail}')
    assert bad.body == missing.body
    said = render_unauthenticated("1", CHALLENGE, BadToken('It is "b\\\u00e9".'))
    described = """error="invalid_token", error_description="It is 'b??'.\""""
    assert said.headers[0] == ("www-authenticate", f'Bearer realm="mcp", {described}, {tail}')
    assert json.loads(said.body)["error"]["message"] == 'It is "b\\\u00e9".'
    assert render_unauthenticated(None, Challenge(realm="mcp"), NoToken()) == McpAnswer(
        http_status=401, headers=(("www-authenticate", 'Bearer realm="mcp"'),)
    )
    for answer in (missing, bad):
        assert extract_resource_metadata_from_www_auth(response(answer)) == METADATA
        assert scope_that_a_client_finds(response(answer)) == "tools:read tools:call"


@pytest.mark.requirement("A3")
def test_a_token_of_too_little_scope_is_403_that_names_all_scopes() -> None:
    answer = render_insufficient_scope("1", CHALLENGE)
    assert (answer.http_status, extract_field_from_www_auth(response(answer), "error")) == (403, "insufficient_scope")
    assert scope_that_a_client_finds(response(answer)) == "tools:read tools:call"
    assert extract_resource_metadata_from_www_auth(response(answer)) == METADATA
    assert render_insufficient_scope(None, CHALLENGE).body == ""


def test_more_scopes_than_a_header_carries_are_not_named() -> None:
    many = Challenge(realm="mcp", resource_metadata=METADATA, scopes=tuple(f"{n:0100}" for n in range(64)))
    answer = render_insufficient_scope("1", many)
    assert answer.headers[0][1] == f'Bearer realm="mcp", error="insufficient_scope", resource_metadata="{METADATA}"'
    assert response(answer).status_code == 403


def test_a_scope_is_named_once() -> None:
    answer = render_insufficient_scope(None, Challenge(realm="mcp", scopes=("b", "a", "b")))
    assert answer.headers == (("www-authenticate", 'Bearer realm="mcp", error="insufficient_scope", scope="b a"'),)


@pytest.mark.parametrize("realm", ["", "a\r\nx: y", "caf\u00e9", "a" * 129, " a"])
def test_a_realm_that_no_header_can_carry_cannot_be_said(realm: str) -> None:
    with pytest.raises(ValueError, match="realm"):
        Challenge(realm=realm)


def test_quotes_in_a_realm_are_escaped() -> None:
    answer = render_unauthenticated(None, Challenge(realm='a", error="x\\'), NoToken())
    assert answer.headers == (("www-authenticate", 'Bearer realm="a\\", error=\\"x\\\\"'),)


@pytest.mark.parametrize("scope", ["", "a b", 'a"', "a\\", "a\r\nb", "caf\u00e9", "a\0"])
def test_a_scope_that_is_none_cannot_be_said(scope: str) -> None:
    assert not fit_scope(scope)
    with pytest.raises(ValueError, match="scope"):
        Challenge(realm="mcp", scopes=(scope,))


@pytest.mark.parametrize(
    "url",
    ["x", "ftp://a", 'https://a"b', "https://a\\b", "https://a b", "https://a\r\nb", "https://a#b", "https://\u00e9"],
)
def test_an_address_that_is_none_cannot_be_said(url: str) -> None:
    assert not fit_url(url)
    with pytest.raises(ValueError, match="URL"):
        Challenge(realm="mcp", resource_metadata=url)


@pytest.mark.requirement("A8")
def test_a_malformed_request_gets_400() -> None:
    refused = [post("{"), post([message()]), post(message(jsonrpc="1.0")), post(argument("1")[:-1])]
    answers = [render_refusal(each) for each in refused if isinstance(each, McpRefusal)]
    assert [answer.http_status for answer in answers] == [400] * 4
    assert answers[0] == McpAnswer(
        http_status=400,
        headers=(JSON,),
        body=f'{{"jsonrpc":"2.0","id":null,"error":{{"code":-32700,"message":"{refusal_message(Fault.NOT_JSON)}"}}}}',
    )


def test_a_refusal_says_what_is_wrong_and_what_to_do() -> None:
    for fault in Fault:
        said, remedy = refusal_message(fault).split(". ", 1)
        assert said == f"Invalid request ({fault.value.replace('_', ' ')})"
        assert (remedy[0].upper(), remedy[-1]) == (remedy[0], ".")


def test_a_refusal_names_the_versions_that_a_client_could_speak() -> None:
    refused = post(message(id=5), ("mcp-protocol-version", "2030-01-01"))
    assert isinstance(refused, McpRefusal)
    read = jsonrpc_message_adapter.validate_json(render_refusal(refused).body)
    assert isinstance(read, JSONRPCError)
    assert (read.id, read.error.code) == (5, -32022)
    assert isinstance(read.error.data, dict)
    assert read.error.data["requested"] == "2030-01-01"


def test_a_refused_http_method_names_those_that_are_not() -> None:
    assert render_refusal(refuse(Fault.HTTP_METHOD)).headers == (("allow", "POST, GET, DELETE"), JSON)
    assert render_refusal(refuse(Fault.SESSIONLESS)).headers == (("allow", "POST"), JSON)


@pytest.mark.parametrize("fault", Fault)
def test_every_refusal_is_a_client_error_that_can_be_sent(fault: Fault) -> None:
    answer = render_refusal(refuse(fault, "1"))
    assert 400 <= response(answer).status_code < 500
