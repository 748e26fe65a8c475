from envoy.extensions.filters.http.router.v3 import router_pb2
from tests.support.dataplane.driven_calls import CALL, Watched, no_effects, packed

from authplane.dataplane.filters.calls import Proceed, Side
from authplane.dataplane.filters.registry import Packed, Registry, Scope, Trust
from authplane.dataplane.filters.router.wire import ROUTER, Router, parse_router
from authplane.dataplane.filters.standard_filters import standard_registry

SCOPE = Scope(side=Side.SERVER, trust=Trust(), registry=Registry.of())


def test_these_filters_come_with_the_program() -> None:
    found = standard_registry()
    assert {name.rpartition(".")[2]: set(kind.sides) for name, kind in found.configs.items()} == {
        "Router": {Side.CLIENT, Side.SERVER},
        "HTTPFault": {Side.CLIENT},
        "RBAC": {Side.SERVER},
        "ExtAuthz": {Side.CLIENT, Side.SERVER},
        "ExtensionWithMatcher": {Side.CLIENT, Side.SERVER},
    }
    assert {name.rpartition(".")[2] for name in found.overrides} == {
        "HTTPFault",
        "RBACPerRoute",
        "ExtAuthzPerRoute",
        "ExtensionWithMatcherPerRoute",
        "TypedExtensionConfig",
    }


def test_the_router_is_the_only_terminal_filter_and_its_fields_do_not_count() -> None:
    assert [kind for kind in standard_registry().types if kind.terminal] == [ROUTER]
    message = router_pb2.Router(suppress_envoy_headers=True)
    assert parse_router(packed(message), SCOPE) == Router()
    assert no_effects(Router().build(Watched().state, None).run(CALL)) == Proceed(metadata=CALL.metadata)
    found = parse_router(Packed("x", b"\xff"), SCOPE)
    assert isinstance(found, tuple)
    assert found[0].reason == "Unreadable"
