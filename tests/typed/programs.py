"""What a type checker says about users' programs. Lines that end in `# wrong` must be errors, and no others.

    python -m tests.typed

checks this file with mypy."""

from __future__ import annotations

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import Tensor, nn, vision
from flambeau.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, width), nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(F.relu(self.first(x)))


def train(steps: int = 10) -> float:
    torch.manual_seed(0)
    model = Net(16)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    x = torch.randn(256, 4, device="cpu", dtype=torch.float32)
    y = x.square().sum(1, keepdim=True)
    total = 0.0
    for a, b in DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True):
        loss = F.mse_loss(model(a), b)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += loss.item()
    schedule.step()
    torch.save(model.state_dict(), "model.pt")
    with torch.no_grad():
        parts = torch.cat([torch.zeros(2, 3), torch.ones((2, 3))], dim=1).softmax(-1)
    values, places = torch.max(parts, dim=1)
    return (
        total
        + float(torch.where(parts > 0, parts, 0.0).sum())
        + float(torch.linalg.norm(parts))
        + len(values)
        + len(places)
    )


def shapes(x: Tensor) -> tuple[torch.Size, torch.Size]:
    out, (h, _) = nn.LSTM(4, 8)(x)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).to("cpu").eval()
    return nn.Linear(3, 4)(out).relu().shape, model[0].weight.shape if h.numel() else Net(3).train()(x).shape


def mistakes(x: Tensor) -> None:
    nn.Linear(3, 4)("words")  # wrong
    nn.Linear(3, 4)(x).reluu()  # wrong
    nn.Linear(3, 4)(x, x, x)  # wrong
    nn.LSTM(3, 4)(x, x, x, x)  # wrong
    Net(3)(5)  # wrong
    torch.notathing(3)  # wrong
    torch.randn(3, dtype="float32")  # wrong
    torch.zeros(2.5)  # wrong
    nn.Linear("four", 5)  # wrong
    F.not_there(x)  # wrong
    F.relu()  # wrong
    torch.optim.Adamm([x])  # wrong
    torch.sum(x, keepdim="yes")  # wrong
    nn.functional.softmax(x, dimension=1)  # wrong
    torch.linalg.nrom(x)  # wrong
    torch.float33  # wrong
    x.squeeeze()  # wrong
    torch.manual_seed("seed").whatever  # wrong
    torch.zeros(3, device=1.5)  # wrong
    torch.cat(x, dim="last", axes=1)  # wrong
    x.view(2, 3).reshpae(6)  # wrong
    x.flatten(start_dim=1.5)  # wrong
    x.select("rows", index="first")  # wrong
    nn.Conv2d(3)  # wrong
    nn.Conv2d(3, "8", 3)  # wrong
    nn.Dropout(p="half")  # wrong
    F.cross_entropy(x)  # wrong
    F.conv2d(x)  # wrong
    F.dropout(x, "half")  # wrong
    torch.optim.SGD()  # wrong
    torch.optim.SGD([x], learning_rate=0.1)  # wrong
    torch.optim.lr_scheduler.StepLR(step_size=3)  # wrong
    DataLoader(TensorDataset(x), batchsize=3)  # wrong
    DataLoader(5)  # wrong
    torch.load()  # wrong
    torch.linalg.solve(x)  # wrong
    torch.fft.ffft(x)  # wrong
    torch.nn.init.kaiming_norml_(x)  # wrong


