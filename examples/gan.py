"""Two networks play against each other until one draws points on a circle (Goodfellow et al., 2014)."""

import argparse
import math

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import nn


def real_points(count: int) -> torch.Tensor:
    """Points near the unit circle."""
    angle = torch.rand(count) * 2 * math.pi
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(count, 2)


def distance_from_circle(points: torch.Tensor) -> float:
    return float((points.norm(dim=1) - 1).abs().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--quick", action="store_true", help="a short run")
    options = parser.parse_args()
    steps = 150 if options.quick else options.steps

    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    judge = nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
    generator_optimizer = torch.optim.Adam(generator.parameters(), lr=options.lr, betas=(0.5, 0.99))
    judge_optimizer = torch.optim.Adam(judge.parameters(), lr=options.lr, betas=(0.5, 0.99))

    test_noise = torch.randn(512, 8)
    with torch.no_grad():
        before = distance_from_circle(generator(test_noise))
    for step in range(steps):
        real, fake = real_points(options.batch_size), generator(torch.randn(options.batch_size, 8))
        judge_loss = F.softplus(-judge(real)).mean() + F.softplus(judge(fake.detach())).mean()
        judge_optimizer.zero_grad()
        judge_loss.backward()
        judge_optimizer.step()

        generator_loss = F.softplus(-judge(fake)).mean()
        generator_optimizer.zero_grad()
        generator_loss.backward()
        generator_optimizer.step()
        if (step + 1) % 50 == 0:
            print(f"step {step + 1:4d}  judge {judge_loss.item():.4f}  generator {generator_loss.item():.4f}")

    with torch.no_grad():
        after = distance_from_circle(generator(test_noise))
    print(f"distance from circle {before:.4f} -> {after:.4f}")


if __name__ == "__main__":
    main()
