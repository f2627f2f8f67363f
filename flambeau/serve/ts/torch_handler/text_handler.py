"""Base of the text handlers."""

from __future__ import annotations

import os
import re
import string
import unicodedata
from typing import Any

import flambeau as torch

from ..handler_utils.text_utils import get_tokenizer
from ..utils.util import CLEANUP_REGEX
from .base_handler import BaseHandler

_ENDINGS = (("won't", "will not"), ("can't", "cannot"), ("shan't", "shall not"), ("n't", " not"), ("'re", " are"),
            ("'ve", " have"), ("'ll", " will"), ("'d", " would"), ("'m", " am"), ("let's", "let us"),
            ("it's", "it is"), ("that's", "that is"), ("what's", "what is"), ("there's", "there is"),
            ("he's", "he is"), ("who's", "who is"), ("where's", "where is"), ("how's", "how is"))  # fmt: skip


class TextHandler(BaseHandler):
    """Base of text handlers: loads the vocabulary (source_vocab.pt) and a tokenizer, and cleans texts."""

    def __init__(self) -> None:
        super().__init__()
        self.source_vocab: Any = None
        self.tokenizer = get_tokenizer("basic_english")

    def initialize(self, context: Any) -> None:
        super().initialize(context)
        self.source_vocab = torch.load(self.get_source_vocab_path(context))

    def get_source_vocab_path(self, ctx: Any) -> str:
        path = os.path.join(ctx.system_properties.get("model_dir"), "source_vocab.pt")
        if not os.path.isfile(path):
            raise Exception(
                "Missing the source_vocab file. Refer default handler documentation for details on using text_handler."
            )
        return path

    def _expand_contractions(self, text: str) -> str:
        for short, long in _ENDINGS:
            text = re.sub(rf"{short}\b", long, text, flags=re.IGNORECASE)
        return text.replace("'", "")

    def _remove_accented_characters(self, text: str) -> str:
        return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")

    def _remove_html_tags(self, text: str) -> str:
        return CLEANUP_REGEX.sub("", text)

    def _remove_punctuation(self, text: str) -> str:
        return text.translate(str.maketrans("", "", string.punctuation))

    _remove_puncutation = _remove_punctuation  # TorchServe's older spelling

    def _tokenize(self, text: str) -> list[str]:
        return self.tokenizer(text)

    def get_word_token(self, input_tokens: list[str]) -> list[str]:
        """Return the tokens without the mark that byte-pair encoding puts before a word."""
        return [token.replace("Ġ", "") for token in input_tokens]

    def summarize_attributions(self, attributions: Any) -> Any:
        """Return the weight of each token: the sum over its embedding's elements, normalised."""
        attributions = torch.nn.functional.softmax(attributions, dim=-1)
        return attributions / torch.norm(attributions.sum(dim=-1))
