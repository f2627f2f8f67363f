// Values from C++ to Python and back, and calls in both directions.
#pragma once

#include <array>
#include <map>
#include <unordered_map>

#include <ATen/Tensor.h>

namespace flambeau {

using at::Tensor;

// ---------------------------------------------------------------------------------------------- to Python: new references

inline PyObject* none() {
  Py_INCREF(Py_None);
  return Py_None;
}
inline PyObject* kept(PyObject* p) {
  Py_INCREF(p);
  return p;
}
inline PyObject* to_py(bool v) { return kept(v ? Py_True : Py_False); }
template <class T> std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>, PyObject*> to_py(T v) { return PyLong_FromLongLong(v); }
inline PyObject* to_py(double v) { return PyFloat_FromDouble(v); }
inline PyObject* to_py(float v) { return PyFloat_FromDouble(v); }
inline PyObject* to_py(c10::Half v) { return PyFloat_FromDouble(float(v)); }
inline PyObject* to_py(c10::BFloat16 v) { return PyFloat_FromDouble(float(v)); }
template <class T> PyObject* to_py(std::complex<T> v) { return PyComplex_FromDoubles(v.real(), v.imag()); }
inline PyObject* to_py(std::string_view v) { return checked(PyUnicode_FromStringAndSize(v.data(), static_cast<Py_ssize_t>(v.size()))); }
inline PyObject* to_py(const std::string& v) { return to_py(std::string_view(v)); }
inline PyObject* to_py(const char* v) { return to_py(std::string_view(v)); }
inline PyObject* to_py(const Object& v) { return v ? v.new_reference() : none(); }
inline PyObject* to_py(const Tensor& v) { return kept(v.object()); }
inline PyObject* to_py(const at::Generator& v) { return to_py(v.object); }
inline PyObject* to_py(const at::Storage& v) { return to_py(v.object); }
inline PyObject* to_py(const c10::Scalar& v) {
  if (v.isBoolean()) return to_py(v.toBool());
  if (v.isIntegral()) return to_py(v.toLong());
  return v.isFloatingPoint() ? to_py(v.toDouble()) : to_py(v.toComplexDouble());
}
inline PyObject* to_py(ScalarType v) { return kept(Bridge::get().dtype(v)); }
inline PyObject* named(const char* table, const std::string& name) {
  Object owner = Object::stolen(Bridge::get().attribute(table));
  return checked(PyMapping_GetItemString(owner.get(), name.c_str()));
}
inline PyObject* to_py(c10::Layout v) { return named("LAYOUTS", v == c10::kStrided ? "strided" : v == c10::kSparse ? "sparse_coo" : "sparse_csr"); }
inline PyObject* to_py(c10::MemoryFormat v) {
  constexpr const char* names[] = {"contiguous_format", "preserve_format", "channels_last", "channels_last_3d"};
  return named("FORMATS", names[static_cast<int>(v)]);
}
inline PyObject* to_py(const c10::Device& v) {
  static PyObject* make = Bridge::get().attribute("device");
  return checked(PyObject_CallFunction(make, "s", v.str().c_str()));
}
template <class T> PyObject* to_py(c10::ArrayRef<T> v);
template <class T> PyObject* to_py(const std::vector<T>& v);
template <class... T> PyObject* to_py(const std::tuple<T...>& v);
template <class T> PyObject* to_py(const std::optional<T>& v) { return v ? to_py(*v) : none(); }
template <class T> PyObject* to_py(c10::ArrayRef<T> v) {
  PyObject* list = checked(PyList_New(static_cast<Py_ssize_t>(v.size())));
  for (size_t i = 0; i < v.size(); i++) PyList_SET_ITEM(list, i, to_py(v[i]));
  return list;
}
template <class T> PyObject* to_py(const c10::OptionalArrayRef<T>& v) { return v ? to_py(*v) : none(); }
template <class T> PyObject* to_py(const std::vector<T>& v) {
  PyObject* list = checked(PyList_New(static_cast<Py_ssize_t>(v.size())));
  for (size_t i = 0; i < v.size(); i++) PyList_SET_ITEM(list, i, to_py(static_cast<const T&>(v[i])));
  return list;
}
template <class T, size_t N> PyObject* to_py(const std::array<T, N>& v) { return to_py(c10::ArrayRef<T>(v.data(), N)); }
template <class... T> PyObject* to_py(const std::tuple<T...>& v) {
  return std::apply([](const auto&... part) { return checked(PyTuple_Pack(sizeof...(part), Object::stolen(to_py(part)).get()...)); }, v);
}
template <class Map> PyObject* map_to_py(const Map& v) {
  PyObject* dict = checked(PyDict_New());
  for (const auto& [key, value] : v) PyDict_SetItem(dict, Object::stolen(to_py(key)).get(), Object::stolen(to_py(value)).get());
  return dict;
}
template <class K, class V> PyObject* to_py(const std::map<K, V>& v) { return map_to_py(v); }
template <class K, class V> PyObject* to_py(const std::unordered_map<K, V>& v) { return map_to_py(v); }

// ---------------------------------------------------------------------------------------------- from Python: the object stays the caller's

template <class T, class = void> struct From;
template <class T> T from_py(PyObject* p) { return From<T>::read(p); }
template <class T> T taken(PyObject* owned) {
  Object hold = Object::stolen(checked(owned));
  return from_py<T>(hold.get());
}
inline void check_error() {
  if (PyErr_Occurred()) throw PythonError::fetch();
}
template <> struct From<void> {
  static void read(PyObject*) {}
};
template <> struct From<Tensor> {
  static Tensor read(PyObject* p) {
    if (p != Py_None && !PyObject_TypeCheck(p, reinterpret_cast<PyTypeObject*>(Bridge::get().tensor)))
      throw c10::TypeError(c10::str("expected a Tensor, but got ", Py_TYPE(p)->tp_name));
    return Tensor::borrowed(p);
  }
};
template <> struct From<bool> {
  static bool read(PyObject* p) {
    const int v = PyObject_IsTrue(p);
    check_error();
    return v;
  }
};
template <class T> struct From<T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>>> {
  static T read(PyObject* p) {
    const long long v = PyLong_AsLongLong(p);
    if (v == -1) check_error();
    return static_cast<T>(v);
  }
};
template <class T> struct From<T, std::enable_if_t<std::is_floating_point_v<T>>> {
  static T read(PyObject* p) {
    const double v = PyFloat_AsDouble(p);
    if (v == -1) check_error();
    return static_cast<T>(v);
  }
};
template <> struct From<std::string> {
  static std::string read(PyObject* p) {
    Py_ssize_t size;
    const char* text = PyUnicode_AsUTF8AndSize(p, &size);
    if (!text) throw PythonError::fetch();
    return {text, static_cast<size_t>(size)};
  }
};
template <> struct From<std::string_view> {  // of a string that the caller keeps
  static std::string_view read(PyObject* p) {
    Py_ssize_t size;
    const char* text = PyUnicode_AsUTF8AndSize(p, &size);
    if (!text) throw PythonError::fetch();
    return {text, static_cast<size_t>(size)};
  }
};
template <> struct From<c10::Scalar> {
  static c10::Scalar read(PyObject* p) {
    if (PyBool_Check(p)) return p == Py_True;
    if (PyLong_Check(p)) return from_py<int64_t>(p);
    if (PyComplex_Check(p)) return std::complex<double>(PyComplex_RealAsDouble(p), PyComplex_ImagAsDouble(p));
    return from_py<double>(p);
  }
};
template <> struct From<ScalarType> {
  static ScalarType read(PyObject* p) { return PyLong_Check(p) ? static_cast<ScalarType>(PyLong_AsLong(p)) : Bridge::get().scalar_type(p); }
};
template <> struct From<c10::Device> {
  static c10::Device read(PyObject* p) { return c10::Device(taken<std::string>(PyObject_Str(p))); }
};
template <> struct From<c10::Layout> {
  static c10::Layout read(PyObject* p) {
    const auto name = taken<std::string>(PyObject_GetAttrString(p, "name"));
    return name == "strided" ? c10::kStrided : name == "sparse_coo" ? c10::kSparse : c10::kSparseCsr;
  }
};
template <> struct From<Object> {
  static Object read(PyObject* p) { return Object::borrowed(p); }
};
template <> struct From<at::Generator> {
  static at::Generator read(PyObject* p) { return {Object::borrowed(p)}; }
};
template <class T> struct From<std::complex<T>> {
  static std::complex<T> read(PyObject* p) { return {static_cast<T>(PyComplex_RealAsDouble(p)), static_cast<T>(PyComplex_ImagAsDouble(p))}; }
};
template <class T> struct From<std::optional<T>> {
  static std::optional<T> read(PyObject* p) {
    if (p == Py_None) return std::nullopt;
    return from_py<T>(p);
  }
};
template <class T> struct From<std::vector<T>> {
  static std::vector<T> read(PyObject* p) {
    Object list = Object::stolen(checked(PySequence_Fast(p, "expected a list")));
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(list.get());
    std::vector<T> found;
    found.reserve(static_cast<size_t>(n));
    for (Py_ssize_t i = 0; i < n; i++) found.push_back(from_py<T>(PySequence_Fast_GET_ITEM(list.get(), i)));
    return found;
  }
};
template <class T, size_t N> struct From<std::array<T, N>> {
  static std::array<T, N> read(PyObject* p) {
    auto list = from_py<std::vector<T>>(p);
    TORCH_CHECK(list.size() == N, "expected a list of ", N, " values, but got ", list.size());
    std::array<T, N> found;
    std::copy(list.begin(), list.end(), found.begin());
    return found;
  }
};
template <class... T> struct From<std::tuple<T...>> {
  static std::tuple<T...> read(PyObject* p) {
    Object list = Object::stolen(checked(PySequence_Fast(p, "expected a tuple")));
    TORCH_CHECK(PySequence_Fast_GET_SIZE(list.get()) == sizeof...(T), "expected ", sizeof...(T), " values");
    return get(list.get(), std::index_sequence_for<T...>());
  }
  template <size_t... I> static std::tuple<T...> get(PyObject* list, std::index_sequence<I...>) {
    return std::tuple<T...>{from_py<T>(PySequence_Fast_GET_ITEM(list, I))...};
  }
};
template <class K, class V> struct From<std::unordered_map<K, V>> {
  static std::unordered_map<K, V> read(PyObject* p) {
    std::unordered_map<K, V> found;
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(p, &position, &key, &value)) found.emplace(from_py<K>(key), from_py<V>(value));
    return found;
  }
};

