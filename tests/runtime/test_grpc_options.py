"""Options of gRPC channels and servers are known to grpcio, which ignores all others without a word."""

import ast
import re
from pathlib import Path
from typing import Final

import grpc
import pytest
from tests.support.pages import ROOT

_OPTION: Final = re.compile(r"grpc\.[a-z0-9_.]+")


def options_in(path: Path) -> set[str]:
    """Return the names of options: the first of a pair."""
    pairs = (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Tuple))
    return {
        pair.elts[0].value
        for pair in pairs
        if len(pair.elts) == 2
        and isinstance(pair.elts[0], ast.Constant)
        and isinstance(pair.elts[0].value, str)
        and _OPTION.fullmatch(pair.elts[0].value)
    }


@pytest.mark.slow
def test_grpcio_knows_every_option_that_we_set() -> None:
    [library] = [file.read_bytes() for file in Path(grpc.__file__).parent.glob("_cython/cygrpc*.so")]
    used = {option for path in (ROOT / "src").rglob("*.py") for option in options_in(path)}
    assert "grpc.so_reuseport" in used
    # Texts in the library end with a zero byte.
    assert {option for option in used if option.encode() + b"\0" not in library} == set()
