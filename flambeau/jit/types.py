"""TorchScript's types: their notation in graphs (`int[]`) and in code (`List[int]`), the subtype relation, unions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .functions import Function


class Type:
    """Base of TorchScript's types. Two types are equal if they are written the same way."""

    name = "?"

    def __str__(self) -> str:
        """Return the type as graphs and schemas write it."""
        return self.name

    @property
    def code(self) -> str:
        """The type as Python annotations write it."""
        return str(self)

    annotation_str = code

    def __repr__(self) -> str:
        return str(self)

    def repr_str(self) -> str:
        return self.code

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Type) and type(self) is type(other) and str(self) == str(other))

    def __hash__(self) -> int:
        return hash(str(self))

    def kind(self) -> str:
        return type(self).__name__

    def contained(self) -> Sequence[Type]:
        return ()

    containedTypes = contained  # noqa: N815  PyTorch's name

    def with_contained(self, parts: Sequence[Type]) -> Type:
        """Return the same kind of type around other types."""
        return self

    def __call__(self) -> Type:
        """Return the type itself: `value.type`, an attribute here, is a method in PyTorch, so `value.type()` must work as well."""
        return self

    def isSubtypeOf(self, other: Type) -> bool:  # noqa: N802  PyTorch's name
        return is_subtype(self, other)


class _SimpleType(Type):
    """A type without parameters; each has one instance."""

    def __init__(self, name: str, code: str | None = None, kind: str = ""):
        self.name, self._code, self._kind = name, code or name, kind or f"{name.capitalize()}Type"

    @property
    def code(self) -> str:
        return self._code

    def kind(self) -> str:
        return self._kind

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __reduce__(self) -> Any:
        return _named, (self.name,)


class TensorType(Type):
    """Any tensor."""

    name = "Tensor"

    def repr_str(self) -> str:
        return "Tensor (inferred)" if self is INFERRED else self.code

    def __reduce__(self) -> Any:
        return _named, ("Tensor",)


class ShapedTensor(TensorType):
    """A tensor type with the properties recorded by tracing; as a type it equals Tensor."""

    def __init__(self, text: str, dtype: Any = None, shape: Any = None, strides: Any = None):
        self.name, self._dtype, self.shape, self._strides = text, dtype, shape, strides

    code = property(lambda self: "Tensor")

    def kind(self) -> str:
        return "TensorType"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShapedTensor) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def sizes(self) -> list[int]:
        return list(self.shape)

    def strides(self) -> list[int]:
        return list(self._strides)

    def dtype(self) -> Any:
        return self._dtype

    def scalarType(self) -> str:  # noqa: N802  PyTorch's name
        return self.name.partition("(")[0]

    def __reduce__(self) -> Any:
        return ShapedTensor, (self.name, self._dtype, self.shape, self._strides)


TENSOR = TensorType()
INFERRED = TensorType()  # of what is not annotated; the same type in other words
INT: Type = _SimpleType("int", kind="IntType")
FLOAT: Type = _SimpleType("float", kind="FloatType")
COMPLEX: Type = _SimpleType("complex", kind="ComplexType")
BOOL: Type = _SimpleType("bool", kind="BoolType")
STRING: Type = _SimpleType("str", kind="StringType")
NONE: Type = _SimpleType("NoneType", kind="NoneType")
OF_PYTHON: dict[type, Type] = {bool: BOOL, int: INT, float: FLOAT, complex: COMPLEX, str: STRING, type(None): NONE}
NUMBER: Type = _SimpleType("Scalar", "number", "NumberType")
DEVICE: Type = _SimpleType("Device", kind="DeviceObjType")
STREAM: Type = _SimpleType("Stream", kind="StreamObjType")
GENERATOR: Type = _SimpleType("Generator", kind="GeneratorType")
STORAGE: Type = _SimpleType("Storage", kind="StorageType")
ANY: Type = _SimpleType("Any", kind="AnyType")
ANY_LIST: Type = _SimpleType("list", kind="AnyListType")
ANY_TUPLE: Type = _SimpleType("tuple", kind="AnyTupleType")
ANY_CLASS: Type = _SimpleType("AnyClassType", kind="AnyClassType")
ANY_ENUM: Type = _SimpleType("AnyEnumType", kind="AnyEnumType")
# Numbers that choose something; TorchScript sees whole numbers.
SCALAR_TYPE: Type = _SimpleType("ScalarType", "int", "ScalarTypeType")
LAYOUT: Type = _SimpleType("Layout", "int", "LayoutType")
MEMORY_FORMAT: Type = _SimpleType("MemoryFormat", "int", "MemoryFormatType")

