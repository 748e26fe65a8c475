"""Finds the place of a field in its document."""

from authplane.core.problems import Path
from authplane.resources.yaml.nodes import Fields, Items, Node, Scalar, parse_nodes


def locate(root: Node, path: Path) -> tuple[int, int]:
    """Return line and column of the field, or of the nearest thing around it that exists.

    The place of a mapping's field is its key; the place of a list item is its beginning. A field of YAML in a block of
    text has the line in the block, and column 1: the block does not tell how far it is indented.
    """
    node, line, column = root, root.line, root.column
    for index, step in enumerate(path):
        if isinstance(node, Fields) and isinstance(step, str) and step in node.entries:
            node, line, column = node.entries[step]
        elif isinstance(node, Items) and isinstance(step, int) and 0 <= step < len(node.items):
            node = node.items[step]
            line, column = node.line, node.column
        elif isinstance(node, Scalar) and node.literal and (inner := parse_nodes(node.text).root) is not None:
            return node.line + locate(inner, path[index:])[0], 1
        else:
            break
    return line, column
