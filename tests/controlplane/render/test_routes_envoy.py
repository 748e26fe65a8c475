"""What rendered routes do in a real Envoy: which one a request meets, and what becomes of it."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.envoy.validation import validate
from tests.support.eventually import START_LIMIT
from tests.support.gateways.contour_gateway import service
from tests.support.ports import free_port
from tests.support.resources.contour_documents import World

from authplane.controlplane.graph.model.envoy_regexes import regex_problem
from authplane.controlplane.render.dump import json_text
from authplane.controlplane.render.envoy_bootstrap import static_bootstrap
from authplane.devkit.local.echo_origin import serve_echo
from authplane.runtime.child_processes import Line
from authplane.runtime.envoy_process import EnvoySettings, run_envoy
from authplane.runtime.servers.listen import TcpAddress

pytestmark = pytest.mark.real

LISTENERS = """
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {name: test}
spec: {listeners: {http: {address: 127.0.0.1, port: PORT}}}
"""
PROXY = """
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: web}
spec:
  virtualhost: {fqdn: web.example}
  includes:
  - {name: team, conditions: [{prefix: /team}]}
  - {name: gone, conditions: [{prefix: /gone}]}
  - {name: dotted, conditions: [{prefix: /v.1}]}
  routes:
  - directResponsePolicy: {statusCode: 200, body: root}
  - conditions: [{exact: /exact}]
    directResponsePolicy: {statusCode: 200, body: exact}
  - conditions: [{regex: '/v[0-9]+'}]
    directResponsePolicy: {statusCode: 200, body: pattern}
  - conditions: [{prefix: /h}, {header: {name: x-a, exact: yes, ignoreCase: true}}]
    directResponsePolicy: {statusCode: 200, body: header exact}
  - conditions: [{prefix: /h}, {header: {name: x-b, notpresent: true}}, {header: {name: x-a, regex: 'r+'}}]
    directResponsePolicy: {statusCode: 200, body: header regex}
  - conditions: [{prefix: /n}, {header: {name: x-a, notexact: no}}]
    directResponsePolicy: {statusCode: 200, body: not no}
  - conditions: [{prefix: /m}, {header: {name: x-a, notexact: no, treatMissingAsEmpty: true}}]
    directResponsePolicy: {statusCode: 200, body: not no or missing}
  - conditions: [{prefix: /q}, {queryParameter: {name: d, prefix: On, ignoreCase: true}}]
    directResponsePolicy: {statusCode: 200, body: query}
  - conditions: [{prefix: /moved}]
    requestRedirectPolicy: {scheme: https, hostname: new.example, port: 8443, statusCode: 301, prefix: /here}
  - conditions: [{prefix: /see303}]
    requestRedirectPolicy: {path: /, statusCode: 303}
  - conditions: [{prefix: /see307}]
    requestRedirectPolicy: {path: /, statusCode: 307}
  - conditions: [{prefix: /see308}]
    requestRedirectPolicy: {path: /, statusCode: 308}
  - conditions: [{prefix: /edits}]
    services: [{name: echo, port: 80, requestHeadersPolicy: {set: [{name: x-service, value: 50%}]}}]
    requestHeadersPolicy:
      set: [{name: Host, value: origin.example}, {name: x-set, value: '%REQ(x-b)%'}]
      remove: [x-a]
    responseHeadersPolicy: {set: [{name: x-answer, value: '%PROTOCOL%'}], remove: [content-type]}
  - conditions: [{prefix: /service-host}]
    services: [{name: echo, port: 80, requestHeadersPolicy: {set: [{name: Host, value: service.example}]}}]
    requestHeadersPolicy: {set: [{name: Host, value: origin.example}]}
  - conditions: [{prefix: /half-host}]
    services:
    - {name: echo, port: 80, weight: 1}
    - {name: echo, port: 80, weight: 0, requestHeadersPolicy: {set: [{name: Host, value: service.example}]}}
    requestHeadersPolicy: {set: [{name: Host, value: origin.example}]}
  - conditions: [{prefix: /literal-host}]
    services: [{name: echo, port: 80}]
    requestHeadersPolicy: {set: [{name: Host, value: '%REQ(x-b)%'}]}
  - conditions: [{prefix: /both, header: {name: x-a, exact: both}}]
    directResponsePolicy: {statusCode: 200, body: both}
  - conditions: [{exact: /only, header: {name: x-a, present: true}}]
    directResponsePolicy: {statusCode: 200, body: only}
  - conditions: [{prefix: /foo}, {header: {name: x-r, present: true}}]
    services: [{name: echo, port: 80}]
    pathRewritePolicy: {replacePrefix: [{replacement: /}]}
  - conditions: [{prefix: /foo}]
    services: [{name: echo, port: 80}]
    pathRewritePolicy: {replacePrefix: [{replacement: /}]}
  - conditions: [{prefix: /tie}, {header: {name: x-a, contains: adm}}]
    directResponsePolicy: {statusCode: 200, body: contains}
  - conditions: [{prefix: /tie}, {header: {name: x-a, exact: admin}}]
    directResponsePolicy: {statusCode: 200, body: exactly}
  - conditions: [{regex: '/.*ern'}]
    directResponsePolicy: {statusCode: 200, body: lower pattern}
  - conditions: [{regex: '/pat.*'}]
    directResponsePolicy: {statusCode: 200, body: higher pattern}
  - conditions: [{prefix: /api}]
    services: [{name: echo, port: 80}]
    pathRewritePolicy: {replacePrefix: [{replacement: /v1}]}
  - conditions: [{prefix: /api}, {header: {name: x-admin, present: true}}]
    directResponsePolicy: {statusCode: 200, body: admin}
  - conditions: [{prefix: /slash/}]
    services: [{name: echo, port: 80}]
    pathRewritePolicy: {replacePrefix: [{replacement: /n}]}
