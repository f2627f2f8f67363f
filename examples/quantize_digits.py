"""The demo's network in 8-bit numbers: after training with a few images to calibrate, and with training that rounds."""

import argparse
import copy
import io
import warnings

import numpy as np

import flambeau as torch
from flambeau.ao.quantization import get_default_qat_qconfig_mapping, get_default_qconfig_mapping
from flambeau.ao.quantization.quantize_fx import convert_fx, prepare_fx, prepare_qat_fx
from flambeau.demo import Digits, Training
from flambeau.fx import GraphModule
from flambeau.nn import functional as F
from flambeau.utils.picture import Canvas

warnings.filterwarnings("ignore", message="torch.ao.quantization is deprecated|Please use quant_min")


def accuracy(model: torch.nn.Module, test: Digits) -> float:
    with torch.no_grad():
        return float((model(test.images).argmax(1) == test.labels).float().mean())


def size(model: torch.nn.Module) -> int:
    """Bytes of the file that holds the model's state."""
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    return file.tell()


def train_rounded(model: GraphModule, train: Digits, epochs: int) -> GraphModule:
    """Training goes on with weights and activations rounded as they will be."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(epochs):
        for chosen in torch.randperm(len(train)).split(64):
            loss = F.cross_entropy(model(train.images[chosen]), train.labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.eval()


def draw(path: str, test: Digits, plain: torch.nn.Module, quantized: torch.nn.Module) -> None:
    """Test digits with what the float network (left) and the int8 network (right) read; red where they differ."""
    canvas = Canvas(12 * 70, 6 * 38)
    with torch.no_grad():
        guesses = zip(plain(test.images[:72]).argmax(1).tolist(), quantized(test.images[:72]).argmax(1).tolist())
    for k, (a, b) in enumerate(guesses):
        x, y = k % 12 * 70 + 2, k // 12 * 38
        canvas.image(x, y, 255 - (test.images[k, 0].numpy() * 255).astype(np.uint8), scale=4)
        canvas.text(x + 36, y + 6, f"{a}{b}", (20, 140, 60) if a == b else (200, 30, 30), scale=3)
    canvas.write(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run")
    parser.add_argument("--picture", help="a PNG of test digits and both networks' readings")
    options = parser.parse_args()
    training = Training(epochs=3 if options.quick else 12)
    training.run()
    model, train, test = training.model.eval(), Digits(train=True), Digits(train=False)
    prepared = prepare_fx(copy.deepcopy(model), get_default_qconfig_mapping("x86"), (test.images[:1],))
    prepared(train.images[:256])
    after = convert_fx(prepared)
    rounding = prepare_qat_fx(copy.deepcopy(model).train(), get_default_qat_qconfig_mapping("x86"), (test.images[:1],))
    during = convert_fx(train_rounded(rounding, train, epochs=1 if options.quick else 3))

    print(f"loss {training.history.losses[0]:.4f} -> {training.history.losses[-1]:.4f}")
    for name, made in (("float32", model), ("int8, calibrated", after), ("int8, trained", during)):
        print(f"{name:18s} test accuracy {accuracy(made, test):.4f}, {size(made) / 1024:6.1f} KiB")
    if options.picture:
        draw(options.picture, test, model, after)


if __name__ == "__main__":
    main()
