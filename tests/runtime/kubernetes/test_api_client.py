"""Requests to an API server: credentials are sent and renewed, limits hold, faults are one exception."""

from pathlib import Path

import pytest
from tests.support.certificates import authority, client, server
from tests.support.kubernetes.fake_api_server import Asked, FakeApiServer, reply

from authplane.core.secret import Secret
from authplane.runtime.kubernetes.api_client import (
    ApiClient,
    ApiLimits,
    ApiStatusError,
    ApiTooLargeError,
    ApiUnreachableError,
)
from authplane.runtime.kubernetes.api_credentials import Credentials
from authplane.runtime.kubernetes.kubeconfig import ExecPlugin, Login, Pem

CA = Pem(content=Secret(authority().certificate))


async def test_a_request_carries_query_body_and_token(tmp_path: Path) -> None:
    async with FakeApiServer(lambda _: reply(201, b'{"made": true}')).serve(tmp_path) as api:
        login = Login(server=f"{api.url}/prefix", ca=CA, token=Secret("one"))
        async with ApiClient(Credentials(login)) as talk:
            got = await talk.request("POST", "/api/v1/x", query={"dryRun": "All", "a": "b c"}, body=b"{}")
        assert (got.status, got.headers["content-type"], got.body) == (201, "application/json", b'{"made": true}')
        [asked] = api.asked
        assert (asked.method, asked.target, asked.body) == ("POST", "/prefix/api/v1/x?dryRun=All&a=b+c", b"{}")
        assert asked.headers["authorization"] == "Bearer one"
        assert asked.headers["content-type"] == "application/json"


async def test_the_status_of_a_request_is_data(tmp_path: Path) -> None:
    async with FakeApiServer(lambda _: reply(409)).serve(tmp_path) as api, _client(api) as talk:
        assert (await talk.request("GET", "/x")).status == 409


async def test_lines_come_one_by_one_whatever_the_packets(tmp_path: Path) -> None:
    head = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"
    parts = [head, b'{"a":', b" 1}\n\n{", b'"b": 2}\n{"c": 3}']
    async with (
        FakeApiServer(lambda _: parts).serve(tmp_path) as api,
        _client(api) as talk,
        talk.lines("/watch", query={"watch": "1"}) as lines,
    ):
        assert [line async for line in lines] == [b'{"a": 1}', b'{"b": 2}', b'{"c": 3}']


async def test_lines_of_another_status_are_an_error_that_has_the_answer(tmp_path: Path) -> None:
    async with FakeApiServer(lambda _: reply(410, b'{"code": 410}')).serve(tmp_path) as api, _client(api) as talk:
        with pytest.raises(ApiStatusError) as raised:
            async with talk.lines("/watch"):
                pass
    assert (raised.value.response.status, raised.value.response.body) == (410, b'{"code": 410}')


