"""Gradients across workers: the tensors sent and received in a context, and the backward pass through them.

A context has the same id on all workers that take part. Where a tensor is sent, its context keeps a `SendRpcBackward`, whose gradients come
from the other worker; where it is received, its history is a `RecvRpcBackward`, which sends gradients back. In a backward pass each worker
walks its own part of the graph from its roots and *all* its send functions (PyTorch's FAST mode: all of them are assumed to be part of the
pass), and gradients are kept in the context, not in `.grad`."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Sequence
from typing import Any

from ...autograd import engine
from ...core.graph import AccumulateGrad, Node, grad_mode, gradient_edge
from ...core.locks import new_lock
from ...core.tensor import Tensor
from ...futures import Future, collect_all
from ...ops.creation.filled import zeros

_WORKER_BITS = 48


class SendRpcBackward(Node):
    """Node of tensors that were sent to another worker: passes on the gradients that come back."""

    def __init__(self, tensors: list[Tensor]) -> None:
        super().__init__("torch::distributed::autograd::SendRpcBackward", tuple(gradient_edge(t) for t in tensors))
        self.output_count = len(tensors)

    def apply(self, grads: list) -> tuple:
        return tuple(grads)


class RecvRpcBackward(Node):
    """Autograd node of received tensors: sends their gradients to the worker they came from."""

    def __init__(self, context: DistAutogradContext, message: int, worker: int, tensors: list[Tensor]) -> None:
        super().__init__("torch::distributed::autograd::RecvRpcBackward", ())
        self.context, self.message, self.worker = context, message, worker
        self.output_count = len(tensors)
        self.output_info = [(t.shape, t.dtype, t.device) for t in tensors]
        for number, tensor in enumerate(tensors):
            tensor._set_history(self, number)

    def apply(self, grads: list) -> tuple:
        running = engine.running.current
        if not isinstance(running, _Pass):
            raise RuntimeError(
                "these tensors came from another worker: use torch.distributed.autograd.backward(context_id, roots)"
            )
        whole = [
            zeros(shape, dtype=dtype, device=where) if g is None else g
            for g, (shape, dtype, where) in zip(grads, self.output_info, strict=True)
        ]
        details = (self.context._context_id(), self.message, running.number, running.retain_graph)
        running.sent.append(container.agent.request(self.worker, "gradients", details, whole))
        return ()


class DistAutogradContext:
    """State of a forward and backward pass that several workers share."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.sends: dict[int, SendRpcBackward] = {}
        self.receives: dict[int, RecvRpcBackward] = {}
        self.workers: set[int] = set()
        self.grads: dict[Tensor, Tensor] = {}
        self.lock = new_lock()
        self.running: _Pass | None = None

    def settle(self) -> None:
        """Complete the last backward pass, if there was one (see `_Pass.settle`)."""
        if self.running is not None:
            self.running.settle()

    def _context_id(self) -> int:
        return self.number

    def _send_functions(self) -> dict[int, SendRpcBackward]:
        return dict(self.sends)

    def _recv_functions(self) -> dict[int, RecvRpcBackward]:
        return dict(self.receives)

    def _known_worker_ids(self) -> set[int]:
        return set(self.workers)


