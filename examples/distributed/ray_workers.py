"""Ray starts the ranks, wherever its cluster has room: `pip install ray`, then `python examples/distributed/ray_workers.py`."""

import os
import socket
import sys
from pathlib import Path

import ray


class Rank:
    def address(self) -> tuple[str, int]:
        with socket.socket() as probe:
            probe.bind(("", 0))
            return ray.util.get_node_ip_address(), probe.getsockname()[1]

    def run(self, rank: int, size: int, address: str, port: int, secret: str, path: str) -> int:
        place = {"RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": address, "MASTER_PORT": port}
        os.environ.update({name: str(value) for name, value in place.items()}, FLAMBEAU_DISTRIBUTED_SECRET=secret)
        import flambeau

        flambeau.install_as_torch()
        sys.path.insert(0, str(Path(__file__).parent))
        import train

        train.main(path)
        return rank


if __name__ == "__main__":
    ray.init(include_dashboard=False)
    ranks = [ray.remote(Rank).remote() for _ in range(2)]
    address, port = ray.get(ranks[0].address.remote())
    path, secret = os.path.abspath("checkpoint.pt"), os.urandom(16).hex()
    print("done:", ray.get([rank.run.remote(r, 2, address, port, secret, path) for r, rank in enumerate(ranks)]))
