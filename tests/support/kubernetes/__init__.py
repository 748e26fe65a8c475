"""A real Kubernetes cluster without nodes: etcd and kube-apiserver, on free ports of this machine.

| here | what it has |
|---|---|
| ``fixtures`` | ``cluster`` for the session, ``namespace`` for one test, ``controllers``, ``upstream_crds`` |
| ``local_cluster`` | starts and stops a cluster; restarts the API server, compacts etcd; tokens and kubeconfigs |
| ``api_objects`` | creates, applies, reads and deletes objects by HTTP, as any user |
| ``api_clients`` | the client of our own programs, for the cluster |
| ``fake_api_server`` | a small API server that answers as a test says, with faults that the real one does not have |
| ``programs`` | a program that writes a log and ends with the tests |

``make kubernetes`` builds the programs (``tools/kubernetes``). Without them, the fixtures skip a test and say so.
A test that needs a cluster of its own, for example with other CRDs, uses ``local_cluster.running_cluster``.
"""
