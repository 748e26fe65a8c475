"""The status of resources, asked for as a user would."""

import asyncio
import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from authplane.cli.main import build_app


async def records(folder: Path) -> list[dict[str, Any]]:
    """Return what ``authplane status`` tells of a folder; the command runs in this process, which is quicker."""
    arguments = ["status", str(folder), "-o", "json"]
    result = await asyncio.to_thread(CliRunner().invoke, build_app(), arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


async def conditions(folder: Path, kind: str, name: str) -> dict[str, dict[str, Any]]:
    """Return the conditions of a resource by type."""
    [record] = [each for each in await records(folder) if each["kind"] == kind and each["metadata"]["name"] == name]
    return {condition["type"]: condition for condition in record["status"]["conditions"]}
