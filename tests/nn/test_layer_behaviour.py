"""Behaviour of particular layers beyond forward and backward.

Each scenario runs in both libraries; results, or type and text of the error, must be the same."""

import pickle

import flambeau

from .scenarios import Scenarios

scenario = Scenarios()


@scenario
def meta_forward(T, nn):
    m = nn.Linear(2, 3, device="meta")
    return tuple(m(T.ones(4, 2, device="meta")).shape)


@scenario
def bn_zero_batch(T, nn):
    m = nn.BatchNorm1d(3)
    m(T.ones(0, 3))
    return dict(m.state_dict())


@scenario
def dp(T, nn):
    m = nn.DataParallel(nn.Linear(2, 2))
    sd = m.state_dict()
    from_ = list(sd)
    nn.modules.utils.consume_prefix_in_state_dict_if_present(sd, "module.")
    return [from_, list(sd), sd._metadata, m(T.ones(1, 2)), m.device_ids]


@scenario
def parts_of_dp_without_an_accelerator(T, nn):
    calls = [
        lambda: nn.parallel.scatter({"rate": 0.5}, [0, 1]),
        lambda: nn.parallel.gather([T.ones(2)], "cpu"),
        lambda: nn.parallel.replicate(nn.Linear(2, 2), [0]),
        lambda: nn.parallel.parallel_apply([nn.ReLU()], []),
        lambda: nn.parallel.parallel_apply([nn.ReLU()], [T.ones(2)], devices=[0, 1]),
        lambda: nn.parallel.parallel_apply([nn.ReLU()], [T.ones(2)]),
        lambda: nn.parallel.data_parallel(nn.Linear(2, 2), T.ones(1, 2)),
    ]
    return [answer(call) for call in calls]


def answer(call):
    try:
        return call()
    except (AssertionError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"


@scenario
def factory(T, nn):
    return [
        str(nn.Conv2d(2, 3, 2, dtype=T.float16).weight.dtype),
        str(nn.LayerNorm(3, device="meta").weight.device),
        str(nn.Embedding(3, 4, dtype=T.float64).weight.dtype),
        str(nn.PReLU(dtype=T.float64).weight.dtype),
        str(nn.BatchNorm2d(3, dtype=T.float64).running_mean.dtype),
        str(nn.BatchNorm2d(3, device="meta").num_batches_tracked.device),
    ]


@scenario
def default_dtype(T, nn):
    T.set_default_dtype(T.float64)
    try:
        return str(nn.Linear(2, 2).weight.dtype)
    finally:
        T.set_default_dtype(T.float32)


@scenario
def device_ctx(T, nn):
    with T.device("meta"):
        m = nn.Linear(2, 3)
        b = nn.BatchNorm1d(3)
    return [str(m.weight.device), str(b.running_mean.device), str(b.num_batches_tracked.device)]


@scenario
def bn_old(T, nn):
    m = nn.BatchNorm1d(3)
    sd = m.state_dict()
    del sd["num_batches_tracked"]
    out = []
    try:
        m.load_state_dict(sd)
    except RuntimeError as e:
        out.append(str(e))
    del sd._metadata
    out.append(repr(m.load_state_dict(sd)))
    return out


@scenario
def convtr_size(T, nn):
    m = nn.ConvTranspose2d(2, 3, 3, stride=2)
    return [
        tuple(m(T.ones(1, 2, 4, 4), output_size=(10, 10)).shape),
        tuple(m(T.ones(1, 2, 4, 4), output_size=[1, 3, 10, 9]).shape),
    ]


@scenario
def convtr_size_bad(T, nn):
    nn.ConvTranspose2d(2, 3, 3, stride=2)(T.ones(1, 2, 4, 4), output_size=(10, 20))


@scenario
def convtr_size_bad2(T, nn):
    nn.ConvTranspose2d(2, 3, 3, stride=2)(T.ones(1, 2, 4, 4), output_size=(10,))


@scenario
def sync_bn(T, nn):
    m = nn.Sequential(nn.BatchNorm1d(3), nn.Sequential(nn.BatchNorm2d(3, affine=False))).eval()
    s = nn.SyncBatchNorm.convert_sync_batchplain(m)
    return [repr(s), s[0].weight is m[0].weight, s[0].training, s[0](T.ones(2, 3)), list(s.state_dict())]


@scenario
def aslm(T, nn):
    m = nn.AdaptiveLogSoftmaxWithLoss(16, 20, [4, 10])
    x = T.randn(6, 16)
    r = m(x, T.tensor([0, 3, 5, 9, 10, 19]))
    return [r.output, r.loss, m.log_prob(x), m.predict(x), r.__class__.__name__, m(x[0], T.tensor(7)).output]


@scenario
def aslm_bad(T, nn):
    nn.AdaptiveLogSoftmaxWithLoss(16, 20, [4, 10])(T.ones(2, 16), T.tensor([1, 20]))


@scenario
def emb_pad(T, nn):
    m = nn.Embedding(5, 2, padding_idx=1)
    m(T.tensor([1, 2, 1])).sum().backward()
    return [m.weight, m.weight.grad]


@scenario
def bag(T, nn):
    m = nn.EmbeddingBag(5, 2, mode="sum")
    return m(T.tensor([1, 2, 4, 1]), T.tensor([0, 3]))


@scenario
def freeze(T, nn):
    return [
        nn.Embedding.from_pretrained(T.ones(2, 2)).weight.requires_grad,
        nn.EmbeddingBag.from_pretrained(T.ones(2, 2), freeze=False).weight.requires_grad,
    ]


@scenario
def inplace(T, nn):
    x = T.tensor([-1.0, 2.0])
    y = nn.ReLU(inplace=True)(x)
    return [x, y is x]


@scenario
def dropout(T, nn):
    m = nn.Dropout(0.3)
    y = m(T.ones(20))
    return [y, m.eval()(T.ones(3)), nn.Dropout2d(0.5)(T.ones(2, 3, 2, 2)), nn.AlphaDropout(0.3)(T.ones(5))]


@scenario
def rrelu(T, nn):
    return [nn.RReLU()(T.linspace(-1, 1, 9)), nn.RReLU().eval()(T.linspace(-1, 1, 9))]


@scenario
def unpool(T, nn):
    p = nn.MaxPool2d(2, return_indices=True)
    x = T.randn(1, 1, 4, 4)
    y, i = p(x)
    return nn.MaxUnpool2d(2)(y, i)


@scenario
def huber_bad(T, nn):
    nn.HuberLoss(delta=1j)(T.ones(2), T.ones(2))


@scenario
def cell_grad(T, nn):
    return T.nn.grad.conv2d_input((1, 2, 4, 4), T.ones(3, 2, 2, 2), T.ones(1, 3, 3, 3))


@scenario
def cell_gradw(T, nn):
    return T.nn.grad.conv2d_weight(T.ones(1, 2, 4, 4), (3, 2, 2, 2), T.ones(1, 3, 3, 3))


@scenario
def pickle_net(T, nn):
    m = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    n = pickle.loads(pickle.dumps(m))
    return [repr(n), dict(n.state_dict()), n[0].weight.requires_grad]


@scenario
def setattr_none_bias(T, nn):
    m = nn.Linear(2, 2)
    m.bias = None
    return [m(T.ones(1, 2)), list(m.state_dict()), repr(m)]


test_same_in_both_libraries = scenario.as_test()


def test_a_mixin_beside_a_declared_layer_is_initialised():
    class Counting(flambeau.nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

    class Pool(flambeau.nn.MaxPool2d, Counting):
        pass

    assert Pool(2).calls == 0 and Pool(2).stride == 2
