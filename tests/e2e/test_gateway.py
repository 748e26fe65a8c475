"""The gateway as a whole: requests through a real Envoy, before, during and after changes."""

import json
import subprocess
import sys
from collections.abc import AsyncGenerator
from typing import Any, Final

import pytest
import pytest_asyncio
from tests.support.eventually import START_LIMIT, eventually
from tests.support.gateways.contour_gateway import EXTENSION, Gateway, gateway, kill, proxy
from tests.support.gateways.status_conditions import conditions
from tests.support.timing import within

pytestmark = pytest.mark.asyncio(loop_scope="module")
VARIANTS = pytest.mark.parametrize("delta", [False, True], ids=["state-of-the-world", "delta"])
ALL = (("HTTPProxy", "web"), ("ExtensionService", "auth"))
IN_FORCE: Final = 3.0
"""Seconds in which a change takes effect that was made while the control plane was away, from its return on."""
BOTH = pytest.mark.parametrize("running", [False, True], ids=["state-of-the-world", "delta"], indirect=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(request: pytest.FixtureRequest) -> AsyncGenerator[Gateway]:
    async with gateway(delta=getattr(request, "param", False)) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def it(running: Gateway) -> Gateway:
    """Return a gateway that is as if it had just been started."""
    await running.start_over()
    return running


def all_status(it: Gateway) -> dict[tuple[str, str], dict[str, dict[str, Any]]]:
    """Ask for the status by a program of its own; returns the conditions by type, of each kind and name."""
    command = [sys.executable, "-m", "authplane", "status", str(it.folder), "-o", "json"]
    printed = subprocess.run(command, capture_output=True, check=True, timeout=START_LIMIT).stdout
    return {
        (record["kind"], record["metadata"]["name"]): {each["type"]: each for each in record["status"]["conditions"]}
        for record in json.loads(printed)
    }


async def status_of_web(it: Gateway) -> dict[str, dict[str, Any]]:
    return await conditions(it.folder, "HTTPProxy", "web")


@pytest.mark.real
@BOTH
async def test_requests_are_allowed_denied_or_not_checked(it: Gateway) -> None:
    allowed = await it.get("/allow", **{"auth-handler": "spoofed"})
    assert allowed.status_code == 200
    assert [value for name, value in allowed.json()["headers"] if name == "auth-handler"] == ["testserver"]
    denied = await it.get("/secret")
    assert (denied.status_code, denied.headers["auth-handler"]) == (401, "testserver")
    public = await it.get("/public")
    assert public.status_code == 200
    assert "auth-handler" not in dict(public.json()["headers"])
    redirected = await it.get_plain("/secret?token=x")
    assert (redirected.status_code, redirected.headers["location"]) == (301, "https://web.example/secret?token=x")
    told = all_status(it)
    assert [told[each]["Programmed"]["status"] for each in ALL] == ["True", "True"]


@pytest.mark.real
async def test_a_redirect_leads_to_the_public_https_port_and_never_to_a_port_without_tls(it: Gateway) -> None:
    it.write("wild.yaml", proxy("'*.many.example'", name="wild"))
    await it.answers("/allow", 200, "a.many.example")
    sent = ("web.example", "web.example:80", "WEB.example:8080", "web.example:443", "a.many.example:8080")
    told = [(await it.get_plain("/x?y=1", host)).headers["location"] for host in sent]
    assert told == [*["https://web.example/x?y=1"] * 4, "https://a.many.example:443/x?y=1"]


@pytest.mark.real
@BOTH
async def test_the_decision_log_and_the_access_log_name_a_request_alike(it: Gateway) -> None:
    assert await it.status("/secret/joined") == 401

    def ids(program: str, field: str) -> list[str]:
        texts = [text for name, text in it.lines if name == program and '"/secret/joined"' in text]
        return [json.loads(text)[field] for text in texts]

    async def both() -> bool:
        return bool(ids("envoy", "request_id") and ids("authserver", "id"))

    await eventually(both)
    assert ids("envoy", "request_id") == ids("authserver", "id")


@pytest.mark.real
async def test_a_change_of_the_folder_reaches_envoy(it: Gateway) -> None:
    # An added host, a changed route, a renamed file, a removed one.
    it.write("other.yaml", proxy("other.example", name="other"))
    await it.answers("/allow", 200, "other.example")
    it.write("other.yaml", proxy("other.example", name="other").replace("/public", "/open"))
    await it.answers("/open", 200, "other.example")
    assert await it.status("/public", "other.example") == 401
    (it.folder / "other.yaml").rename(it.folder / "renamed.yaml")
    it.write("web.yaml", proxy().replace("/public", "/open"))
    await it.answers("/open", 200)
    assert await it.status("/open", "other.example") == 200
    (it.folder / "renamed.yaml").unlink()
    await it.answers("/open", 0, "other.example")
    assert await it.status("/open") == 200


@pytest.mark.real
async def test_a_changed_context_reaches_the_authorization_server(it: Gateway) -> None:
    it.write("web.yaml", proxy(authorization="      authPolicy: {context: {tenant: blue}}"))

    async def holds() -> bool:
        if await it.status("/allow") != 200:
            return False
        answer = await it.get("/allow")
        return answer.status_code == 200 and ["auth-context-tenant", "blue"] in answer.json()["headers"]

    await eventually(holds)


@pytest.mark.real
@pytest.mark.parametrize(
    "path",
    ["/public/../secret", "//secret", "/public/%2e%2e/secret", "/public%2f..%2fsecret", "/secret?x=/public", "/PUBLIC"],
)
async def test_no_spelling_of_a_path_gets_round_the_check(it: Gateway, path: str) -> None:
    assert await it.raw_status(path) in {400, 401}


@pytest.mark.real
async def test_every_canonical_path_can_be_protected_and_is(it: Gateway) -> None:
    paths = ["/a", "/a.b/c-d_e~f", "/a%20b", "/%E2%82%AC", "/!$&'()*+,;=:@", "/.well-known/x", "/a%25", "/a%7Cb"]
    routes = "".join(
        f"""
  - conditions: [{{exact: "{path}"}}]
    authPolicy: {{disabled: false}}
    services: [{{name: echo, port: 80}}]"""
        for path in paths
    )
    it.write("web.yaml", proxy(authorization="      authPolicy: {disabled: true}", routes=routes))
    await it.answers("/secret", 200)
    assert {path: await it.raw_status(path) for path in paths} == dict.fromkeys(paths, 401)


@pytest.mark.real
async def test_a_wildcard_never_answers_for_a_host_that_another_proxy_claims(it: Gateway) -> None:
    wild = proxy("'*.many.example'", name="wild", authorization="      authPolicy: {disabled: true}")
    it.write("wild.yaml", wild)
    it.write("secret.yaml", proxy("secret.many.example", name="secret"))
    await it.answers("/x", 401, "secret.many.example")
    await it.answers("/x", 200, "any.many.example")
    assert await it.raw_status("/x", sni="any.many.example", host="secret.many.example") == 421
    # One label only, over HTTP and HTTPS.
    assert await it.raw_status("/x", sni="any.many.example", host="more.any.many.example") == 404
    assert (await it.get_plain("/x", "more.any.many.example")).status_code == 404
    # An error that the folder's schema cannot see withdraws the host; the wildcard does not take over.
    it.write(
        "secret.yaml",
        proxy("secret.many.example", name="secret").replace("responseTimeout: 2s", "responseTimeout: '30'"),
    )
    await it.answers("/x", 421, "secret.many.example")
    assert (await it.get_plain("/x", "secret.many.example")).status_code == 503
    assert await it.status("/x", "any.many.example") == 200


@pytest.mark.real
async def test_a_proxy_of_another_ingress_class_opens_nothing(it: Gateway) -> None:
    root = proxy("classes.many.example", name="classes").replace(
        "  routes:", "  includes: [{name: opened, conditions: [{prefix: /opened}]}]\n  routes:", 1
    )
    child = """
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: opened}
spec:
  ingressClassName: CLASS
  routes:
  - services: [{name: echo, port: 80}]
    authPolicy: {disabled: true}
"""
    it.write("classes.yaml", root)
    it.write("opened.yaml", child.replace("CLASS", "contour"))
    await it.answers("/opened/x", 200, "classes.many.example")
    it.write("opened.yaml", child.replace("CLASS", "nginx"))
    await it.answers("/opened/x", 401, "classes.many.example")
    copy = proxy("classes.many.example", name="copy", authorization="      authPolicy: {disabled: true}")
    it.write("copy.yaml", copy.replace("spec:", "spec:\n  ingressClassName: nginx", 1))
    it.write("opened.yaml", child.replace("CLASS", "contour"))
    await it.answers("/opened/x", 200, "classes.many.example")
    assert await it.status("/x", "classes.many.example") == 401


@pytest.mark.real
@pytest.mark.requirement("EN-1")
async def test_a_connection_for_one_host_does_not_serve_another(it: Gateway) -> None:
    it.write("other.yaml", proxy("other.example", name="other"))
    await it.answers("/allow", 200, "other.example")
    assert await it.raw_status("/allow", sni="web.example", host="other.example") == 421
    assert await it.raw_status("/allow", sni="web.example", host="web.example:8443") == 200


@pytest.mark.real
async def test_an_invalid_file_keeps_the_last_good_version_and_says_so(it: Gateway) -> None:
    it.write("web.yaml", proxy().replace("authorization:", "authorisation:"))
    await it.says("control", "authorisation")
    assert (await it.status("/allow"), await it.status("/secret")) == (200, 401)
    told = await status_of_web(it)
    assert told["Valid"]["status"] == "False"
    assert told["UpToDate"]["reason"] == "LastGoodVersionInForce"
    it.write("web.yaml", "spec: [")
    await it.says("control", "web.yaml:1")
    assert (await it.status("/allow"), await it.status("/secret")) == (200, 401)
    it.write("web.yaml", proxy().replace("/public", "/open"))
    await it.answers("/open", 200)
    assert "UpToDate" not in await status_of_web(it)


@pytest.mark.real
@pytest.mark.requirement("X11")
async def test_an_extension_that_goes_away_withdraws_the_host(it: Gateway) -> None:
    (it.folder / "auth.yaml").unlink()
    await it.answers("/allow", 0)
    assert await it.status("/secret") == 0
    it.write("auth.yaml", EXTENSION)
    await it.answers("/allow", 200)


@pytest.mark.real
@VARIANTS
@pytest.mark.requirement("X07")
async def test_envoy_keeps_its_configuration_when_the_control_plane_is_killed(delta: bool) -> None:
    async with gateway(delta=delta) as it:
        await kill(it.control)
        assert (await it.status("/allow"), await it.status("/secret"), await it.status("/public")) == (200, 401, 200)
        # Changed while nobody watches: the next control plane finds it.
        it.write("web.yaml", proxy().replace("/public", "/open"))
        await _failed_to_connect(it, 6)
        async with it.running_control():
            await within(IN_FORCE, it.answers("/public", 401, limit=60))
            assert (await it.status("/allow"), await it.status("/open")) == (200, 200)


async def _failed_to_connect(it: Gateway, times: int) -> None:
    """Wait until Envoy has tried in vain to reach the control plane so often: its pauses have grown by then."""
    name = "cluster.authplane-control.upstream_cx_connect_fail"

    async def holds() -> bool:
        said = (await it.envoy.admin(f"/stats?filter=^{name}$")).body
        return int(said.rpartition(": ")[2] or 0) >= times

    await eventually(holds, limit=120)


@pytest.mark.real
async def test_requests_are_refused_while_the_authorization_server_is_away() -> None:
    async with gateway() as it:
        await kill(it.authserver)
        for _ in range(20):
            assert await it.status("/allow") == 403
        assert await it.status("/public") == 200
        async with it.running_authserver():
            await it.answers("/allow", 200)
            assert await it.status("/secret") == 401


@pytest.mark.real
async def test_requests_go_through_while_it_is_away_if_the_author_said_so() -> None:
    async with gateway() as it:
        it.write("web.yaml", proxy(authorization="      failOpen: true"))
        await kill(it.authserver)
        await it.answers("/secret", 200)
        async with it.running_authserver():
            await it.answers("/secret", 401)


@pytest.mark.real
@BOTH
async def test_no_request_gets_through_unchecked_while_the_configuration_changes(it: Gateway) -> None:
    second = EXTENSION.replace("metadata: {name: auth}", "metadata: {name: second}")
    it.write("second.yaml", second)
    for index in range(8):
        rebuilds = it.count("control", '"event": "rebuilt configuration"')
        # In turn: another service, another timeout (both change the filter chain), another context, another host.
        text = proxy(authorization=f"      authPolicy: {{context: {{round: '{index}'}}}}")
        if index % 2:
            text = text.replace("extensionRef: {name: auth}", "extensionRef: {name: second}")
        if index % 3 == 0:
            text = text.replace("responseTimeout: 2s", f"responseTimeout: {2 + index}s")
        it.write("web.yaml", text)
        it.write(
            "other.yaml",
            proxy(
                "other.example",
                name="other",
                authorization=f"      failOpen: {index % 2 == 0}".lower().replace("failopen", "failOpen"),
            ),
        )
        while it.count("control", '"event": "rebuilt configuration"') == rebuilds:
            assert await it.raw_status("/secret") == 401
        for _ in range(10):
            assert await it.status("/secret") == 401
            assert await it.raw_status("/secret") == 401


@pytest.mark.real
async def test_what_envoy_refuses_shows_in_status_and_log(it: Gateway) -> None:
    # An address that this machine does not have: valid for us, impossible for Envoy.
    text = (it.folder / "gateway.yaml").read_text(encoding="utf-8")
    it.write("gateway.yaml", text.replace("address: 127.0.0.1", "address: 203.0.113.1"))
    await it.says("control", "proxy rejected configuration")
    programmed = (await status_of_web(it))["Programmed"]
    assert programmed["reason"] == "Rejected"
    assert "203.0.113.1" in programmed["message"]
    assert (await it.status("/allow"), await it.status("/secret")) == (200, 401)
    it.write("gateway.yaml", text)

    async def holds() -> bool:
        return bool((await status_of_web(it))["Programmed"]["status"] == "True")

    await eventually(holds)
