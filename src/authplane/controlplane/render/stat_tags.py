"""Labels for what Envoy counts of the rules of policies.

Envoy counts the requests that a rule grants under the rule's name, ``<namespace>/<policy>/<rule>/<entry>``. Without
labels each name would be a metric of its own in Prometheus.
"""

from typing import Final

from envoy.config.metrics.v3 import stats_pb2

_BEGIN: Final = r"^http\.[a-z_-]+\.rbac\.(?:shadow\.)?policy\."
"""Begins with a plain text, so that Envoy need not try the names of other counters."""
_POLICY: Final = r"[^~/][^/]*/[^/]+?"
_END: Final = r"\.)(?:shadow_)?allowed$"
_TAGS: Final = {
    # Of each, the outer group is cut out of the name, and the inner one is the label.
    "policy": rf"{_BEGIN}(?:~none/)?(({_POLICY})(?:/[^/]*/[^/]+)?{_END}",
    "rule": rf"{_BEGIN}{_POLICY}/(([^/]*)/)",
    "entry": rf"{_BEGIN}{_POLICY}/[^/]*/(([^/]+){_END}",
}


def stats_config() -> stats_pb2.StatsConfig:
    """Render which parts of the names of counters are labels, besides those that Envoy knows by itself."""
    return stats_pb2.StatsConfig(
        stats_tags=[stats_pb2.TagSpecifier(tag_name=name, regex=regex) for name, regex in _TAGS.items()]
    )
