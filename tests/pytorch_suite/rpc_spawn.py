"""PyTorch's tests of RPC and distributed autograd, which are part of its wheel: each in several processes.

python -m tests.pytorch_suite tests/pytorch_suite/rpc_spawn.py -k TensorPipeRpcTest

TorchScript knows no RRef here: functions that are compiled with one load, and say so when they are called.
"""

from typing import Any

import torch

_compile = torch.jit.script


def _script(obj: Any, *args: Any, **kwargs: Any) -> Any:
    try:
        return _compile(obj, *args, **kwargs)
    except Exception as problem:
        reason = f"NotThere: TorchScript does not compile it: {str(problem).splitlines()[0]}"

    def refused(*args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(reason)

    return refused


torch.jit.script = _script  # type: ignore[attr-defined]
try:
    from torch.testing._internal.common_distributed import MultiProcessTestCase
    from torch.testing._internal.distributed.ddp_under_dist_autograd_test import (
        DdpComparisonTest,
        DdpUnderDistAutogradTest,
    )
    from torch.testing._internal.distributed.nn.api.remote_module_test import (
        RemoteModuleTest,
        ThreeWorkersRemoteModuleTest,
    )
    from torch.testing._internal.distributed.rpc.dist_autograd_test import (
        DistAutogradTest,
        TensorPipeAgentDistAutogradTest,
    )
    from torch.testing._internal.distributed.rpc.dist_optimizer_test import DistOptimizerTest
    from torch.testing._internal.distributed.rpc.examples.parameter_server_test import ParameterServerTest
    from torch.testing._internal.distributed.rpc.examples.reinforcement_learning_rpc_test import (
        ReinforcementLearningRpcTest,
    )
    from torch.testing._internal.distributed.rpc.rpc_test import RpcTest, TensorPipeAgentRpcTest
    from torch.testing._internal.distributed.rpc.tensorpipe_rpc_agent_test_fixture import TensorPipeRpcAgentTestFixture
finally:
    torch.jit.script = _compile  # type: ignore[attr-defined]


class _Spawning(MultiProcessTestCase):
    def setUp(self) -> None:
        super().setUp()
        self._spawn_processes()


for _kind in (
    RpcTest, ParameterServerTest, DistAutogradTest, DistOptimizerTest, RemoteModuleTest, ThreeWorkersRemoteModuleTest,
    DdpUnderDistAutogradTest, DdpComparisonTest, ReinforcementLearningRpcTest, TensorPipeAgentRpcTest,
    TensorPipeAgentDistAutogradTest,
):  # fmt: skip
    _name = f"TensorPipe{_kind.__name__}"
    globals()[_name] = type(
        _name, (_kind, TensorPipeRpcAgentTestFixture, _Spawning), {"__module__": __name__, "__qualname__": _name}
    )
del _kind, _name, RpcTest, ParameterServerTest, DistAutogradTest, DistOptimizerTest, RemoteModuleTest
del ThreeWorkersRemoteModuleTest, DdpUnderDistAutogradTest, DdpComparisonTest, ReinforcementLearningRpcTest
del TensorPipeAgentRpcTest, TensorPipeAgentDistAutogradTest, _Spawning, MultiProcessTestCase
