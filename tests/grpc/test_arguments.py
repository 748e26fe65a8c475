"""Arguments of the public functions: those that would have no effect raise."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from envoy.service.auth.v3 import external_auth_pb2 as pb
from tests.support.certificates import server as server_certificate
from tests.support.grpc.control_plane import Control, controlling
from tests.support.grpc.shop_servers import Authority, Cart, Serve, allow, authorizing, call
from tests.support.grpc.xds_resources import ext_authz, listener, manager
from tests.support.grpc.xds_servers import xds_serving

import authplane.grpc
import authplane.grpc.aio
from authplane.grpc import CheckForm, ExtAuthzOptions, Shown, filter_registry

BOOTSTRAP: dict[str, Any] = {
    "xds_servers": [{"server_uri": "127.0.0.1:1", "channel_creds": [{"type": "insecure"}]}],
    "server_listener_resource_name_template": "%s",
}
WITHOUT_XDS = {
    "registry": {"registry": filter_registry()},
    "on_serving_state": {"on_serving_state": lambda _: None},
    "drain": {"drain": 600.0},
    "drain_on_change": {"drain_on_change": True},
}
WITH_XDS = {"filters": {"filters": []}, "certificate": {"certificate": b"PEM"}}
ALWAYS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "default_authority": {"default_authority": "shop"},
    "count": {"count": lambda _name, _target: None},
}


def make_server(stack: str, **options: Any) -> object:
    if stack == "loop":
        return authplane.grpc.aio.server(**options)
    with ThreadPoolExecutor(1) as pool:
        return authplane.grpc.server(pool, **options)


STACKS = pytest.mark.parametrize("stack", ["threads", "loop"])


@STACKS
@pytest.mark.parametrize(("name", "options"), WITHOUT_XDS.items(), ids=WITHOUT_XDS)
async def test_a_server_without_xds_refuses_what_only_xds_has(stack: str, name: str, options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=f"^{name} has no effect without xDS. Set xds=True, or remove the argument.$"):
        make_server(stack, **options)
    make_server(stack, xds=BOOTSTRAP, **options)


@STACKS
@pytest.mark.parametrize(("name", "options"), WITH_XDS.items(), ids=WITH_XDS)
async def test_a_server_with_xds_refuses_what_xds_brings(stack: str, name: str, options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=f"^{name} has no effect with xDS"):
        make_server(stack, xds=BOOTSTRAP, **options)
    make_server(stack, **{**options, "certificate": options.get("certificate") and server_certificate("a").certificate})


@STACKS
@pytest.mark.parametrize("options", ALWAYS.values(), ids=ALWAYS)
async def test_other_arguments_are_for_both(stack: str, options: dict[str, Any]) -> None:
    make_server(stack, **options)
    make_server(stack, xds=BOOTSTRAP, **options)


@STACKS
async def test_xds_is_not_switched_off_by_false(stack: str) -> None:
    with pytest.raises(TypeError, match=r"xds is False\. Use True, the path of a bootstrap or a dict"):
        make_server(stack, xds=False)


@STACKS
async def test_a_server_without_xds_refuses_credentials_of_xds(stack: str) -> None:
    made: Any = make_server(stack)
    with pytest.raises(TypeError, match=r"^XdsServerCredentials need a server with xDS. Pass xds=True "):
        made.add_secure_port("127.0.0.1:0", authplane.grpc.XdsServerCredentials(None))


CHANNELS: dict[str, tuple[str, dict[str, Any], str]] = {
    "xds": (
        "127.0.0.1:1",
        {"xds": BOOTSTRAP},
        "^xds has no effect on this target. Use a target that starts with xds:, or remove the argument.$",
    ),
    "xds of the environment": ("127.0.0.1:1", {"xds": True}, "^xds has no effect"),
    "registry": ("127.0.0.1:1", {"registry": filter_registry()}, "^registry has no effect"),
    "filters": ("xds:///shop", {"xds": BOOTSTRAP, "filters": []}, "^filters has no effect on an xDS target"),
    "xds credentials": (
        "127.0.0.1:1",
        {"credentials": authplane.grpc.XdsChannelCredentials(None)},
        "^XdsChannelCredentials need an xDS target. Use a target that starts with xds:.$",
    ),
}


@STACKS
@pytest.mark.parametrize(("target", "options", "words"), CHANNELS.values(), ids=CHANNELS)
async def test_a_channel_refuses_what_its_target_does_not_have(
    stack: str, target: str, options: dict[str, Any], words: str
) -> None:
    make: Any = authplane.grpc.channel if stack == "threads" else authplane.grpc.aio.channel
    with pytest.raises(TypeError, match=words):
        make(target, **options)


FORMS: dict[str, Any] = {"text": "envoy", "member": CheckForm.ENVOY}


def seen(authority: Authority) -> list[pb.CheckRequest]:
    return [each for each in authority.checks if each.attributes.request.http.headers]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_the_form_of_checks_is_named_by_a_text_or_a_member(serve: Serve, cart: Cart, form: Any) -> None:
    with authorizing() as authority:
        asks = authplane.grpc.ext_authz(authority.target, credentials=None, check_request=form)
        port = serve(cart, filters=[asks])
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            call(channel, "unary_unary", b"a")
        assert len(seen(authority)) == 1


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_the_form_of_checks_over_xds_is_named_by_a_text_or_a_member(cart: Cart, form: Any) -> None:
    with authorizing() as authority, controlling() as control, xds_serving("threads") as make:
        _serve_and_call(control, authority, make, cart, ExtAuthzOptions(check_request=form))
        assert len(seen(authority)) == 1


def _serve_and_call(control: Control, authority: Authority, make: Any, cart: Cart, options: ExtAuthzOptions) -> None:
    authority.decide = lambda _: allow()
    server = make(cart, xds=control.bootstrap(), registry=filter_registry(ext_authz=options))
    control.publish(listener(server.port, manager(ext_authz(authority.target))))
    assert server.is_serving()
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        call(channel, "unary_unary", b"a")


@pytest.mark.parametrize("said", ["Envoy", "ENVOY", "", None, 1])
def test_a_form_that_there_is_not_raises(said: Any) -> None:
    words = "Set check_request to 'a92' or 'envoy'"
    with pytest.raises(ValueError, match=words):
        ExtAuthzOptions(check_request=said)
    with pytest.raises(ValueError, match=words):
        authplane.grpc.ext_authz("127.0.0.1:1", credentials=None, check_request=said)
    with pytest.raises(ValueError, match=words):
        Shown(form=said)
