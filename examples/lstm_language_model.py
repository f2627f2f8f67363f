"""An LSTM learns a short text letter by letter, then writes on its own."""

from __future__ import annotations

import argparse

import flambeau as torch
from flambeau import nn

TEXT = """the river ran down from the hill to the sea, and the sea ran up to the sky.
the bird sat on the hill and sang to the river, and the river sang to the sea.
the sky heard the song of the sea, and the rain came down on the hill again.
"""
LETTERS = sorted(set(TEXT))
State = tuple[torch.Tensor, torch.Tensor]  # of the LSTM: hidden and cell


class LanguageModel(nn.Module):
    def __init__(self, hidden: int = 96) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(LETTERS), 24)
        self.lstm = nn.LSTM(24, hidden, batch_first=True)
        self.head = nn.Linear(hidden, len(LETTERS))

    def forward(self, letters: torch.Tensor, state: State | None = None) -> tuple[torch.Tensor, State]:
        # (B, T) -> (B, T, letters)
        out, new_state = self.lstm(self.embedding(letters), state)
        return self.head(out), new_state


def write(model: LanguageModel, start: str, length: int, temperature: float = 0.5) -> str:
    """Draw one letter after another from what the model expects."""
    model.eval()
    text, state = start, None
    letters = torch.tensor([[LETTERS.index(c) for c in start]])
    with torch.no_grad():
        for _ in range(length):
            logits, state = model(letters, state)
            letters = torch.multinomial((logits[:, -1] / temperature).softmax(-1), 1)
            text += LETTERS[int(letters)]
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--length", type=int, default=40, help="letters per training example")
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--quick", action="store_true", help="a short run")
    options = parser.parse_args()
    steps = 40 if options.quick else options.steps

    torch.manual_seed(0)
    data = torch.tensor([LETTERS.index(c) for c in TEXT])
    model = LanguageModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    history: list[float] = []
    for step in range(steps):
        starts = torch.randint(0, len(data) - options.length - 1, (16,)).tolist()
        batch = torch.stack([data[s : s + options.length + 1] for s in starts])  # (16, T + 1)
        logits, _ = model(batch[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        history.append(loss.item())
        if (step + 1) % 20 == 0:
            print(f"step {step + 1:4d}  loss {history[-1]:.4f}")

    print(write(model, "the ", 120))
    print(f"loss {history[0]:.4f} -> {history[-1]:.4f}")


if __name__ == "__main__":
    main()
