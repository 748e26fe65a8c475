"""The registry of filters, and what filters keep."""

import pytest
from tests.support.dataplane.plain_filters import CUSTOM, FAULT, RBAC, ROUTER, parse_override

from authplane.dataplane.filters.calls import Side
from authplane.dataplane.filters.registry import FilterType, Kept, Registry, Trust, message_name
from authplane.xds.bootstrap.credentials import Insecure, ServiceCredentials, TlsFiles
from authplane.xds.bootstrap.xds_bootstrap import Bootstrap, Feature, XdsServer


@pytest.mark.requirement("HF-1")
def test_filters_are_found_by_their_messages_and_overrides_by_theirs() -> None:
    registry = Registry.of(ROUTER, FAULT, RBAC)
    assert registry.configs == {
        "envoy.extensions.filters.http.router.v3.Router": ROUTER,
        "envoy.extensions.filters.http.fault.v3.HTTPFault": FAULT,
        "envoy.extensions.filters.http.rbac.v3.RBAC": RBAC,
    }
    assert registry.overrides == {
        "envoy.extensions.filters.http.fault.v3.HTTPFault": FAULT,
        "envoy.extensions.filters.http.rbac.v3.RBACPerRoute": RBAC,
    }


@pytest.mark.requirement("HF-1")
def test_a_program_adds_filters_of_its_own() -> None:
    assert Registry.of(ROUTER).adding(CUSTOM) == Registry.of(ROUTER, CUSTOM)
    with pytest.raises(ValueError, match=r"Two filter types have the message test\.Custom"):
        Registry.of(CUSTOM).adding(CUSTOM)


@pytest.mark.requirement("HF-2")
def test_a_filter_that_can_be_overridden_says_how_and_by_what() -> None:
    with pytest.raises(ValueError, match="Set both or neither"):
        FilterType(
            type_urls=("a/b",), sides=frozenset({Side.SERVER}), parse=CUSTOM.parse, parse_override=parse_override
        )


def test_a_message_is_named_by_the_last_part_of_its_url() -> None:
    assert [message_name(url) for url in ("a/b/c.D", "c.D")] == ["c.D", "c.D"]


@pytest.mark.requirement("HF-24")
def test_what_a_generation_asks_for_is_kept_and_the_rest_is_forgotten() -> None:
    made: list[str] = []

    def make(name: str) -> list[str]:
        made.append(name)
        return [name]

    first = Kept()
    one, two = first.of("one", lambda: make("one")), first.of("two", lambda: make("two"))
    assert first.of("one", lambda: make("again")) is one
    second = first.next_generation()
    assert second.of("one", lambda: make("again")) is one
    third = second.next_generation()
    assert third.of("one", lambda: make("again")) is one
    assert third.of("two", lambda: make("two")) is not two
    assert made == ["one", "two", "two"]


@pytest.mark.requirement("HF-24")
def test_thread_safety_is_not_needed_as_generations_share_nothing_they_change() -> None:
    first = Kept()
    first.of("one", list)
    second = first.next_generation()
    second.of("two", lambda: ["second"])
    assert first.of("two", lambda: ["first"]) == ["first"]


@pytest.mark.requirement("GS-3")
@pytest.mark.parametrize("trusted", [False, True])
def test_a_server_is_trusted_if_the_bootstrap_says_so(*, trusted: bool) -> None:
    features = frozenset({Feature.TRUSTED_XDS_SERVER}) if trusted else frozenset()
    server = XdsServer(uri="a", channel_creds=Insecure(), features=features)
    services = {"dns:///a": ServiceCredentials(channel=Insecure())}
    bootstrap = Bootstrap(servers=(server,), allowed_grpc_services=services, certificate_providers={"own": TlsFiles()})
    assert Trust.in_server(server, bootstrap) == Trust(
        trusted=trusted, allowed_services=services, certificate_providers={"own": TlsFiles()}
    )