async def test_a_watch_that_breaks_off_is_unreachable(tmp_path: Path) -> None:
    parts = [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\n{}\n\n\r\n"]
    async with FakeApiServer(lambda _: parts).serve(tmp_path) as api, _client(api) as talk:
        with pytest.raises(ApiUnreachableError, match="the connection broke off"):
            async with talk.lines("/watch") as lines:
                assert [line async for line in lines] == [b"{}"]


async def test_an_answer_that_is_too_large_is_not_read_on(tmp_path: Path) -> None:
    limits = ApiLimits(largest=99, longest_line=99)
    async with (
        FakeApiServer(lambda _: reply(200, b" " * 100)).serve(tmp_path) as api,
        _client(api, limits) as talk,
    ):
        with pytest.raises(ApiTooLargeError, match="more than 99 bytes"):
            await talk.request("GET", "/x")
        with pytest.raises(ApiTooLargeError):
            async with talk.lines("/x") as lines:
                assert not [line async for line in lines]


async def test_nobody_listens(tmp_path: Path) -> None:
    async with FakeApiServer(lambda _: reply(200)).serve(tmp_path) as api:
        pass
    async with _client(api) as talk:
        with pytest.raises(ApiUnreachableError, match=r"does not answer: .*\. Check its address and the network\.$"):
            await talk.request("GET", "/x")


async def test_a_certificate_of_another_ca_is_refused(tmp_path: Path) -> None:
    other = Pem(content=Secret(server("elsewhere").certificate))
    async with FakeApiServer(lambda _: reply(200)).serve(tmp_path) as api:
        async with ApiClient(Credentials(Login(server=api.url, ca=other, token=Secret("one")))) as talk:
            with pytest.raises(ApiUnreachableError, match="its certificate is not valid"):
                await talk.request("GET", "/x")
        assert not api.asked


async def test_a_server_name_other_than_the_address_is_verified(tmp_path: Path) -> None:
    async with FakeApiServer(lambda _: reply(200)).serve(tmp_path) as api:
        async with ApiClient(Credentials(Login(server=api.url, ca=CA, tls_server_name="localhost"))) as talk:
            assert (await talk.request("GET", "/x")).status == 200
        async with ApiClient(Credentials(Login(server=api.url, ca=CA, tls_server_name="other"))) as talk:
            with pytest.raises(ApiUnreachableError, match="its certificate is not valid"):
                await talk.request("GET", "/x")


async def test_a_rotated_token_file_is_read_again(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one\n")
    async with FakeApiServer(lambda _: reply(200)).serve(tmp_path) as api:
        async with ApiClient(Credentials(Login(server=api.url, ca=CA, token_file=str(token)))) as talk:
            await talk.request("GET", "/x")
            (tmp_path / "next").write_text("two")
            (tmp_path / "next").rename(token)
            await talk.request("GET", "/x")
            token.unlink()  # while a volume is switched
            await talk.request("GET", "/x")
        assert [each.headers["authorization"] for each in api.asked] == ["Bearer one", "Bearer two", "Bearer two"]


async def test_rotated_client_certificates_are_shown(tmp_path: Path) -> None:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"

    def write(name: str) -> None:
        certificate.write_bytes(client(name).certificate)
        key.write_bytes(client(name).key.reveal())

    write("first")
    async with FakeApiServer(lambda _: reply(200)).serve(tmp_path) as api:
        login = Login(server=api.url, ca=CA, certificate=Pem(path=str(certificate)), key=Pem(path=str(key)))
        async with ApiClient(Credentials(login)) as talk:
            await talk.request("GET", "/x")
            write("second")
            await talk.request("GET", "/x")
            key.write_text("half")  # the pair before stays in use
            await talk.request("GET", "/x")
        assert [each.client for each in api.asked] == ["first", "second", "second"]


@pytest.mark.real
async def test_a_refused_token_of_a_program_is_obtained_again_once(tmp_path: Path) -> None:
    program = tmp_path / "login"
    program.write_text(
        "#!/bin/sh\n"
        f"echo x >> {tmp_path}/runs\n"
        f"n=$(wc -l < {tmp_path}/runs)\n"
        'echo \'{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",'
        ' "status": {"token": "\'$PREFIX$n\'"}}\'\n'
    )
    program.chmod(0o755)

    def answer(asked: Asked) -> list[bytes]:
        return reply(200 if asked.headers["authorization"] == "Bearer run2" else 401)

    plugin = ExecPlugin(command=str(program), env={"PREFIX": "run"})
    async with FakeApiServer(answer).serve(tmp_path) as api:
        async with ApiClient(Credentials(Login(server=api.url, ca=CA, exec_plugin=plugin))) as talk:
            assert (await talk.request("GET", "/x")).status == 200
            async with talk.lines("/x") as lines:
                assert [line async for line in lines] == [b"{}"]
        assert [each.headers["authorization"] for each in api.asked] == ["Bearer run1", "Bearer run2", "Bearer run2"]


@pytest.mark.real
async def test_a_program_that_cannot_be_run_says_how_to_install_it(tmp_path: Path) -> None:
    plugin = ExecPlugin(command=str(tmp_path / "absent"), hint="Get it from the team.")
    async with ApiClient(Credentials(Login(server="https://127.0.0.1:1", ca=CA, exec_plugin=plugin))) as talk:
        with pytest.raises(
            ApiUnreachableError, match=r"absent for credentials: No such file .*Get it from the team\.\)\. Correct exec"
        ):
            await talk.request("GET", "/x")


def _client(api: FakeApiServer, limits: ApiLimits | None = None) -> ApiClient:
    return ApiClient(Credentials(Login(server=api.url, ca=CA, token=Secret("one"))), limits)