---
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: dotted}
spec:
  routes:
  - conditions: [{regex: '/x+'}]
    directResponsePolicy: {statusCode: 200, body: dotted}
---
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: team}
spec:
  routes:
  - conditions: [{regex: '/x|/admin'}]
    directResponsePolicy: {statusCode: 200, body: team pattern}
  - conditions: [{prefix: /}]
    directResponsePolicy: {statusCode: 200, body: team}
"""


async def _ignore(_line: Line) -> None:
    pass


@asynccontextmanager
async def running(proxy: str) -> AsyncGenerator[httpx2.AsyncClient]:
    """Run Envoy with what an HTTPProxy becomes, in front of an origin that shows what reached it."""
    port = free_port()
    async with serve_echo(TcpAddress(host="127.0.0.1", port=0)) as origin:
        assert isinstance(origin, TcpAddress)
        world = World([LISTENERS.replace("PORT", str(port)), service("echo", origin.port), proxy])
        assert [reason for reason, _ in world.problems("HTTPProxy")] == ["IncludeNotFound"]
        config = json_text(static_bootstrap(world.generation.rendered))
        async with (
            run_envoy(config, sink=_ignore, settings=EnvoySettings(concurrency=1, log_level="error")) as envoy,
            httpx2.AsyncClient(timeout=5, base_url=f"http://127.0.0.1:{port}") as client,
        ):
            await envoy.ready(limit=START_LIMIT)
            yield client


class Case(NamedTuple):
    path: str
    want: str
    headers: Mapping[str, str] = {}


CASES = (
    Case("/", "root"),
    Case("/exact", "exact"),
    Case("/exact/", "root"),
    Case("/v12", "pattern"),
    Case("/v12/x", "root"),
    Case("/xv12", "root"),
    Case("/h", "root"),
    Case("/h", "header exact", {"x-a": "YES"}),
    Case("/h", "header regex", {"x-a": "rr"}),
    Case("/h", "root", {"x-a": "rr", "x-b": "there"}),
    Case("/h", "root", {"x-a": "arr"}),
    Case("/n", "root"),
    Case("/n", "not no", {"x-a": "maybe"}),
    Case("/n", "root", {"x-a": "no"}),
    Case("/m", "not no or missing"),
    Case("/m", "root", {"x-a": "no"}),
    Case("/q?d=on-1", "query"),
    Case("/q?d=off", "root"),
    Case("/both", "both", {"x-a": "both"}),
    Case("/both", "root"),
    Case("/", "root", {"x-a": "both"}),
    Case("/only", "only", {"x-a": "1"}),
    Case("/only/more", "root", {"x-a": "1"}),
    Case("/v.1/x", "dotted"),
    Case("/vy1/x", "root"),
    Case("/team/", "team"),
    Case("/team", "root"),
    Case("/team/x", "team pattern"),
    Case("/team/admin", "team pattern"),
    Case("/admin", "root"),
    Case("/tie", "exactly", {"x-a": "admin"}),
    Case("/tie", "contains", {"x-a": "adm"}),
    Case("/pattern", "higher pattern"),
    Case("/x-tern", "lower pattern"),
    Case("/api/x", "admin", {"x-admin": "1"}),
    Case("/api", "admin", {"x-admin": "1"}),
)


async def test_requests_meet_the_route_that_was_meant() -> None:
    async with running(PROXY) as client:
        for case in CASES:
            answer = await client.get(case.path, headers={"host": "web.example", **case.headers})
            assert (case, answer.text) == (case, case.want)
        await _expect_answers(client)
        await _expect_edits(client)
        await _expect_rewrites(client)


async def _expect_answers(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/moved/away?q=1", headers={"host": "web.example"})
    assert (answer.status_code, answer.headers["location"]) == (301, "https://new.example:8443/here/away?q=1")
    assert (await client.get("/gone/x", headers={"host": "web.example"})).status_code == 502
    for code in (303, 307, 308):
        assert (await client.get(f"/see{code}", headers={"host": "web.example"})).status_code == code


async def _expect_edits(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/edits", headers={"host": "web.example", "x-a": "a", "x-b": "b"})
    seen: dict[str, Any] = json.loads(answer.text)
    headers = dict(seen["headers"])
    assert seen["host"] == "origin.example"
    assert (headers["x-set"], headers["x-service"], headers.get("x-a")) == ("%REQ(x-b)%", "50%", None)
    hosts = {"/service-host": "service.example", "/half-host": "origin.example", "/literal-host": "%REQ(x-b)%"}
    for path, want in hosts.items():
        told = await client.get(path, headers={"host": "web.example", "x-b": "evil.example"})
        assert (path, json.loads(told.text)["host"]) == (path, want)
    assert (answer.headers["x-answer"], answer.headers.get("content-type")) == ("%PROTOCOL%", None)


async def _expect_rewrites(client: httpx2.AsyncClient) -> None:
    for path, want in {
        "/foo": "/",
        "/foo/v1": "/v1",
        "/foo/": "/",
        "/foosball": "/sball",
        "/foo/a?b": "/a?b",
        "/api": "/v1",
        "/api/x": "/v1/x",
        "/slash": "/n",
        "/slash/": "/n/",
        "/slash/x": "/n/x",
    }.items():
        for headers in ({}, {"x-r": "1"}):  # two routes rewrite the same prefix
            answer = await client.get(path, headers={"host": "web.example", **headers})
            assert (path, json.loads(answer.text)["path"]) == (path, want)


PIECES = st.sampled_from(
    ["a", ".", "*", "+", "?", "|", "(", ")", "(?:", "(?i)", "[a-z]", "[^/]", "{2}", "{60}", "{200}", r"\d", r"\Q",
     r"\E", "^", "$", r"\b", r"\pL", "[[:alpha:]]", "(?P<n>", r"\x{e9}"]
)  # fmt: skip


@given(patterns=st.lists(st.lists(PIECES, min_size=1, max_size=6).map(lambda each: "/" + "".join(each)), max_size=60))
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
async def test_envoy_takes_every_pattern_that_we_take(patterns: list[str]) -> None:
    good = sorted({pattern for pattern in patterns if not regex_problem(pattern)} | {"/(?P<n>a)(?P<n>b)", "/.{490}"})
    routes = ", ".join(
        json.dumps({"conditions": [{"regex": each}], "directResponsePolicy": {"statusCode": 200}}) for each in good
    )
    documents = [
        f"{{apiVersion: projectcontour.io/v1, kind: HTTPProxy, metadata: {{name: {name}}}, spec: {spec}}}"
        for name, spec in {
            "web": "{virtualhost: {fqdn: web.example}, includes: [{name: a, conditions: [{prefix: /a.b}]}]}",
            "other": f"{{virtualhost: {{fqdn: other.example}}, routes: [{routes}]}}",
            "a": f"{{routes: [{routes}]}}",
        }.items()
    ]
    world = World(documents)
    assert world.problems("HTTPProxy") == []
    verdict = await validate(json_text(static_bootstrap(world.generation.rendered)))
    assert verdict.ok, verdict.output


@pytest.mark.parametrize("pattern", ["/(a", "/a{1001}", "/(?=a)", "/.{600}"])
async def test_envoy_refuses_what_we_refuse(pattern: str) -> None:
    world = World(
        [
            "{apiVersion: projectcontour.io/v1, kind: HTTPProxy, metadata: {name: web}, spec: {"
            "virtualhost: {fqdn: a.b}, "
            "routes: [{conditions: [{regex: /good}], directResponsePolicy: {statusCode: 200}}]}}"
        ]
    )
    text = json_text(static_bootstrap(world.generation.rendered))
    assert regex_problem(pattern) != ""
    assert '"/good"' in text
    verdict = await validate(text.replace('"/good"', json.dumps(pattern)))
    assert not verdict.ok
