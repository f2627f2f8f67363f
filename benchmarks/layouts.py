"""What it gains that pictures lie channels last between the steps of a program: compiled with and without, in one run.

    python benchmarks/layouts.py [model,train|eval,batch,size ...]

One thread, CPU time, the best of ten calls that take turns: other work on the machine hardly shows."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import models  # noqa: E402

import flambeau  # noqa: E402
from flambeau.nn import functional as F  # noqa: E402
from flambeau.vision import models as pretrained  # noqa: E402

CASES = (
    "mobilenet_v2,eval,1,224", "mobilenet_v2,eval,8,224", "mobilenet_v2,train,8,128", "mobilenet_v3_small,eval,4,224",
    "efficientnet_b0,eval,4,224", "efficientnet_b0,train,4,128", "shufflenet_v2_x1_0,eval,4,224", "googlenet,eval,4,224",
    "densenet121,eval,4,128", "resnet18,train,32,32", "resnet18,eval,4,224", "resnet50,train,4,128", "resnet50,eval,4,224",
    "resnet50,eval,1,224", "vgg11,train,4,64", "cnn,train,64,28", "benchmark's resnet18,train,32,32",
)  # fmt: skip
OWN = {"cnn": models.cnn, "benchmark's resnet18": models.resnet18}


def compiled(name: str, training: bool, batch: int, size: int, layouts: bool | None) -> Any:
    """A call without arguments."""
    flambeau.manual_seed(0)
    model = OWN[name](flambeau) if name in OWN else getattr(pretrained, name)(num_classes=10)
    x, y = flambeau.randn(batch, 1 if name == "cnn" else 3, size, size), flambeau.randint(0, 10, (batch,))
    optimizer = flambeau.optim.SGD(model.parameters(), lr=0.001)
    model.train(training)

    def step(x: Any, y: Any) -> Any:
        if not training:
            with flambeau.no_grad():
                return model(x)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    function = flambeau.compile(step, options={"layouts": layouts})
    for _ in range(4):
        function(x, y)
    return lambda: function(x, y)


def main() -> None:
    flambeau.set_num_threads(1)
    print("| | as in eager calls | channels last |\n|---|--:|--:|")
    for case in sys.argv[1:] or CASES:
        name, mode, batch, size = case.split(",")
        calls = [compiled(name, mode == "train", int(batch), int(size), layouts) for layouts in (False, None)]
        best = [float("inf")] * 2
        for _ in range(10):
            for i, call in enumerate(calls):
                started = time.process_time()
                call()
                best[i] = min(best[i], time.process_time() - started)
        pictures = f"{mode}, {size}x{size}, batch {batch}"
        print(f"| {name}, {pictures} | {best[0] * 1e3:.1f} ms | {best[1] / best[0]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