NAMED: dict[str, Type] = {
    t.name: t
    for t in (
        INT, FLOAT, COMPLEX, BOOL, STRING, NONE, NUMBER, DEVICE, STREAM, GENERATOR, STORAGE, ANY, ANY_LIST, ANY_TUPLE,
        ANY_CLASS, ANY_ENUM, SCALAR_TYPE, LAYOUT, MEMORY_FORMAT,
    )
}  # fmt: skip
NAMED["Tensor"] = TENSOR
NAMED["QScheme"] = INT
INT_LIKE = (INT, SCALAR_TYPE, LAYOUT, MEMORY_FORMAT)


def _named(name: str) -> Type:
    return NAMED[name]


class VarType(Type):
    """A type variable of a schema, as the t of `t[]`."""

    def __init__(self, name: str):
        self.name = name


class _ElementType(Type):
    """A type with one element type."""

    graph_form, code_form = "{}", "{}"

    def __init__(self, element: Type):
        self.element = element

    def __str__(self) -> str:
        return self.graph_form.format(self.element)

    @property
    def code(self) -> str:
        return self.code_form.format(self.element.code)

    def contained(self) -> Sequence[Type]:
        return (self.element,)

    def with_contained(self, parts: Sequence[Type]) -> Type:
        return type(self)(*parts)

    def getElementType(self) -> Type:  # noqa: N802  PyTorch's name
        return self.element


class ListType(_ElementType):
    """TorchScript's type of lists with elements of one type."""

    graph_form, code_form = "{}[]", "List[{}]"


class FutureType(_ElementType):
    """TorchScript's type of results that are awaited."""

    graph_form, code_form = "Future({})", "Future[{}]"


class OptionalType(_ElementType):
    """TorchScript's type of values that may be None."""

    graph_form, code_form = "{}?", "Optional[{}]"


class DictType(Type):
    """TorchScript's type of dictionaries: key type and value type."""

    def __init__(self, key: Type, value: Type):
        self.key, self.value = key, value

    def __str__(self) -> str:
        return f"Dict({self.key}, {self.value})"

    @property
    def code(self) -> str:
        return f"Dict[{self.key.code}, {self.value.code}]"

    def contained(self) -> Sequence[Type]:
        return (self.key, self.value)

    def with_contained(self, parts: Sequence[Type]) -> Type:
        return DictType(*parts)


class UnionType(Type):
    """TorchScript's type of values of any of several types."""

    def __init__(self, members: Sequence[Type]):
        self.members = tuple(members)

    def __str__(self) -> str:
        return f"Union({', '.join(sorted(map(str, self.members)))})"

    @property
    def code(self) -> str:
        return f"Union[{', '.join(sorted(m.code for m in self.members))}]"

    def contained(self) -> Sequence[Type]:
        return self.members

    def with_contained(self, parts: Sequence[Type]) -> Type:
        return union_of(parts)


