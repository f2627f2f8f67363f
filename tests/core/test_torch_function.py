"""Classes that take part in operators by `__torch_function__`, whether they are tensors or not."""

from __future__ import annotations

from typing import Any

import pytest
from answers import judge

import flambeau
from flambeau import nn
from flambeau.nn import functional as F
from flambeau.overrides import (
    BaseTorchFunctionMode,
    TorchFunctionMode,
    get_overridable_functions,
    get_testing_overrides,
    handle_torch_function,
    has_torch_function,
    has_torch_function_unary,
    redispatch_function,
    resolve_name,
    wrap_torch_function,
)


def new_duck() -> Any:
    """An instance of a class no operator has met yet, which answers with the call."""

    class Duck:
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
            return func, types, args, kwargs

    return Duck()


ones = flambeau.ones(2, 2)

CALLS = {
    "function": (lambda d: flambeau.mean(d), flambeau.mean),
    "second operand": (lambda d: flambeau.add(ones, d), flambeau.add),
    "method": (lambda d: ones.mul(d), flambeau.mul),
    "in place": (lambda d: flambeau.ones(2).add_(d), flambeau.Tensor.add_),
    "operator": (lambda d: ones + d, flambeau.add),
    "reflected": (lambda d: d - ones, flambeau.Tensor.__rsub__),
    "reflected power": (lambda d: d**ones, flambeau.Tensor.__rpow__),
    "matmul": (lambda d: ones @ d, flambeau.matmul),
    "comparison": (lambda d: ones < d, flambeau.lt),
    "in a list": (lambda d: flambeau.cat([ones, d]), flambeau.cat),
    "keyword": (lambda d: F.linear(ones, ones, bias=d), F.linear),
    "made of others": (lambda d: F.mse_loss(ones, d), F.mse_loss),
    "calls one other": (lambda d: F.relu(d), F.relu),
    "condition": (lambda d: flambeau.where(d, ones, ones), flambeau.where),
    "view": (lambda d: flambeau.transpose(d, 0, 1), flambeau.transpose),
    "out": (lambda d: flambeau.sin(ones, out=d), flambeau.sin),
    "an int": (lambda d: F.pad(ones, [1, d]), F.pad),
    "index": (lambda d: ones[0, d], flambeau.Tensor.__getitem__),
    "init": (lambda d: nn.init.uniform_(d), nn.init.uniform_),
    "autograd": (lambda d: flambeau.autograd.grad(d, d), flambeau.autograd.grad),
}


@pytest.mark.parametrize("call, function", CALLS.values(), ids=CALLS)
def test_the_first_call_with_an_unknown_class_asks_it(call: Any, function: Any) -> None:
    duck = new_duck()
    for _ in range(2):  # unknown, then known
        func, types, _, _ = call(duck)
        assert func is function
        assert types == (type(duck),)


def test_an_override_gets_no_more_arguments_than_were_given() -> None:
    duck = new_duck()
    assert flambeau.mean(duck)[2:] == ((duck,), {})
    assert flambeau.add(duck, ones)[2:] == ((duck, ones), {})
    assert flambeau.add(duck, ones, alpha=2)[2:] == ((duck, ones), {"alpha": 2})
    assert flambeau.sum(duck, 1)[2:] == ((duck, 1), {})
    assert F.leaky_relu(duck, 0.5)[2:] == ((duck,), {"negative_slope": 0.5})


def test_errors_of_ordinary_calls_stay_what_they_are() -> None:
    with pytest.raises(TypeError, match="must be Tensor"):
        flambeau.mean("text")
    with pytest.raises(TypeError, match="unsupported operand"):
        ones + "text"
    with pytest.raises(IndexError):
        ones[5]
    assert not flambeau.is_tensor(new_duck())
    with pytest.raises((RuntimeError, TypeError)):
        flambeau.tensor(new_duck())


def test_an_error_of_the_override_reaches_the_caller() -> None:
    class Failing:
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        flambeau.add(ones, Failing())


