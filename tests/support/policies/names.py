"""Who asks, and for what: names that policies, requests and verdicts share."""

from authplane.core.names import Ref
from authplane.policy.attached.attachments import RequestTarget

ISSUER = "https://issuer.example"
AGENT = "spiffe://cluster.local/ns/default/sa/agent"
OTHER = "spiffe://cluster.local/ns/default/sa/other"
SHOP = Ref("Backend", "default", "shop")
EDGE = Ref("Gateway", "default", "edge")
TO_SHOP = RequestTarget(backend=SHOP)
THROUGH_EDGE = RequestTarget(backend=SHOP, gateway=EDGE)
