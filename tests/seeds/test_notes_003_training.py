"""Programs of the fourth notes file, on training: loops, losses, label smoothing, mixup, regularisation, schedules, checkpoints."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn
from flambeau.nn import functional as F

CLASSES = 3


def batches(count=4, size=32):
    """Points around one centre per class."""
    random = np.random.RandomState(0)
    centres = random.randn(CLASSES, 5) * 3
    for _ in range(count):
        labels = random.randint(0, CLASSES, size)
        yield torch.from_numpy((centres[labels] + random.randn(size, 5)).astype(np.float32)), torch.from_numpy(labels)


def classifier():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, CLASSES))


def accuracy(model):
    model.eval()
    with torch.no_grad():
        correct = 0
        total = 0
        for images, labels in batches():
            outputs = model(images)
            _, predicted = torch.max(outputs.data, 1)
            total += labels.size(0)
            correct += (predicted == labels).sum().item()
    return 100 * correct / total


def test_classification_is_trained_and_tested():
    device = torch.device("cpu")
    model = classifier().to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(15):
        for images, labels in batches():
            images, labels = images.to(device), labels.to(device)
            outputs = model(images)
            loss = criterion(outputs, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert loss.item() < 0.2
    assert accuracy(model) > 95


def test_mse_and_mae():
    x, y = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0])
    assert torch.nn.MSELoss()(x, y).item() == 6.5
    assert torch.nn.L1Loss()(x, y).item() == 2.5


def test_loss_of_its_own():
    class MyLoss(torch.nn.Module):
        def __init__(self):
            super().__init__()

        def forward(self, x, y):
            loss = torch.mean((x - y) ** 2)
            return loss

    x, y = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0, 5.0])
    loss = MyLoss()(x, y)
    loss.backward()
    assert loss.item() == 6.5
    assert x.grad.tolist() == [-2.0, -3.0]


def label_smoothing_loss(e=0.1, reduction="mean"):
    class LSR(nn.Module):
        def __init__(self):
            super().__init__()
            self.log_softmax = nn.LogSoftmax(dim=1)
            self.e = e
            self.reduction = reduction

        def _one_hot(self, labels, classes, value=1):
            one_hot = torch.zeros(labels.size(0), classes)
            labels = labels.view(labels.size(0), -1)
            value_added = torch.Tensor(labels.size(0), 1).fill_(value)
            value_added = value_added.to(labels.device)
            one_hot = one_hot.to(labels.device)
            one_hot.scatter_add_(1, labels, value_added)
            return one_hot

        def _smooth_label(self, target, length, smooth_factor):
            one_hot = self._one_hot(target, length, value=1 - smooth_factor)
            one_hot += smooth_factor / (length - 1)
            return one_hot.to(target.device)

        def forward(self, x, target):
            if x.size(0) != target.size(0):
                raise ValueError(f"Expected input batchsize ({x.size(0)}) to match target batch_size({target.size(0)})")
            if x.dim() < 2:
                raise ValueError(f"Expected input tensor to have least 2 dimensions(got {x.size(0)})")
            if x.dim() != 2:
                raise ValueError(f"Only 2 dimension tensor are implemented, (got {x.size()})")
            smoothed_target = self._smooth_label(target, x.size(1), self.e)
            x = self.log_softmax(x)
            loss = torch.sum(-x * smoothed_target, dim=1)
            if self.reduction == "none":
                return loss
            if self.reduction == "sum":
                return torch.sum(loss)
            if self.reduction == "mean":
                return torch.mean(loss)
            raise ValueError("unrecognized option, expect reduction to be one of none, mean, sum")

    return LSR()


def test_label_smoothing_as_a_module():
    torch.manual_seed(0)
    x, target = torch.randn(4, CLASSES, requires_grad=True), torch.tensor([0, 2, 1, 1])
    loss = label_smoothing_loss()
    smoothed = loss._smooth_label(target, CLASSES, 0.1)
    assert smoothed[0].tolist() == pytest.approx([0.95, 0.05, 0.05])
    each = label_smoothing_loss(reduction="none")(x, target)
    assert torch.allclose(each, -(F.log_softmax(x, 1) * smoothed).sum(1))
    assert loss(x, target).item() == pytest.approx(each.mean().item())
    assert label_smoothing_loss(reduction="sum")(x, target).item() == pytest.approx(each.sum().item())
    loss(x, target).backward()
    assert x.grad.shape == x.shape
    with pytest.raises(ValueError, match="batchsize"):
        loss(x, target[:2])
    with pytest.raises(ValueError, match="Only 2 dimension"):
        loss(x.view(4, CLASSES, 1), target)


def test_label_smoothing_in_the_loop():
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for images, labels in batches(20):
        N = labels.size(0)
        smoothed_labels = torch.full(size=(N, CLASSES), fill_value=0.1 / (CLASSES - 1))
        smoothed_labels.scatter_(dim=1, index=torch.unsqueeze(labels, dim=1), value=0.9)
        assert torch.allclose(smoothed_labels.sum(1), torch.ones(N))
        score = model(images)
        log_prob = torch.nn.functional.log_softmax(score, dim=1)
        loss = -torch.sum(log_prob * smoothed_labels) / N
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert accuracy(model) > 90


def test_mixup():
    beta_distribution = torch.distributions.beta.Beta(0.2, 0.2)
    model, loss_function = classifier(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for images, labels in batches(30):
        lambda_ = beta_distribution.sample([]).item()
        index = torch.randperm(images.size(0))
        mixed_images = lambda_ * images + (1 - lambda_) * images[index, :]
        label_a, label_b = labels, labels[index]
        scores = model(mixed_images)
        loss = lambda_ * loss_function(scores, label_a) + (1 - lambda_) * loss_function(scores, label_b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert accuracy(model) > 90


def test_l1_regularisation():
    model = classifier()
    images, labels = next(batches(1))
    loss = F.cross_entropy(model(images), labels)
    plain = torch.autograd.grad(loss, model[0].weight, retain_graph=True)[0]
    l1_regularization = torch.nn.L1Loss(reduction="sum")
    assert l1_regularization(torch.tensor([-1.0, 2.0]), torch.zeros(2)).item() == 3.0
    for param in model.parameters():
        loss = loss + torch.sum(torch.abs(param))
    loss.backward()
    assert torch.allclose(model[0].weight.grad, plain + model[0].weight.detach().sign(), atol=1e-5)


def test_no_weight_decay_for_biases():
    model = classifier()
    bias_list = (param for name, param in model.named_parameters() if name[-4:] == "bias")
    others_list = (param for name, param in model.named_parameters() if name[-4:] != "bias")
    parameters = [{"params": bias_list, "weight_decay": 0}, {"params": others_list}]
    optimizer = torch.optim.SGD(parameters, lr=1e-2, momentum=0.9, weight_decay=1e-4)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0, 1e-4]
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    bias, weight = model[0].bias.detach().clone(), model[0].weight.detach().clone()
    optimizer.step()
    assert torch.equal(model[0].bias, bias)
    assert torch.allclose(model[0].weight, weight * (1 - 1e-6), rtol=1e-7)


def test_gradient_clipping():
    model = classifier()
    images, labels = next(batches(1))
    (F.cross_entropy(model(images), labels) * 1e4).backward()
    before = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=20)
    after = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
    assert before.item() > 20
    assert after.item() == pytest.approx(20, rel=1e-3)


def optimizer_of(lr=0.1):
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=lr)


def test_current_learning_rate():
    optimizer = optimizer_of()
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(1))], "lr": 0.5})
    lr = next(iter(optimizer.param_groups))["lr"]
    all_lr = []
    for param_group in optimizer.param_groups:
        all_lr.append(param_group["lr"])
    assert lr == optimizer.param_groups[0]["lr"] == 0.1
    assert all_lr == [0.1, 0.5]


def test_learning_rate_falls_on_a_plateau():
    optimizer = optimizer_of()
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", patience=5)
    rates = []
    for t in range(0, 20):
        val_acc = min(t, 4)
        scheduler.step(val_acc)
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates[9] == 0.1
    assert rates[10] == pytest.approx(0.01)
    assert rates[16] == pytest.approx(0.001)


def run(scheduler, optimizer, epochs):
    rates = []
    for _ in range(epochs):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


def test_cosine_annealing():
    optimizer = optimizer_of()
    rates = run(torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=80), optimizer, 81)
    assert rates[0] == 0.1
    assert rates[40] == pytest.approx(0.05)
    assert rates[80] == pytest.approx(0.0, abs=1e-9)


def test_learning_rate_falls_at_milestones():
    optimizer = optimizer_of()
    rates = run(torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[50, 70], gamma=0.1), optimizer, 80)
    assert rates[49] == 0.1
    assert rates[50] == pytest.approx(0.01)
    assert rates[70] == pytest.approx(0.001)


def test_warmup():
    optimizer = optimizer_of()
    rates = run(torch.optim.lr_scheduler.LambdaLR(optimizer, lr_lambda=lambda t: t / 10), optimizer, 11)
    assert rates == pytest.approx([0.01 * t for t in range(11)])


def test_two_schedulers_chained(capsys):
    model = [torch.nn.Parameter(torch.randn(2, 2, requires_grad=True))]
    optimizer = torch.optim.SGD(model, 0.1)
    scheduler1 = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
    scheduler2 = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.1)
    for epoch in range(4):
        print(epoch, scheduler2.get_last_lr()[0])
        optimizer.step()
        scheduler1.step()
        scheduler2.step()
    lines = capsys.readouterr().out.split()
    assert lines[::2] == ["0", "1", "2", "3"]
    assert [float(v) for v in lines[1::2]] == pytest.approx([0.1, 0.09, 0.081, 0.00729])


def test_checkpoint_is_saved_and_training_resumed(tmp_path):
    def train(model, optimizer, epochs):
        for _ in range(epochs):
            for images, labels in batches():
                loss = F.cross_entropy(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    best_acc = 0.0
    for epoch in range(2):
        train(model, optimizer, 1)
        current_acc = accuracy(model)
        model.train()
        is_best = current_acc > best_acc
        best_acc = max(current_acc, best_acc)
        checkpoint = {
            "best_acc": best_acc,
            "epoch": epoch + 1,
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
        }
        model_path = os.path.join(tmp_path, "checkpoint.pth.tar")
        best_model_path = os.path.join(tmp_path, "best_checkpoint.pth.tar")
        torch.save(checkpoint, model_path)
        if is_best:
            shutil.copy(model_path, best_model_path)
    assert os.path.isfile(best_model_path)
    checkpoint = torch.load(model_path)
    resumed = classifier()
    its_optimizer = torch.optim.SGD(resumed.parameters(), lr=0.05, momentum=0.9)
    assert checkpoint["epoch"] == 2
    assert checkpoint["best_acc"] == best_acc
    resumed.load_state_dict(checkpoint["model"])
    its_optimizer.load_state_dict(checkpoint["optimizer"])
    train(model, optimizer, 1)
    train(resumed, its_optimizer, 1)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), resumed.parameters()))


def test_cross_entropy_is_log_softmax_and_nll():
    torch.manual_seed(0)
    x, y = torch.randn(4, CLASSES), torch.tensor([0, 2, 1, 1])
    assert torch.allclose(nn.CrossEntropyLoss()(x, y), nn.NLLLoss()(F.log_softmax(x, dim=1), y))


def test_zero_grad_of_the_model_and_of_the_optimizer():
    model = classifier()
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    images, labels = next(batches(1))
    F.cross_entropy(model(images), labels).backward()
    optimizer.zero_grad()
    assert model[0].weight.grad is None
    assert model[2].weight.grad is not None
    model.zero_grad()
    assert model[2].weight.grad is None


def test_gradients_accumulate_until_they_are_cleared():
    x = torch.ones(1, requires_grad=True)
    for expected in (2.0, 4.0):
        (2 * x).backward()
        assert x.grad.item() == expected


def test_losses_are_collected_before_they_are_read():
    model, losses = classifier(), []
    for images, labels in batches():
        losses.append(F.cross_entropy(model(images), labels).detach())
    assert torch.stack(losses).mean().item() > 0


def test_half_precision_is_less_precise():
    x = torch.tensor([0.1])
    assert x.half().dtype == torch.float16
    assert 0 < abs(x.half().float() - x).item() < 1e-3
