"""Run the benchmarks that are named, or all of them: ``make bench ARGS="startup change"``."""

import asyncio
import sys

from bench import (
    change,
    check,
    cluster,
    composite,
    decision_log,
    front,
    grpc_servers,
    install,
    latency,
    load,
    matching,
    memory,
    native,
    peers,
    policy,
    reader,
    scale,
    startup,
)

BENCHMARKS = {
    "install": install.main,
    "startup": startup.main,
    "change": change.main,
    "load": load.main,
    "scale": scale.main,
    "check": check.main,
    "front": front.main,
    "policy": policy.main,
    "log": decision_log.main,
    "native": native.main,
    "reader": reader.main,
    "peers": peers.main,
    "latency": latency.main,
    "grpc": grpc_servers.main,
    "matching": matching.main,
    "composite": composite.main,
    "memory": memory.main,
    "kubernetes": cluster.main,
}


def main() -> int:
    """Run benchmarks in order; each prints what it measured."""
    wanted = sys.argv[1:] or list(BENCHMARKS)
    unknown = [name for name in wanted if name not in BENCHMARKS]
    if unknown:
        print(f"there is no benchmark {unknown[0]!r}; there are: {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    for name in wanted:
        print(f"{name}:", flush=True)
        asyncio.run(BENCHMARKS[name]())
    return 0


if __name__ == "__main__":
    sys.exit(main())
