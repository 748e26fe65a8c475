import json
from typing import Final

import pytest
from mcp.client.auth.utils import build_protected_resource_metadata_discovery_urls
from mcp.shared.auth import ProtectedResourceMetadata

from authplane.policy.mcp.resource_metadata import (
    metadata_path,
    metadata_url,
    render_metadata,
    resource_url,
)

RESOURCE: Final = "https://mcp.example.com/mcp"
ISSUER: Final = "https://issuer.example.com/realms/a"


@pytest.mark.requirement("A1")
def test_the_document_names_the_issuers_and_is_where_clients_look_for_it() -> None:
    text = render_metadata(RESOURCE, [ISSUER, "https://other.example.com", ISSUER], ["a", "b"])
    assert json.loads(text) == {
        "resource": RESOURCE,
        "authorization_servers": [ISSUER, "https://other.example.com"],
        "bearer_methods_supported": ["header"],
        "scopes_supported": ["a", "b"],
    }
    read = ProtectedResourceMetadata.model_validate_json(text)
    assert (str(read.authorization_servers[0]), str(read.resource)) == (ISSUER, RESOURCE)
    places = build_protected_resource_metadata_discovery_urls(None, RESOURCE)
    assert metadata_url("https", "mcp.example.com", "/mcp") == places[0]
    assert metadata_url("https", "mcp.example.com", "/") == places[1]


def test_the_document_says_only_what_there_is() -> None:
    assert json.loads(render_metadata(RESOURCE, [ISSUER])) == {
        "resource": RESOURCE,
        "authorization_servers": [ISSUER],
        "bearer_methods_supported": ["header"],
    }


@pytest.mark.parametrize(
    ("resource", "issuers", "scopes"),
    [(RESOURCE, [], []), ("mcp", [ISSUER], []), (RESOURCE, ["issuer"], []), (RESOURCE, [ISSUER], ["a b"])],
)
def test_what_no_document_may_say_is_not_written(resource: str, issuers: list[str], scopes: list[str]) -> None:
    with pytest.raises(ValueError, match="protected resource"):
        render_metadata(resource, issuers, scopes)


URLS: Final = {
    ("https", "Mcp.Example.com", "/mcp"): "https://mcp.example.com/mcp",
    ("HTTPS", "mcp.example.com:8443", "/"): "https://mcp.example.com:8443",
    ("http", "[::1]:80", "/mcp"): "http://[::1]:80/mcp",
    ("https", 'a"b', "/mcp"): None,
    ("https", "a\r\nb", "/mcp"): None,
    ("https", "user@a", "/mcp"): None,
    ("https", "a/b", "/mcp"): None,
    ("https", "", "/mcp"): None,
    ("https", "a:b", "/mcp"): None,
    ("ftp", "a", "/mcp"): None,
    ("", "a", "/mcp"): None,
    ("https", "a", "/../mcp"): None,
    ("https", "a", '/"'): None,
}


@pytest.mark.parametrize(("parts", "want"), URLS.items())
def test_an_address_is_made_of_what_a_client_sent_only_if_it_can_be_one(
    parts: tuple[str, str, str], want: str | None
) -> None:
    assert resource_url(*parts) == want
    assert (metadata_url(*parts) is None) is (want is None)


@pytest.mark.parametrize("path", ["", "/"])
def test_the_document_of_a_server_at_the_root_has_no_slash_at_its_end(path: str) -> None:
    assert metadata_path(path) == "/.well-known/oauth-protected-resource"
