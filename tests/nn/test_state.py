"""Saving, loading, converting and copying modules and parameters.

Each scenario runs in both libraries; results, or type and text of the error, must be the same."""

import contextlib
import copy
import pickle
import warnings

from .scenarios import Scenarios, net

scenario = Scenarios()


@scenario
def load_missing(T, nn):
    m = net(nn)
    sd = m.state_dict()
    del sd["a.weight"]
    m.load_state_dict(sd)


@scenario
def load_unexpected(T, nn):
    m = net(nn)
    sd = m.state_dict()
    sd["a.foo"] = T.ones(1)
    sd["c.d"] = T.ones(1)
    del sd["b.1.bias"]
    m.load_state_dict(sd)


@scenario
def load_shape(T, nn):
    m = net(nn)
    sd = m.state_dict()
    sd["a.weight"] = T.ones(3, 3)
    m.load_state_dict(sd)


@scenario
def load_shape_nonstrict(T, nn):
    m = net(nn)
    sd = m.state_dict()
    sd["a.weight"] = T.ones(3, 3)
    sd["foo"] = T.ones(1)
    m.load_state_dict(sd, strict=False)


@scenario
def load_notdict(T, nn):
    net(nn).load_state_dict([1])


@scenario
def load_nontensor(T, nn):
    m = net(nn)
    sd = m.state_dict()
    sd["a.weight"] = [1.0]
    m.load_state_dict(sd)


@scenario
def load_strict_false(T, nn):
    m = net(nn)
    sd = m.state_dict()
    del sd["a.weight"]
    sd["zz"] = T.ones(1)
    r = m.load_state_dict(sd, strict=False)
    return [r.missing_keys, r.unexpected_keys, repr(r)]


@scenario
def load_ok(T, nn):
    m = net(nn)
    return repr(m.load_state_dict(m.state_dict()))


@scenario
def load_assign(T, nn):
    m = net(nn)
    sd = {k: v.double() for k, v in m.state_dict().items()}
    m.load_state_dict(sd, assign=True)
    return [str(p.dtype) for p in m.parameters()] + [
        m.a.weight.requires_grad,
        m.a.weight.__class__.__name__,
        m.a.weight.data_ptr() == sd["a.weight"].data_ptr(),
    ]


@scenario
def load_dtype(T, nn):
    m = net(nn)
    sd = {k: v.double() for k, v in m.state_dict().items()}
    m.load_state_dict(sd)
    return [str(p.dtype) for p in m.parameters()]


@scenario
def state_names(T, nn):
    m = net(nn)
    return [list(m.state_dict()), dict(m.state_dict()._metadata), list(m.state_dict(prefix="x.")), list(m._buffers)]


@scenario
def keep_vars(T, nn):
    m = net(nn)
    return [
        m.state_dict(keep_vars=True)["a.weight"] is m.a.weight,
        m.state_dict()["a.weight"].requires_grad,
        m.state_dict()["a.weight"].__class__.__name__,
    ]


@scenario
def shared(T, nn):
    l = nn.Linear(2, 2)
    m = nn.Sequential(l, l)
    return [
        [n for n, _ in m.named_parameters()],
        [n for n, _ in m.named_parameters(remove_duplicate=False)],
        [n for n, _ in m.named_modules(remove_duplicate=False)],
        list(m.state_dict()),
        [n for n, _ in m.named_children()],
    ]


@scenario
def to_int(T, nn):
    net(nn).to(T.int32)


@scenario
def to_double(T, nn):
    m = net(nn).to(T.float64)
    return [str(p.dtype) for p in m.state_dict().values()]


@scenario
def to_tensor(T, nn):
    m = net(nn).to(T.ones(1, dtype=T.float16))
    return [str(p.dtype) for p in m.state_dict().values()]


@scenario
def to_device(T, nn):
    m = net(nn).to("cpu", T.float64, non_blocking=True)
    return [str(p.dtype) for p in m.state_dict().values()]


@scenario
def to_meta(T, nn):
    m = net(nn)
    w = m.a.weight
    m.to("meta")
    return [str(m.a.weight.device), m.a.weight.__class__.__name__, m.a.weight is w]


@scenario
def to_empty(T, nn):
    m = nn.Linear(2, 3, device="meta")
    m.to_empty(device="cpu")
    return [str(m.weight.device), tuple(m.weight.shape), m.weight.__class__.__name__]


@scenario
def to_grad(T, nn):
    m = nn.Linear(2, 2)
    m(T.ones(1, 2)).sum().backward()
    m.double()
    return [str(m.weight.grad.dtype), m.weight.is_leaf]


@scenario
def channels_last(T, nn):
    m = nn.Conv2d(3, 4, 3).to(memory_format=T.channels_last)
    return m.weight.stride()


@scenario
def type_(T, nn):
    m = net(nn).type(T.float64)
    return str(m.a.weight.dtype)


