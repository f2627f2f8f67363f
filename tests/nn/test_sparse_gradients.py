"""Sparse gradients of embeddings, from the backward pass through accumulation to the optimizers, against PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from answers import judge

import flambeau

torch = judge("torch")


def both(scenario: Callable[[Any], Any]) -> None:
    """The scenario gives equal texts in both libraries, or errors with equal messages."""
    outcomes = []
    for library in (torch, flambeau):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                outcomes.append(repr(scenario(library)))
            except RuntimeError as problem:
                outcomes.append(f"{str(problem).split('with arguments')[0]}")
    assert outcomes[1] == outcomes[0]


def table(library: Any, **options: Any) -> Any:
    layer = library.nn.Embedding(5, 2, sparse=True, **options)
    with library.no_grad():
        layer.weight.copy_(library.arange(10.0).reshape(5, 2))
    return layer


def bags(library: Any, **options: Any) -> Any:
    layer = library.nn.EmbeddingBag(5, 2, sparse=True, **options)
    with library.no_grad():
        layer.weight.copy_(library.arange(10.0).reshape(5, 2))
    return layer


@pytest.mark.parametrize("options", [{}, {"padding_idx": 1}, {"scale_grad_by_freq": True}])
def test_embedding(options: dict) -> None:
    def scenario(library: Any) -> Any:
        layer = table(library, **options)
        out = layer(library.tensor([[1, 2], [1, 4]]))
        (out * out).sum().backward()
        return out, layer.weight.grad, layer.weight.grad.is_coalesced(), layer.weight.grad.coalesce()

    both(scenario)


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("padding", [None, 2])
def test_embedding_bag(mode: str, padding: int | None) -> None:
    def scenario(library: Any) -> Any:
        layer = bags(library, mode=mode, padding_idx=padding)
        out = layer(library.tensor([1, 2, 1, 4]), library.tensor([0, 3, 3]))
        (out * out).sum().backward()
        return out, layer.weight.grad

    both(scenario)


def test_embedding_bag_with_weights_per_sample() -> None:
    def scenario(library: Any) -> Any:
        layer = bags(library, mode="sum")
        weights = library.tensor([1.0, 2, 3, 4], requires_grad=True)
        out = layer(library.tensor([1, 2, 1, 4]), library.tensor([0, 3]), per_sample_weights=weights)
        (out * out).sum().backward()
        return layer.weight.grad, weights.grad

    both(scenario)


def test_gradients_accumulate_sparse_and_dense() -> None:
    def scenario(library: Any) -> list:
        layer = table(library)
        weight, seen = layer.weight, []

        def backward(loss: Any) -> None:
            loss.sum().backward()
            seen.append(repr(weight.grad))

        backward(layer(library.tensor([1, 2, 1])) ** 2)
        backward(layer(library.tensor([3, 0])) ** 2)  # sparse into sparse
        backward(layer(library.tensor([0])) + weight[0])  # dense meets sparse
        backward(layer(library.tensor([3])))  # sparse into dense
        weight.grad = None
        backward(layer(library.tensor([0])) + layer(library.tensor([1])))  # two sparse ones in one pass
        weight.grad = None
        backward(layer(library.tensor([0])) * 2 + weight.sum())
        return seen

    both(scenario)


def test_zero_grad_and_hooks() -> None:
    def scenario(library: Any) -> list:
        layer = table(library)
        seen: list = []
        layer.weight.register_hook(lambda g: seen.append((g.is_sparse, tuple(g.shape))))
        layer.weight.register_hook(lambda g: g * 2)
        layer(library.tensor([1, 2])).sum().backward()
        seen.append(repr(layer.weight.grad))
        optimizer = library.optim.SGD(layer.parameters(), lr=0.1)
        optimizer.zero_grad(set_to_none=False)
        seen.append(repr(layer.weight.grad))
        optimizer.zero_grad()
        seen.append(layer.weight.grad)
        return seen

    both(scenario)


def test_gradient_through_a_computed_table() -> None:
    def scenario(library: Any) -> Any:
        weight = library.arange(10.0).reshape(5, 2).requires_grad_()
        rows = library.nn.functional.embedding(library.tensor([1, 1, 3]), weight * 2, sparse=True)
        rows.sum().backward()
        return weight.grad.to_dense()

    both(scenario)


OPTIMIZERS = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "maximize": True}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.01}),
    ("Adagrad", {"lr": 0.1, "weight_decay": 0.1}),
    ("SparseAdam", {"lr": 0.1}),
    ("SparseAdam", {"lr": 0.1, "maximize": True}),
    *((name, {}) for name in ("Adam", "AdamW", "Adadelta", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop")),
    *((name, {}) for name in ("Adafactor", "Muon")),
]


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
def test_optimizers(name: str, options: dict) -> None:
    def scenario(library: Any) -> Any:
        layer = table(library)
        optimizer = getattr(library.optim, name)(layer.parameters(), **options)
        for step in range(3):
            optimizer.zero_grad()
            (layer(library.tensor([1, 2, 1, step])) ** 2).sum().backward()
            optimizer.step()
        return layer.weight

    both(scenario)


def test_weight_decay_refuses_sparse_gradients() -> None:
    for library in (torch, flambeau):
        layer = table(library)
        layer(library.tensor([1, 2])).sum().backward()
        with pytest.raises(RuntimeError, match=r"add\(sparse, dense\) is not supported"):
            library.optim.SGD(layer.parameters(), lr=0.1, weight_decay=0.1).step()


def test_clipping_refuses_sparse_gradients() -> None:
    for library in (torch, flambeau):
        layer = table(library)
        layer(library.tensor([1, 2])).sum().backward()
        with pytest.raises(NotImplementedError):
            library.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        with pytest.raises(NotImplementedError):
            library.nn.utils.clip_grad_value_(layer.parameters(), 1.0)


# -- graph networks -------------------------------------------------------------------------------------------------


def ring(library: Any, n: int = 6) -> Any:
    """The normalised adjacency of a ring with self-loops, as a sparse matrix."""
    rows = [i for i in range(n) for _ in range(3)]
    columns = [(i + k) % n for i in range(n) for k in (-1, 0, 1)]
    return library.sparse_coo_tensor(library.tensor([rows, columns]), library.full((3 * n,), 1 / 3), (n, n))


@pytest.mark.parametrize("product", ["mm", "sparse.mm", "@", "spmm"])
def test_graph_convolution_trains_alike(product: str) -> None:
    def scenario(library: Any) -> list:
        times = {
            "mm": library.mm, "sparse.mm": library.sparse.mm, "@": lambda a, b: a @ b, "spmm": library.spmm,
        }[product]  # fmt: skip
        adjacency = ring(library)
        features = library.linspace(-1, 1, 24).reshape(6, 4)
        labels = library.tensor([0, 1, 2, 0, 1, 2])
        first = library.nn.Parameter(library.linspace(-0.5, 0.5, 20).reshape(4, 5))
        second = library.nn.Parameter(library.linspace(0.5, -0.5, 15).reshape(5, 3))
        optimizer = library.optim.Adam([first, second], lr=0.05, weight_decay=1e-3)
        losses = []
        for _ in range(5):
            optimizer.zero_grad()
            hidden = library.relu(times(adjacency, features @ first))
            scores = library.nn.functional.log_softmax(times(adjacency, hidden @ second), dim=1)
            loss = library.nn.functional.nll_loss(scores, labels)
            loss.backward()
            optimizer.step()
            losses.append(round(loss.item(), 5))
        return losses

    both(scenario)


def test_graph_attention_over_sparse_edges() -> None:
    def scenario(library: Any) -> Any:
        edges = ring(library).coalesce().indices()
        x = library.linspace(-1, 1, 12).reshape(6, 2).requires_grad_()
        a = library.tensor([0.3, -0.2], requires_grad=True)
        scores = library.nn.functional.leaky_relu((x[edges[0]] * a).sum(1) + (x[edges[1]] * a).sum(1), 0.2)
        attention = library.sparse.softmax(library.sparse_coo_tensor(edges, scores, (6, 6)), dim=1)
        out = library.sparse.mm(attention, x)
        (out**2).sum().backward()
        return [[round(v, 4) for v in row] for row in x.grad.tolist()], [round(v, 4) for v in a.grad.tolist()]

    both(scenario)


def test_a_table_may_change_between_the_passes_of_a_bag():
    """Its values are not needed for its gradient: several trainers may update one table."""
    table = flambeau.ones(5, 2, requires_grad=True)
    out = flambeau.nn.functional.embedding_bag(flambeau.tensor([1, 2, 2]), table, flambeau.tensor([0, 1]), mode="sum")
    with flambeau.no_grad():
        table.add_(1)
    out.sum().backward()
    assert table.grad.tolist() == [[0, 0], [1, 1], [2, 2], [0, 0], [0, 0]]
