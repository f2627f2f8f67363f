"""Reference forms of linear layers, convolutions, embeddings and recurrent layers."""

from .conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from .linear import Linear
from .rnn import GRU, LSTM, GRUCell, LSTMCell, RNNCell
from .sparse import Embedding, EmbeddingBag

__all__ = [
    "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Embedding", "EmbeddingBag", "GRU",
    "GRUCell", "LSTM", "LSTMCell", "Linear", "RNNCell",
]  # fmt: skip
