"""ONNX files that cannot be computed are refused when they are loaded, with one type of error."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau.onnx.checking import InvalidFile

onnx = pytest.importorskip("onnx", reason="ONNX files need the package onnx")
pytest.importorskip("onnxscript", reason="operators are translated by onnxscript's functions")
helper = getattr(onnx, "helper", None)


def value(name: str) -> Any:
    return helper.make_tensor_value_info(name, 1, [2])


def model(nodes: list, functions: Any = (), outputs: tuple = ("y",), initializers: Any = ()) -> bytes:
    graph = helper.make_graph(nodes, "g", [value("x")], [value(o) for o in outputs], list(initializers))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, functions=list(functions), opset_imports=opsets).SerializeToString()


def function(name: str, *calls: str) -> Any:
    """A function of one value that calls others, one after the other."""
    values = ["a", *(f"v{i}" for i in range(len(calls)))]
    nodes = [
        helper.make_node(call, [values[i]], [values[i + 1]], domain="" if call == "Relu" else "own")
        for i, call in enumerate(calls)
    ]
    return helper.make_function(
        "own", name, ["a"], [values[-1]], nodes, [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    )


def call(name: str) -> list:
    return [helper.make_node(name, ["x"], ["y"], domain="own")]


def test_values_that_nobody_makes() -> None:
    with pytest.raises(InvalidFile, match="reads 'z', which is neither an input"):
        torch.onnx.load(model([helper.make_node("Add", ["x", "z"], ["y"])]))
    with pytest.raises(InvalidFile, match="returns 'w', which no node makes"):
        torch.onnx.load(model([helper.make_node("Relu", ["x"], ["y"])], outputs=("y", "w")))


def test_cycles() -> None:
    nodes = [
        helper.make_node("Add", ["x", "b"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    with pytest.raises(InvalidFile, match="makes only later: the graph has a cycle"):
        torch.onnx.load(model(nodes))


def test_branches_see_what_is_around_them_and_no_more() -> None:
    def branch(source: str) -> Any:
        return helper.make_graph([helper.make_node("Relu", [source], ["r"])], "branch", [], [value("r")])

    def choice(source: str) -> bytes:
        truth = helper.make_node("ConstantOfShape", ["shape"], ["c"], value=helper.make_tensor("v", 9, [1], [True]))
        chosen = helper.make_node("If", ["c"], ["y"], then_branch=branch(source), else_branch=branch("x"))
        shape = helper.make_tensor("shape", 7, [0], [])
        return model([truth, chosen], initializers=[shape])

    assert torch.onnx.load(choice("x"))(torch.tensor([-1.0, 2.0])).tolist() == [0.0, 2.0]
    with pytest.raises(InvalidFile, match=r"in a node If: a node Relu reads 'nothing'"):
        torch.onnx.load(choice("nothing"))


def test_functions_that_call_each_other() -> None:
    with pytest.raises(InvalidFile, match="own::f -> own::h -> own::f|own::h -> own::f -> own::h"):
        torch.onnx.load(model(call("f"), [function("f", "h"), function("h", "f")]))
    with pytest.raises(InvalidFile, match="own::f -> own::f"):
        torch.onnx.load(model(call("f"), [function("f", "Relu", "f")]))


def test_functions_that_double() -> None:
    """Each calls the one before it twice: sixty of them would run for ever."""
    doubling = [function("f0", "Relu"), *(function(f"f{i}", f"f{i - 1}", f"f{i - 1}") for i in range(1, 60))]
    with pytest.raises(InvalidFile, match="nodes through its functions"):
        torch.onnx.load(model(call("f59"), doubling))
    assert torch.onnx.load(model(call("f5"), doubling[:6]))(torch.tensor([-1.0, 2.0])).tolist() == [0.0, 2.0]


def test_functions_too_deep() -> None:
    chain = [function("f0", "Relu"), *(function(f"f{i}", f"f{i - 1}") for i in range(1, 5000))]
    with pytest.raises(InvalidFile, match="to a depth of"):
        torch.onnx.load(model(call("f4999"), chain))


def test_damaged_values() -> None:
    add = [helper.make_node("Add", ["x", "w"], ["y"])]
    short = onnx.TensorProto(name="w", data_type=1, dims=[2], raw_data=b"\0\0\0\0")
    with pytest.raises(InvalidFile, match="tensor 'w' of size"):
        torch.onnx.load(model(add, initializers=[short]))
    with pytest.raises(InvalidFile, match="not an ONNX file"):
        torch.onnx.load(b"\x08\x01nonsense")


def test_values_in_another_file(tmp_path: Any) -> None:
    outside = onnx.TensorProto(name="w", data_type=1, dims=[2], data_location=onnx.TensorProto.EXTERNAL)
    outside.external_data.add(key="location", value="weights.bin")
    data = model([helper.make_node("Add", ["x", "w"], ["y"])], initializers=[outside])
    with pytest.raises(InvalidFile, match=r"in another file \(weights.bin\), which was not read"):
        torch.onnx.load(data)
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    with pytest.raises((InvalidFile, OSError)):
        torch.onnx.load(path)
    (tmp_path / "weights.bin").write_bytes(b"\0\0\0")  # too short
    with pytest.raises(InvalidFile, match="w"):
        torch.onnx.load(path)
    (tmp_path / "weights.bin").write_bytes(b"\0\0\x80\x3f" * 2)
    assert torch.onnx.load(path)(torch.zeros(2)).tolist() == [1.0, 1.0]
