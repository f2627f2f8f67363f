"""Serving models over HTTP and gRPC, with TorchServe's interface: `flambeau serve`, or `flambeau torchserve`.

archive, archiver      .mar and .war files: read and made
settings               config.properties, model-config.yaml, the environment
checks, certificates   what of them makes no sense; TLS
server, http, rest     the front end: an event loop that speaks HTTP
bodies, bounded_json   what requests bring
grpc_server            the same over gRPC
registry, models       what is registered
batching               which requests go together
processes, snapshots   the server that runs, and how it starts again
pool, nursery, worker  processes that run handlers
group                  several of them for one copy of a model
ts                     what handlers import
"""