// ---------------------------------------------------------------------------------------------- calling Python

template <class R = Object, class... A> R call(PyObject* function, const A&... arguments) {
  Object given[] = {Object::stolen(to_py(arguments))..., Object()};
  PyObject* pointers[sizeof...(A) + 1] = {};
  for (size_t i = 0; i < sizeof...(A); i++) pointers[i] = given[i].get();
  if constexpr (std::is_same_v<R, Object>)
    return Object::stolen(checked(PyObject_Vectorcall(function, pointers, sizeof...(A), nullptr)));
  else if constexpr (std::is_same_v<R, Tensor>)
    return Tensor::stolen(checked(PyObject_Vectorcall(function, pointers, sizeof...(A), nullptr)));
  else
    return taken<R>(PyObject_Vectorcall(function, pointers, sizeof...(A), nullptr));
}
// A function of flambeau.cpp.bridge.
template <class R = Object, class... A> R helper(const char* name, const A&... arguments) {
  Gil gil;
  Object function = Object::stolen(Bridge::get().attribute(name));
  return call<R>(function.get(), arguments...);
}
template <class R = Object, class... A> R method(PyObject* object, const char* name, const A&... arguments) {
  Object function = Object::stolen(checked(PyObject_GetAttrString(object, name)));
  return call<R>(function.get(), arguments...);
}

