"""Builds what tests with Kubernetes need, from Go modules: a cluster, Helm, and the CRDs of other projects.

Everything goes into a cache folder outside of the checkout. A change of a version or of go.sum gives another folder.
``KUBE_ASSETS`` names a folder with programs that exist already, such as those of envtest.
"""
