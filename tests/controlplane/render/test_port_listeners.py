"""Listeners: chains, names, and how long clients are waited for."""

from typing import Any

import pytest
from tests.support.certificates import server, tls_secret
from tests.support.envoy.validation import validate
from tests.support.resources.contour_documents import PROXY, World, world

from authplane.controlplane.render.dump import dump, json_text
from authplane.controlplane.render.envoy_bootstrap import static_bootstrap

OPEN = PROXY.replace("    authorization:\n      extensionRef: {name: auth}\n", "")


def settings(timeouts: str) -> str:
    return f"""
apiVersion: projectcontour.io/v1alpha1
kind: ContourConfiguration
metadata: {{name: contour}}
spec:
  httpproxy: {{fallbackCertificate: {{name: fallback, namespace: default}}}}
  envoy: {{timeouts: {{{timeouts}}}}}
"""


def everything(timeouts: str) -> World:
    """Return a world with all kinds of chains."""
    strict = OPEN.replace("{name: web}", "{name: strict}").replace("web.example", "strict.example")
    return world(
        proxy=OPEN.replace("secretName: tls", "secretName: tls, enableFallbackCertificate: true"),
        strict=strict.replace(
            "secretName: tls",
            "secretName: tls, clientValidation: {caSecret: ca, forwardClientCertificate: {dns: true}}",
        ),
        settings=settings(timeouts),
        fallback=tls_secret("fallback", server("nobody.example")),
    )


def managers(made: World) -> dict[str, Any]:
    rendered = dump(made.generation.rendered, show_secrets=False)
    return {
        chain["filters"][0]["typedConfig"]["rds"]["routeConfigName"]: chain["filters"][0]["typedConfig"]
        for listener in rendered["listeners"]
        for chain in listener["filterChains"]
    }


FIELDS = ("requestTimeout", "streamIdleTimeout", "delayedCloseTimeout", "drainTimeout")


def waits(manager: dict[str, Any]) -> dict[str, str]:
    options = manager["commonHttpProtocolOptions"]
    return {field: manager[field] for field in FIELDS if field in manager} | {
        field: options[field] for field in ("idleTimeout", "maxConnectionDuration") if field in options
    }


TIMEOUTS = {
    "nothing is set": ("", {"idleTimeout": "300s"}),
    "everything is set": (
        "requestTimeout: 1m, connectionIdleTimeout: 2m, streamIdleTimeout: 3m, maxConnectionDuration: 4m, "
        "delayedCloseTimeout: 5s, connectionShutdownGracePeriod: 6s",
        {
            "requestTimeout": "60s",
            "streamIdleTimeout": "180s",
            "delayedCloseTimeout": "5s",
            "drainTimeout": "6s",
            "idleTimeout": "120s",
            "maxConnectionDuration": "240s",
        },
    ),
    "nothing ends": (
        "requestTimeout: infinity, connectionIdleTimeout: infinity, streamIdleTimeout: infinity, "
        "maxConnectionDuration: infinity, delayedCloseTimeout: infinity",
        {
            "requestTimeout": "0s",
            "streamIdleTimeout": "0s",
            "delayedCloseTimeout": "0s",
            "idleTimeout": "0s",
        },
    ),
}


@pytest.mark.real
@pytest.mark.parametrize(("timeouts", "want"), TIMEOUTS.values(), ids=TIMEOUTS.keys())
async def test_every_connection_manager_has_the_timeouts_and_envoy_accepts_them(
    timeouts: str, want: dict[str, str]
) -> None:
    made = everything(timeouts)
    assert {name: waits(manager) for name, manager in managers(made).items()} == dict.fromkeys(
        ["ingress_http", "https/strict.example", "https/web.example", "ingress_fallbackcert"], want
    )
    verdict = await validate(json_text(static_bootstrap(made.generation.rendered)))
    assert verdict.ok, verdict.output


@pytest.mark.requirement("EN-1")
def test_there_is_one_chain_for_each_host_behind_tls_and_one_for_all_others() -> None:
    rendered = dump(everything("").generation.rendered, show_secrets=False)
    shape = {
        listener["name"]: (
            listener["address"]["socketAddress"],
            [each["name"] for each in listener.get("listenerFilters", [])],
            [
                (
                    chain.get("name"),
                    chain.get("filterChainMatch"),
                    chain["filters"][0]["typedConfig"]["statPrefix"],
                    chain["filters"][0]["typedConfig"]["rds"]["routeConfigName"],
                )
                for chain in listener["filterChains"]
            ],
        )
        for listener in rendered["listeners"]
    }
    assert shape == {
        "ingress_http": (
            {"address": "0.0.0.0", "portValue": 8080},
            [],
            [(None, None, "ingress_http", "ingress_http")],
        ),
        "ingress_https": (
            {"address": "0.0.0.0", "portValue": 8443},
            ["envoy.filters.listener.tls_inspector"],
            [
                ("https/strict.example", {"serverNames": ["strict.example"]}, "ingress_https", "https/strict.example"),
                ("https/web.example", {"serverNames": ["web.example"]}, "ingress_https", "https/web.example"),
                ("fallback-certificate", {"transportProtocol": "tls"}, "ingress_https", "ingress_fallbackcert"),
            ],
        ),
    }
    assert [each["name"] for each in rendered["routes"]] == [
        "https/strict.example",
        "https/web.example",
        "ingress_fallbackcert",
        "ingress_http",
    ]


def test_client_certificates_are_forwarded_only_if_configured() -> None:
    told = {
        name: (manager.get("forwardClientCertDetails"), manager.get("setCurrentClientCertDetails"))
        for name, manager in managers(everything("")).items()
    }
    assert told == dict.fromkeys(["ingress_http", "https/web.example", "ingress_fallbackcert"], (None, None)) | {
        "https/strict.example": ("SANITIZE_SET", {"dns": True})
    }
