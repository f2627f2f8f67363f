"""Hooks: forward, backward, of saving and loading, per module and global.

Each scenario runs in both libraries; results, or type and text of the error, must be the same."""

import collections
import warnings
import weakref

from .scenarios import Scenarios, net, plain

scenario = Scenarios()


@scenario
def hooks(T, nn):
    m = net(nn)
    out = []
    m.register_forward_pre_hook(lambda mod, args: out.append(("pre", plain(args))))
    m.register_forward_hook(lambda mod, args, o: out.append(("post", plain(args), plain(o))))
    m.register_forward_pre_hook(lambda mod, args, kw: out.append(("prekw", sorted(kw))), with_kwargs=True, prepend=True)
    m.register_forward_hook(lambda mod, args, kw, o: o * 2, with_kwargs=True)
    m.register_full_backward_hook(lambda mod, gi, go: out.append(("bw", plain(gi), plain(go))))
    m.register_full_backward_pre_hook(lambda mod, go: out.append(("bwpre", plain(go))))
    x = T.ones(1, 2).requires_grad_()
    y = m(x, scale=3)
    y.sum().backward()
    out.append(plain(x.grad))
    out.append(plain(y))
    return out


@scenario
def hook_change(T, nn):
    m = nn.Linear(2, 2)
    m.register_forward_pre_hook(lambda mod, args: T.zeros(1, 2))
    m.register_full_backward_hook(lambda mod, gi, go: (gi[0] * 0 + 7,))
    x = T.ones(1, 2).requires_grad_()
    y = m(x)
    y.sum().backward()
    return [y, x.grad]


@scenario
def hook_bad_count(T, nn):
    m = nn.Linear(2, 2)
    m.register_full_backward_hook(lambda mod, gi, go: (1, 2))
    x = T.ones(1, 2).requires_grad_()
    m(x).sum().backward()


@scenario
def hook_noinputgrad(T, nn):
    out = []
    m = nn.Linear(2, 2)
    m.register_full_backward_hook(lambda mod, gi, go: out.append((plain(gi), plain(go))))
    m(T.ones(1, 2)).sum().backward()
    return out


@scenario
def hook_prekw_bad(T, nn):
    m = nn.Linear(2, 2)
    m.register_forward_pre_hook(lambda mod, args, kw: 3, with_kwargs=True)
    m(T.ones(1, 2))


@scenario
def hook_prekw_change(T, nn):
    m = nn.Linear(2, 2)
    m.register_forward_pre_hook(lambda mod, args, kw: ((T.zeros(1, 2),), kw), with_kwargs=True)
    return m(T.ones(1, 2))


@scenario
def hook_both_kinds(T, nn):
    m = nn.Linear(2, 2)
    m.register_full_backward_hook(lambda *a: None)
    m.register_backward_hook(lambda *a: None)


@scenario
def hook_both_kinds2(T, nn):
    m = nn.Linear(2, 2)
    m.register_backward_hook(lambda *a: None)
    m.register_full_backward_hook(lambda *a: None)


@scenario
def hook_old(T, nn):
    out = []
    m = nn.Sequential(nn.Linear(2, 2))
    m.register_backward_hook(lambda mod, gi, go: out.append(plain(go)))
    x = T.ones(1, 2).requires_grad_()
    m(x).sum().backward()
    return out


@scenario
def hook_always(T, nn):
    out = []

    class M(nn.Module):
        def forward(self, x):
            raise ValueError("boom")

    m = M()
    m.register_forward_hook(lambda mod, a, o: out.append(o), always_call=True)
    try:
        m(3)
    except ValueError as e:
        out.append(str(e))
    return out


@scenario
def hook_remove(T, nn):
    out = []
    m = nn.Linear(2, 2)
    h = m.register_forward_hook(lambda *a: out.append(1))
    m(T.ones(1, 2))
    h.remove()
    m(T.ones(1, 2))
    with m.register_forward_hook(lambda *a: out.append(2)):
        m(T.ones(1, 2))
    m(T.ones(1, 2))
    return out


@scenario
def hook_order(T, nn):
    out = []
    m = nn.Linear(2, 2)
    m.register_forward_hook(lambda *a: out.append(1))
    m.register_forward_hook(lambda *a: out.append(0), prepend=True)
    m.register_forward_hook(lambda *a: out.append(2))
    m(T.ones(1, 2))
    return out


@scenario
def hook_global(T, nn):
    out = []
    M = nn.modules.module
    hs = [
        M.register_module_forward_pre_hook(lambda mod, a: out.append("p" + mod.__class__.__name__)),
        M.register_module_forward_hook(lambda mod, a, o: out.append("f" + mod.__class__.__name__)),
        M.register_module_full_backward_hook(lambda mod, gi, go: out.append("b" + mod.__class__.__name__)),
        M.register_module_full_backward_pre_hook(lambda mod, go: out.append("bp" + mod.__class__.__name__)),
    ]
    m = net(nn)
    x = T.ones(1, 2).requires_grad_()
    m(x).sum().backward()
    for h in hs:
        h.remove()
    m(x)
    return out


@scenario
def hook_registration(T, nn):
    out = []
    M = nn.modules.module
    hs = [
        M.register_module_parameter_registration_hook(lambda mod, n, p: out.append("p" + n)),
        M.register_module_buffer_registration_hook(lambda mod, n, p: out.append("b" + n)),
        M.register_module_module_registration_hook(lambda mod, n, p: out.append("m" + n)),
    ]
    net(nn)
    for h in hs:
        h.remove()
    net(nn)
    return out


