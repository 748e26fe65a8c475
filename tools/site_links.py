"""Links of the documentation site that lead out of `docs`: a hook of MkDocs.

Pages link to other files of the repository by relative paths, which work on a code host and on disk. The site has only
`docs`, so there such a link leads to the file on the code host.
"""

import re
from pathlib import Path
from typing import Any

_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?P<path>\.\./[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Return the text of a page with links that the site can follow."""
    docs = Path(config["docs_dir"]).resolve()
    return outside_links(markdown, Path(page.file.abs_src_path).parent, docs, config["extra"]["source"])


def outside_links(text: str, folder: Path, docs: Path, source: str) -> str:
    """Return ``text`` with relative links that leave ``docs`` replaced by links below ``source``."""

    def replaced(found: re.Match[str]) -> str:
        target = (folder / found["path"]).resolve()
        if target.is_relative_to(docs):
            return found[0]
        return f"]({source}/{target.relative_to(docs.parent).as_posix()}{found['anchor'] or ''})"

    pieces = []
    end = 0
    for fence in _FENCE.finditer(text):
        pieces += [_LINK.sub(replaced, text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*pieces, _LINK.sub(replaced, text[end:])])