class _Pass(engine.Pass):
    """Part of a backward pass on one worker, continued whenever gradients arrive."""

    def __init__(self, context: DistAutogradContext, number: int, roots: list[Node], retain_graph: bool) -> None:
        super().__init__(retain_graph, False, None, 0, True)
        self.context, self.number = context, number
        self.counts, _ = engine.dependencies([*roots, *context.sends.values()])
        self.reachable = self.counts
        self.buffers: dict[Node, list] = {}
        self.sent: list[Future] = []
        self.set_aside: dict[Tensor, Tensor | None] = {}  # the `.grad` of leaves whose hooks look at it
        self.turn = new_lock()

    def feed(self, arrivals: list[tuple[Node, int, Tensor]]) -> Future:
        """Continue from these gradients; the future is done when all workers that receive gradients from here are."""
        try:
            return self._feed(arrivals)
        except Exception as problem:
            raise RuntimeError(f"Error on Node {container.worker}: {problem}") from problem

    def _feed(self, arrivals: list[tuple[Node, int, Tensor]]) -> Future:
        with self.turn:
            self.sent = []
            before, grad_mode.enabled = grad_mode.enabled, False
            outer, engine.running.current = engine.running.current, self
            try:
                self._walk(arrivals)
                callbacks, self.callbacks = self.callbacks, []
                for callback in callbacks:
                    callback()
            finally:
                grad_mode.enabled, engine.running.current = before, outer
            return collect_all(self.sent)._mapped(lambda done: [one.value() for one in done.value()])

    def settle(self) -> None:
        """End the pass: move gradients, which hooks may have changed, from `.grad` to the context, and restore `.grad`."""
        for leaf, kept in self.set_aside.items():
            state = leaf._ensure_autograd()
            self.context.grads[leaf], state.grad = state.grad, kept
        self.set_aside = {}

    def _walk(self, arrivals: list[tuple[Node, int, Tensor]]) -> None:
        for node, output, gradient in arrivals:
            engine.add_gradient(self.buffers, node, output, gradient)
        started = dict.fromkeys(node for node, _, _ in arrivals)
        ready = [(-node.sequence, node) for node in started if self.counts[node] == 0]
        heapq.heapify(ready)
        while ready:
            node = heapq.heappop(ready)[1]
            incoming = self.buffers.pop(node, None)
            outgoing = None if incoming is None else self.evaluate(node, incoming, None)
            for position, edge in enumerate(node.edges):
                if edge is None:
                    continue
                child, output = edge
                if outgoing is not None and outgoing[position] is not None:
                    engine.add_gradient(self.buffers, child, output, outgoing[position])
                self.counts[child] -= 1
                if self.counts[child] == 0:
                    heapq.heappush(ready, (-child.sequence, child))

    def evaluate(self, node: Node, incoming: list, useful: set[Node] | None) -> tuple | None:
        if type(node) is not AccumulateGrad:
            return super().evaluate(node, incoming, useful)
        leaf = node.variable
        state = leaf._ensure_autograd()
        grads = self.context.grads
        with self.context.lock:
            if leaf not in self.set_aside:
                kept, state.grad = state.grad, grads.get(leaf)
                if node.hooks:  # they look at `.grad` until the pass is over (DistributedDataParallel)
                    self.set_aside[leaf] = kept
            super().evaluate(node, incoming, useful)
            if leaf not in self.set_aside:
                grads[leaf], state.grad = state.grad, kept
        return None