@scenario
def hook_multi_out(T, nn):
    out = []

    class M(nn.Module):
        def forward(self, a, b, c=None):
            return a * b, 3, b * 2

    m = M()
    m.register_full_backward_hook(lambda mod, gi, go: out.append((plain(gi), plain(go))))
    x = T.ones(2).requires_grad_()
    y = T.ones(2)
    r = m(x, y)
    (r[0].sum()).backward()
    return out + [plain(r)]


@scenario
def hook_dict_out(T, nn):
    out = []

    class M(nn.Module):
        def forward(self, a):
            return {"x": a * 2}

    m = M()
    m.register_full_backward_hook(lambda mod, gi, go: out.append((plain(gi), plain(go))))
    x = T.ones(2).requires_grad_()
    r = m(x)
    r["x"].sum().backward()
    return out + [plain(x.grad)]


@scenario
def state_hooks(T, nn):
    out = []
    m = net(nn)
    m.register_state_dict_pre_hook(lambda mod, p, k: out.append(("pre", p, k)))
    m.register_state_dict_post_hook(lambda mod, sd, p, md: out.append(("post", list(sd), p)))
    m.register_load_state_dict_pre_hook(lambda mod, sd, p, md, st, mk, uk, em: out.append(("lpre", list(sd), p, st)))
    m.register_load_state_dict_post_hook(lambda mod, inc: out.append(("lpost", list(inc.missing_keys))))
    m._register_load_state_dict_pre_hook(lambda sd, p, md, st, mk, uk, em: out.append(("old", p)))
    m.load_state_dict(m.state_dict())
    return out


@scenario
def state_hook_bad(T, nn):
    m = net(nn)
    m.register_state_dict_post_hook(lambda *a: 3)
    m.state_dict()


@scenario
def load_hook_bad(T, nn):
    m = net(nn)
    m.register_load_state_dict_post_hook(lambda *a: 3)
    m.load_state_dict(m.state_dict())


@scenario
def hooks_of_the_last_operation(T, nn):
    """register_backward_hook sees what the last node sees; it warns where that is not what the module sees."""

    class Two(nn.Module):
        def forward(self, x, y):
            return (x * 2).exp() * y

    seen = []
    m = Two()
    m.register_backward_hook(lambda mod, gi, go: seen.append([plain(gi), plain(go)]))
    x, y = T.ones(2, requires_grad=True), T.ones(2, requires_grad=True)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        m(x, y).sum().backward()
    return [seen, [w.category for w in heard], ["multiple autograd Nodes" in str(w.message) for w in heard]]


@scenario
def both_kinds_of_backward_hooks(T, nn):
    m = nn.Linear(2, 2)
    m.register_backward_hook(lambda *a: None)
    m.register_full_backward_hook(lambda *a: None)


@scenario
def output_that_no_hook_can_watch(T, nn):
    class Named(nn.Module):
        def forward(self, x):
            return {"x": x * 2}

    m = Named()
    m.register_full_backward_hook(lambda *a: None)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        m(T.ones(2, requires_grad=True))
    return [str(w.message) for w in heard]


@scenario
def named_tuples_pass_through_hooks(T, nn):
    Pair = collections.namedtuple("Pair", "first second")

    class Made(nn.Module):
        def forward(self, x):
            return Pair(x * 2, 3)

    m = Made()
    seen = []
    m.register_full_backward_hook(lambda mod, gi, go: seen.append([plain(gi), plain(go)]))
    out = m(T.ones(2, requires_grad=True))
    out.first.sum().backward()
    return [out.__class__.__name__, out.second, seen]


@scenario
def watched_inputs_are_not_changed_in_place(T, nn):
    class Adds(nn.Module):
        def forward(self, x):
            x += 1
            return x

    m = Adds()
    m.register_full_backward_hook(lambda *a: None)
    m(T.ones(2, requires_grad=True).clone())


@scenario
def pre_hook_with_too_many_gradients(T, nn):
    m = nn.Sigmoid()
    m.register_full_backward_pre_hook(lambda mod, go: (go[0], go[0]))
    m(T.ones(2, requires_grad=True)).sum().backward()


@scenario
def failing_hook_after_a_failure(T, nn):
    class Fails(nn.Module):
        def forward(self, x):
            raise ValueError("in forward")

    def hook(*args):
        raise RuntimeError("in the hook")

    m = Fails()
    m.register_forward_hook(hook, always_call=True)
    m(T.ones(2))


@scenario
def global_hooks_have_pytorchs_names(T, nn):
    handle = nn.modules.module.register_module_forward_hook(lambda m, args, out: out + 1, always_call=True)
    tables = nn.modules.module._global_forward_hooks, nn.modules.module._global_forward_hooks_always_called
    counts = [len(table) for table in tables]
    out = nn.Identity()(T.zeros(2))
    handle.remove()
    return [counts, out, [len(table) for table in tables], handle.hooks_dict_ref() is tables[0]]


@scenario
def one_function_as_both_post_hooks(T, nn):
    def hook(*args):
        pass

    m = nn.Linear(2, 2)
    m.register_state_dict_post_hook(hook)
    m._register_state_dict_hook(hook)


@scenario
def load_hooks_do_not_keep_modules(T, nn):
    m = nn.Linear(2, 2)
    m.register_load_state_dict_pre_hook(print)
    alive = weakref.ref(m)
    del m
    return alive() is None


test_same_in_both_libraries = scenario.as_test()
