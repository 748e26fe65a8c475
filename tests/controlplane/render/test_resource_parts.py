"""Resources as parts: what has not changed is neither rendered nor serialized again."""

from dataclasses import dataclass
from functools import partial

from envoy.config.route.v3 import route_components_pb2 as pb
from envoy.config.route.v3.route_pb2 import RouteConfiguration

from authplane.controlplane.render.resource_parts import Bodies, Part, Single, Whole, message_of


@dataclass(frozen=True)
class Host:
    """A host, and the names of its routes."""

    name: str
    routes: tuple["Named", ...]


class Named:
    """A route, which is known by itself."""

    def __init__(self, name: str) -> None:
        self.name = name


class Table:
    """Renders tables and notes what it renders."""

    def __init__(self) -> None:
        self.rendered: list[str] = []

    def resource(self, hosts: tuple[Host, ...], beside: str = "") -> Single[RouteConfiguration]:
        return Single(Part("table", hosts, partial(self._table, hosts, beside), beside))

    def _table(self, hosts: tuple[Host, ...], beside: str) -> Whole[RouteConfiguration]:
        self.rendered.append("table")
        wholes = tuple(self._host(each, beside) for each in hosts)
        return Whole("table", RouteConfiguration(name="table"), "virtual_hosts", wholes)

    def _host(self, host: Host, beside: str) -> Whole[pb.VirtualHost]:
        parts = tuple(Part("route", each, partial(self._route, each), beside) for each in host.routes)
        return Whole(host.name, pb.VirtualHost(name=host.name), "routes", parts)

    def _route(self, route: Named) -> pb.Route:
        self.rendered.append(route.name)
        return pb.Route(name=route.name, match=pb.RouteMatch(path="/" + "long" * 100))

    def serialize(self, bodies: Bodies, hosts: tuple[Host, ...], beside: str = "") -> list[str]:
        """Serialize a generation; return what was rendered for it."""
        self.rendered.clear()
        bodies.start()
        [body] = bodies.serialize([self.resource(hosts, beside)]).values()
        rendered = list(self.rendered)
        assert RouteConfiguration.FromString(body) == message_of(self.resource(hosts, beside))
        return rendered


A, B, C = Named("a"), Named("b"), Named("c")
HOSTS = (Host("one", (A, B)), Host("two", (C,)))


def test_of_parts_within_parts_only_what_changed_is_rendered() -> None:
    table, bodies = Table(), Bodies()
    assert table.serialize(bodies, HOSTS) == ["table", "a", "b", "c"]
    changed = (Host("one", (A, Named("d"))), HOSTS[1])
    assert table.serialize(bodies, changed) == ["table", "d"]


def test_parts_of_what_did_not_change_are_known_however_many_generations_later() -> None:
    table, bodies = Table(), Bodies()
    table.serialize(bodies, HOSTS)
    assert [table.serialize(bodies, HOSTS) for _ in range(3)] == [[], [], []]
    assert table.serialize(bodies, (HOSTS[0], Host("two", (C, Named("e"))))) == ["table", "e"]


def test_values_that_matter_too_make_everything_be_rendered_again() -> None:
    table, bodies = Table(), Bodies()
    table.serialize(bodies, HOSTS)
    assert table.serialize(bodies, HOSTS, "other") == ["table", "a", "b", "c"]


def test_what_a_generation_did_not_need_is_forgotten() -> None:
    table, bodies = Table(), Bodies()
    table.serialize(bodies, HOSTS)
    less = (HOSTS[0],)
    table.serialize(bodies, less)
    assert table.serialize(bodies, (*less, HOSTS[1])) == ["table", "c"]
