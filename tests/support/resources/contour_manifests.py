"""The folder of a user of Contour and contour-authserver: a host, its origin, users, and who checks passwords."""

from tests.support.certificates import ca_secret, server, tls_secret

PASSWORD = "open sesame"
"""Of alice, whose hash is below."""
USERS = """
apiVersion: v1
kind: Secret
metadata:
  name: passwords
  namespace: auth
  labels: {team: shop}
  annotations:
    projectcontour.io/auth-type: basic
    projectcontour.io/auth-realm: shop
stringData:
  auth: |
    alice:$2b$05$//6Jd0L3EWh3I4oZKtSoSOZCKqHBuCbl5HJO/ijVf4JyiMzBEjxge
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: htpasswd, namespace: auth}
spec:
  template:
    metadata: {labels: {app: htpasswd, tier: auth}}
    spec:
      containers:
      - name: server
        image: example.com/auth:v1
        command: [/contour-authserver]
        args: [htpasswd, --address=:9443, --auth-realm, shop, --selector=team=shop, "--watch-namespaces=auth,shop",
          --tls-ca-path=/tls/ca.crt, --tls-cert-path=/tls/tls.crt, --tls-key-path=/tls/tls.key]
        volumeMounts: [{name: tls, mountPath: /tls}]
      volumes: [{name: tls, secret: {secretName: htpasswd-tls}}]
"""
SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: htpasswd, namespace: auth}
spec:
  selector: {app: htpasswd}
  ports: [{name: auth, port: 9443, targetPort: 9443}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: htpasswd-x1, namespace: auth, labels: {kubernetes.io/service-name: htpasswd}}
addressType: IPv4
endpoints: [{addresses: [10.1.2.3]}]
ports: [{name: auth, port: 9443}]
"""
EXTENSION = """
apiVersion: projectcontour.io/v1alpha1
kind: ExtensionService
metadata: {name: htpasswd, namespace: auth}
spec:
  services: [{name: htpasswd, port: 9443}]
  validation: {caSecret: ca, subjectName: htpasswd}
"""
ORIGIN = """
apiVersion: v1
kind: Service
metadata: {name: shop}
spec: {ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: shop-1, labels: {kubernetes.io/service-name: shop}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.1]}]
ports: [{name: http, port: 8080}]
"""
PROXY = """
# The shop.
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: shop}
spec:
  virtualhost:
    fqdn: shop.example
    tls: {secretName: shop-tls}
    authorization: {extensionRef: {name: htpasswd, namespace: auth}}
  routes: [{services: [{name: shop, port: 80}]}]
"""


def manifests(fqdn: str = "shop.example") -> dict[str, str]:
    """Return the files of such a folder by name."""
    return {
        "auth/server.yaml": f"{DEPLOYMENT}---{SERVICE}---{EXTENSION}",
        "auth/users.yaml": USERS,
        "shop.yaml": "---".join([PROXY.replace("shop.example", fqdn), ORIGIN]),
        "secrets.yaml": "---".join(
            [
                tls_secret("shop-tls", server(fqdn)),
                tls_secret("htpasswd-tls", server("htpasswd"), "auth"),
                ca_secret("ca", namespace="auth"),
            ]
        ),
    }
