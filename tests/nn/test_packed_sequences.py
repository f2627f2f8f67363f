"""Packed sequences: conversions, and what is refused.

Each scenario runs in both libraries; results, or type and text of the error, must be the same."""

from .scenarios import Scenarios, plain

scenario = Scenarios()


def packed(T, nn):
    return nn.utils.rnn.pack_sequence([T.arange(n).float() for n in (2, 3)], enforce_sorted=False)


@scenario
def conversions(T, nn):
    p = packed(T, nn)
    names = ["double", "float", "half", "long", "int", "short", "char", "byte", "cpu"]
    return [[plain(getattr(p, name)().data), getattr(p, name)() is p] for name in names] + [p.to("cpu") is p]


@scenario
def there_and_back(T, nn):
    return list(nn.utils.rnn.pad_packed_sequence(packed(T, nn), batch_first=True, padding_value=-1.0))


@scenario
def a_padded_batch_gives_its_sequences_back(T, nn):
    padded = nn.utils.rnn.pad_sequence([T.arange(6.0).reshape(3, 2), T.arange(4.0).reshape(2, 2)])
    return nn.utils.rnn.unpad_sequence(padded, T.tensor([3, 2]))


@scenario
def packing_nothing(T, nn):
    nn.utils.rnn.pack_padded_sequence(T.ones(0, 0), [])


@scenario
def unpacking_nothing(T, nn):
    nn.utils.rnn.pad_packed_sequence(nn.utils.rnn.PackedSequence(T.ones(0, 5), T.tensor([], dtype=T.int64)))


test_same_in_both_libraries = scenario.as_test()
