"""What a bootstrap means, and what is said of one that means nothing."""

import json
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from authplane.core.feature_flags import FeatureFlags
from authplane.core.problems import Problem
from authplane.xds.bootstrap.credentials import (
    ChannelCredentials,
    GoogleDefault,
    IdentityFiles,
    Insecure,
    JwtTokenFile,
    ServiceCredentials,
    TlsFiles,
)
from authplane.xds.bootstrap.xds_bootstrap import (
    Authority,
    Bootstrap,
    Feature,
    Locality,
    Node,
    XdsServer,
    parse_bootstrap,
)

INSECURE = {"type": "insecure"}
SERVER = {"server_uri": "xds.example.com:443", "channel_creds": [INSECURE]}
JWT = {"type": "jwt_token_file", "config": {"jwt_token_file": "/run/token"}}


def read(value: object, flags: FeatureFlags | None = None) -> Bootstrap | tuple[Problem, ...]:
    return parse_bootstrap(json.dumps(value).encode(), flags or FeatureFlags())


def usable(value: object, flags: FeatureFlags | None = None) -> Bootstrap:
    made = read(value, flags)
    assert isinstance(made, Bootstrap), made
    return made


def said(value: object, flags: FeatureFlags | None = None) -> list[str]:
    made = read(value, flags)
    assert not isinstance(made, Bootstrap)
    return [str(each) for each in made]


def server(**more: Any) -> dict[str, Any]:
    return {"xds_servers": [SERVER | more]}


@pytest.mark.requirement("BS-1", "BS-5", "BS-6", "BS-7", "BS-8")
def test_a_whole_bootstrap_is_read() -> None:
    tls = {"ca_certificate_file": "/ca", "certificate_file": "/c", "private_key_file": "/k", "refresh_interval": "1.5s"}
    made = usable(
        {
            "xds_servers": [
                {
                    "server_uri": "a:1",
                    "channel_creds": [{"type": "tls", "config": tls}, INSECURE],
                    "call_creds": [JWT],
                    "server_features": ["xds_v3", "trusted_xds_server", "of tomorrow"],
                },
                {"server_uri": "b:1", "channel_creds": [{"type": "google_default"}]},
            ],
            "node": {
                "id": "n1",
                "cluster": "c",
                "locality": {"region": "r", "zone": "z", "sub_zone": "s"},
                "metadata": {"b": [1, None], "a": {"x": True}},
            },
            "authorities": {
                "": {},
                "east": {
                    "xds_servers": [SERVER],
                    "client_listener_resource_name_template": "xdstp://east/L/%s",
                    "fallback_on_reachability_only": True,
                },
            },
            "server_listener_resource_name_template": "server/%s",
            "client_default_listener_resource_name_template": "client/%s",
            "certificate_providers": {
                "mesh": {"plugin_name": "file_watcher", "config": tls},
                "of tomorrow": {"plugin_name": "tpm"},
            },
            "allowed_grpc_services": {"dns:///authz:1": {"channel_creds": [INSECURE], "call_creds": [JWT]}},
            "of tomorrow": 1,
        }
    )
    files = TlsFiles(ca="/ca", identity=IdentityFiles("/c", "/k"), refresh=1.5)
    jwt = JwtTokenFile("/run/token")
    plain = XdsServer(uri="xds.example.com:443", channel_creds=Insecure())
    assert made == Bootstrap(
        servers=(
            XdsServer(
                uri="a:1",
                channel_creds=files,
                call_creds=(jwt,),
                features=frozenset({Feature.XDS_V3, Feature.TRUSTED_XDS_SERVER}),
            ),
            XdsServer(uri="b:1", channel_creds=GoogleDefault()),
        ),
        node=Node(
            id="n1",
            cluster="c",
            locality=Locality(region="r", zone="z", sub_zone="s"),
            metadata='{"a":{"x":true},"b":[1,null]}',
        ),
        authorities={
            "": Authority(listener_template="xdstp:///envoy.config.listener.v3.Listener/%s"),
            "east": Authority(
                servers=(plain,), listener_template="xdstp://east/L/%s", fallback_on_reachability_only=True
            ),
        },
        listener_template="server/%s",
        client_listener_template="client/%s",
        certificate_providers={"mesh": files},
        allowed_grpc_services={"dns:///authz:1": ServiceCredentials(channel=Insecure(), calls=(jwt,))},
    )
    assert [each.trusted for each in made.servers] == [True, False]


