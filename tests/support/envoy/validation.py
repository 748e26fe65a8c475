"""Asks Envoy whether it would accept a configuration."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from authplane.runtime.child_processes import Line, run_process
from authplane.runtime.envoy_process import envoy_binary


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """What Envoy says about a configuration."""

    ok: bool
    output: str


async def validate(config: str, *, limit: float = 60.0, binary: Path | None = None) -> Validation:
    """Let Envoy judge the text of a configuration, without running it."""
    lines: list[str] = []

    async def keep(line: Line) -> None:
        lines.append(line.text)

    with TemporaryDirectory(prefix="authplane-") as name:
        path = Path(name) / f"config.{'json' if config.lstrip().startswith('{') else 'yaml'}"
        path.write_text(config, encoding="utf-8")
        argv = [str(envoy_binary(binary)), "--mode", "validate", "--config-path", str(path), "--log-level", "warning"]
        async with run_process(argv, sink=keep) as child:
            try:
                async with asyncio.timeout(limit):
                    status = await child.ended()
            except TimeoutError:
                return Validation(ok=False, output=f"Envoy did not finish in {limit:g} s.")
    return Validation(ok=status == 0, output="\n".join(lines))
