"""Sequential, ModuleList, ModuleDict, ParameterList, ParameterDict.

Each scenario runs in both libraries; results, or type and text of the error, must be the same."""

from collections import OrderedDict

from .scenarios import Scenarios

scenario = Scenarios()


@scenario
def seq(T, nn):
    m = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Tanh())
    out = [len(m), repr(m[1:]), repr(m[-1])]
    m.append(nn.Sigmoid())
    m.insert(1, nn.ELU())
    del m[0]
    out += [repr(m)]
    m += nn.Sequential(nn.GELU())
    m[0] = nn.SELU()
    out += [repr(m), repr(m + m), repr(nn.Sequential(nn.ReLU()) * 3), repr(m.pop(0)), repr(m)]
    m.extend(nn.Sequential(nn.ReLU(), nn.ReLU()))
    return out + [repr(m)]


@scenario
def seq_bad(T, nn):
    nn.Sequential(nn.ReLU())[3]


@scenario
def seq_bad2(T, nn):
    nn.Sequential(nn.ReLU()) + 3


@scenario
def seq_bad3(T, nn):
    nn.Sequential(nn.ReLU()) * 0


@scenario
def seq_bad4(T, nn):
    nn.Sequential(nn.ReLU()) * 1.5


@scenario
def seq_bad5(T, nn):
    nn.Sequential(3)


@scenario
def seq_bad6(T, nn):
    nn.Sequential(nn.ReLU()).insert(5, nn.ReLU())


@scenario
def seq_bad7(T, nn):
    nn.Sequential(nn.ReLU()).insert(0, 3)


@scenario
def seq_od(T, nn):
    m = nn.Sequential(OrderedDict([("x", nn.ReLU()), ("y", nn.Linear(1, 1))]))
    return [repr(m), repr(m.x), list(m.state_dict())]


@scenario
def seq_od_del(T, nn):
    m = nn.Sequential(OrderedDict([("x", nn.ReLU()), ("y", nn.Linear(1, 1)), ("z", nn.ReLU())]))
    del m[0]
    return repr(m)


@scenario
def seq_od_slice_del(T, nn):
    m = nn.Sequential(OrderedDict([("x", nn.ReLU()), ("y", nn.Linear(1, 1)), ("z", nn.ReLU())]))
    del m[0:2]
    return repr(m)


@scenario
def mlist(T, nn):
    m = nn.ModuleList([nn.ReLU(), nn.Tanh()])
    m.append(nn.ELU())
    m.insert(0, nn.GELU())
    m.extend([nn.ReLU(), nn.ReLU()])
    out = [repr(m), len(m), repr(m[1:3]), repr(m.pop(0)), repr(m[-1])]
    del m[0]
    m[0] = nn.SELU()
    m += [nn.ReLU()]
    return out + [repr(m), repr(m + nn.ModuleList([nn.Tanh()])), nn.ReLU() in m]


@scenario
def mlist_bad(T, nn):
    nn.ModuleList([nn.ReLU()])[4]


@scenario
def mlist_bad2(T, nn):
    nn.ModuleList([3])


@scenario
def mlist_bad3(T, nn):
    nn.ModuleList().extend(3)


@scenario
def mlist_call(T, nn):
    nn.ModuleList([nn.ReLU()])(T.ones(1))


@scenario
def mlist_nested(T, nn):
    return repr(nn.ModuleList([nn.Sequential(nn.Linear(1, 2), nn.ReLU()) for _ in range(3)]))


@scenario
def mdict(T, nn):
    m = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Linear(1, 1)})
    m["c"] = nn.Tanh()
    m.update({"d": nn.ELU()})
    m.update([["e", nn.GELU()]])
    del m["a"]
    return [repr(m), list(m.keys()), "b" in m, repr(m.pop("c")), len(m), list(m), [k for k, _ in m.items()]]


@scenario
def mdict_bad(T, nn):
    nn.ModuleDict({"a.b": nn.ReLU()})


@scenario
def mdict_bad2(T, nn):
    nn.ModuleDict(3)


@scenario
def mdict_bad4(T, nn):
    nn.ModuleDict([(3, 4, 5)])


@scenario
def mdict_bad5(T, nn):
    nn.ModuleDict({"a": nn.ReLU()})["b"]


@scenario
def mdict_bad6(T, nn):
    nn.ModuleDict({"keys": nn.ReLU()})


@scenario
def plist(T, nn):
    m = nn.ParameterList([T.ones(2), 3])
    m.append(nn.Parameter(T.zeros(1)))
    m.extend([T.ones(3)])
    m += [5]
    return [repr(m), len(m), list(m.state_dict()), repr(m[1:3]), m[-1], [n for n, _ in m.named_parameters()]]


@scenario
def plist_bad(T, nn):
    nn.ParameterList([T.ones(2)])(3)


@scenario
def plist_bad2(T, nn):
    nn.ParameterList([T.ones(2)]).extend(3)


@scenario
def plist_bad3(T, nn):
    nn.ParameterList([T.ones(2)])[7]


@scenario
def pdict(T, nn):
    m = nn.ParameterDict({"b": T.ones(2), "a": 3})
    m["c"] = T.ones(1)
    m.update({"z": T.ones(1), "d": T.ones(2)})
    return [
        repr(m),
        list(m.keys()),
        list(m.state_dict()),
        m.get("q"),
        m.setdefault("q", T.ones(1)),
        list(m.copy().keys()),
        m.popitem()[0],
        repr(m.pop("b")),
        len(m),
        "a" in m,
        list(reversed(m)),
        repr(m | nn.ParameterDict({"u": T.ones(1)})),
        repr(m.fromkeys(["i", "j"])),
    ]


@scenario
def pdict_bad(T, nn):
    nn.ParameterDict({"a": T.ones(1)})["b"]


@scenario
def pdict_bad3(T, nn):
    nn.ParameterDict({"a": T.ones(1)})(3)


@scenario
def container(T, nn):
    return repr(nn.Container(a=nn.ReLU()))


test_same_in_both_libraries = scenario.as_test()
