"""Serving models over HTTP and gRPC, with TorchServe's interface: `flambeau serve`, or `flambeau torchserve`.

archive, archiver      .mar and .war files: read and made
settings               config.properties, model-config.yaml, the environment
server, http, rest     the front end: an event loop that speaks HTTP
grpc_server            the same over gRPC
models, batching       what is registered, and which requests go together
pool, nursery, worker  processes that run handlers
group                  several of them for one copy of a model
ts                     what handlers import
"""
