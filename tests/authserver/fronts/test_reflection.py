"""Server reflection, asked as tools do, on both fronts."""

from collections.abc import AsyncGenerator
from typing import Any, Final, NamedTuple

import grpc
import grpc.aio
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha import reflection_pb2 as pb
from tests.support.authservers.fronts import Front, Wanted, both

from authplane.authserver.fronts.runtime.asgi_front import Refusal
from authplane.authserver.fronts.runtime.reflection import METHOD, Reflection, reflect
from authplane.runtime.servers.service_names import HEALTH, REFLECTIONS, SERVICES

EVERY: Final = sorted((*SERVICES, HEALTH, *REFLECTIONS))


def _call(channel: grpc.aio.Channel, version: str) -> Any:
    return channel.stream_stream(
        f"/{version}/{METHOD}",
        request_serializer=pb.ServerReflectionRequest.SerializeToString,
        response_deserializer=pb.ServerReflectionResponse.FromString,
    )(timeout=5)


async def _ask(call: Any, **question: Any) -> pb.ServerReflectionResponse:
    await call.write(pb.ServerReflectionRequest(**question))
    reply: pb.ServerReflectionResponse = await call.read()
    return reply


@both
@pytest.mark.parametrize("version", REFLECTIONS)
async def test_a_tool_learns_every_service_and_all_that_it_is_made_of(front: Front, version: str) -> None:
    async with front(Wanted()) as address, grpc.aio.insecure_channel(str(address)) as channel:
        call = _call(channel, version)
        listed = await _ask(call, list_services="")
        names = [service.name for service in listed.list_services_response.service]
        files: dict[str, FileDescriptorProto] = {}
        for name in names:
            found = await _ask(call, file_containing_symbol=name)
            wanted = _files(found)
            while wanted:
                file = wanted.pop()
                files[file.name] = file
                for missing in set(file.dependency) - files.keys():
                    wanted += _files(await _ask(call, file_by_filename=missing))
        await call.done_writing()
        assert await call.code() is grpc.StatusCode.OK
    assert names == EVERY
    pool = _pool(files)
    assert {name: [method.name for method in pool.FindServiceByName(name).methods] for name in names} == {
        name: [METHOD] if name in REFLECTIONS else ["Check"] for name in EVERY
    }


def _pool(files: dict[str, FileDescriptorProto]) -> DescriptorPool:
    """Put files together, each after those that it imports."""
    pool, left = DescriptorPool(), dict(files)
    while left:
        for name, file in list(left.items()):
            if not left.keys() & set(file.dependency):
                pool.Add(left.pop(name))
    return pool


def _files(reply: pb.ServerReflectionResponse) -> list[FileDescriptorProto]:
    return [FileDescriptorProto.FromString(each) for each in reply.file_descriptor_response.file_descriptor_proto]


class Case(NamedTuple):
    question: pb.ServerReflectionRequest
    code: int


EXTENSION: Final = pb.ExtensionRequest(containing_type="google.protobuf.MessageOptions", extension_number=1)
CASES: Final = {
    "nothing is asked": Case(pb.ServerReflectionRequest(), 3),
    "another file": Case(pb.ServerReflectionRequest(file_by_filename="/etc/passwd"), 5),
    "a file of the process that is not served": Case(
        pb.ServerReflectionRequest(file_by_filename="envoy/config/listener/v3/listener.proto"), 5
    ),
    "another symbol": Case(pb.ServerReflectionRequest(file_containing_symbol="x.Y"), 5),
    "another extension": Case(pb.ServerReflectionRequest(file_containing_extension=EXTENSION), 5),
    "extensions of nothing": Case(pb.ServerReflectionRequest(all_extension_numbers_of_type="x.Y"), 5),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_is_not_there_is_an_error_in_the_reply(case: Case) -> None:
    body = reflect(case.question.SerializeToString())
    assert isinstance(body, bytes)
    reply = pb.ServerReflectionResponse.FromString(body)
    assert (reply.error_response.error_code, reply.original_request) == (case.code, case.question)


def test_extensions_are_found_by_number() -> None:
    of = "google.protobuf.MessageOptions"
    body = reflect(pb.ServerReflectionRequest(all_extension_numbers_of_type=of).SerializeToString())
    assert isinstance(body, bytes)
    numbers = pb.ServerReflectionResponse.FromString(body).all_extension_numbers_response.extension_number
    assert numbers
    for number in numbers:
        asked = pb.ExtensionRequest(containing_type=of, extension_number=number)
        found = reflect(pb.ServerReflectionRequest(file_containing_extension=asked).SerializeToString())
        assert isinstance(found, bytes)
        assert len(_files(pb.ServerReflectionResponse.FromString(found))) == 1


@both
async def test_bad_questions_end_the_call_with_a_status(front: Front) -> None:
    async with front(Wanted()) as address, grpc.aio.insecure_channel(str(address)) as channel:
        for body, code in (
            (b"\xff", grpc.StatusCode.INVALID_ARGUMENT),
            (b"\x0a" + b"a" * 5000, grpc.StatusCode.RESOURCE_EXHAUSTED),
        ):
            call: Any = channel.stream_stream(f"/{REFLECTIONS[0]}/{METHOD}")(timeout=5)
            await call.write(body)
            assert await call.code() is code


@pytest.mark.slow
@both
async def test_calls_and_questions_are_limited(front: Front) -> None:
    async with front(Wanted()) as address, grpc.aio.insecure_channel(str(address)) as channel:
        calls = [_call(channel, REFLECTIONS[0]) for _ in range(16)]
        for call in calls:
            assert (await _ask(call, list_services="")).list_services_response.service
        assert await _call(channel, REFLECTIONS[1]).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        for call in calls:
            await call.done_writing()
            assert await call.code() is grpc.StatusCode.OK
        again = _call(channel, REFLECTIONS[0])
        for _ in range(1000):
            assert (await _ask(again, list_services="")).list_services_response.service
        await again.write(pb.ServerReflectionRequest(list_services=""))
        assert await again.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def _one_by_one(chunks: list[dict[str, Any]]) -> AsyncGenerator[Any]:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return chunks.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    await Reflection()({}, receive, send)
    for message in sent:
        yield message


FRAMES: Final = {
    "a call without questions": ([b""], 0),
    "a truncated question": ([b"\0\0\0\0\x09a"], 13),
    "a compressed question": ([b"\1\0\0\0\0"], 12),
    "a question that says that it is too long": ([b"\0\xff\xff\xff\xff"], 8),
    "a question in pieces": ([b"\0\0", b"\0\0", b"\2\x3a", b"\0"], 0),
}


@pytest.mark.parametrize(("chunks", "code"), FRAMES.values(), ids=FRAMES.keys())
async def test_frames_are_cut_as_they_come(chunks: list[bytes], code: int) -> None:
    events = [
        {"type": "http.request", "body": chunk, "more_body": index < len(chunks) - 1}
        for index, chunk in enumerate(chunks)
    ]
    sent = [message async for message in _one_by_one(events)]
    assert dict(sent[-1]["headers"])[b"grpc-status"] == b"%d" % code


def test_a_refusal_is_no_reply() -> None:
    assert reflect(b"\xff") == Refusal(3, "not a ServerReflectionRequest")