@pytest.mark.requirement("BS-5", "BS-7", "BS-8")
def test_what_is_left_out_has_its_default() -> None:
    assert usable({"xds_servers": [SERVER], "node": None}) == Bootstrap(
        servers=(XdsServer(uri="xds.example.com:443", channel_creds=Insecure()),)
    )


class Chosen(NamedTuple):
    entries: list[dict[str, Any]]
    want: ChannelCredentials


CHANNEL_CREDS = {
    "the first": Chosen([{"type": "tls"}, INSECURE], TlsFiles()),
    "the first that is supported": Chosen([{"type": "tpm", "config": {"x": 1}}, INSECURE, {"type": "tls"}], Insecure()),
    "a config that is not needed": Chosen([{"type": "insecure", "config": {"x": 1}}], Insecure()),
    "only the CA": Chosen([{"type": "tls", "config": {"ca_certificate_file": "/ca"}}], TlsFiles(ca="/ca")),
    "a refresh that is too often": Chosen([{"type": "tls", "config": {"refresh_interval": "0s"}}], TlsFiles(refresh=1)),
    "a refresh of long ago": Chosen(
        [{"type": "tls", "config": {"refresh_interval": "315576000000s"}}], TlsFiles(refresh=315_576_000_000)
    ),
}


@pytest.mark.requirement("BS-4")
@pytest.mark.parametrize("case", CHANNEL_CREDS.values(), ids=CHANNEL_CREDS.keys())
def test_the_first_supported_channel_credentials_are_used(case: Chosen) -> None:
    assert usable(server(channel_creds=case.entries)).servers[0].channel_creds == case.want


@pytest.mark.requirement("BS-1", "W13")
def test_all_supported_call_credentials_apply_in_order_and_unknown_ones_do_not() -> None:
    other = {"type": "jwt_token_file", "config": {"jwt_token_file": "/run/other", "of tomorrow": 1}}
    creds = [{"type": "of tomorrow", "config": {"jwt_token_file": 1}}, JWT, other, JWT]
    want = (JwtTokenFile("/run/token"), JwtTokenFile("/run/other"), JwtTokenFile("/run/token"))
    assert usable(server(call_creds=creds)).servers[0].call_creds == want
    assert usable(server(call_creds=[])).servers[0].call_creds == ()
    authorities = {"authorities": {"a": {"xds_servers": [SERVER | {"call_creds": creds}]}}}
    assert usable(server() | authorities).authorities["a"].servers[0].call_creds == want


@pytest.mark.requirement("BS-3", "W13")
@pytest.mark.parametrize("creds", [[JWT], [{"type": "jwt_token_file"}], [{}], 3])
def test_call_credentials_that_are_switched_off_are_not_even_looked_at(creds: object) -> None:
    made = usable(
        server(call_creds=creds) | {"allowed_grpc_services": {"a": {"channel_creds": [INSECURE], "call_creds": creds}}},
        FeatureFlags(bootstrap_call_creds=False),
    )
    assert made.servers[0].call_creds == ()
    assert made.allowed_grpc_services == {"a": ServiceCredentials(channel=Insecure())}


@pytest.mark.requirement("GS-11")
def test_allowed_services_are_read_only_while_a_filter_may_name_one() -> None:
    value = server() | {"allowed_grpc_services": {"a": {}}}
    wrong = ["allowed_grpc_services.a.channel_creds: This field is required. Add it. [Missing]"]
    assert said(value) == wrong
    assert said(value, FeatureFlags(ext_authz_on_client=False)) == wrong
    assert usable(value, FeatureFlags(ext_authz_on_client=False, ext_authz_on_server=False)).allowed_grpc_services == {}


@pytest.mark.requirement("BS-6")
def test_features_that_are_no_words_are_ignored_as_unknown_ones_are() -> None:
    named = ["xds_v3", {"trusted_xds_server": True}, 1, None, ["fail_on_data_errors"], "TRUSTED_XDS_SERVER"]
    made = usable(server(server_features=[*named, *(each.value for each in Feature if each.value != "xds_v3")]))
    assert made.servers[0].features == frozenset(Feature)
    made = usable(server(server_features=named))
    assert made.servers[0].features == frozenset({Feature.XDS_V3})
    assert not made.servers[0].trusted


