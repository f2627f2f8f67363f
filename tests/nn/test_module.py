"""What Module itself does: attributes, registration, traversal, training mode, printing.

Each scenario runs in both libraries; results, or type and text of the error, must be the same."""

from .scenarios import Scenarios, net

scenario = Scenarios()


@scenario
def assign_wrong(T, nn):
    m = net(nn)
    m.a = 3


@scenario
def assign_param_wrong(T, nn):
    m = nn.Linear(2, 2)
    m.weight = T.ones(2, 2)


@scenario
def assign_param_int(T, nn):
    m = nn.Linear(2, 2)
    m.weight = 3


@scenario
def assign_buffer_wrong(T, nn):
    m = net(nn)
    m.buf = 3


@scenario
def assign_buffer_list(T, nn):
    m = net(nn)
    m.buf = [3]


@scenario
def assign_none(T, nn):
    m = net(nn)
    m.a = None
    m.buf = None
    return [list(m.state_dict()), repr(m)]


@scenario
def before_init(T, nn):
    class M(nn.Module):
        def __init__(self):
            self.a = nn.Linear(2, 2)

    M()


@scenario
def before_init_p(T, nn):
    class M(nn.Module):
        def __init__(self):
            self.a = nn.Parameter(T.ones(2))

    M()


@scenario
def before_init_b(T, nn):
    class M(nn.Module):
        def __init__(self):
            self.register_buffer("a", T.ones(2))

    M()


@scenario
def reg_param_bad(T, nn):
    nn.Module().register_parameter("a", T.ones(2))


@scenario
def reg_param_nonleaf(T, nn):
    nn.Module().register_parameter("a.b", None)


@scenario
def reg_param_nonleaf2(T, nn):
    nn.Module().register_parameter("", None)


@scenario
def reg_param_name(T, nn):
    nn.Module().register_parameter(3, None)


@scenario
def reg_param_exists(T, nn):
    nn.Module().register_parameter("forward", None)


@scenario
def reg_buf_dot(T, nn):
    nn.Module().register_buffer("a.b", None)


@scenario
def reg_buf_empty(T, nn):
    nn.Module().register_buffer("", None)


@scenario
def reg_buf_name(T, nn):
    nn.Module().register_buffer(3, None)


@scenario
def reg_buf_type(T, nn):
    nn.Module().register_buffer("x", 3)


@scenario
def add_module_dot(T, nn):
    nn.Module().add_module("a.b", None)


@scenario
def add_module_empty(T, nn):
    nn.Module().add_module("", None)


@scenario
def add_module_type(T, nn):
    nn.Module().add_module("x", 3)


@scenario
def add_module_name(T, nn):
    nn.Module().add_module(3, None)


@scenario
def add_module_exists(T, nn):
    nn.Module().add_module("training", None)


@scenario
def missing_attr(T, nn):
    nn.Linear(2, 2).foo


@scenario
def no_forward(T, nn):
    nn.Module()(3)


@scenario
def init_kwargs(T, nn):
    nn.Module(foo=1)


@scenario
def init_args(T, nn):
    nn.Module(1)


@scenario
def get_submodule(T, nn):
    m = net(nn)
    return [repr(m.get_submodule("b.1")), repr(m.get_submodule("")), m.get_parameter("b.1.bias"), m.get_buffer("buf")]


@scenario
def get_submodule_bad(T, nn):
    net(nn).get_submodule("b.7")


@scenario
def get_submodule_bad2(T, nn):
    net(nn).get_submodule("a.weight")


@scenario
def get_param_bad(T, nn):
    net(nn).get_parameter("a.foo")


@scenario
def get_param_bad2(T, nn):
    net(nn).get_parameter("buf")


@scenario
def get_buf_bad(T, nn):
    net(nn).get_buffer("a.weight")


@scenario
def get_buf_bad2(T, nn):
    net(nn).get_buffer("zz")


@scenario
def set_submodule(T, nn):
    m = net(nn)
    m.set_submodule("b.1", nn.Tanh())
    return repr(m)


@scenario
def set_submodule_bad(T, nn):
    m = net(nn)
    m.set_submodule("", nn.Tanh())


@scenario
def set_submodule_bad2(T, nn):
    m = net(nn)
    m.set_submodule("c.d", nn.Tanh())


