"""What tests share: every module that tests of more than one folder use lives here, by what it stands for.

| here | what it has |
|---|---|
| ``eventually`` | waits for what is about to happen, and how long a program may take to come up |
| ``timing`` | time measured on a machine that does other things as well |
| ``alone`` | keeps a test that is not marked ``real`` from starting programs |
| ``promql`` | queries of dashboards and alerts, checked as Prometheus would |
| ``installations`` | our wheel, installed into fresh environments |
| ``ports``, ``certificates``, ``pages`` | free ports; certificates, made once; the pages of the documentation |
| ``policies`` | AccessPolicies: documents, callers, requests, the verdict |
| ``resources`` | HTTPProxies and what they need, as YAML; their graph, status and messages |
| ``cel``, ``matching`` | expressions and matcher trees, with references to compare with |
| ``mcp`` | an MCP server, messages of clients, checks about them |
| ``issuers`` | issuers over HTTPS, tokens, key rings, certificates of workloads |
| ``authservers`` | authorization services in this process or as a program; the checks that they are sent |
| ``dataplane`` | xDS messages, plain filters and driven calls for the data plane |
| ``grpc`` | gRPC servers, channels and control planes, ours and grpcio's |
| ``envoy`` | the real Envoy, of both releases, in small arrangements |
| ``gateways`` | whole gateways: control plane, authorization service, Envoy, a folder to edit |
| ``statuses`` | statuses as an API server stores them, and what a patch makes of them |
| ``kubernetes`` | a real API server and etcd; objects by HTTP; fixtures for all folders |
| ``clients`` | curl, an HTTP/2 client that breaks rules, packages of npm (``node``) |

What the tests of one folder alone use stays beside them. A test imports few names from each module
(``tests/house/test_support.py`` counts them); a module that would have to give more is split.
"""
