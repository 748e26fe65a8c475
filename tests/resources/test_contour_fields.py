"""Every field of Contour's kinds for settings is known here: none of them is refused."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from authplane.resources.document_chunks import build_chunk
from authplane.resources.kinds.contour_file import WrittenFile
from authplane.resources.typed.shapes import shape_of

FIELDS: Final = [
    tuple(line.split())
    for line in (Path(__file__).parent / "contour_fields.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]
SAMPLES: Final = {"text": "x", "number": 1, "truth": True, "mapping": {"a": "b"}}
"""Unless the name of the field demands more."""
BY_NAME: Final = {
    "apiVersion": "projectcontour.io/v1alpha1",
    "cipherSuites[]": "AES256-SHA",
    "ecdhCurves[]": "X25519",
    "minimumProtocolVersion": "1.3",
    "maximumProtocolVersion": "1.3",
    "serviceType": "http",
}
NAMED: Final = {"clientCertificate", "fallbackCertificate"}
"""Objects of which both fields are required."""


def document(kind: str, path: str, sample: Any) -> str:
    """Return a document with this field and no other, as JSON."""
    *above, last = path.split(".")
    names = {"name": "x", "namespace": "x"} if above[-1] in NAMED else {}
    value: Any = {**names, **_set(last, sample)}
    for step in reversed(above):
        value = _set(step, value)
    metadata = {"name": "contour"}
    return json.dumps({"apiVersion": "projectcontour.io/v1alpha1", "kind": kind, "metadata": metadata, **value})


def _set(step: str, value: Any) -> dict[str, Any]:
    name = step.removesuffix("[]")
    return {name: value if name == step else [value]}


def cases() -> Iterator[tuple[str, str, Any]]:
    for kind, path, of_type in FIELDS:
        sample = BY_NAME.get(path.rpartition(".")[2], SAMPLES[of_type])
        yield kind, path, sample
        if kind == "ContourConfiguration":
            yield "ContourDeployment", path.replace("spec.", "spec.runtimeSettings.", 1), sample


@pytest.mark.parametrize(
    ("kind", "path", "sample"), list(cases()), ids=lambda each: each if isinstance(each, str) else ""
)
def test_no_field_of_contour_is_refused(kind: str, path: str, sample: Any) -> None:
    [doc] = build_chunk(document(kind, path, sample)).docs
    assert doc.resource is not None, doc.spots


def test_fields_that_contour_does_not_have_are_refused() -> None:
    for path in ("spec.nothing", "spec.envoy.nothing", "spec.envoy.cluster.perConnectionBufferLimitBytes"):
        [doc] = build_chunk(document("ContourConfiguration", path, 1)).docs
        assert [spot.problem.reason for spot in doc.spots] == ["FieldUnknown"]


FILE_KEYS: Final = (
    "accesslog-format", "accesslog-format-string", "accesslog-level", "cluster", "compression",
    "default-http-versions", "disableAllowChunkedLength", "disableMergeSlashes", "disablePermitInsecure",
    "enableExternalNameService", "envoy-service-name", "envoy-service-namespace", "featureFlags", "gateway",
    "globalExtAuth", "incluster", "ingress-status-address", "json-fields", "kubeconfig", "kubernetesClientBurst",
    "kubernetesClientQPS", "listener", "metrics", "network", "omEnforcedHealthListener", "policy", "rateLimitService",
    "runtime-settings", "server", "serverHeaderTransformation", "timeouts", "tls", "tracing",
)  # fmt: skip
"""The keys of Contour's configuration file."""


def test_every_key_of_the_configuration_file_is_known() -> None:
    shape = shape_of(WrittenFile)
    assert sorted((*shape.readers, *shape.upstream.silent, *shape.upstream.ignored)) == sorted(FILE_KEYS)