@scenario
def extra_state(T, nn):
    class M(nn.Linear):
        def get_extra_state(self):
            return {"n": 5}

        def set_extra_state(self, s):
            self.n = s["n"]

    m = M(2, 2)
    sd = m.state_dict()
    k = list(sd)
    m2 = M(2, 2)
    m2.load_state_dict(sd)
    out = [k, m2.n]
    del sd["_extra_state"]
    try:
        m2.load_state_dict(sd)
    except RuntimeError as e:
        out.append(str(e))
    return out


@scenario
def extra_state_unexpected(T, nn):
    m = nn.Linear(2, 2)
    sd = m.state_dict()
    sd["_extra_state"] = 3
    m.load_state_dict(sd)


@scenario
def param_repr(T, nn):
    return [repr(nn.Parameter(T.ones(2))), repr(nn.Parameter(T.ones(2), requires_grad=False)), str(nn.Parameter())]


@scenario
def param_ops(T, nn):
    p = nn.Parameter(T.ones(2))
    return [
        (p * 2).__class__.__name__,
        p.data.__class__.__name__,
        p.detach().__class__.__name__,
        copy.deepcopy(p).__class__.__name__,
        pickle.loads(pickle.dumps(p)).__class__.__name__,
        isinstance(p, T.Tensor),
        p.is_leaf,
        p.clone().__class__.__name__,
    ]


@scenario
def param_int(T, nn):
    nn.Parameter(T.ones(2, dtype=T.int64))


@scenario
def param_from_nonleaf(T, nn):
    x = T.ones(2).requires_grad_() * 2
    p = nn.Parameter(x)
    return [p.is_leaf, p.requires_grad]


@scenario
def deepcopy_hooks(T, nn):
    m = net(nn)
    m.register_forward_hook(lambda mod, a, o: o * 0)
    return copy.deepcopy(m)(T.ones(1, 2))


@scenario
def deepcopy_shared(T, nn):
    l = nn.Linear(2, 2)
    m = copy.deepcopy(nn.Sequential(l, l))
    return m[0] is m[1]


@scenario
def share_memory(T, nn):
    m = nn.Linear(2, 2).share_memory()
    return m.weight.is_shared()


@scenario
def to_same(T, nn):
    m = nn.Linear(2, 2)
    w = m.weight
    p = w.data_ptr()
    m.to("cpu")
    return [m.weight is w, m.weight.data_ptr() == p]


@contextlib.contextmanager
def swapping(T):
    T.__future__.set_swap_module_params_on_conversion(True)
    try:
        yield
    finally:
        T.__future__.set_swap_module_params_on_conversion(False)


@scenario
def parameters_exchanged_on_conversion(T, nn):
    m = nn.Linear(2, 2)
    w = m.weight
    w.sum().backward()
    with swapping(T):
        m.double()
    return [m.weight is w, m.weight, m.weight.grad]


@scenario
def parameters_replaced_on_conversion(T, nn):
    m = nn.Linear(2, 2)
    w = m.weight
    T.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        m.double()
    finally:
        T.__future__.set_overwrite_module_params_on_conversion(False)
    return [m.weight is w, w.dtype, m.weight.dtype]


@scenario
def parameters_exchanged_on_loading(T, nn):
    m, other = nn.Linear(2, 2), nn.Linear(2, 2)
    w = m.weight
    with swapping(T):
        m.load_state_dict(other.state_dict())
        copied = m.weight is w, m.weight.equal(other.weight), m.weight.data_ptr() == other.weight.data_ptr()
        m.load_state_dict(other.state_dict(), assign=True)
    return [copied, m.weight is w, m.weight.data_ptr() == other.weight.data_ptr()]


@scenario
def assigned_parameters_keep_the_flag(T, nn):
    m = nn.Linear(2, 2)
    m.load_state_dict({k: nn.Parameter(v, False) for k, v in nn.Linear(2, 2).state_dict().items()}, assign=True)
    return [p.requires_grad for p in m.parameters()]


@scenario
def loading_into_meta_parameters(T, nn):
    m = nn.Linear(1, 1, device="meta")
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        m.load_state_dict(nn.Linear(1, 1).state_dict())
    return [str(w.message) for w in heard]


@scenario
def meta_parameters_are_replaced(T, nn):
    m = nn.Linear(2, 2, device="meta")
    w = m.weight
    m.to_empty(device="cpu")
    return [m.weight is w, w.device.type, m.weight.device.type]


@scenario
def tensors_with_a_history_are_pickled_without(T, nn):
    t = pickle.loads(pickle.dumps(T.ones(2, requires_grad=True) * 2))
    return [t, t.is_leaf, t.requires_grad]


@scenario
def extra_state_that_is_only_given(T, nn):
    class Giver(nn.Module):
        def get_extra_state(self):
            return {"a": 1}

    m = Giver()
    m.load_state_dict(m.state_dict())


@scenario
def extra_state_that_is_only_taken(T, nn):
    class Taker(nn.Module):
        def set_extra_state(self, state):
            pass

    m = Taker()
    m.load_state_dict(m.state_dict())


test_same_in_both_libraries = scenario.as_test()
