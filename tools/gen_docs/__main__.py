"""``python -m tools.gen_docs`` rewrites the pages and names those that changed."""

from tools.gen_docs.pages import REFERENCE, regenerated


def main() -> None:
    """Rewrite the pages below `docs/reference`."""
    for page in sorted(REFERENCE.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        new = regenerated(text)
        if new != text:
            page.write_text(new, encoding="utf-8")
            print(f"wrote {page}")


if __name__ == "__main__":
    main()
