"""Helpers around the elastic launcher."""

from __future__ import annotations

import json

import pytest

from flambeau.distributed.elastic import utils
from flambeau.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure, record
from flambeau.distributed.elastic.utils.data import CyclingIterator, ElasticDistributedSampler
from flambeau.distributed.elastic.utils.distributed import create_c10d_store


def test_ports_and_stores():
    with utils.get_socket_with_port() as bound:
        assert bound.getsockname()[1] > 0
    store = create_c10d_store(True, "localhost", utils.get_free_port(), 1, timeout=5)
    store.set("a", "b")
    assert store.get("a") == b"b"
    with pytest.raises(ValueError, match="server_port must be specified"):
        create_c10d_store(True, "localhost", world_size=2)


def test_the_rest_of_an_epoch():
    shares = [list(ElasticDistributedSampler(range(10), 2, rank, start_index=3)) for rank in range(2)]
    assert set(shares[0]) | set(shares[1]) == set(range(3, 10)) and len(shares[0]) == len(shares[1]) == 4
    assert list(CyclingIterator(3, lambda epoch: iter([epoch, epoch + 10]), 1)) == [1, 11, 2, 12]


def test_a_childs_error_is_handed_on(tmp_path, monkeypatch):
    theirs, ours = tmp_path / "child.json", tmp_path / "own.json"
    theirs.write_text(json.dumps({"message": {"message": "ValueError: x", "extraInfo": {"timestamp": "10"}}}))

    @record
    def main():
        failure = ProcessFailure(0, 1, 3, str(theirs))
        assert (failure.message, failure.timestamp) == ("ValueError: x", 10)
        raise ChildFailedError("program", {0: failure})

    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(ours))
    with pytest.raises(ChildFailedError):
        main()
    assert json.loads(ours.read_text())["message"]["errorCode"] == 3
