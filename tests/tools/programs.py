"""Uses of other people's tools, one function each; nothing here knows which library `torch` is.

python programs.py NAME              with PyTorch
python -m flambeau programs.py NAME  with Flambeau
"""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import sys
import tempfile
import warnings

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.pool, self.bn = nn.Conv2d(1, 8, 3, padding=1), nn.MaxPool2d(2), nn.BatchNorm2d(8)
        self.relu, self.fc = nn.ReLU(), nn.Linear(8 * 14 * 14, 10)

    def forward(self, x):
        return self.fc(self.relu(self.bn(self.pool(self.conv1(x)))).flatten(1))


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.relu, self.fc = nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Linear(64, 3)

    def forward(self, x):
        return self.fc(self.relu(self.conv(x)).flatten(1))


def image():
    return torch.zeros(1, 1, 28, 28)


def printed(function, *args, **kwargs):
    """What a function prints."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        function(*args, **kwargs)
    return text.getvalue()


def torchsummary():
    return importlib.import_module("torchsummary").summary, (Net(), (1, 28, 28)), {"device": "cpu"}


def torchinfo():
    return str(importlib.import_module("torchinfo").summary(Net(), (2, 1, 28, 28), verbose=0))


def torchviz():
    net = Net()
    dot = importlib.import_module("torchviz").make_dot(net(image()).sum(), params=dict(net.named_parameters()))
    return "\n".join(sorted(set(re.findall(r"label=\W*([A-Za-z.0-9]+)", dot.source)) - {"TBackward0"}))


def torchsnooper():
    text = io.StringIO()

    @importlib.import_module("torchsnooper").snoop(text)
    def f(a):
        b = a + 1
        return b.sum()

    f(torch.ones(2, 2))
    return re.sub(r"[\d:.]{8,}|Source path.*", "", text.getvalue())


def fvcore():
    tools = importlib.import_module("fvcore.nn")
    found = tools.FlopCountAnalysis(Net().eval(), image()).unsupported_ops_warnings(False)
    return f"{found.total()} {dict(sorted(found.by_operator().items()))} {dict(found.by_module())}\n{tools.flop_count_table(found)}"


def ptflops():
    sys.modules["torchvision"] = None  # it does without, and the installed one may not fit the installed PyTorch
    count = importlib.import_module("ptflops").get_model_complexity_info
    found = [
        count(Net(), (1, 28, 28), as_strings=False, print_per_layer_stat=False, backend=b) for b in ("pytorch", "aten")
    ]
    return str(found)


def calflops():
    count = importlib.import_module("calflops").calculate_flops
    return str(count(Net(), input_shape=(1, 1, 28, 28), output_as_string=False, print_results=False))


def torchprofile():
    return str(importlib.import_module("torchprofile").profile_macs(Net(), image()))


def thop():
    return str(importlib.import_module("thop").profile(Net(), inputs=(image(),), verbose=False))


def torchview():
    return importlib.import_module("torchview").draw_graph(Net(), input_size=(1, 1, 28, 28)).visual_graph.source


def lovely_tensors():
    lovely = importlib.import_module("lovely_tensors")
    first = str(lovely.lovely(torch.arange(12.0).reshape(3, 4) - 5))
    lovely.monkey_patch()
    return f"{first} {torch.arange(4.0)!r} {torch.tensor([1.0, float('nan')])!r}"


def deepspeed():
    profile = importlib.import_module("deepspeed.profiling.flops_profiler").get_model_profile
    return str(profile(Net(), input_shape=(1, 1, 28, 28), print_profile=False, as_string=False))


def hiddenlayer():
    hl = importlib.import_module("hiddenlayer")
    history = hl.History()
    history.log(1, loss=0.5)
    history.log(2, loss=torch.tensor(0.25))
    importlib.import_module("matplotlib").use("Agg")
    canvas = hl.Canvas()
    with tempfile.TemporaryDirectory() as folder:
        drawn = hl.History()
        drawn.log(1, loss=0.125, image=torch.eye(8), hidden=torch.arange(6.0))
        with canvas:
            canvas.draw_plot(drawn["loss"])
            canvas.draw_image(drawn["image"])
            canvas.draw_hist(drawn["hidden"])
        canvas.save(f"{folder}/canvas.png")
    graph = re.findall(r"cellpadding='6'>([^<]*)<", hl.build_graph(Net().eval(), image()).build_dot().source)
    return f"{sorted(graph)} {history['loss'].data}"


def tensorboardx():
    module = importlib.import_module("tensorboardX")
    with tempfile.TemporaryDirectory() as folder, module.SummaryWriter(folder) as writer:
        writer.add_scalar("a", torch.tensor(1.0), 0)
        writer.add_histogram("h", torch.arange(10.0), 0)
        writer.add_image("i", torch.ones(3, 8, 8))
        writer.add_embedding(torch.ones(5, 3), metadata=list("abcde"))
        writer.add_pr_curve("pr", torch.tensor([0, 1, 1]), torch.tensor([0.1, 0.8, 0.6]))
        writer.add_mesh("m", torch.ones(1, 4, 3))
        writer.add_hparams({"lr": 0.1}, {"acc": 1.0})
        writer.add_graph(Net(), image())
    return "written"


def torch_tb_profiler():
    data = importlib.import_module("torch_tb_profiler.profiler.data")
    generator = importlib.import_module("torch_tb_profiler.profiler.run_generator")
    net = Net()
    steps = torch.profiler.schedule(wait=0, warmup=1, active=2)
    with tempfile.TemporaryDirectory() as folder:
        ready = torch.profiler.tensorboard_trace_handler(folder, "worker")
        with torch.profiler.profile(schedule=steps, on_trace_ready=ready, record_shapes=True) as prof:
            for _ in range(3):
                net(image()).sum().backward()
                prof.step()
        path = next(importlib.import_module("pathlib").Path(folder).glob("*.json"))
        parsed = data.RunProfileData.parse("worker", "", str(path), folder)
        parsed.process()
        run = generator.RunGenerator("worker", "", parsed).generate_run_profile()
    rows = {row["name"]: row["calls"] for row in run.operation_table_by_name["data"]}
    shared = [
        "aten::conv2d",
        "aten::linear",
        "aten::relu",
        "aten::max_pool2d",
        "aten::batch_norm",
        "aten::addmm",
        "aten::mm",
    ]
    return str({name: rows[name] for name in shared})


def visdom():
    """What it would send to its server, without one."""
    sent = []
    board = importlib.import_module("visdom").Visdom(
        offline=True, log_to_filename=tempfile.mkdtemp() + "/log", raise_exceptions=True
    )
    board._send = lambda message, **rest: sent.append(message["data"]) or "window"
    board.line(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.0, 1.0, 2.0]))
    board.scatter(torch.arange(6.0).reshape(3, 2))
    board.heatmap(torch.arange(4.0).reshape(2, 2))
    board.histogram(torch.arange(5.0))
    board.image(torch.ones(3, 4, 4))
    board.images(torch.zeros(2, 3, 4, 4))
    return str([{k: v for k, v in entry[0].items() if k in ("x", "y", "z", "type", "content")} for entry in sent])


def netron():
    """Opens what is exported, and serves it."""
    module = importlib.import_module("netron")
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU())
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/net.pt"
        torch.jit.save(torch.jit.trace(net, torch.zeros(1, 1, 8, 8)), path)
        host, port = module.start(path, browse=False)
        with importlib.import_module("urllib.request").urlopen(f"http://{host}:{port}/data/net.pt") as answer:
            served = answer.read()
        with open(path, "rb") as file:
            same = served == file.read()
        module.stop()
    return f"{same}"


def captum():
    attr = importlib.import_module("captum.attr")
    net = Small().eval()
    for p in net.parameters():
        p.data = torch.linspace(-0.5, 0.6, p.numel()).reshape(p.shape)
    x = torch.linspace(-1, 1, 32).reshape(2, 1, 4, 4).requires_grad_()
    base, conv = torch.zeros_like(x), net.conv
    uses = {
        "IntegratedGradients": ((), {"baselines": base}), "Saliency": ((), {}), "DeepLift": ((), {"baselines": base}),
        "DeepLiftShap": ((), {"baselines": torch.zeros(3, 1, 4, 4)}), "InputXGradient": ((), {}), "GuidedBackprop": ((), {}),
        "Deconvolution": ((), {}), "FeatureAblation": ((), {}), "Occlusion": ((), {"sliding_window_shapes": (1, 2, 2)}),
        "LRP": ((), {}), "LayerGradCam": ((conv,), {}), "LayerConductance": ((conv,), {}), "LayerIntegratedGradients": ((conv,), {}),
        "LayerDeepLift": ((conv,), {"baselines": base}), "InternalInfluence": ((conv,), {"baselines": base}),
        "GuidedGradCam": ((conv,), {}), "GradientShap": ((), {"baselines": x.detach(), "n_samples": 1, "stdevs": 0.0}),
    }  # fmt: skip
    lines = []
    for name, (where, options) in uses.items():
        found = getattr(attr, name)(net, *where).attribute(x, target=1, **options)
        if name == "GradientShap":  # drawn at random
            lines.append(f"{name} {tuple(found.shape)}")
            continue
        numbers = [found.sum().item(), found.abs().sum().item(), found.flatten()[3].item()]
        lines.append(f"{name} {[round(v, 3) + 0.0 for v in numbers]}")
    return "\n".join(lines)


def main(name):
    warnings.simplefilter("ignore")
    found = globals()[name]()
    print("FOUND")
    print(printed(found[0], *found[1], **found[2]) if isinstance(found, tuple) else found)


if __name__ == "__main__":
    main(sys.argv[1])
