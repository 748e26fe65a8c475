"""Many documents: the work for a change does not grow with what did not change."""

import time

import pytest
from tests.support.timing import quickest

from authplane.core.names import Ref
from authplane.sources.document_versions import Library

MANY = 4000


def service(name: str, port: int = 80) -> str:
    return f"---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{ports: [{{port: {port}}}]}}\n"


def seconds_to_load(count: int) -> float:
    library = Library()
    texts = [service(f"s{number}").encode() for number in range(count)]
    start = time.process_time()
    for number, text in enumerate(texts):
        library.changed(f"{number}.yaml", text)
    assert len(library.current().resources.services) == count
    return time.process_time() - start


@pytest.mark.slow
def test_loading_takes_time_in_proportion() -> None:
    few, many = quickest(lambda: seconds_to_load(1000)), quickest(lambda: seconds_to_load(MANY))
    assert many < 3 * (MANY / 1000) * few


@pytest.mark.slow
def test_a_change_of_one_file_of_many_is_quick() -> None:
    library = Library()
    for number in range(MANY):
        library.changed(f"{number}.yaml", service(f"s{number}").encode())
    library.current()
    start = time.process_time()
    for number in range(20):
        library.changed("7.yaml", service("s7", 100 + number).encode())
        library.current()
    assert (time.process_time() - start) / 20 < 0.05


@pytest.mark.slow
def test_a_change_of_one_document_in_a_large_file_is_quick() -> None:
    library = Library()
    texts = [service(f"s{number}") for number in range(MANY)]
    library.changed("all.yaml", "".join(texts).encode())
    library.current()
    start = time.process_time()
    for number in range(10):
        texts[MANY // 2] = service("s-changed", 100 + number)
        library.changed("all.yaml", "".join(texts).encode())
        library.current()
    assert (time.process_time() - start) / 10 < 0.15


@pytest.mark.slow
def test_one_name_in_every_file_is_reported_without_delay() -> None:
    library = Library()
    for number in range(MANY):
        library.changed(f"{number}.yaml", service("same", number + 1).encode())
    start = time.process_time()
    assert len(library.current().findings) == MANY
    assert time.process_time() - start < 2


def test_the_places_of_many_problems_in_one_document_are_found_without_delay() -> None:
    library = Library()
    ports = ", ".join(f"{{name: p{number}, port: {number}}}" for number in range(1, MANY))
    text = f"apiVersion: v1\nkind: Service\nmetadata: {{name: s}}\nspec:\n  ports: [{ports}]\n"
    library.changed("s.yaml", text.encode())
    loaded = library.current()
    start = time.process_time()
    places = {loaded.place(Ref("Service", "default", "s"), ("spec", "ports", number)) for number in range(MANY - 1)}
    assert len(places) == MANY - 1
    assert time.process_time() - start < 2
