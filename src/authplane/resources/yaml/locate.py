"""Finds the place of a field in its document."""

from authplane.core.problems import Path
from authplane.resources.yaml.nodes import Fields, Items, Node


def locate(root: Node, path: Path) -> tuple[int, int]:
    """Return line and column of the field, or of the nearest thing around it that exists.

    The place of a mapping's field is its key; the place of a list item is its beginning.
    """
    node, line, column = root, root.line, root.column
    for step in path:
        if isinstance(node, Fields) and isinstance(step, str) and step in node.entries:
            node, line, column = node.entries[step]
        elif isinstance(node, Items) and isinstance(step, int) and 0 <= step < len(node.items):
            node = node.items[step]
            line, column = node.line, node.column
        else:
            break
    return line, column
