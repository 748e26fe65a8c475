"""The filter that verifies tokens, for an issuer whose keys are not there."""

import json

from envoy.extensions.filters.http.jwt_authn.v3 import config_pb2

from authplane.controlplane.render.native.native_enforcement import Provider
from authplane.controlplane.render.native.token_filter import render_tokens
from authplane.policy.identity.tokens.algorithms import ALGORITHMS

KNOWN, UNKNOWN = Provider("https://a.example", 60), Provider("https://b.example", 60)


def test_an_issuer_without_keys_is_there_with_one_that_no_token_can_have() -> None:
    made = config_pb2.JwtAuthentication()
    keys = {KNOWN.url: '{"keys":[]}'}
    assert render_tokens({"target": (KNOWN, UNKNOWN)}, keys).typed_config.Unpack(made)
    assert made.providers[KNOWN.url].local_jwks.inline_string == keys[KNOWN.url]
    [key] = json.loads(made.providers[UNKNOWN.url].local_jwks.inline_string)["keys"]
    assert (key["kty"], key["alg"] in ALGORITHMS) == ("RSA", False)
    names = [each.provider_name for each in made.requirement_map["target"].requires_any.requirements]
    assert names == [KNOWN.url, UNKNOWN.url, ""]
