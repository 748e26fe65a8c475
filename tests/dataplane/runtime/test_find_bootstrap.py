"""Where a bootstrap comes from."""

import json
from pathlib import Path
from typing import Any

import pytest

from authplane.core.problems import Problem
from authplane.dataplane.runtime.xds.find_bootstrap import BootstrapError, load_bootstrap


def bootstrap(uri: str) -> dict[str, Any]:
    return {
        "xds_servers": [
            {
                "server_uri": uri,
                "channel_creds": [{"type": "insecure"}],
                "call_creds": [{"type": "jwt_token_file", "config": {"jwt_token_file": "/token"}}],
            }
        ]
    }


def uri_of(source: Any = None, **environment: str) -> str:
    return load_bootstrap(source, environment=environment).servers[0].uri


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "bootstrap.json"
    path.write_text(json.dumps(bootstrap("file:1")))
    return path


@pytest.mark.requirement("BS-5")
def test_the_file_of_the_environment_wins_over_its_text(file: Path) -> None:
    text = json.dumps(bootstrap("text:1"))
    assert uri_of(GRPC_XDS_BOOTSTRAP=str(file), GRPC_XDS_BOOTSTRAP_CONFIG=text) == "file:1"
    assert uri_of(GRPC_XDS_BOOTSTRAP_CONFIG=text) == "text:1"
    assert uri_of(GRPC_XDS_BOOTSTRAP="", GRPC_XDS_BOOTSTRAP_CONFIG=text) == "text:1"


@pytest.mark.requirement("BS-5")
def test_a_file_that_cannot_be_read_does_not_give_way_to_the_text() -> None:
    with pytest.raises(BootstrapError, match="Cannot read the xDS bootstrap /nowhere: No such file or directory"):
        uri_of(GRPC_XDS_BOOTSTRAP="/nowhere", GRPC_XDS_BOOTSTRAP_CONFIG=json.dumps(bootstrap("text:1")))


def test_what_the_program_passes_wins_over_the_environment(file: Path) -> None:
    assert uri_of(file, GRPC_XDS_BOOTSTRAP="/nowhere") == "file:1"
    assert uri_of(str(file), GRPC_XDS_BOOTSTRAP="/nowhere") == "file:1"
    assert uri_of(bootstrap("dict:1"), GRPC_XDS_BOOTSTRAP="/nowhere") == "dict:1"


def test_without_any_source_the_error_says_how_to_name_one() -> None:
    with pytest.raises(BootstrapError) as failed:
        load_bootstrap(environment={})
    assert str(failed.value) == (
        "authplane found no xDS bootstrap. "
        "Set GRPC_XDS_BOOTSTRAP to its path, set GRPC_XDS_BOOTSTRAP_CONFIG to its text, or pass it as an argument."
    )


@pytest.mark.requirement("BS-5")
def test_the_error_names_the_source_and_every_problem(file: Path) -> None:
    file.write_text('{"xds_servers": [{}], "node": 1}')
    with pytest.raises(BootstrapError) as failed:
        load_bootstrap(environment={"GRPC_XDS_BOOTSTRAP": str(file)})
    assert str(failed.value).splitlines() == [
        f"Cannot use the xDS bootstrap {file} (GRPC_XDS_BOOTSTRAP). Fix these problems.",
        "xds_servers[0].server_uri: This field is required. Add it. [Missing]",
        "xds_servers[0].channel_creds: This field is required. Add it. [Missing]",
        "node: Expected an object, got a number. [WrongType]",
    ]
    assert failed.value.problems[2] == Problem(("node",), "WrongType", "Expected an object, got a number.")


SOURCES: dict[str, tuple[Any, str]] = {
    "values that are no JSON": ({"node": {1}}, "has a value that is not JSON"),
    "a number that is no JSON": ({"node": float("nan")}, "has a value that is not JSON"),
    "a folder": ("/", "Cannot read the xDS bootstrap /: Is a directory"),
    "a path with a NUL": ("/a\0b", "not a file path. Check the path"),
    "a file that is too large": ("/dev/zero", "larger than 1048576 bytes"),
}


@pytest.mark.parametrize(("source", "why"), SOURCES.values(), ids=SOURCES.keys())
def test_a_source_that_is_none_is_an_error(source: Any, why: str) -> None:
    with pytest.raises(BootstrapError, match=why):
        load_bootstrap(source, environment={})


@pytest.mark.requirement("BS-3", "W13")
def test_the_environment_switches_features_off() -> None:
    off = {"GRPC_EXPERIMENTAL_XDS_BOOTSTRAP_CALL_CREDS": "false"}
    assert load_bootstrap(bootstrap("a:1"), environment={}).servers[0].call_creds != ()
    assert load_bootstrap(bootstrap("a:1"), environment=off).servers[0].call_creds == ()