class _Contexts:
    """All distributed autograd contexts of this worker."""

    def __init__(self) -> None:
        self.worker: int | None = None
        self.agent: Any = None
        self.lock = new_lock()
        self.contexts: dict[int, DistAutogradContext] = {}
        self.numbers = itertools.count()
        self.current = threading.local()

    def begin(self, worker: int) -> None:
        if not 0 <= worker < 1 << 15:
            raise RuntimeError(f"worker_id needs to be in the range [0, {(1 << 15) - 1}]")
        if worker != self.worker:
            self.worker, self.numbers = worker, itertools.count()

    def next_number(self) -> int:
        if self.worker is None:
            raise RuntimeError("Need to initialize distributed autograd using torch.distributed.autograd.init()")
        return self.worker << _WORKER_BITS | next(self.numbers)

    @property
    def here(self) -> DistAutogradContext | None:
        """The context of this thread, or None."""
        return getattr(self.current, "context", None)

    def enter(self, context: DistAutogradContext | None) -> DistAutogradContext | None:
        before, self.current.context = self.here, context
        return before

    def find(self, number: int) -> DistAutogradContext:
        context = self.contexts.get(number)
        if context is None:
            raise RuntimeError(f"Could not find autograd context with id: {number}")
        return context

    def find_or_make(self, number: int) -> DistAutogradContext:
        with self.lock:
            return self.contexts.setdefault(number, DistAutogradContext(number))

    def new(self) -> DistAutogradContext:
        if self.here is not None:
            raise RuntimeError(f"Already have an autograd context id for this thread: {self.here.number}")
        self.current.context = context = self.find_or_make(self.next_number())
        return context

    def release(self, number: int, tell: bool = True) -> None:
        """Drop a context, here and on the workers that it has reached."""
        with self.lock:
            context = self.contexts.pop(number, None)
        if self.here is not None and self.here.number == number:
            self.current.context = None
        if context is not None:
            with context.lock:
                context.settle()
        if context is not None and self.agent is not None:
            for worker in context.workers - {self.worker}:
                self.agent.notify(worker, "release_context", number)

    # -- what the agent asks when messages leave and arrive -----------------------------------------------------------------
    def mark_outgoing(self, tensors: Sequence[Tensor], to: int) -> tuple[int, int] | None:
        """Return (context, message) ids for a message with these tensors, if this thread is in a context."""
        context = self.here
        if context is None:
            return None
        message = self.next_number()
        differentiable = [t for t in tensors if t.requires_grad]
        with context.lock:
            context.workers.add(to)
            if differentiable:
                context.sends[message] = SendRpcBackward(differentiable)
        return context.number, message

    def open_incoming(self, mark: tuple[int, int], tensors: list[Tensor], source: int) -> DistAutogradContext:
        """Return the context of a received message; its differentiable tensors get a `RecvRpcBackward` as history."""
        context = self.find_or_make(mark[0])
        if tensors:
            function = RecvRpcBackward(context, mark[1], source, tensors)
            with context.lock:
                context.receives[mark[1]] = function
        return context

    def gradients(self, details: tuple, tensors: list[Tensor]) -> Future:
        """Continue a backward pass with received gradients of tensors that this worker had sent."""
        number, message, run, retain_graph = details
        context = self.find(number)
        with context.lock:
            if context.running is None or context.running.number != run:
                context.settle()
                context.running = _Pass(context, run, [], retain_graph)
            running, function = context.running, context.sends.get(message)
        if function is None:
            raise RuntimeError(f"Could not find send function {message} of autograd context {number}")
        return running.feed([(function, i, g) for i, g in enumerate(tensors)])


container = _Contexts()


def backward(context_id: int, roots: list[Tensor], retain_graph: bool = False) -> None:
    """Run the backward pass of a context from `roots`; gradients are then in `get_gradients(context_id)`, on each worker its own."""
    if not isinstance(context_id, int) or not isinstance(roots, (list, tuple)):
        raise TypeError(
            "backward(): incompatible function arguments: expected (context_id: int, roots: list[Tensor], retain_graph: bool ="
            f" False), got {type(context_id).__name__} and {type(roots).__name__}"
        )
    context = container.find(context_id)
    if not roots:
        raise RuntimeError("No tensors provided for gradient computation.")
    arrivals: list[tuple[Node, int, Tensor]] = []
    for root in roots:
        if not root.requires_grad:
            raise RuntimeError("requires_grad not set on root")
        if root.numel() != 1:
            raise RuntimeError(f"{root} is not a scalar, all roots need to be scalar")
        edge = gradient_edge(root)
        if edge is None or root.grad_fn is None:
            raise RuntimeError("root does not have a valid gradient function.")
        arrivals.append((edge[0], edge[1], zeros(root.shape, dtype=root.dtype, device=root.device).fill_(1)))
    run = container.next_number()
    with context.lock:
        context.settle()
        running = context.running = _Pass(context, run, [node for node, _, _ in arrivals], retain_graph)
    try:
        running.feed(arrivals).wait()
    finally:
        with context.lock:
            context.settle()
            context.running = None


def get_gradients(context_id: int) -> dict[Tensor, Tensor]:
    """Return the gradients that backward passes of this context have left here: tensor -> gradient."""
    context = container.find(context_id)
    with context.lock:
        context.settle()
        return dict(context.grads)
