"""Sparse tensors in checkpoints: PyTorch's format in both directions."""

from __future__ import annotations

import io
import pickle
import warnings
from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch", reason="exchanges files with the real PyTorch")


def example(library: Any) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        s = library.sparse_coo_tensor([[0, 1, 1, 0], [2, 0, 2, 2]], [3.0, 4.0, 5.0, 1.0], (2, 3))
        return {
            "uncoalesced": s,
            "coalesced": s.coalesce(),
            "rows": s.to_sparse_csr(),
            "columns": s.to_sparse_csc(),
            "hybrid": library.sparse_coo_tensor([[0, 1]], [[1.0, 2.0], [3.0, 4.0]], (3, 2)).to(library.bfloat16),
            "layout": library.sparse_coo,
        }


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(("writer", "reader"), [(torch, flambeau), (flambeau, torch), (flambeau, flambeau)])
def test_round_trip(writer: Any, reader: Any, zipped: bool, weights_only: bool) -> None:
    file = io.BytesIO()
    writer.save(example(writer), file, _use_new_zipfile_serialization=zipped)
    file.seek(0)
    found, expected = reader.load(file, weights_only=weights_only), example(reader)
    assert repr(found) == repr(expected)
    assert found["coalesced"].is_coalesced() and not found["uncoalesced"].is_coalesced()


def test_a_file_with_indices_outside_the_tensor_is_refused() -> None:
    file = io.BytesIO()
    flambeau.save(flambeau.sparse_coo_tensor([[0, 9]], [1.0, 2.0], (3,)), file)
    file.seek(0)
    with pytest.raises(RuntimeError, match="size is inconsistent with indices"):
        flambeau.load(file)


def compressed(library: Any) -> dict[str, Any]:
    """Batches of compressed matrices, with dense dimensions, in all four layouts."""
    full = library.arange(2 * 4 * 6 * 2.0).reshape(2, 4, 6, 2) * library.eye(4, 6).reshape(4, 6, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            name: full.to_sparse(layout=getattr(library, name), blocksize=block, dense_dim=1)
            for name, block in (
                ("sparse_csr", None),
                ("sparse_csc", None),
                ("sparse_bsr", (2, 3)),
                ("sparse_bsc", (1, 2)),
            )
        }


@pytest.mark.parametrize(("writer", "reader"), [(torch, flambeau), (flambeau, torch), (flambeau, flambeau)])
def test_round_trip_of_batches_with_dense_dimensions(writer: Any, reader: Any) -> None:
    file = io.BytesIO()
    writer.save(compressed(writer), file)
    file.seek(0)
    assert repr(reader.load(file)) == repr(compressed(reader))
    assert repr(pickle.loads(pickle.dumps(compressed(writer)))) == repr(compressed(writer))


def test_a_file_whose_batches_are_not_of_one_size_is_refused() -> None:
    t = compressed(flambeau)["sparse_csr"]
    t._plain_part = t._plain_part[:1]
    file = io.BytesIO()
    flambeau.save(t, file)
    file.seek(0)
    with pytest.raises(RuntimeError, match="all batch dimensions of crow_indices"):
        flambeau.load(file)
