"""What a route keeps of the challenge that Envoy shows."""

import pytest

from authplane.controlplane.render.native.denial_replies import challenge_fields
from authplane.policy.mcp.challenge import BadToken, Cause, Challenge, NoToken, render_challenge
from authplane.policy.mcp.resource_metadata import metadata_path

NAMED = {
    "usual names": ("default/shop", ("read",)),
    "the name that stands in for hosts": ("default/authority.invalid", ("read",)),
    "a scope that looks like the document": ("default/shop", ("http://authority.invalid", "https://authority.invalid")),
    "a realm that looks like the document": ('resource_metadata="http://authority.invalid"', ()),
}


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize(("realm", "scopes"), NAMED.values(), ids=NAMED.keys())
def test_what_a_route_keeps_makes_the_challenge_of_every_host(scheme: str, realm: str, scopes: tuple[str, ...]) -> None:
    fields = challenge_fields(scheme, realm, "/authority.invalid", scopes)
    where = f"{scheme}://a.example:8443{metadata_path('/authority.invalid')}"
    challenge = Challenge(realm=realm, resource_metadata=where, scopes=scopes)
    told: dict[str, Cause] = {"challenge": NoToken(), "challenge_after_bad_token": BadToken()}
    for key, cause in told.items():
        assert f"{fields[key]}a.example:8443{fields['challenge_end']}" == render_challenge(challenge, cause)
