"""The gRPC face: `lookup.proto` is its contract, `lookup_pb2` is written from it by ``make proto``.

The service starts it beside HTTP (``recsys-cg serve --grpc-port``); `recsys_cg.serving.rpc.client.RpcClient` calls it.
"""
