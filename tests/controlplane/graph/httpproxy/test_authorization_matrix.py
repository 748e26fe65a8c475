"""Every cell of {global, virtual host, route} x {unset, disabled, enabled, context}: who is checked, and with what.

A policy replaces ``disabled`` of the one above as a whole. The context of a route is laid over that of its virtual
host, or of global authorization where the virtual host says nothing; those two are never merged.
"""

from collections.abc import Mapping
from typing import Final

import pytest
from tests.support.resources.contour_documents import PROXY, World, whole

from authplane.controlplane.graph.model.route_authorization import Disabled, Enforced, RouteAuthorization, Unprotected

STATES: Final = ("unset", "disabled", "enabled", "context")

# The last four columns are the states of the route. `on:vr` is checked with the context of the virtual host and of the
# route; the key that all of them have is the route's then.
OF_GLOBAL: Final = """
global    host      unset  disabled enabled context
unset     unset     open   open     open    open
unset     disabled  error  error    error   error
unset     enabled   error  error    error   error
unset     context   error  error    error   error
disabled  unset     off    off      on      on:r
disabled  disabled  off    off      on      on:r
disabled  enabled   on     off      on      on:r
disabled  context   on:v   off      on:v    on:vr
enabled   unset     on     off      on      on:r
enabled   disabled  off    off      on      on:r
enabled   enabled   on     off      on      on:r
enabled   context   on:v   off      on:v    on:vr
context   unset     on:g   off      on:g    on:gr
context   disabled  off    off      on      on:r
context   enabled   on     off      on      on:r
context   context   on:v   off      on:v    on:vr
"""

# With an extensionRef of its own a virtual host has nothing to do with global authorization.
OF_ITS_OWN: Final = """
host      unset  disabled enabled context
unset     on     off      on      on:r
disabled  off    off      on      on:r
enabled   on     off      on      on:r
context   on:v   off      on:v    on:vr
"""


def policy(state: str, level: str) -> str:
    """Write the policy of a level; the key `of` says who spoke last."""
    return {
        "disabled": "{disabled: true}",
        "enabled": "{disabled: false}",
        "context": f"{{context: {{{level}: here, of: {level}}}}}",
    }[state]


def configuration(state: str) -> str:
    own = (
        ""
        if state == "unset"
        else f"""
      globalExtAuth:
        extensionRef: {{name: auth, namespace: default}}
        authPolicy: {policy(state, "g")}
"""
    )
    return f"""
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {{name: gateway}}
spec:
    contour:
      allowInsecureAuthorization: true
{own}
"""


def made(parts: Mapping[str, str], *, host: str, route: str, own: bool, tls: bool) -> World:
    written = PROXY.replace("    authorization:\n      extensionRef: {name: auth}\n", "")
    block = "      extensionRef: {name: auth}\n" if own else ""
    if host != "unset":
        block += f"      authPolicy: {policy(host, 'v')}\n"
    if block:
        written = written.replace("  routes:\n", f"    authorization:\n{block}  routes:\n")
    if route != "unset":
        written = written.replace("  - services:", f"  - authPolicy: {policy(route, 'r')}\n    services:")
    if not tls:
        written = written.replace("    tls: {secretName: tls}\n", "")
    return World([*(whole() | {"proxy": written}).values(), *parts.values()])


def seen(world: World, *, tls: bool) -> str:
    """Say in the table's words what holds for the route, on the listener that serves it."""
    secure, plain = world.secure(), world.plain()
    if tls:
        assert (secure is None) == (plain is None)
    host = secure.host if tls and secure is not None else plain
    if host is None:
        assert world.problems("HTTPProxy")
        return "error"
    assert world.problems("HTTPProxy") == []
    [authorization] = host.routes[0].authorizations
    return word(authorization)


def word(authorization: RouteAuthorization) -> str:
    match authorization:
        case Unprotected():
            return "open"
        case Disabled():
            return "off"
        case Enforced(context=()):
            return "on"
        case Enforced(context=context):
            levels = "".join(level for level in "gvr" if (level, "here") in context)
            assert dict(context)["of"] == levels[-1]
            assert len(context) == len(levels) + 1
            return f"on:{levels}"


def rows(table: str) -> list[list[str]]:
    return [line.split() for line in table.strip().splitlines()[1:]]


@pytest.mark.requirement("AZ-9")
@pytest.mark.requirement("AZ-11")
@pytest.mark.requirement("AZ-13")
@pytest.mark.requirement("GL-2")
@pytest.mark.requirement("GL-3")
@pytest.mark.parametrize("tls", [True, False], ids=["https", "http"])
@pytest.mark.parametrize("row", rows(OF_GLOBAL), ids=lambda row: f"global {row[0]}, host {row[1]}")
def test_who_is_checked_under_global_authorization(row: list[str], *, tls: bool) -> None:
    overall, host, *want = row
    parts = {"configuration": configuration(overall)}
    got = [seen(made(parts, host=host, route=route, own=False, tls=tls), tls=tls) for route in STATES]
    assert got == want


@pytest.mark.requirement("AZ-9")
@pytest.mark.requirement("AZ-10")
@pytest.mark.requirement("GL-2")
@pytest.mark.parametrize("overall", STATES)
@pytest.mark.parametrize("tls", [True, False], ids=["https", "http"])
@pytest.mark.parametrize("row", rows(OF_ITS_OWN), ids=lambda row: f"host {row[0]}")
def test_who_is_checked_by_a_service_of_the_hosts_own(row: list[str], overall: str, *, tls: bool) -> None:
    host, *want = row
    parts = {"configuration": configuration(overall)}
    got = [seen(made(parts, host=host, route=route, own=True, tls=tls), tls=tls) for route in STATES]
    assert got == want


@pytest.mark.requirement("AZ-10")
def test_ghsa_cf57_xf33_fg5h_a_route_enabled_on_a_disabled_host_is_checked() -> None:
    world = made({}, host="disabled", route="enabled", own=True, tls=True)
    assert seen(world, tls=True) == "on"
    [listener] = [each for each in world.generation.rendered.listeners if each.name == "ingress_https"]
    assert b"envoy.filters.http.ext_authz" in listener.SerializeToString()
