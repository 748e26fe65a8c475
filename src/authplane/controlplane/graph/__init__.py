"""Resources to a validated routing graph, in named passes.

Resources and compiled policies come in; hosts, routes, clusters and reports go out.
"""
