"""The status of a resource, asked for as a user would."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any


async def conditions(folder: Path, kind: str, name: str) -> dict[str, dict[str, Any]]:
    """Return the conditions of a resource by type."""
    command = [sys.executable, "-m", "authplane", "status", str(folder), "-o", "json"]
    async with asyncio.timeout(10):
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        printed, _ = await process.communicate()
    [record] = [each for each in json.loads(printed) if each["kind"] == kind and each["metadata"]["name"] == name]
    return {condition["type"]: condition for condition in record["status"]["conditions"]}