// A list of `n` numbers; one number stands for all.
struct Sized {
  c10::IntArrayRef list;
  size_t n;
  std::vector<int64_t> full() const { return list.size() == 1 ? std::vector<int64_t>(n, list[0]) : list.vec(); }
};
inline PyObject* to_py(const Sized& v) { return to_py(v.full()); }

// An operator of PyTorch's, found in Python when it is first called.
struct Op {
  const char *name, *overload;
  PyObject* function;
  PyObject* find() {
    if (!function) function = helper("operator", name, overload).new_reference();
    return function;
  }
};

template <class T, class D> bool same(const T& value, const D& standard) { return value == standard; }
inline bool same(const c10::Scalar& value, int64_t standard) { return value.isIntegral() && value.toLong() == standard; }
inline bool same(const c10::Scalar& value, int standard) { return same(value, int64_t(standard)); }
inline bool same(const c10::Scalar& value, double standard) { return value.isFloatingPoint() && value.toDouble() == standard; }
inline bool same(const c10::Scalar& value, bool standard) { return value.isBoolean() && value.toBool() == standard; }
template <class T> bool same(const std::optional<T>& value, std::nullopt_t) { return !value; }
template <class T> bool same(const c10::OptionalArrayRef<T>& value, std::nullopt_t) { return !value; }
inline bool same(c10::IntArrayRef value, std::initializer_list<int64_t> standard) { return value.equals(standard); }