class TupleType(Type):
    """A tuple; with a name and fields, a NamedTuple."""

    def __init__(
        self,
        elements: Iterable[Type],
        name: str | None = None,
        fields: Sequence[str] = (),
        defaults: Sequence[Any] = (),
    ):
        self.elements, self.tuple_name, self.fields = tuple(elements), name, tuple(fields)
        self.defaults = tuple(defaults)
        self.python_class: Any = None

    def __str__(self) -> str:
        if self.tuple_name:
            return self.tuple_name
        return f"({', '.join(map(str, self.elements))})"

    def repr_str(self) -> str:
        inside = f" (aka NamedTuple({', '.join(self.fields)}))" if self.tuple_name else ""
        return self.code + inside

    @property
    def code(self) -> str:
        if self.tuple_name:
            return self.tuple_name
        return f"Tuple[{', '.join(e.code for e in self.elements) or '()'}]"

    def contained(self) -> Sequence[Type]:
        return self.elements

    def with_contained(self, parts: Sequence[Type]) -> Type:
        made = TupleType(parts, self.tuple_name, self.fields, self.defaults)
        made.python_class = self.python_class
        return made


class EnumType(Type):
    """TorchScript's type of an enumeration's members."""

    def __init__(self, name: str, value: Type, python_class: Any, members: Sequence[tuple[str, Any]]):
        self.enum_name, self.value, self.python_class, self.members = name, value, python_class, tuple(members)

    def __str__(self) -> str:
        return f"Enum<{self.enum_name}>"

    @property
    def code(self) -> str:
        return self.enum_name

    def repr_str(self) -> str:
        return str(self)


class FunctionType(Type):
    """The type of one compiled function."""

    def __init__(self, function: Function):
        self.function = function
        self.name = "Function"


class ClassType(Type):
    """A class or the class of a module: attributes in the order of declaration, methods, constants."""

    def __init__(self, name: str, is_module: bool = False):
        self.name, self.is_module = name, is_module
        self.class_attributes: frozenset[str] = frozenset()  # of the Python class: programs cannot read them
        self.attributes: dict[str, Type] = {}
        self.parameters: set[str] = set()
        self.buffers: set[str] = set()
        self.constants: dict[str, Any] = {}
        self.methods: dict[str, Any] = {}
        self.static_methods: dict[str, Any] = {}
        self.ignored: dict[str, Any] = {}  # Python functions that stay Python
        self.properties: dict[str, tuple[Any, Any]] = {}  # getter, setter
        self.forward_hooks: list[Any] = []
        self.concrete: Any = None  # the module it was made of (see `recursive`)
        self.compiled = False  # whether its exported methods are
        self.hook_names: dict[str, list[str]] = {}  # in a file that is read
        self.forward_pre_hooks: list[Any] = []
        self.python_class: Any = None
        self.compile_method: Any = None  # makes a method when it is first asked for

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def qualified_name(self) -> str:
        return self.name

    def find_method(self, name: str) -> Any:
        found = self.methods.get(name)
        if found is None and self.compile_method is not None:
            found = self.compile_method(name)
        return found

    def getAttribute(self, name: str) -> Type:  # noqa: N802  PyTorch's name
        return self.attributes[name]


