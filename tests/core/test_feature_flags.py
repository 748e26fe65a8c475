import pytest

from authplane.core.feature_flags import Guards, parse_guards

CASES = {
    "nothing is set": ({}, Guards()),
    "the first name of ext_authz is for both sides": (
        {"GRPC_EXPERIMENTAL_XDS_EXT_AUTHZ": "false"},
        Guards(ext_authz_on_client=False, ext_authz_on_server=False),
    ),
    "ext_authz off on clients": (
        {"GRPC_EXPERIMENTAL_XDS_EXT_AUTHZ": "true", "GRPC_EXPERIMENTAL_XDS_EXT_AUTHZ_ON_CLIENT": "0"},
        Guards(ext_authz_on_client=False),
    ),
    "ext_authz off on servers": (
        {"GRPC_EXPERIMENTAL_XDS_EXT_AUTHZ_ON_SERVER": " False "},
        Guards(ext_authz_on_server=False),
    ),
    "no composite filter": ({"GRPC_EXPERIMENTAL_XDS_COMPOSITE_FILTER": "no"}, Guards(composite_filter=False)),
    "no call credentials": ({"GRPC_EXPERIMENTAL_XDS_BOOTSTRAP_CALL_CREDS": "off"}, Guards(bootstrap_call_creds=False)),
    "on, empty and unheard of": (
        {
            "GRPC_EXPERIMENTAL_XDS_EXT_AUTHZ": "1",
            "GRPC_EXPERIMENTAL_XDS_COMPOSITE_FILTER": "",
            "GRPC_EXPERIMENTAL_XDS_BOOTSTRAP_CALL_CREDS": "perhaps",
        },
        Guards(),
    ),
}


@pytest.mark.parametrize(("environment", "want"), CASES.values(), ids=CASES.keys())
def test_a_feature_is_on_unless_its_variable_says_no(environment: dict[str, str], want: Guards) -> None:
    assert parse_guards(environment) == want
