"""The page about matcher trees: its commands print what it shows, and its program builds a tree."""

from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner
from envoy.extensions.common.matching.v3 import extension_matcher_pb2
from tests.docs.test_pages import arguments
from tests.support.pages import ROOT, Step, blocks, shows, steps

from authplane.cli.main import build_app
from authplane.dataplane.filters.calls import Side
from authplane.dataplane.filters.composite.filter import Composite
from authplane.dataplane.filters.composite.wire import TYPE_NAME, parse_composite
from authplane.dataplane.filters.registry import Packed, Scope, Trust
from authplane.dataplane.filters.standard_filters import standard_registry

PAGE: Final = ROOT / "docs" / "how-to" / "try-matcher-trees.md"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for block in blocks(PAGE):
        if block.language == "yaml":
            file = tmp_path / block.text.partition("\n")[0].removeprefix("# ")
            file.parent.mkdir(exist_ok=True)
            file.write_text(block.text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("step", list(steps(PAGE)), ids=lambda step: step.command)
@pytest.mark.usefixtures("shop")
def test_a_command_prints_what_the_page_shows(step: Step) -> None:
    result = CliRunner().invoke(build_app(), arguments(step)[1:])
    assert (result.exit_code, result.stderr) == (0, "")
    assert step.output is not None
    assert shows(step.output, result.stdout), result.stdout


def test_the_program_builds_a_filter_that_is_taken() -> None:
    [program] = [block.text for block in blocks(PAGE) if block.language == "python"]
    names: dict[str, Any] = {}
    exec(compile(program, str(PAGE), "exec"), names)  # noqa: S102 (it is our own page)
    config = names["config"]
    assert isinstance(config, extension_matcher_pb2.ExtensionWithMatcher)
    scope = Scope(side=Side.SERVER, trust=Trust(), registry=standard_registry())
    assert isinstance(parse_composite(Packed(TYPE_NAME, config.SerializeToString()), scope), Composite)
