"""Which virtual host serves an authority."""

from collections.abc import Mapping, Sequence

from authplane.core.values import dataclass
from authplane.dataplane.config.routes import VirtualHost
from authplane.matching.string_matchers import lower


@dataclass(frozen=True, slots=True)
class HostTable:
    """Places of virtual hosts by their domains: exact ones first, then suffixes, then prefixes, then the wildcard.

    The longest domain wins; of equal ones, that of the first virtual host. A wildcard is one character at least.
    """

    exact: Mapping[str, int]
    suffixes: tuple[tuple[str, int], ...]
    prefixes: tuple[tuple[str, int], ...]
    universal: int | None

    @classmethod
    def of(cls, hosts: Sequence[VirtualHost]) -> "HostTable":
        """Sort the domains of virtual hosts."""
        places: dict[str, int] = {}
        for index, host in enumerate(hosts):
            for domain in host.domains:
                places.setdefault(domain, index)
        universal = places.pop("*", None)
        longest_first = sorted(places.items(), key=lambda each: -len(each[0]))
        return cls(
            exact={domain: index for domain, index in places.items() if "*" not in domain},
            suffixes=tuple((domain[1:], index) for domain, index in longest_first if domain.startswith("*")),
            prefixes=tuple((domain[:-1], index) for domain, index in longest_first if domain.endswith("*")),
            universal=universal,
        )

    def pick(self, authority: str | None) -> int | None:
        """Return the place of the virtual host for an authority; None as authority is served by the wildcard only."""
        if authority is None or not (self.exact or self.suffixes or self.prefixes):
            return self.universal
        name = lower(authority)
        if name in self.exact:
            return self.exact[name]
        for suffix, index in self.suffixes:
            if name.endswith(suffix) and len(name) > len(suffix):
                return index
        for prefix, index in self.prefixes:
            if name.startswith(prefix) and len(name) > len(prefix):
                return index
        return self.universal