inline bool same(const Sized& value, std::initializer_list<int64_t> standard) { return c10::IntArrayRef(value.full()).equals(standard); }

// The arguments of one call of an operator. Like in Python, what has its default is not passed.
class Call {
 public:
  explicit Call(Op& op) : function_(op.find()) {}
  ~Call() {
    for (int i = 0; i < count_; i++) Py_DECREF(values_[i + 1]);
  }
  template <class T> Call& a(const T& value) {
    push(to_py(value));
    used_ = count_;
    return *this;
  }
  template <class T, class D> Call& d(const T& value, const D& standard) {
    push(to_py(value));
    if (!same(value, standard)) used_ = count_;
    return *this;
  }
  Call& d(c10::IntArrayRef value, std::initializer_list<int64_t> standard) { return d<c10::IntArrayRef>(value, standard); }
  Call& d(const Sized& value, std::initializer_list<int64_t> standard) { return d<Sized>(value, standard); }
  template <class T> Call& k(const char* name, const T& value) {
    cut();
    push(to_py(value));
    names_[named_++] = name;
    return *this;
  }
  template <class T, class D> Call& k(const char* name, const T& value, const D& standard) { return same(value, standard) ? *this : k(name, value); }
  Call& k(const char* name, c10::IntArrayRef value, std::initializer_list<int64_t> standard) {
    return same(value, standard) ? *this : k(name, value);
  }
  Call& options(const c10::TensorOptions& o) {
    if (o.dtype_opt()) k("dtype", *o.dtype_opt());
    if (o.device_opt()) k("device", *o.device_opt());
    if (o.layout_opt() && *o.layout_opt() != c10::kStrided) k("layout", *o.layout_opt());
    if (o.requires_grad()) k("requires_grad", true);
    if (o.pinned_memory()) k("pin_memory", true);
    return *this;
  }
  template <class R> R run() {
    if constexpr (std::is_same_v<R, Tensor>)
      return Tensor::stolen(result());
    else
      return taken<R>(result());
  }
  void run_for() { Py_DECREF(result()); }

 private:
  void push(PyObject* value) {
    if (count_ == limit) {
      Py_DECREF(value);
      throw c10::Error("an operator with too many arguments");
    }
    values_[++count_] = value;
  }
  void cut() {
    if (named_) return;
    while (count_ > used_) Py_DECREF(values_[count_--]);
  }
  PyObject* result() {
    cut();
    Object names;
    if (named_) {
      names = Object::stolen(checked(PyTuple_New(named_)));
      for (int i = 0; i < named_; i++) PyTuple_SET_ITEM(names.get(), i, PyUnicode_InternFromString(names_[i]));
    }
    const size_t positional = static_cast<size_t>(count_ - named_) | PY_VECTORCALL_ARGUMENTS_OFFSET;
    return checked(PyObject_Vectorcall(function_, values_ + 1, positional, names.get()));
  }
  static constexpr int limit = 24;
  Gil gil_;
  PyObject* function_;
  PyObject* values_[limit + 1];
  const char* names_[limit];
  int count_ = 0, used_ = 0, named_ = 0;
};