def other_rooms(x: Tensor, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    torch.Tensor(2, 3) + torch.FloatTensor([1.0])
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.bench = True  # wrong
    torch.backends.cuda.matmull  # wrong
    torch.cuda.is_avalable()  # wrong
    torch.cuda.Event(timing=True)  # wrong
    torch.accelerator.current_acelerator()  # wrong
    torch.jit.script()  # wrong
    torch.jit.scripted(model)  # wrong
    torch.compiler.is_compilng()  # wrong
    torch.nested.nested_tensors([x])  # wrong
    torch.autograd.grad()  # wrong
    torch.autograd.functional.jacobian(x)  # wrong
    torch.autograd.forward_ad.duallevel()  # wrong
    torch.func.vmapp(lambda x: x)  # wrong
    torch.amp.autocast(dtype=torch.float16)  # wrong
    torch.amp.GradScaler().scal(x)  # wrong
    torch.distributions.Normal(0.0)  # wrong
    torch.distributions.Normall(0.0, 1.0)  # wrong
    torch.utils.checkpoint.checkpoints(model, x)  # wrong
    torch.utils.cpp_extension.load_inlined("x", "")  # wrong
    torch.optim.lr_scheduler.LambdaLR(optimizer, 5)  # wrong
    torch.sparse.mmm(x, x)  # wrong
    torch.masked.masked_tensors(x, x)  # wrong
    torch.signal.windows.hanning(5)  # wrong
    torch.fx.symbolic_trac(model)  # wrong
    torch.export.export(model)  # wrong
    torch.onnx.exports(model)  # wrong
    torch.library.custom_ops("a::b")  # wrong
    torch.profiler.profile(activity=[])  # wrong
    torch.distributed.all_reduces(x)  # wrong
    torch.distributed.fsdp.fully_shard(model, offload=True)  # wrong
    torch.distributed.checkpoint.save()  # wrong
    torch.distributed.tensor.distribute_tensors(x)  # wrong
    torch.nn.parallel.DistributedDataParallel()  # wrong
    torch.ao.quantization.quantize_dynamics(model)  # wrong
    torch.ao.quantization.MinMaxObservers()  # wrong
    torch.ao.nn.intrinsic.ConvRelu2d(model)  # wrong
    torch.hub.load()  # wrong
    torch.multiprocessing.spawn()  # wrong
    torch.testing.assert_close(x)  # wrong
    vision.models.resnet19()  # wrong
    vision.models.ResNet18_Weights.IMAGENET1K_V9  # wrong
    vision.transforms.Resized(8)  # wrong
    vision.transforms.v2.Compose()  # wrong
    vision.ops.nms(x)  # wrong
    vision.datasets.CIFAR10()  # wrong
    vision.io.read_images("a.png")  # wrong
    vision.utils.make_grids(x)  # wrong


@torch.no_grad()
def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    right: Tensor = model(x).argmax(1) == y
    return float(right.float().mean())


def newcomers(x: Tensor, model: nn.Sequential, optimizer: torch.optim.Optimizer) -> None:
    accuracy(model, x)  # wrong
    torch.optim.Adam(model.parameters, lr=1e-3)  # wrong
    torch.optim.Adam(model.parameters(), lr=1e-3).step(x)  # wrong
    optimizer.step(x)  # wrong
    optimizer.zero_grads()  # wrong
    model.load_state_dict("model.pt")  # wrong
    model.train("yes")  # wrong
    torch.save(model)  # wrong
    torch.tensor(1, 2, 3)  # wrong
    torch.cat(x, x)  # wrong
    torch.stack(x, x)  # wrong
    nn.Relu()  # wrong
    nn.CrossEntropy()  # wrong
    nn.ModuleList(nn.Linear(3, 3), nn.Linear(3, 3))  # wrong
    nn.Conv2d(3, 8, kernel=3)  # wrong
    F.one_hot(x, classes=10)  # wrong
    x.backwards()  # wrong
    x.shape()  # wrong
    torch.set_default_dtype("float64")  # wrong
    torch.nn.init.constant_(x, "zero")  # wrong
    for part in x.chunk(2):
        part.chunks(2)  # wrong
    with torch.no_grad:  # wrong
        pass


def several_results(x: Tensor, flag: bool) -> Tensor:
    largest: Tensor = torch.max(x) + torch.max(x, x) + x.min()
    values, places = x.max(0)
    low, high = torch.aminmax(x, dim=1)
    u, s, vh = torch.linalg.svd(x)
    pooled, where = F.max_pool2d(x, 2, return_indices=True)
    found, inverse, counts = torch.unique(x, True, True, return_counts=True)
    rows, columns = x.nonzero(as_tuple=True)
    height: int = x.size(0) + x.size()[1] + x.stride(0)
    parts = [values, places, low, high, u, s, vh, pooled, where, found, inverse, counts, rows, columns]
    middle = torch.median(x, dim=0).values + x.median(axis=1).indices + F.max_pool2d(x, height)
    either = F.max_pool1d(x, 2, return_indices=flag)
    torch.max(x, 0).value  # wrong
    torch.sort(x)[2]  # wrong
    torch.topk(x, 2).values.notathing  # wrong
    x.max(dim=1).relu()  # wrong
    torch.max(x).indices.shape  # wrong
    torch.max(x, "rows", other=x)  # wrong
    x.median(0).middle  # wrong
    torch.linalg.svd(x).V  # wrong
    q, r, rest = torch.linalg.qr(x)  # wrong
    F.max_pool2d(x, 2, return_indices=True).relu()  # wrong
    either.relu()  # wrong
    torch.unique(x, return_counts=True).sum()  # wrong
    torch.nonzero(x, as_tuple=True).sum()  # wrong
    torch.where(x, x)  # wrong
    x.size(0).numel()  # wrong
    x.type().relu()  # wrong
    torch.std_mean(x).mean()  # wrong
    x.numpy().not_of_arrays()  # wrong
    return torch.stack([largest, *parts, middle])
