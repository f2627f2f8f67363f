"""Statistics of a DistributedDataParallel: settings, sizes of buckets, and durations of its phases."""

from __future__ import annotations

import os
import time
import warnings
from typing import Any


class Logger:
    """Collects the data that `_get_ddp_logging_data()` returns; times are in nanoseconds. In a compiled step it sees only the calls that
    are not compiled."""

    KNOWN_BY_IDENTITY = True

    def __init__(self, reducer: Any) -> None:
        self.reducer = reducer
        reducer.logger = self
        self.data: dict[str, Any] = {}
        self.sample_rate = 100
        self.iteration = 0
        self.told_unneeded = False
        self._sums: dict[str, int] = {}
        self._samples = 0
        self._marks: dict[str, int] = dict.fromkeys(
            ("forward", "forward end", "backward", "backward end", "communication", "communication end"), 0
        )

    def set_construction_data_and_log(
        self, module_name: str, device_ids: list, output_device: int, broadcast_buffers: bool, has_sync_bn: bool,
        static_graph: bool,
    ) -> None:  # fmt: skip
        reducer = self.reducer
        env = {
            name.lower(): os.environ.get(name, "N/A")
            for name in ("MASTER_PORT", "MASTER_ADDR", "TORCH_DISTRIBUTED_DEBUG", "CUDA_VISIBLE_DEVICES")
        }
        self.data.update(
            world_size=reducer.group.size(), rank=reducer.group.rank(), module_name=module_name, iteration=0,
            device_ids=", ".join(map(str, device_ids)), output_device=output_device, broadcast_buffers=int(broadcast_buffers),
            has_sync_bn=int(has_sync_bn), bucket_cap_bytes=reducer.limits[-1],
            find_unused_parameters=int(reducer.find_unused), gradient_as_bucket_view=int(reducer.as_view),
            static_graph=int(static_graph), backend_name=reducer.group.backend_name,
            dtypes=", ".join(sorted({p.dtype.cpp for p in reducer.params})),
            total_parameter_size_bytes=sum(p.numel() * p.dtype.itemsize for p in reducer.params),
            num_parameter_tensors=len(reducer.params), bucket_sizes=self._bucket_sizes(), comm_hook="", **env,
        )  # fmt: skip
        if reducer.group.backend_name == "gloo":
            self.data.update(
                gloo_socket_ifname=os.environ.get("GLOO_SOCKET_IFNAME", "N/A"),
                gloo_device_transport=os.environ.get("GLOO_DEVICE_TRANSPORT", "N/A"),
                gloo_num_threads=2,
            )

    def _bucket_sizes(self) -> str:
        return ", ".join(str(bucket.nbytes) for bucket in self.reducer.buckets)

    def set_runtime_stats_and_log(self) -> None:
        """Do nothing: statistics are part of the data as soon as they are known."""

    def set_error_and_log(self, message: str) -> None:
        self.data.update(has_error=1, error=message, iteration=self.iteration)

    def set_comm_hook(self, name: str) -> None:
        self.data["comm_hook"] = name

    def set_static_graph(self) -> None:
        self.data["static_graph"] = 1

    def nothing_unused(self) -> None:
        """Warn that the search for unused parameters, which walks the graph each time, has found none."""
        self.told_unneeded = True
        warnings.warn(
            "find_unused_parameters=True was specified in DDP constructor, but did not find any unused parameters in the forward"
            " pass. This flag results in an extra traversal of the autograd graph every iteration,  which can adversely affect"
            " performance. If your model indeed never has any unused parameters in the forward pass, consider turning this flag"
            " off. Note that this warning may be a false positive if your model has flow control causing later iterations to"
            " have unused parameters.",
            stacklevel=4,
        )

    # -- times ----------------------------------------------------------------------------------------------------------

    def _mark(self, name: str) -> None:
        self._marks[name] = time.perf_counter_ns()

    def forward_begins(self) -> None:
        self.iteration += 1
        self._mark("forward")

    def forward_ends(self) -> None:
        self._mark("forward end")

    def backward_begins(self) -> None:
        self._mark("backward")

    def backward_computed(self) -> None:
        self._mark("backward end")

    def communication_begins(self) -> None:
        self._mark("communication")

    def communication_ends(self) -> None:
        self._mark("communication end")

    def iteration_ends(self, reducer: Any, now: Any) -> None:
        """Record the times of this iteration if it is sampled: the first ten, then every `sample_rate`-th."""
        number = self.iteration - 1
        self.data["num_buckets_reduced"] = now.buckets_reduced
        if number and not (number < 10 or number % self.sample_rate == 0):
            return
        marks = self._marks
        overlap = min(marks["backward end"], marks["communication end"]) - marks["communication"]
        times = {
            "forward_compute_time": marks["backward"] - marks["forward"],
            "backward_compute_time": max(1, marks["backward end"] - marks["backward"]),
            "backward_comm_time": max(1, marks["communication end"] - marks["communication"]),
            "backward_compute_comm_overlap_time": max(0, overlap),
        }
        self._samples += 1
        for name, value in times.items():
            self._sums[name] = self._sums.get(name, 0) + value
        self.data.update(times)
        self.data.update({f"avg_{name}": total // self._samples for name, total in self._sums.items()})
        self.data.update(
            iteration=number,
            forward_compute_time_start=marks["forward"],
            backward_compute_time_start=marks["backward"],
            backward_compute_time_end=marks["backward end"],
            backward_comm_time_start=marks["communication"],
            backward_comm_time_end=marks["communication end"],
            unused_parameter_size=sum(
                reducer.params[i].numel() * reducer.params[i].dtype.itemsize for i in reducer.unused
            ),
            prev_iteration_grad_ready_order_indices=", ".join(map(str, now.ready_order)),
        )
        self.tell_buckets(reducer)

    def tell_buckets(self, reducer: Any) -> None:
        self.data["has_rebuilt_buckets"] = int(reducer.rebuilt)
        if reducer.rebuilt:
            self.data["rebuilt_bucket_sizes"] = self._bucket_sizes()
            self.data["rebuilt_per_bucket_param_indices"] = ", ".join(
                " ".join(map(str, bucket.indices)) for bucket in reducer.buckets
            )

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        return self.data

    def _set_sample_rate(self, rate: int) -> None:
        if rate <= 0:
            raise ValueError("DDP runtime logging sample rate should be equal or greater than 1")
        self.sample_rate = rate