WRONG: dict[str, tuple[object, list[str]]] = {
    "no object": ([], ["Expected an object, got a list. [WrongType]"]),
    "no servers": ({}, ["xds_servers: This field is required. Add it. [Missing]"]),
    "null for servers": ({"xds_servers": None}, ["xds_servers: This field is required. Add it. [Missing]"]),
    "an empty list of servers": ({"xds_servers": []}, ["xds_servers: The list is empty. Add an element. [Invalid]"]),
    "servers that are no list": (
        {"xds_servers": SERVER},
        ["xds_servers: Expected a list, got an object. [WrongType]"],
    ),
    "a server that is no object": (
        {"xds_servers": [SERVER, "a:1"]},
        ["xds_servers[1]: Expected an object, got a string. [WrongType]"],
    ),
    "an empty server": (
        {"xds_servers": [{}]},
        [
            "xds_servers[0].server_uri: This field is required. Add it. [Missing]",
            "xds_servers[0].channel_creds: This field is required. Add it. [Missing]",
        ],
    ),
    "no URI in it": (server(server_uri=""), ["xds_servers[0].server_uri: The value is empty. Set it. [Invalid]"]),
    "no supported credentials": (
        server(channel_creds=[{"type": "tpm"}]),
        [
            "xds_servers[0].channel_creds: No entry has a supported type. Supported: insecure, google_default, tls. "
            "[Unsupported]"
        ],
    ),
    "every supported entry is validated": (
        server(
            channel_creds=[
                INSECURE,
                {},
                {"type": 1},
                {"type": "tpm", "config": 1},
                {"type": "tls", "config": {"certificate_file": "/c"}},
                {"type": "tls", "config": {"private_key_file": "/k", "refresh_interval": "10m"}},
                {"type": "tls", "config": {"ca_certificate_file": "", "refresh_interval": 600}},
                {"type": "tls", "config": {"ca_certificate_file": "/a\0b", "refresh_interval": "315576000001s"}},
            ]
        ),
        [
            "xds_servers[0].channel_creds[1].type: This field is required. Add it. [Missing]",
            "xds_servers[0].channel_creds[2].type: Expected a string, got a number. [WrongType]",
            "xds_servers[0].channel_creds[3].config: Expected an object, got a number. [WrongType]",
            "xds_servers[0].channel_creds[4].config.private_key_file: This field is required together with "
            "certificate_file. Add it. [Missing]",
            "xds_servers[0].channel_creds[5].config.certificate_file: This field is required together with "
            "private_key_file. Add it. [Missing]",
            "xds_servers[0].channel_creds[5].config.refresh_interval: Expected a duration such as '600s' or '1.5s'. "
            "[Invalid]",
            "xds_servers[0].channel_creds[6].config.ca_certificate_file: The value is empty. Set it. [Invalid]",
            "xds_servers[0].channel_creds[6].config.refresh_interval: Expected a string, got a number. [WrongType]",
            "xds_servers[0].channel_creds[7].config.ca_certificate_file: The value has a NUL "
            "character. Remove it. [Invalid]",
            "xds_servers[0].channel_creds[7].config.refresh_interval: Expected a duration such as '600s' or '1.5s'. "
            "[Invalid]",
        ],
    ),
    "call credentials": (
        server(
            call_creds=[
                {},
                {"type": "jwt_token_file"},
                {"type": "jwt_token_file", "config": {"jwt_token_file": ""}},
                {"type": "jwt_token_file", "config": {"jwt_token_file": ["/t"]}},
                {"type": "of tomorrow", "config": []},
                JWT,
            ]
        ),
        [
            "xds_servers[0].call_creds[0].type: This field is required. Add it. [Missing]",
            "xds_servers[0].call_creds[1].config.jwt_token_file: This field is required. Add it. [Missing]",
            "xds_servers[0].call_creds[2].config.jwt_token_file: The value is empty. Set it. [Invalid]",
            "xds_servers[0].call_creds[3].config.jwt_token_file: Expected a string, got a list. [WrongType]",
            "xds_servers[0].call_creds[4].config: Expected an object, got a list. [WrongType]",
        ],
    ),
    "features": (
        server(server_features="xds_v3"),
        ["xds_servers[0].server_features: Expected a list, got a string. [WrongType]"],
    ),
    "the node": (
        server() | {"node": {"id": 1, "cluster": True, "locality": {"region": [], "zone": 1}, "metadata": "x"}},
        [
            "node.id: Expected a string, got a number. [WrongType]",
            "node.cluster: Expected a string, got a boolean. [WrongType]",
            "node.locality.region: Expected a string, got a list. [WrongType]",
            "node.locality.zone: Expected a string, got a number. [WrongType]",
            "node.metadata: Expected an object, got a string. [WrongType]",
        ],
    ),
    "authorities": (
        server()
        | {
            "authorities": {
                "a.example": {"client_listener_resource_name_template": "xdstp://a/L/%s", "xds_servers": [{}]},
                "b": {"fallback_on_reachability_only": "yes"},
                "c": 1,
            }
        },
        [
            'authorities.["a.example"].client_listener_resource_name_template: The name does not '
            "begin with 'xdstp://a.example/'. Add this prefix. "
            "[Invalid]",
            'authorities.["a.example"].xds_servers[0].server_uri: This field is required. Add it. [Missing]',
            'authorities.["a.example"].xds_servers[0].channel_creds: This field is required. Add it. [Missing]',
            "authorities.b.fallback_on_reachability_only: Expected true or false, got a string. [WrongType]",
            "authorities.c: Expected an object, got a number. [WrongType]",
        ],
    ),
    "templates": (
        server() | {"server_listener_resource_name_template": 1, "client_default_listener_resource_name_template": {}},
        [
            "server_listener_resource_name_template: Expected a string, got a number. [WrongType]",
            "client_default_listener_resource_name_template: Expected a string, got an object. [WrongType]",
        ],
    ),
    "certificate providers": (
        server()
        | {
            "certificate_providers": {
                "a": {},
                "b": {"plugin_name": "file_watcher"},
                "c": {"plugin_name": "file_watcher", "config": {"certificate_file": "/c"}},
                "d": {"plugin_name": "tpm", "config": 1},
            }
        },
        [
            "certificate_providers.a.plugin_name: This field is required. Add it. [Missing]",
            "certificate_providers.b.config: Neither a CA file nor a certificate with its key is set. "
            "Add ca_certificate_file, or certificate_file and private_key_file. [Missing]",
            "certificate_providers.c.config.private_key_file: This field is required together with "
            "certificate_file. Add it. [Missing]",
            "certificate_providers.d.config: Expected an object, got a number. [WrongType]",
        ],
    ),
    "allowed services": (
        server()
        | {
            "allowed_grpc_services": {
                "": {"channel_creds": [INSECURE]},
                "dns:///a:1": {"channel_creds": [], "call_creds": [{}]},
            }
        },
        [
            'allowed_grpc_services.[""]: The target is empty. Name a gRPC target. [Invalid]',
            'allowed_grpc_services.["dns:///a:1"].channel_creds: No entry has a supported type. '
            "Supported: insecure, google_default, tls. [Unsupported]",
            'allowed_grpc_services.["dns:///a:1"].call_creds[0].type: This field is required. Add it. [Missing]',
        ],
    ),
}


