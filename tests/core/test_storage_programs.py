"""Storages, typed and not, and trees of containers: what each member gives, or the kind of its error, as with PyTorch."""

from __future__ import annotations

import pytest
from answers.programs import check, refusals, short

SETUP = """
import copy, io, pickle
G = module("utils._pytree")
from collections import OrderedDict, defaultdict, deque, namedtuple
P = namedtuple("P", "x y")
x = exact(5)
s, u = x.storage(), x.untyped_storage()
i = L.arange(6, dtype=L.int16).storage()
tree = {"b": [1, (2, None)], "a": P(3, {"z": 4})}
def filled(t, *v):
    t.fill_(*v)
    return t.tolist()
"""
# A program for each line: expressions, between semicolons.
CALLS = """
str(s.device); s.is_cuda; s.is_cpu; s.dtype; s.nbytes(); s.size(); len(s); s.element_size(); s.resizable(); s.is_shared(); s.is_pinned(); s.filename; s.type(); i.type()
i.pickle_storage_type(); s.pickle_storage_type(); s.data_ptr() == x.data_ptr()
L.ones(2, dtype=L.complex64).storage().type(); L.ones(2, dtype=L.bool).storage().type(); L.ones(2, dtype=L.bfloat16).storage().type(); L.ones(2, dtype=L.uint16).storage().type(); L.ones(2, dtype=L.uint16).storage().pickle_storage_type()
filled(s, 2.5); filled(i, 3); filled(i, 3.7); x.storage().copy_(L.ones(5).storage()).tolist(); s.copy_(i); s.copy_(L.arange(5).storage()).tolist(); s.clone().tolist(); s.clone().data_ptr() == s.data_ptr(); s.cpu().data_ptr() == s.data_ptr(); copy.copy(s).tolist(); copy.copy(s).data_ptr() == s.data_ptr(); copy.deepcopy(s).tolist(); (lambda p: p[0] is p[1])(copy.deepcopy([s, s])); copy.deepcopy(i).dtype
pickle.loads(pickle.dumps(i)).tolist(); pickle.loads(pickle.dumps(i)).dtype
s.resize_(7); s.resize_(7).size(); (s.resize_(2), x.storage().tolist())[1]; s.resize_(-1); i.resize_(3).tolist(); s.double().tolist(); s.double().dtype; s.int().tolist(); s.half().dtype; s.float() is s; s.long().dtype; s.bool().tolist(); i.float().tolist(); s.bfloat16().dtype
s.char().dtype; s.byte().dtype; s.short().dtype; s.complex_float().dtype; s.complex_double().tolist()
repr(s); str(i); repr(u); str(L.ones(2).untyped_storage()); repr(L.ones(0).storage()); s == s; s == x.storage(); s == 3; s == exact(5).storage(); u == u; u == x.untyped_storage(); u == 3; u == exact(5).untyped_storage(); hash(s) == hash(s)
s != 3
s[0]; s[-1]; s[5]; s[-6]; s[1:3]; s[0:2].tolist(); s["a"]; s[1.0]; s.__setitem__(0, 2.0); s.__setitem__(5, 2.0); s.__setitem__(slice(0, 2), 1.5); s.__delitem__(0); 1 in s; list(s)
i[1]; i[1:3]; [v for v in i]
u[0]; u[19]; u[20]; u[-1]; u[-20]; u[-21]; u[0:4].tolist(); u[0:4:2]; u[0:4].size(); u["a"]; u.__setitem__(0, 1); u.__setitem__(20, 1); u.__setitem__(0, 256); u.tolist()[:4]
len(u); u.nbytes(); u.size(); u.element_size(); u.type(); u.is_cuda; u.is_shared(); u.is_pinned(); u.pin_memory(); u.resizable(); u.resize_(24).nbytes(); u.resize_(-1); u.resize_(8).tolist(); u.filename
u.is_sparse; u.is_sparse_csr; u.is_hpu; str(u.device); u.cpu() is u; u.clone().tolist() == u.tolist(); u.copy_(u.clone()).nbytes(); u.copy_(L.ones(2).untyped_storage()); u.copy_(L.ones(5, dtype=L.int32).untyped_storage()).tolist()[:4]; u.double().dtype; u.int().tolist()[:5]; u.fill_(7).tolist()[:3]; u.new().nbytes(); u.byteswap(L.float32)
L.UntypedStorage(3).nbytes(); L.UntypedStorage([1, 2, 3]).tolist(); L.UntypedStorage([1, 300]); L.UntypedStorage("a"); L.UntypedStorage(3, device="meta").nbytes(); L.UntypedStorage(3, device="meta").resize_(9).nbytes(); str(L.UntypedStorage(3, device="meta").device); repr(L.UntypedStorage(3, device="meta")); L.UntypedStorage(1, 2, 3); L.TypedStorage(3, dtype=L.float32).size(); L.TypedStorage([1.0, 2.0], dtype=L.float64).tolist(); L.TypedStorage(dtype=L.int8).size(); L.TypedStorage(wrap_storage=u, dtype=L.float32).tolist(); L.TypedStorage(wrap_storage=u)
L.TypedStorage(wrap_storage=u, dtype=L.int16).size(); L.FloatStorage(4).size(); L.FloatStorage([1, 2]).tolist(); L.DoubleStorage([1.5]).dtype; L.IntStorage(2).element_size(); L.ShortStorage([1, 2])[1]; L.BoolStorage([True, False]).tolist(); L.HalfStorage([1.5]).tolist(); L.ComplexFloatStorage([1j]).tolist(); L.FloatStorage.dtype; L.is_storage(s); L.is_storage(u); L.is_storage(x); L.is_storage(L.FloatStorage)
x.share_memory_().is_shared(); s.share_memory_().is_shared(); u.share_memory_().is_shared(); L.empty(3, device="meta").untyped_storage().nbytes(); L.from_numpy(np.ones(3)).untyped_storage().resizable(); L.from_numpy(np.ones(3)).untyped_storage().resize_(100); L.empty(0).set_(s).tolist(); L.empty(0).set_(s, 1, (2,), (2,)).tolist(); L.empty(0).set_(i); L.empty(0).set_(u, 0, (5,), (1,)).tolist(); L.tensor(s); L.tensor([1.0]).set_(x[2:]).tolist(); x[1:].storage_offset(); x[1:].storage().size()
x[1:].untyped_storage().nbytes()
G.tree_iter(tree); list(G.tree_iter(tree)); list(G.tree_iter(tree, lambda v: isinstance(v, tuple))); G.arg_tree_leaves(tree, [5], k={"x": 6}); G.arg_tree_leaves(); G.tree_map_(print, []); G.tree_all_only(int, lambda v: v < 5, tree); G.tree_all_only(int, lambda v: v < 4, tree); G.tree_any_only(int, lambda v: v > 3, tree); G.tree_any_only(int, lambda v: v > 4, tree); G.tree_all_only(str, lambda v: False, tree); G.tree_any_only(str, lambda v: True, tree); G.tree_map_only(lambda v: v == 2, lambda v: 9, tree); G.tree_map_only((int, str), str, tree)
G.tree_map_only_(int, str, tree); G.tree_map_only(3, str, tree); G.tree_map(lambda a, b: (a, b), [1, 2], [3, [4, 5]]); G.tree_map(lambda a, b: a + b, [1, 2], [3]); G.tree_map(lambda a, b: a + b, {"a": 1}, {"b": 2}); G.tree_map(lambda a, b: a + b, {"a": 1, "c": 5}, {"c": 2, "a": 3}); G.tree_map(lambda a, b: a + b, (1, 2), [3, 4])
[[G.keystr(k), G.key_get(tree, k)] for k, v in G.tree_flatten_with_path(tree)[0]]; G.key_get(tree, (G.MappingKey("b"), G.SequenceKey(1), G.SequenceKey(0))); G.key_get(tree, (G.MappingKey("a"), G.GetAttrKey("y"))); str(G.MappingKey("b")); str(G.SequenceKey(1)); str(G.GetAttrKey("x")); repr(G.SequenceKey(2)); G.SequenceKey(2) == G.SequenceKey(2); G.is_namedtuple(P(1, 2)); G.is_namedtuple(P); G.is_namedtuple((1, 2)); G.is_namedtuple_instance(P(1, 2)); G.is_namedtuple_instance(P); G.is_namedtuple_class(P)
G.is_namedtuple_class(P(1, 2))
G.tree_structure(tree); repr(G.tree_structure(tree)); str(G.tree_structure([1, {"a": 2}, (3, deque([4]))])); G.tree_structure(tree) == G.tree_structure(tree); G.tree_structure(tree) == 3; G.tree_structure([1]) == G.tree_structure((1,)); G.LeafSpec() == G.tree_structure(3); repr(G.LeafSpec()); G.LeafSpec().is_leaf(); G.LeafSpec().num_nodes; G.LeafSpec().num_leaves; G.LeafSpec().num_children; G.tree_structure(tree).num_nodes; G.tree_structure(tree).num_children
[c.num_leaves for c in G.tree_structure(tree).children()]; G.tree_structure(tree).child(1).num_leaves; G.tree_structure(tree).child(5); G.tree_structure(tree).type.__name__; G.tree_structure(tree).context; G.tree_structure(OrderedDict(z=1, a=2)).context; G.tree_structure(defaultdict(list, a=1)).flatten_up_to({"a": [3]}); G.tree_structure([1, 2]).flatten_up_to([3, [4]]); G.tree_structure([1, 2]).flatten_up_to([3]); G.tree_structure([1, 2]).flatten_up_to((3, 4)); G.tree_structure({"a": 1}).flatten_up_to({"b": 1}); G.tree_structure({"a": 1}).flatten_up_to(OrderedDict(a=2)); G.tree_structure(P(1, 2)).flatten_up_to((1, 2)); G.tree_structure(deque([1], 3)).flatten_up_to(deque([2], 5))
G.tree_structure(deque([1], 3)).flatten_up_to(deque([2, 3], 5)); G.tree_structure([1, 2]).unflatten([5, 6]); G.tree_structure([1, 2]).unflatten([5]); G.tree_structure(tree).unflatten(iter([1, 2, 3, 4, 5])); G.tree_is_leaf(3); G.tree_is_leaf([3]); G.tree_is_leaf([3], lambda v: True)
"""


@pytest.mark.parametrize("program", refusals(CALLS), ids=short)
def test_program(program: str) -> None:
    check(program, SETUP)
