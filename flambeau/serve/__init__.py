"""Serving models over HTTP and gRPC, with TorchServe's interface: `flambeau serve`, or `flambeau torchserve`.

archive_reader, archiver  reading and writing .mar and .war files
settings, checks          config.properties, model-config.yaml, the environment, and their validation
server, http, rest        the front end: an event loop that speaks HTTP; `certificates` for TLS
grpc_server               the same interface over gRPC
bodies, bounded_json      parsing of request bodies
registry, models          registered models and their versions
batching                  which requests share a batch
processes, snapshots      the server's process, and how it restarts from its last state
pool, nursery, worker     processes that run handlers; `group`: several for one copy of a model
ts                        the modules that handlers import
"""
