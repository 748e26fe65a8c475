"""The objects that an installation consists of, as the manifests and the chart have them."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest
from tests.support.kubernetes.api_objects import Object, documents
from tools.kubernetes.built_programs import AbsentError
from tools.kubernetes.manifests import PLAIN, render_chart

VARIANTS: Final[Mapping[str, tuple[str, ...]]] = {
    "defaults": (),
    "daemon set": ("--set=envoy.kind=DaemonSet",),
    "cert-manager": ("--set=tls.mode=cert-manager",),
    "own certificates": ("--set=tls.mode=existing",),
    "some namespaces": ("--set=watch.namespaces={shop,tools}", "--set=watch.selector=team=shop"),
    "no Envoy": ("--set=envoy.enabled=false",),
    "fixed sizes": ("--set=policy.autoscaling.enabled=false", "--set=envoy.autoscaling.enabled=false"),
    "internal service": ("--set=envoy.service.type=ClusterIP",),
    "many settings": (
        "--set=image.repository=images.example/authplane",
        "--set=image.tag=9.9.9",
        "--set=imagePullSecrets={registry}",
        "--set=control.extraArgs={--loosen-after=1}",
        "--set=control.nodeSelector.pool=system",
        "--set=policy.priorityClassName=system-cluster-critical",
        '--set-json=envoy.tolerations=[{"operator": "Exists"}]',
        '--set-json=networkPolicy.metricsFrom=[{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]',
        '--set-json=networkPolicy.xdsFrom=[{"podSelector": {"matchLabels": {"app": "grpc"}}}]',
        '--set-json=configuration={"placement": "CallOut"}',
        "--set=envoy.podAnnotations.a=b",
        "--set=envoy.service.annotations.c=d",
        "--set=serviceAccountAnnotations.e=f",
    ),
}
"""Values that each change what is installed."""


def plain_objects() -> list[Object]:
    """Return what the plain manifests install, without the namespace and the CRDs."""
    return documents((PLAIN / "authplane.yaml").read_text(encoding="utf-8"))


def chart_objects(*options: str) -> list[Object]:
    """Return what the chart installs; the test is skipped without Helm."""
    try:
        return documents(render_chart(*options))
    except AbsentError as error:
        if "not built" not in str(error).lower():
            raise
        pytest.skip(f"There is no test cluster here. {error}")


def pod_templates(objects: list[Object]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Return the Pods that these objects create, each with a name."""
    for each in objects:
        match each["kind"]:
            case "Deployment" | "DaemonSet" | "Job":
                yield each["metadata"]["name"], each["spec"]["template"]
            case "CronJob":
                yield f"{each['metadata']['name']} (CronJob)", each["spec"]["jobTemplate"]["spec"]["template"]
            case _:
                pass


def one(objects: list[Object], kind: str, name: str) -> Object:
    """Return the object of a kind and a name."""
    [found] = [each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name]
    return found
