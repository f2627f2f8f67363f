"""Handler of text classification models."""

from __future__ import annotations

from typing import Any

import flambeau as torch

from ..handler_utils.text_utils import ngrams_iterator
from ..utils.util import map_class_to_label
from .inputs import InvalidInput
from .text_handler import TextHandler


class TextClassifier(TextHandler):
    """Handler of text classifiers: answers with the probabilities of the classes of one text (a batch is one text, as in TorchServe)."""

    ngrams = 2

    def preprocess(self, data: list[Any]) -> tuple[Any, list[str]]:
        """Clean the text and look its tokens and token pairs up in the vocabulary."""
        text = data[0].get("data") or data[0].get("body")
        if isinstance(text, (bytes, bytearray)):
            text = text.decode("utf-8", "replace")
        if not isinstance(text, str):
            raise InvalidInput(f"The request is a text, got {type(text).__name__}.")
        text = self._expand_contractions(self._remove_html_tags(text).lower())
        tokens = self._tokenize(self._remove_punctuation(self._remove_accented_characters(text)))
        numbers = [self.source_vocab[token] for token in ngrams_iterator(tokens, self.ngrams)]
        return torch.as_tensor(numbers, device=self.device), tokens

    def inference(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        return super().inference(data[0], torch.as_tensor([0], device=self.device))

    def postprocess(self, data: Any) -> list[dict[str, float]]:
        return map_class_to_label(torch.nn.functional.softmax(data, dim=-1).tolist(), self.mapping)

    def example(self) -> tuple[str, str] | None:
        return "text/plain", "What a good day"

    def get_insights(self, text_preprocess: Any, _: Any, target: int = 0) -> list[dict[str, Any]]:
        """Return the weight of each token for the class: the change of the class's output if the token is left out."""
        numbers, tokens = text_preprocess
        offsets = torch.as_tensor([0], device=self.device)
        with torch.no_grad():
            whole = self.model(numbers, offsets)[0, target]
            importances = []
            for i in range(len(tokens)):
                without = torch.cat([numbers[:i], numbers[i + 1 :]])
                importances.append((whole - self.model(without, offsets)[0, target]).item())
        return [{"words": self.get_word_token(tokens), "importances": importances, "delta": 0.0}]