@pytest.mark.requirement("BS-2", "BS-4", "BS-5", "BS-7", "W13")
@pytest.mark.parametrize(("value", "want"), WRONG.values(), ids=WRONG.keys())
def test_every_problem_is_said_at_once_with_its_path(value: object, want: list[str]) -> None:
    assert said(value) == want


NO_JSON = {
    "nothing": b"",
    "rubbish": b"{xds_servers: []}",
    "a member that stands twice": b'{"node": {"id": "a", "id": "b"}}',
    "no UTF-8": b'{"node": "\xff"}',
    "too deep": b"[" * 100,
    "too large": b" " * (1024 * 1024 + 1),
}


@pytest.mark.requirement("BS-5")
@pytest.mark.parametrize("text", NO_JSON.values(), ids=NO_JSON.keys())
def test_what_is_no_strict_json_is_one_problem(text: bytes) -> None:
    made = parse_bootstrap(text, FeatureFlags())
    assert isinstance(made, tuple)
    assert [(each.path, each.reason) for each in made] == [((), "NotJson")]


def test_a_problem_never_quotes_what_may_be_a_secret() -> None:
    made = said(server(call_creds=[{"type": "jwt_token_file", "config": "s3cret"}]))
    assert "s3cret" not in str(made)


KEYS = st.sampled_from(
    [
        "xds_servers", "server_uri", "channel_creds", "call_creds", "type", "config", "server_features", "node",
        "metadata", "locality", "id", "authorities", "certificate_providers", "plugin_name", "allowed_grpc_services",
        "jwt_token_file", "certificate_file", "refresh_interval", "client_listener_resource_name_template", "x.y",
    ]
)  # fmt: skip
LEAVES = st.none() | st.booleans() | st.integers() | st.sampled_from(["", "insecure", "tls", "jwt_token_file", "1s"])
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=30
)


@pytest.mark.slow
@settings(deadline=None)
@given(VALUES)
def test_any_json_is_a_bootstrap_or_problems_whose_paths_lead_somewhere(value: object) -> None:
    made = read(value)
    if isinstance(made, Bootstrap):
        assert made.servers
    else:
        assert made
        assert len({str(each) for each in made}) == len(made)
