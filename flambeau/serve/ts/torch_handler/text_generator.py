"""Text generation with continuous batching: every step is a batch of all texts being written, each with its own cache.

The model is called in two ways, like decoder models with a key-value cache:

    logits, past = model(tokens)                 a new text: tokens is (1, T); past is a list of (keys, values), each (1, H, T, D)
    logits, past = model(tokens, past, mask)     a step: tokens is (B, 1), past is (B, H, S, D), mask (B, S + 1) is True where a
                                                 cached position counts; positions are the sums of the mask's rows minus one

Caches of different lengths are padded on the left. model-config.yaml has `continuousBatching: true` and a `batchSize`; a request
is JSON: {"prompt": "text" or [numbers], "max_new_tokens": 16, "temperature": 0}. Each token is sent as soon as it is generated.
"""

from __future__ import annotations

from typing import Any

import flambeau as torch

from ... import bounded_json
from .base_handler import BaseHandler
from .generation import Text
from .inputs import InvalidInput


class TextGenerator(BaseHandler):
    """Continues a prompt. `encode` and `decode` map text to numbers and back: bytes here, override them for a tokenizer."""

    end_token: int | None = None

    def initialize(self, context: Any) -> None:
        super().initialize(context)
        self.texts: dict[str, Text] = {}
        self.refused: dict[str, InvalidInput] = {}  # of the present step

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, token: int) -> str:
        return bytes([token % 256]).decode("latin-1")

    def preprocess(self, data: list[Any]) -> tuple[list[str], list[str]]:
        """Return the ids of texts that begin with this step, and of those that continue; texts whose clients have left are dropped."""
        ids = list(self.context.request_ids.values())
        self.texts = {i: self.texts[i] for i in ids if i in self.texts}
        new = [i for i in ids if i not in self.texts]
        self.refused = {}
        for index, request in enumerate(ids):
            if request in new:
                try:
                    self.texts[request] = self._text(data[index])
                except InvalidInput as e:
                    self.refused[request] = e
        return [i for i in new if i in self.texts], [i for i in ids if i not in new]

    def _text(self, row: dict[str, Any]) -> Text:
        asked: Any = row.get("data") or row.get("body")
        try:
            if isinstance(asked, (bytes, bytearray, str)):
                asked = bounded_json.loads(asked)
            prompt = asked["prompt"]
            tokens = self.encode(prompt) if isinstance(prompt, str) else [int(t) for t in prompt]
            return Text(tokens, int(asked.get("max_new_tokens", 16)), float(asked.get("temperature", 0)))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as e:
            raise InvalidInput(f'A request is {{"prompt": text or numbers, "max_new_tokens": number}}: {e!r}') from e

    def example(self) -> tuple[str, str] | None:
        return "application/json", '{"prompt": "Once", "max_new_tokens": 8}'

    def inference(self, data: Any, *args: Any, **kwargs: Any) -> dict[str, int]:
        """Compute the next token of each text."""
        new, old = data
        with torch.inference_mode():
            chosen = {}
            for i in new:
                try:
                    chosen[i] = self._begin(self.texts[i])
                except (RuntimeError, IndexError, ValueError) as e:  # a token that the model does not know
                    self.refused[i] = InvalidInput(f"The model cannot take this prompt: {e}")
                    del self.texts[i]
            if old:
                chosen.update(zip(old, self._step([self.texts[i] for i in old])))
        return chosen

    def _choose(self, logits: Any, text: Text) -> int:
        if text.temperature <= 0:
            token = int(logits.argmax())
        else:
            token = int(torch.multinomial(torch.softmax(logits / text.temperature, -1), 1))
        text.tokens.append(token)
        text.left -= 1
        return token

    def _begin(self, text: Text) -> int:
        logits, past = self.model(torch.tensor([text.tokens], device=self.device))
        text.past = [(k, v) for k, v in past]
        return self._choose(logits[0, -1], text)

    def _step(self, texts: list[Text]) -> list[int]:
        """Generate the next token of all texts in one call of the model."""
        lengths = [t.past[0][0].shape[2] for t in texts]
        longest = max(lengths)
        past = [
            tuple(torch.cat([self._padded(t.past[layer][part], longest) for t in texts]) for part in range(2))
            for layer in range(len(texts[0].past))
        ]
        tokens = torch.tensor([[t.tokens[-1]] for t in texts], device=self.device)
        mask = torch.tensor([[s >= longest - n for s in range(longest)] + [True] for n in lengths], device=self.device)
        logits, past = self.model(tokens, past, mask)
        for row, (text, n) in enumerate(zip(texts, lengths)):
            text.past = [tuple(part[row : row + 1, :, longest - n :] for part in layer) for layer in past]
        return [self._choose(logits[row, -1], text) for row, text in enumerate(texts)]

    def _padded(self, cache: Any, length: int) -> Any:
        missing = length - cache.shape[2]
        return torch.nn.functional.pad(cache, (0, 0, missing, 0)) if missing else cache

    def postprocess(self, data: dict[str, int]) -> list[str | bytes]:
        """Return the text of each new token; a text ends with its end token or at its maximal length."""
        ids = list(self.context.request_ids.values())
        ended = {i: i in self.refused or self.texts[i].left <= 0 or data[i] == self.end_token for i in ids}
        self.context.stopping_criteria = [lambda _, stop=ended[i]: stop for i in ids]
        answers: list[str | bytes] = []
        for index, i in enumerate(ids):
            answers.append(self._refusal(index, self.refused[i]) if i in self.refused else self.decode(data[i]))
            if ended[i]:
                self.texts.pop(i, None)
        return answers

    def _answers(self, data: list[Any]) -> list[Any]:
        """Return the answers to a batch in one step: `preprocess` has already refused invalid prompts."""
        return self.postprocess(self.inference(self.preprocess(data)))