class InterfaceType(Type):
    """Interface of a class: methods' schemas by name."""

    def __init__(self, name: str, is_module: bool = False):
        self.name, self.is_module = name, is_module
        self.methods: dict[str, Any] = {}  # name -> Schema

    def __str__(self) -> str:
        return f"InterfaceType<{self.name.rpartition('.')[2]}>"

    @property
    def code(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


# -- relations --------------------------------------------------------------------------------------------------------------


def is_subtype(a: Type, b: Type, why: list[str] | None = None) -> bool:
    """Return whether every value of type `a` is one of type `b`; reasons against it are added to `why`."""
    if a is b or b is ANY or a == b:
        return True
    if isinstance(b, TensorType):
        return isinstance(a, TensorType) and not isinstance(b, ShapedTensor)
    if isinstance(a, UnionType):
        return all(is_subtype(m, b) for m in a.members)
    if isinstance(b, OptionalType):
        if isinstance(a, OptionalType):
            return is_subtype(a.element, b.element)
        return a is NONE or is_subtype(a, b.element)
    if isinstance(b, UnionType):
        parts = [NONE, a.element] if isinstance(a, OptionalType) else [a]
        return all(any(is_subtype(p, m) for m in b.members) for p in parts)
    if b is NUMBER:
        return a in (INT, FLOAT, COMPLEX)
    if b in INT_LIKE:
        return a in INT_LIKE
    if b is ANY_LIST:
        return isinstance(a, ListType)
    if b is ANY_TUPLE:
        return isinstance(a, TupleType)
    if b is ANY_ENUM:
        return isinstance(a, EnumType)
    if b is ANY_CLASS:
        return isinstance(a, ClassType)
    if isinstance(b, TupleType):
        if not isinstance(a, TupleType) or len(a.elements) != len(b.elements):
            return False
        if b.tuple_name and a.fields != b.fields:
            return False
        return all(map(is_subtype, a.elements, b.elements))
    if isinstance(b, ListType):
        return isinstance(a, ListType) and same_element(a.element, b.element)
    if isinstance(b, DictType):
        return isinstance(a, DictType) and a.key == b.key and same_element(a.value, b.value)
    if isinstance(b, FutureType):
        return isinstance(a, FutureType) and is_subtype(a.element, b.element)
    if isinstance(b, InterfaceType):
        return _implements(a, b, why)
    return False


def same_element(a: Type, b: Type) -> bool:
    """Return whether element types of containers are equal; mutable containers need the same type (a traced tensor counts as Tensor)."""
    return a == b or (isinstance(a, TensorType) and isinstance(b, TensorType)) or (a in INT_LIKE and b in INT_LIKE)


def _implements(a: Type, b: InterfaceType, why: list[str] | None) -> bool:
    if not isinstance(a, (ClassType, InterfaceType)):
        return False
    if isinstance(a, ClassType) and b.is_module and not a.is_module:
        if why is not None:
            why.append(f"Class '{a}' is not a subtype of the module interface '{b}' , since only ScriptModule class can be subtype of module interface.")  # fmt: skip
        return False
    for name, schema in b.methods.items():
        mine = a.methods.get(name)
        if mine is None and isinstance(a, ClassType) and not b.is_module:
            mine = a.find_method(name)
        if mine is None:
            if why is not None:
                why.append(f"Class '{a}' does not have method '{name}' but interface '{b}' does.")
            return False
        mine = mine if isinstance(a, InterfaceType) else mine.schema
        if not _schema_fits(mine, schema):
            if why is not None:
                why.append(
                    f"Method on class '{a}' (1) is not compatible with interface '{b}' (2)\n  (1) {mine}\n  (2) {schema}"
                )
            return False
    return True


def result_type(schema: Any) -> Type:
    """Return the type of a call: a tuple if there are several results."""
    types = schema.result_types
    return types[0] if len(types) == 1 else TupleType(types) if types else NONE


def _schema_fits(mine: Any, wanted: Any) -> bool:
    if len(mine.arguments) != len(wanted.arguments):
        return False
    for have, want in zip(mine.arguments[1:], wanted.arguments[1:]):
        if have.name != want.name or not is_subtype(want.type, have.type):
            return False
    return is_subtype(result_type(mine), result_type(wanted))


def optional_of(t: Type) -> Type:
    return t if isinstance(t, OptionalType) or t is NONE or t is ANY else OptionalType(t)


def union_of(members: Iterable[Type]) -> Type:
    """Return the union of types, without those that another member covers; Optional[T] if it can be written so."""
    flat: list[Type] = []
    for m in members:
        flat += m.members if isinstance(m, UnionType) else (m.element, NONE) if isinstance(m, OptionalType) else (m,)
    kept: list[Type] = []
    for m in flat:
        if not any(is_subtype(m, other) for other in kept):
            kept = [other for other in kept if not is_subtype(other, m)] + [m]
    if len(kept) == 1:
        return kept[0]
    if len(kept) == 3 and {INT, FLOAT, COMPLEX} == set(kept):
        return NUMBER
    rest = [m for m in kept if m is not NONE]
    if len(rest) < len(kept) and len(rest) == 1:
        return OptionalType(rest[0])
    return UnionType(kept)
