"""Sparse tensors in checkpoints: PyTorch's format in both directions."""

from __future__ import annotations

import io
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
