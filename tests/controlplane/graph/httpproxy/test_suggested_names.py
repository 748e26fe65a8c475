"""A reference with a typing error suggests the resource of the same namespace that it may mean."""

import pytest
from tests.support.resources.contour_documents import PROXY, world

CASES = {
    "an ExtensionService": (
        "extensionRef: {name: auth}",
        "extensionRef: {name: aauth}",
        "extension service \"default/aauth\" not found. Did you mean 'auth'?",
    ),
    "a Secret": ("secretName: tls", "secretName: tlss", "Secret not found (did you mean 'tls'?). Add the Secret."),
    "a Service": (
        "{name: echo, port: 80}",
        "{name: eco, port: 80}",
        "service \"default/eco\" not found. Did you mean 'echo'?",
    ),
    "another namespace": (
        "extensionRef: {name: auth}",
        "extensionRef: {name: auth, namespace: other}",
        'extension service "other/auth" not found',
    ),
}


@pytest.mark.parametrize(("written", "instead", "want"), CASES.values(), ids=CASES.keys())
def test_a_similar_name_is_suggested(written: str, instead: str, want: str) -> None:
    assert written in PROXY
    [(_, message)] = world(proxy=PROXY.replace(written, instead)).problems("HTTPProxy")
    assert message.endswith(want)
