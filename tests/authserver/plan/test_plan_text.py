"""A plan survives its way to other processes: one value, whoever made it and whoever reads it."""

import dataclasses
import types
from enum import Enum
from pathlib import Path
from typing import Any, Final, get_args, get_type_hints

import pytest

from authplane.authserver.engine.backend_choice import ByContext, ByHost, ByPath
from authplane.authserver.engine.http_check import ForwardedHeaders, OriginalHeaders, SameRequest
from authplane.authserver.plan.plan_text import _TYPES, plan_text, read_plan
from authplane.authserver.plan.server_plan import (
    BranchPlan,
    Engine,
    FilePlan,
    FrontLimits,
    FrontPlan,
    HtpasswdPlan,
    PolicyPlan,
    ServerPlan,
)
from authplane.authserver.plan.server_plan import TestServerPlan as ForTests
from authplane.authserver.runtime.server_document import read_document
from authplane.cli.shared.front_options import Front
from authplane.runtime.log import LogFormat
from authplane.runtime.servers.admin import AdminSettings
from authplane.runtime.servers.listen import TcpAddress, TlsPaths, UnixAddress

HERE: Final = TcpAddress(host="127.0.0.1", port=9443)
TEST: Final = BranchPlan(name="testserver", backend=ForTests())
PLANS: Final = {
    "as little as there can be": ServerPlan(branches=(), fronts=()),
    "everything": ServerPlan(
        branches=(
            BranchPlan(name="test", when=(ByPath("/a"), ByHost("*.example")), backend=ForTests(mode="path")),
            BranchPlan(
                name="users",
                when=(ByContext("realm", "a"),),
                backend=HtpasswdPlan(
                    realm="shop",
                    files=(FilePlan(path="users"), FilePlan(path="ü", realm="é")),
                    folder="f",
                    selector="a=b",
                    namespaces=("a", "b"),
                    strict=True,
                    forward_credentials=True,
                    trusted_hops=2,
                    poll=True,
                    state_dir="/var",
                ),
            ),
            BranchPlan(name="policy", backend=PolicyPlan(folder="p", loosen_after=0.5, target="Backend/a/b")),
        ),
        fronts=(
            FrontPlan(
                address=HERE,
                tls=TlsPaths(certificate="c", key="k", ca="a"),
                workers=4,
                in_flight=7,
                limits=FrontLimits(calls=3, idle=0.5),
            ),
            FrontPlan(address=UnixAddress(path="/run/a b"), form=SameRequest(prefix="/check"), grace=0.0),
            FrontPlan(address=HERE, form=ForwardedHeaders()),
            FrontPlan(address=HERE, form=OriginalHeaders(), largest_message=1),
        ),
        engine=Engine.PYVOY,
        public=True,
        admin=AdminSettings(address=HERE, public=True, names=("a.example",)),
        decision_log="",
        log_format=LogFormat.JSON,
    ),
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS.keys())
def test_a_plan_is_read_as_it_was_written(plan: ServerPlan) -> None:
    read = read_plan(plan_text(plan))
    assert (read, repr(read)) == (plan, repr(plan))
    assert plan_text(read) == plan_text(plan)


def test_every_type_of_a_plan_can_be_written_and_read() -> None:
    assert set(_held(ServerPlan)) == set(_TYPES.values())


def _held(hint: Any) -> set[Any]:
    """Return our types in a type and in those of its fields."""
    found: set[Any] = set()
    if dataclasses.is_dataclass(hint):
        assert isinstance(hint, type)
        found = {hint}.union(*(_held(each) for each in get_type_hints(hint).values()))
    elif isinstance(hint, type) and issubclass(hint, Enum):
        found = {hint}
    for each in get_args(hint):
        found |= _held(each)
    assert found or get_args(hint) or hint in {str, int, float, bool, types.NoneType, Ellipsis}, hint
    return found


@pytest.mark.parametrize(
    "text", ["{}", "[]", '{"type": "ServerPlan"}', '{"type": "TcpAddress", "host": "", "port": 1}']
)
def test_what_is_no_plan_is_not_read(text: str) -> None:
    with pytest.raises((KeyError, TypeError)):
        read_plan(text)


def test_options_make_a_plan() -> None:
    tls = TlsPaths(certificate="c", key="k", ca="a")
    front = Front(
        address=":9443",
        engine=Engine.PYVOY,
        workers=2,
        in_flight=5,
        http_address="unix:/run/http",
        http_form="forwarded",
        tls_cert_path="c",
        tls_key_path="k",
        tls_ca_path="a",
        decision_log="log",
        metrics_address="127.0.0.1:1",
        metrics_host=["a.example"],
        log_format=LogFormat.JSON,
    )
    assert front.plan(TEST) == ServerPlan(
        branches=(TEST,),
        fronts=(
            FrontPlan(address=TcpAddress(host="", port=9443), tls=tls, workers=2, in_flight=5),
            FrontPlan(address=UnixAddress(path="/run/http"), form=ForwardedHeaders(), tls=tls, in_flight=5),
        ),
        engine=Engine.PYVOY,
        admin=AdminSettings(address=TcpAddress(host="127.0.0.1", port=1), names=("a.example",)),
        decision_log="log",
        log_format=LogFormat.JSON,
    )


def test_a_document_makes_the_same_plan_as_options(tmp_path: Path) -> None:
    file = tmp_path / "server.yaml"
    file.write_text(
        "apiVersion: authplane.dev/v1alpha1\nkind: AuthorizationService\nmetadata: {name: a}\n"
        "spec: {backends: [{name: testserver, testserver: {}}]}\n",
        encoding="utf-8",
    )
    front = Front(metrics_address="")
    assert front.plan(*read_document(file).branches) == front.plan(TEST)