class Declines(flambeau.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        return NotImplemented


def test_where_all_decline_a_type_error_names_them() -> None:
    t = flambeau.Tensor._make_subclass(Declines, ones)
    with pytest.raises(TypeError, match=r"'torch.add'(.|\n)*Declines"):
        flambeau.add(ones, t)
    with pytest.raises(TypeError, match="unsupported operand"):
        ones + t


def test_subclasses_are_asked_before_their_bases_and_the_left_before_the_right() -> None:
    asked = []

    class Base:
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
            asked.append(cls)
            return NotImplemented

    class Derived(Base):
        pass

    class Other(Base):
        pass

    with pytest.raises(TypeError):
        flambeau.cat([Base(), Other(), Derived()])
    assert asked == [Other, Derived, Base]


def test_calls_inside_an_override_are_asked_about_again() -> None:
    class Twice:
        calls: Any = []

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
            cls.calls.append(func)
            return flambeau.exp(args[0]) if func is flambeau.sin else -1

    assert flambeau.sin(Twice()) == -1
    assert Twice.calls == [flambeau.sin, flambeau.exp]


class Logged(flambeau.Tensor):
    names: Any = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        cls.names.append(resolve_name(func))
        return super().__torch_function__(func, types, args, kwargs or {})


READS = {
    "torch.Tensor.T.__get__": lambda t: t.T,
    "torch.Tensor.grad.__get__": lambda t: t.grad,
    "torch.Tensor.data.__get__": lambda t: t.data,
    "torch.Tensor.shape.__get__": lambda t: t.shape,
    "torch.Tensor.size": lambda t: t.size(0),
    "torch.Tensor.__len__": lambda t: len(t),
    "torch.Tensor.__getitem__": lambda t: t[0],
    "torch.Tensor.requires_grad.__set__": lambda t: setattr(t, "requires_grad", True),
}


@pytest.mark.parametrize("name", READS)
def test_attributes_and_plain_methods_of_a_subclass_are_asked_about(name: str) -> None:
    t = flambeau.ones(2, 2).as_subclass(Logged)
    Logged.names.clear()
    READS[name](t)
    assert Logged.names == [name]


def test_a_backward_pass_asks_nobody() -> None:
    t = flambeau.ones(2).as_subclass(Logged).requires_grad_()
    loss = (t * t).sum()
    Logged.names.clear()
    loss.backward()
    assert Logged.names == ["torch.Tensor.backward"]
    assert type(t.grad) is flambeau.Tensor


def test_disabled_overrides_leave_plain_tensors() -> None:
    t = flambeau.ones(2).as_subclass(Logged)
    with flambeau._C.DisableTorchFunctionSubclass():
        assert type(t + 1) is flambeau.Tensor
        with pytest.raises(TypeError):
            flambeau.add(t, new_duck())
    assert type(t + 1) is Logged


def test_a_mode_comes_first_and_may_decline() -> None:
    class Declining(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
            return NotImplemented if func is flambeau.sin else -1

    duck = new_duck()
    with Declining():
        assert flambeau.cos(duck) == -1
        assert flambeau.sin(duck)[0] is flambeau.sin
        with pytest.raises(TypeError, match="mode object"):
            flambeau.sin(ones)
        assert ones[0] == -1


def test_functions_of_the_users_own() -> None:
    def plain(a: Any) -> Any:
        if has_torch_function((a,)):
            return handle_torch_function(plain, (a,), a)
        return a

    wrapped = wrap_torch_function(lambda a: (a,))(lambda a: a)
    duck = new_duck()
    assert plain(duck)[0] is plain
    assert wrapped(duck)[0] is wrapped
    assert plain(3) == wrapped(3) == 3
    assert not has_torch_function_unary(ones)
    with pytest.raises(TypeError, match="sequence"):
        has_torch_function(object())
    with BaseTorchFunctionMode():
        assert has_torch_function((ones,))
    assert redispatch_function(plain, (type(duck),), (duck,)) is duck


def test_every_listed_function_has_a_name_and_a_testing_override() -> None:
    overrides = get_testing_overrides()
    for functions in get_overridable_functions().values():
        for function in functions:
            assert resolve_name(function) is not None
            assert overrides[function]() == -1


def test_special_methods_are_called_by_their_names():
    torch = judge("torch")

    def names(library):
        seen = []

        class Watched(library.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                seen.append(func.__name__)
                return super().__torch_function__(func, types, args, kwargs or {})

        x = library.ones(1).as_subclass(Watched)
        for call in (len, bool, float, int, repr):
            call(x)
        return {name for name in seen if name.startswith("__")} - {"__get__", "__set__"}

    assert {"__len__", "__bool__", "__float__", "__int__", "__repr__"} <= names(flambeau) & names(torch)


def test_methods_that_a_user_puts_on_tensor_run_without_being_asked(monkeypatch):
    torch = judge("torch")

    def names(library):
        monkeypatch.setattr(library.Tensor, "times", lambda self, k: self * k, raising=False)
        seen = []

        class Watched(library.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                seen.append(func.__name__)
                return super().__torch_function__(func, types, args, kwargs or {})

        return [library.ones(1).as_subclass(Watched).times(3).tolist(), seen]

    assert names(flambeau) == names(torch) == [[3.0], ["mul", "tolist"]]


def test_as_subclass_answers_without_being_asked():
    torch = judge("torch")

    def kinds(library):
        seen = []

        class Watched(library.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                seen.append(func.__name__)
                return super().__torch_function__(func, types, args, kwargs or {})

            def clone(self):
                return self.as_subclass(library.Tensor).clone()

        return type(library.ones(1).as_subclass(Watched).clone()) is library.Tensor, seen

    assert kinds(flambeau) == kinds(torch) == (True, [])
