import pytest

from authplane.core.feature_flags import FeatureFlags, parse_guards

CASES = {
    "nothing is set": ({}, FeatureFlags()),
    "the first name of ext_authz is for both sides": (
        {"GRPC_EXPERIMENTAL_XDS_EXT_AUTHZ": "false"},
        FeatureFlags(ext_authz_on_client=False, ext_authz_on_server=False),
    ),
    "ext_authz off on clients": (
        {"GRPC_EXPERIMENTAL_XDS_EXT_AUTHZ": "true", "GRPC_EXPERIMENTAL_XDS_EXT_AUTHZ_ON_CLIENT": "0"},
        FeatureFlags(ext_authz_on_client=False),
    ),
    "ext_authz off on servers": (
        {"GRPC_EXPERIMENTAL_XDS_EXT_AUTHZ_ON_SERVER": " False "},
        FeatureFlags(ext_authz_on_server=False),
    ),
    "no composite filter": ({"GRPC_EXPERIMENTAL_XDS_COMPOSITE_FILTER": "no"}, FeatureFlags(composite_filter=False)),
    "no call credentials": (
        {"GRPC_EXPERIMENTAL_XDS_BOOTSTRAP_CALL_CREDS": "off"},
        FeatureFlags(bootstrap_call_creds=False),
    ),
    "on, empty and unheard of": (
        {
            "GRPC_EXPERIMENTAL_XDS_EXT_AUTHZ": "1",
            "GRPC_EXPERIMENTAL_XDS_COMPOSITE_FILTER": "",
            "GRPC_EXPERIMENTAL_XDS_BOOTSTRAP_CALL_CREDS": "perhaps",
        },
        FeatureFlags(),
    ),
}


@pytest.mark.parametrize(("environment", "want"), CASES.values(), ids=CASES.keys())
def test_a_feature_is_on_unless_its_variable_says_no(environment: dict[str, str], want: FeatureFlags) -> None:
    assert parse_guards(environment) == want