// ---------------------------------------------------------------------------------------------- being called from Python

using Callback = std::function<PyObject*(PyObject* const* arguments, Py_ssize_t count)>;

inline PyObject* run_callback(PyObject* capsule, PyObject* const* arguments, Py_ssize_t count) {
  auto* callback = static_cast<Callback*>(PyCapsule_GetPointer(capsule, "flambeau callback"));
  try {
    return (*callback)(arguments, count);
  } catch (const std::exception& error) {
    set_python_error(error);
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "unknown C++ exception");
  }
  return nullptr;
}

// A C++ function as a Python function.
inline Object callable(Callback callback, const char* name = "cpp_function") {
  static PyMethodDef definition = {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(run_callback)), METH_FASTCALL, nullptr};
  Gil gil;
  Object capsule = Object::stolen(checked(PyCapsule_New(new Callback(std::move(callback)), "flambeau callback", [](PyObject* c) {
    delete static_cast<Callback*>(PyCapsule_GetPointer(c, "flambeau callback"));
  })));
  return Object::stolen(checked(PyCFunction_New(&definition, capsule.get())));
}

// What an argument of a C++ function is held in while it is called: lists live in vectors, references in values.
template <class T> struct Held {
  using type = std::decay_t<T>;
};
template <class T> struct Held<c10::ArrayRef<T>> {
  using type = std::vector<T>;
};
template <class T> struct Held<c10::OptionalArrayRef<T>> {
  using type = std::optional<std::vector<T>>;
};
template <class T> struct Held<std::optional<c10::ArrayRef<T>>> {
  using type = std::optional<std::vector<T>>;
};
template <class R, class... A> struct Signature {
  using result = R;
  using arguments = std::tuple<A...>;
  template <class F> static PyObject* invoke(F& function, PyObject* const* values, Py_ssize_t count) {
    TORCH_CHECK_TYPE(count == sizeof...(A), "expected ", sizeof...(A), " arguments, but got ", count);
    return spread(function, values, std::index_sequence_for<A...>());
  }
  template <class F, size_t... I> static PyObject* spread(F& function, [[maybe_unused]] PyObject* const* values, std::index_sequence<I...>) {
    [[maybe_unused]] std::tuple<typename Held<std::decay_t<A>>::type...> held{from_py<typename Held<std::decay_t<A>>::type>(values[I])...};
    if constexpr (std::is_void_v<R>) {
      function(pass<A>(std::get<I>(held))...);
      return none();
    } else {
      return to_py(static_cast<const std::decay_t<R>&>(function(pass<A>(std::get<I>(held))...)));
    }
  }
  template <class T, class H> static decltype(auto) pass(H& held) {
    using V = std::decay_t<T>;
    if constexpr (std::is_same_v<V, H>) {
      if constexpr (std::is_reference_v<T>) return static_cast<T>(held);
      else return V(held);
    } else if constexpr (std::is_constructible_v<V, H&>) {
      return V(held);
    } else {
      return held ? V(*held) : V(std::nullopt);
    }
  }
};
template <class F> struct SignatureOf : SignatureOf<decltype(&F::operator())> {};
template <class R, class... A> struct SignatureOf<R(A...)> : Signature<R, A...> {};
template <class R, class... A> struct SignatureOf<R (*)(A...)> : Signature<R, A...> {};
template <class C, class R, class... A> struct SignatureOf<R (C::*)(A...) const> : Signature<R, A...> {};
template <class C, class R, class... A> struct SignatureOf<R (C::*)(A...)> : Signature<R, A...> {};

template <class F> Object function_object(F function) {
  using S = SignatureOf<std::decay_t<F>>;
  return callable([function](PyObject* const* values, Py_ssize_t count) mutable { return S::invoke(function, values, count); });
}

}  // namespace flambeau
