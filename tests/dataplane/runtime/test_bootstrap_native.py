"""Our reading of bootstraps beside that of gRPC's own xDS client, which grpcio carries."""

import json
import os
import subprocess
import sys
from typing import Any, NamedTuple

import pytest

from authplane.core.feature_flags import FeatureFlags
from authplane.xds.bootstrap.xds_bootstrap import Bootstrap, parse_bootstrap

INSECURE = {"type": "insecure"}
SERVER = {"server_uri": "127.0.0.1:1", "channel_creds": [INSECURE]}


def server(**more: Any) -> dict[str, Any]:
    return {"xds_servers": [SERVER | more]}


def tls(**config: Any) -> dict[str, Any]:
    return server(channel_creds=[INSECURE, {"type": "tls", "config": config}])


def provider(**more: Any) -> dict[str, Any]:
    return server() | {"certificate_providers": {"a": more}}


class Case(NamedTuple):
    value: object
    differs: str = ""
    """Why we refuse what gRPC accepts, or the other way round."""


CASES = {
    "a small one": Case(server()),
    "no object": Case([]),
    "no servers": Case({}),
    "null for servers": Case({"xds_servers": None}),
    "an empty list of servers": Case({"xds_servers": []}),
    "servers that are no list": Case({"xds_servers": SERVER}),
    "a server that is no object": Case({"xds_servers": [1]}),
    "an empty server": Case({"xds_servers": [{}]}),
    "a URI that is a number": Case(server(server_uri=1)),
    "an empty URI": Case(server(server_uri=""), "gRPC reports it when it connects; authplane reports it immediately"),
    "null for a URI": Case(server(server_uri=None)),
    "unknown fields": Case(server(of_tomorrow=1) | {"of_tomorrow": {}}),
    "null for the node": Case(server() | {"node": None}),
    "a whole node": Case(
        server() | {"node": {"id": "a", "cluster": "b", "locality": {"zone": "z"}, "metadata": {"x": [1, None]}}}
    ),
    "a node that is a text": Case(server() | {"node": "a"}),
    "a node whose id is a number": Case(server() | {"node": {"id": 1}}),
    "a locality that is a text": Case(server() | {"node": {"locality": "a"}}),
    "a zone that is a number": Case(server() | {"node": {"locality": {"zone": 1}}}),
    "metadata that is a list": Case(server() | {"node": {"metadata": []}}),
    "no supported channel credentials": Case(server(channel_creds=[{"type": "tpm"}])),
    "channel credentials that are empty": Case(server(channel_creds=[])),
    "channel credentials without a type": Case(server(channel_creds=[INSECURE, {}])),
    "an unknown type after a known one": Case(server(channel_creds=[INSECURE, {"type": "tpm"}])),
    "a config that is no object, of a known type": Case(server(channel_creds=[{"type": "insecure", "config": 1}])),
    "a config that is no object, of an unknown type": Case(
        server(channel_creds=[INSECURE, {"type": "tpm", "config": 1}])
    ),
    "TLS with nothing": Case(tls()),
    "TLS with all": Case(tls(ca_certificate_file="/a", certificate_file="/c", private_key_file="/k")),
    "TLS with a certificate only": Case(tls(certificate_file="/c")),
    "TLS with a key only": Case(tls(private_key_file="/k")),
    "TLS with a path that is a number": Case(tls(ca_certificate_file=1)),
    "TLS with an empty path": Case(tls(ca_certificate_file=""), "no file has an empty name"),
    "a refresh in seconds": Case(tls(refresh_interval="1.5s")),
    "a refresh without its unit": Case(tls(refresh_interval="600")),
    "a refresh that is a number": Case(tls(refresh_interval=600)),
    "no call credentials": Case(server(call_creds=[])),
    "call credentials that are no list": Case(server(call_creds={})),
    "call credentials without a type": Case(server(call_creds=[{}])),
    "unknown call credentials": Case(server(call_creds=[{"type": "of tomorrow"}])),
    "a token file": Case(server(call_creds=[{"type": "jwt_token_file", "config": {"jwt_token_file": "/t"}}])),
    "a token file without a config": Case(server(call_creds=[{"type": "jwt_token_file"}])),
    "a token file whose path is a number": Case(
        server(call_creds=[{"type": "jwt_token_file", "config": {"jwt_token_file": 1}}])
    ),
    "a token file without a name": Case(
        server(call_creds=[{"type": "jwt_token_file", "config": {"jwt_token_file": ""}}]), "no file has an empty name"
    ),
    "features": Case(server(server_features=["xds_v3", "of tomorrow", 1, None, {}])),
    "features that are no list": Case(server(server_features="xds_v3")),
    "an authority with nothing": Case(server() | {"authorities": {"a": {}, "": {}}}),
    "an authority with no servers": Case(server() | {"authorities": {"a": {"xds_servers": []}}}),
    "an authority with a bad server": Case(server() | {"authorities": {"a": {"xds_servers": [{}]}}}),
    "an authority with its own template": Case(
        server() | {"authorities": {"a": {"client_listener_resource_name_template": "xdstp://a/L/%s"}}}
    ),
    "an authority with the template of another": Case(
        server() | {"authorities": {"a": {"client_listener_resource_name_template": "xdstp://b/L/%s"}}}
    ),
    "an authority with an empty template": Case(
        server() | {"authorities": {"a": {"client_listener_resource_name_template": ""}}}
    ),
    "authorities that are a list": Case(server() | {"authorities": []}),
    "a template that is a number": Case(server() | {"server_listener_resource_name_template": 1}),
    "a default template that is a number": Case(server() | {"client_default_listener_resource_name_template": 1}),
    "certificates in files": Case(provider(plugin_name="file_watcher", config={"ca_certificate_file": "/a"})),
    "certificates in no files": Case(provider(plugin_name="file_watcher", config={})),
    "certificates without their key": Case(provider(plugin_name="file_watcher", config={"certificate_file": "/c"})),
    "a provider without a plugin": Case(provider(config={})),
    "a provider of an unknown plugin": Case(
        provider(plugin_name="tpm"), "authplane rejects the resources that use it instead, as grpc-go does"
    ),
}


@pytest.fixture(scope="module")
def native() -> dict[str, str]:
    """Ask gRPC about each case."""
    environment = os.environ | {"GRPC_EXPERIMENTAL_XDS_BOOTSTRAP_CALL_CREDS": "true", "GRPC_VERBOSITY": "NONE"}
    environment.pop("GRPC_XDS_BOOTSTRAP", None)
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.grpc.native_bootstrap"],
        input=json.dumps([json.dumps(case.value) for case in CASES.values()]),
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return dict(zip(CASES, json.loads(done.stdout), strict=True))


@pytest.mark.real
@pytest.mark.requirement("BS-1", "BS-2", "BS-4", "BS-5", "BS-6", "BS-7")
@pytest.mark.parametrize("name", CASES)
def test_we_refuse_what_grpc_refuses_and_differ_only_on_purpose(native: dict[str, str], name: str) -> None:
    case = CASES[name]
    ours = parse_bootstrap(json.dumps(case.value).encode(), FeatureFlags())
    agree = isinstance(ours, Bootstrap) == (native[name] == "")
    assert agree != bool(case.differs), (ours, native[name])
