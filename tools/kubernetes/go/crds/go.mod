// Modules whose archives contain the CustomResourceDefinitions that tests install. Nothing is compiled.
module authplane.dev/crds

go 1.26.0

require (
	github.com/projectcontour/contour v1.33.6
	sigs.k8s.io/gateway-api v1.6.3
	sigs.k8s.io/kube-agentic-networking v0.1.0
)
