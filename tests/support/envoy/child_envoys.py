"""Which Envoys a process runs."""

from pathlib import Path


def envoys_of(process: int) -> list[int]:
    """Return the numbers of its Envoys, the oldest first: a later process may have a lower number."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # From the third field on: the name, which may have spaces, is before them.
            fields = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            name = (folder / "cmdline").read_bytes().partition(b"\0")[0]
        except OSError:
            continue
        parent, begun = int(fields[1]), int(fields[19])
        if parent == process and name.endswith(b"/envoy"):
            found.append((begun, int(folder.name)))
    return [number for _, number in sorted(found)]
