"""The permissions that `authplane doctor --kubernetes` checks are those of the manifests."""

import pytest
from tests.deploy.test_permissions import Access, granted
from tools.kubernetes.manifests import NAMESPACE

from authplane.devkit.diagnosis.cluster_permissions import Component, needed_permissions
from authplane.sources.kubernetes.api_kinds import api_kinds


@pytest.mark.parametrize(
    ("component", "name"), [(Component.CONTROL, "control"), (Component.POLICY, "policy")], ids=["control", "policy"]
)
def test_the_manifests_grant_what_doctor_checks(component: Component, name: str) -> None:
    installed = [each.resource for each in api_kinds()]
    needed = {
        Access(each.group, each.resource, each.verb, each.namespace)
        for each in needed_permissions(component, installed, [], NAMESPACE)
    }
    assert needed - granted(name) == set()
