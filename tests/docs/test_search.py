"""What people type into the search leads to the page that answers it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

WORDS = {
    "early stopping": "tutorials/training.html#",
    "gradient clipping": "tutorials/training.html#",
    "save model": "tutorials/saving.html#",
    "install": "installation.html",
    "windows": "installation.html#",
    "migrate": "coming-from-pytorch.html#",
    "torch.nn.Linear": "reference/torch.nn.Linear.html",
    "clip_grad_norm_": "reference/torch.nn.utils.clip_grad_norm_.html",
    "notebook": "notebooks/first-hour.html",
}


@pytest.mark.parametrize("words", WORDS)
def test_words_lead_to_the_page(site: Path, words: str) -> None:
    """Titles weigh a thousand times as much as texts: words that stand in the title of a section bring it to the top."""
    entries = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    asked = words.lower().split()
    in_titles = [e["location"] for e in entries if all(word in e["title"].lower() for word in asked)]
    in_texts = [e["location"] for e in entries if all(word in e["text"].lower() for word in asked)]
    assert any(location.startswith(WORDS[words]) for location in in_titles or in_texts)


def test_index_is_small_enough_for_a_phone(site: Path) -> None:
    assert (site / "search" / "search_index.json").stat().st_size < 2_500_000
