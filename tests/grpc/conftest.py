"""What tests of the public interface share."""

from collections.abc import Iterator

import pytest
from tests.support.grpc.shop_servers import STACKS, Authority, Cart, Serve, authorizing, serving


@pytest.fixture(params=STACKS)
def stack(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def serve(stack: str) -> Iterator[Serve]:
    with serving(stack) as made:
        yield made


@pytest.fixture
def cart() -> Cart:
    return Cart()


@pytest.fixture
def authority() -> Iterator[Authority]:
    with authorizing() as made:
        yield made
