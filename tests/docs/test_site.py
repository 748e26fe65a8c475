"""The documentation is a site: it is built without a network, loads nothing from elsewhere, and has no long pages."""

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

import pytest
import yaml
from tests.support.eventually import START_LIMIT
from tests.support.pages import PAGES, ROOT, name_of, read
from tools.gen_docs.pages import written_by_hand
from tools.site_links import outside_links

DOCS: Final = ROOT / "docs"
WORDS: Final = 2200
"""What one reads in ten minutes, at 220 words a minute."""
LONG: Final = {ROOT / "CHANGELOG.md"}
"""Nobody reads it from top to bottom."""
FOLDERS: Final = {"tutorials", "how-to", "reference", "explanation", "decisions", "journeys"}
LOADING: Final = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src", "video": "src"}
"""What a browser loads without being asked, and the attribute that says from where."""

_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_ISOLATED = ["unshare", "--user", "--map-root-user", "--net"]


class Loads(HTMLParser):
    """The addresses that a page loads by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in LOADING and given.get("rel") not in {"canonical", "next", "prev"}:
            self.found.append(given.get(LOADING[tag]) or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site without a network: in a namespace or, where the kernel denies one, with a proxy that refuses."""
    target = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(target)]
    refused = {f"{scheme}_proxy": "http://127.0.0.1:9" for scheme in ("http", "https", "all")}
    environment = {**os.environ, **refused, "NO_MKDOCS_2_WARNING": "1"}
    can = (
        shutil.which("unshare")
        and subprocess.run([*_ISOLATED, "true"], check=False, capture_output=True).returncode == 0
    )
    built = subprocess.run(
        [*(_ISOLATED if can else []), *build],
        cwd=ROOT, env=environment, check=False, capture_output=True, text=True, timeout=4 * START_LIMIT,
    )  # fmt: skip
    assert (built.returncode, built.stderr) == (0, "")
    return target


@pytest.mark.real
@pytest.mark.slow
def test_the_site_is_built_without_a_network_and_has_every_page(site: Path) -> None:
    pages = {path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")}
    # README.md of a folder is its index.
    expected = {path.with_name("index.html") if path.stem == "README" else path for path in pages}
    assert {path for path in expected if not (site / path).exists()} == set()
    index = read(site / "search" / "search_index.json")
    assert "Reasons of errors and warnings" in index


@pytest.mark.real
@pytest.mark.slow
def test_a_browser_loads_nothing_from_elsewhere(site: Path) -> None:
    outside = set()
    for page in site.rglob("*.html"):
        loads = Loads()
        loads.feed(read(page))
        assert loads.found
        outside |= {(str(page.relative_to(site)), each) for each in loads.found if "//" in each}
    assert outside == set()
    # These the theme loads when a page has them; no page does.
    assert [page for page in PAGES if "```mermaid" in read(page)] == []
    assert {"repo_url", "extra_javascript", "extra_css"} & configuration().keys() == set()
    styles = "".join(read(sheet) for sheet in site.rglob("*.css"))
    assert re.findall(r"url\(['\"]?https?:|@import", styles) == []


def configuration() -> dict[str, object]:
    class Loader(yaml.SafeLoader):
        """What PyYAML loads safely, and the functions that MkDocs looks up as nothing."""

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    found: dict[str, object] = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)  # noqa: S506 (it is ours)
    return found


@pytest.mark.parametrize("page", [page for page in PAGES if page not in LONG], ids=name_of)
def test_no_page_takes_more_than_ten_minutes_to_read(page: Path) -> None:
    assert len(_FENCE.sub("", written_by_hand(read(page))).split()) <= WORDS


def test_every_page_is_of_a_known_kind() -> None:
    assert {path.name for path in DOCS.iterdir()} == {"index.md", *FOLDERS}


ADDRESSED = [
    page
    for folder in ("tutorials", "how-to", "reference", "explanation")
    for page in sorted((DOCS / folder).glob("*.md"))
    if page.name != "index.md"
]


@pytest.mark.parametrize("page", ADDRESSED, ids=name_of)
def test_a_page_begins_with_whom_it_is_for(page: Path) -> None:
    heading, first, *_ = read(page).split("\n\n")
    assert heading.startswith("# ")
    assert first.startswith(("This page is for ", "This tutorial is for "))


@pytest.mark.parametrize("folder", ["tutorials", "how-to", "reference", "explanation"])
def test_the_index_of_a_folder_leads_to_each_of_its_pages(folder: str) -> None:
    index = read(DOCS / folder / "index.md")
    pages = [path.name for path in (DOCS / folder).glob("*.md") if path.name != "index.md"]
    assert [name for name in pages if f"({name})" not in index] == []


def test_links_that_leave_the_documentation_lead_to_the_code_host_and_others_stay(tmp_path: Path) -> None:
    text = "[a](../x.md#y) [b](../../README.md#z) [c](../../examples/)\n```text\n[d](../../e)\n```\n[f](g.md)"
    shown = outside_links(text, tmp_path / "docs" / "how-to", tmp_path / "docs", "https://host/blob/main")
    assert shown == (
        "[a](../x.md#y) [b](https://host/blob/main/README.md#z) [c](https://host/blob/main/examples)\n"
        "```text\n[d](../../e)\n```\n[f](g.md)"
    )