@scenario
def set_submodule_bad3(T, nn):
    m = net(nn)
    m.set_submodule("b.1", 3)


@scenario
def set_submodule_strict(T, nn):
    m = net(nn)
    m.set_submodule("zzz", nn.Tanh(), strict=True)


@scenario
def set_submodule_new(T, nn):
    m = net(nn)
    m.set_submodule("zzz", nn.Tanh())
    return repr(m)


@scenario
def names(T, nn):
    m = net(nn)
    return [
        [n for n, _ in m.named_modules()],
        [n for n, _ in m.named_children()],
        [n for n, _ in m.named_parameters()],
        [n for n, _ in m.named_buffers()],
        [n for n, _ in m.named_parameters(prefix="p", recurse=False)],
        len(list(m.modules())),
        len(list(m.children())),
    ]


@scenario
def train_eval(T, nn):
    m = net(nn)
    m.eval()
    a = [x.training for x in m.modules()]
    m.train()
    m.b.eval()
    return a + [x.training for x in m.modules()]


@scenario
def train_bad(T, nn):
    net(nn).train("x")


@scenario
def zero_grad(T, nn):
    m = net(nn)
    m(T.ones(1, 2)).sum().backward()
    m.zero_grad(set_to_none=False)
    a = m.a.weight.grad
    m.zero_grad()
    return [a, m.a.weight.grad]


@scenario
def requires(T, nn):
    m = net(nn)
    m.requires_grad_(False)
    return [p.requires_grad for p in m.parameters()]


@scenario
def apply(T, nn):
    out = []
    net(nn).apply(lambda x: out.append(x.__class__.__name__))
    return out


@scenario
def delattr_(T, nn):
    m = net(nn)
    del m.a
    del m.buf
    del m.np_
    return [repr(m), list(m.state_dict()), hasattr(m, "buf")]


@scenario
def parameters_whose_class_takes_more(T, nn):
    class Coded(nn.Parameter):
        def __new__(cls, data, requires_grad=True, bits=8):
            made = T.Tensor._make_subclass(cls, data, requires_grad)
            made.bits = bits
            return made

    m = nn.Module()
    m.weight = Coded(T.ones(2), requires_grad=False, bits=4)
    return [m.weight.bits, [name for name, _ in m.named_parameters()], m.weight.requires_grad]


@scenario
def delattr_bad(T, nn):
    m = net(nn)
    try:
        del m.zzz
    except AttributeError as error:  # its text is Python's own, another one on 3.10
        return "zzz" in str(error)


@scenario
def dir_(T, nn):
    m = net(nn)
    d = dir(m)
    return ["a" in d, "buf" in d, "training" in d]


@scenario
def buffer_cls(T, nn):
    m = nn.Module()
    m.b = nn.Buffer(T.ones(2))
    m.c = nn.Buffer(T.ones(1), persistent=False)
    return [
        list(m.state_dict()),
        [n for n, _ in m.named_buffers()],
        m.b.__class__.__name__,
        repr(m.b),
        isinstance(m.b, nn.Buffer),
    ]


@scenario
def buffer_isinstance(T, nn):
    m = net(nn)
    return [isinstance(m.buf, nn.Buffer), isinstance(T.ones(1), nn.Buffer), isinstance(m.a.weight, nn.Buffer)]


@scenario
def repr_nested(T, nn):
    return repr(net(nn))


@scenario
def repr_extra_multi(T, nn):
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.l = nn.ReLU()

        def extra_repr(s):
            return "a=1\nb=2"

    class N(nn.Module):
        def extra_repr(s):
            return "a=1\nb=2"

    return [repr(M()), repr(N())]


@scenario
def call_super(T, nn):
    class Mixin:
        def __init__(self, z=0):
            self.z = z

    class M(nn.Module, Mixin):
        call_super_init = True

        def __init__(self):
            super().__init__(z=4)

    return M().z


@scenario
def setattr_over(T, nn):
    m = net(nn)
    m.a = nn.Parameter(T.ones(1))
    m.buf = nn.Linear(1, 1)
    return [repr(m), list(m.state_dict())]


@scenario
def nan_bool(T, nn):
    return [bool(nn.ModuleList()), bool(nn.Linear(1, 1)), len(nn.Sequential())]


test_same_in_both_libraries = scenario.as_test()
