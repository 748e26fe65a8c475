from dataclasses import dataclass, replace

import pytest
from tests.support.dataplane.driven_calls import CALL, CLIENT_CALL, call, drive, no_effects

from authplane.dataplane.filters.calls import Call, Change, Code, Flow, Mutation, Proceed, Side, Stop, Verdict, Wait
from authplane.dataplane.filters.chain import run_chain
from authplane.dataplane.filters.headers import mutated


@dataclass(frozen=True)
class Says:
    """A filter that says what it is told to, and adds its name to the call."""

    name: str
    verdict: Verdict | None = None

    def run(self, call: Call) -> Flow:
        yield Wait(float(len(call.metadata)))
        if isinstance(self.verdict, Stop):
            return self.verdict
        verdict = self.verdict or Proceed(metadata=())
        return replace(verdict, metadata=(*call.metadata, ("x-passed", self.name)))


def test_each_filter_sees_the_call_as_the_one_before_it_left_it() -> None:
    verdict, effects = drive(run_chain((Says("a"), Says("b")), call()), lambda _: None)
    assert verdict == Proceed(metadata=(("x-passed", "a"), ("x-passed", "b")))
    assert effects == [Wait(0.0), Wait(1.0)]


def test_the_first_filter_that_stops_a_call_ends_the_chain() -> None:
    stop = Stop(code=Code.ABORTED, message="no")
    verdict, effects = drive(run_chain((Says("a"), Says("b", stop), Says("c")), call()), lambda _: None)
    assert verdict == stop
    assert len(effects) == 2


def test_no_filters_change_nothing() -> None:
    assert no_effects(run_chain((), CALL)) == Proceed(metadata=CALL.metadata)


def test_a_response_passes_the_filters_in_the_opposite_order() -> None:
    first = Proceed(
        metadata=(), response_metadata=(("x", "1"),), response_mutations=(Mutation("y", "1", Change.OVERWRITE_OR_ADD),)
    )
    second = Proceed(
        metadata=(), response_metadata=(("x", "2"),), response_mutations=(Mutation("y", "2", Change.OVERWRITE_OR_ADD),)
    )
    third = Proceed(metadata=(), response_metadata=(("x", "3"),))
    filters = (Says("a", first), Says("b", second), Says("c", third))
    verdict, _ = drive(run_chain(filters, call()), lambda _: None)
    assert isinstance(verdict, Proceed)
    response = mutated((("z", "0"), *verdict.response_metadata), verdict.response_mutations)
    assert response == (("z", "0"), ("x", "3"), ("x", "2"), ("x", "1"), ("y", "1"))


@pytest.mark.requirement("E32")
@pytest.mark.parametrize(
    "path", ["", "/", "shop.Cart/Add", "//shop.Cart/Add", "/shop.Cart/Add/", "/shop.Cart", "/a/b/c"]
)
def test_a_path_that_names_no_method_is_refused_before_any_filter(path: str) -> None:
    verdict = no_effects(run_chain((Says("a"),), replace(CALL, path=path)))
    assert verdict == Stop(code=Code.UNIMPLEMENTED, message="the path is not /service/method")


@pytest.mark.requirement("E32")
def test_an_escaped_path_reaches_the_filters_as_it_is() -> None:
    verdict, _ = drive(run_chain((Says("a"),), replace(CALL, path="/shop.Cart/%41dd", metadata=())), lambda _: None)
    assert verdict == Proceed(metadata=(("x-passed", "a"),))


def test_a_client_may_call_any_path() -> None:
    assert CLIENT_CALL.side is Side.CLIENT
    assert isinstance(no_effects(run_chain((), replace(CLIENT_CALL, path="odd"))), Proceed)
