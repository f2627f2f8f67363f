// Everything about tensors: operators (operators.inc, written from Flambeau's schemas), indexing, making, printing, dispatch, threads.
#pragma once

#include <flambeau/native.h>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace at {

using ::flambeau::Sized;

// ---------------------------------------------------------------------------------------------- indices

namespace indexing {
struct EllipsisIndexType {};
constexpr EllipsisIndexType Ellipsis;
constexpr nullopt_t None = nullopt;
struct Slice {
  Slice(optional<int64_t> start = nullopt, optional<int64_t> stop = nullopt, optional<int64_t> step = nullopt)
      : start_(start), stop_(stop), step_(step) {}
  optional<int64_t> start_, stop_, step_;
};
class TensorIndex {
 public:
  TensorIndex(nullopt_t) : object_(keep(Py_None)) {}
  TensorIndex(EllipsisIndexType) : object_(keep(Py_Ellipsis)) {}
  TensorIndex(const char* dots) : object_(keep(Py_Ellipsis)) {
    TORCH_CHECK_VALUE(std::string(dots) == "...", "Expected \"...\" to represent an ellipsis index, but got \"", dots, "\"");
  }
  template <class T, class = std::enable_if_t<std::is_integral_v<T>>> TensorIndex(T value) : object_(made(value)) {}
  TensorIndex(const Tensor& tensor) : object_(made(tensor)) {}
  TensorIndex(const Slice& s) {
    ::flambeau::Gil gil;
    using ::flambeau::Object;
    Object start = made(s.start_), stop = made(s.stop_), step = made(s.step_);
    object_ = Object::stolen(::flambeau::checked(PySlice_New(start.get(), stop.get(), step.get())));
  }
  PyObject* get() const { return object_.get(); }

 private:
  static ::flambeau::Object keep(PyObject* p) {
    ::flambeau::Gil gil;
    return ::flambeau::Object::borrowed(p);
  }
  template <class T> static ::flambeau::Object made(const T& value) {
    ::flambeau::Gil gil;
    return ::flambeau::Object::stolen(::flambeau::to_py(value));
  }
  ::flambeau::Object object_;
};
inline PyObject* key(ArrayRef<TensorIndex> indices) {
  PyObject* tuple = ::flambeau::checked(PyTuple_New(static_cast<Py_ssize_t>(indices.size())));
  for (size_t i = 0; i < indices.size(); i++) PyTuple_SET_ITEM(tuple, i, ::flambeau::kept(indices[i].get()));
  return tuple;
}
}  // namespace indexing

// ---------------------------------------------------------------------------------------------- Python's operators

namespace detail {
using Binary = PyObject* (*)(PyObject*, PyObject*);
template <class A, class B> Tensor binary(Binary operation, const A& a, const B& b) {
  ::flambeau::Gil gil;
  PyObject *left = ::flambeau::to_py(a), *right = ::flambeau::to_py(b);
  PyObject* result = operation(left, right);
  Py_DECREF(left);
  Py_DECREF(right);
  return Tensor::stolen(::flambeau::checked(result));
}
template <class B> Tensor& in_place(Binary operation, Tensor& a, const B& b) {
  ::flambeau::Gil gil;
  PyObject* right = ::flambeau::to_py(b);
  PyObject* result = operation(a.object(), right);
  Py_DECREF(right);
  Py_DECREF(::flambeau::checked(result));
  return a;
}
template <int operation> PyObject* compare(PyObject* a, PyObject* b) { return PyObject_RichCompare(a, b, operation); }
template <class I> Tensor item(const Tensor& self, const I& i) {
  return binary(PyObject_GetItem, self, i);
}
template <class V> void put(const Tensor& self, ArrayRef<indexing::TensorIndex> indices, const V& value) {
  ::flambeau::Gil gil;
  using ::flambeau::Object;
  Object key = Object::stolen(indexing::key(indices)), given = Object::stolen(::flambeau::to_py(value));
  if (PyObject_SetItem(self.object(), key.get(), given.get())) throw ::flambeau::PythonError::fetch();
}
template <class R, class... A> R method(const Tensor& self, const char* name, const A&... a) {
  ::flambeau::Gil gil;
  return ::flambeau::method<R>(self.object(), name, a...);
}
template <class R> R attribute(const Tensor& self, const char* name) {
  ::flambeau::Gil gil;
  return ::flambeau::taken<R>(PyObject_GetAttrString(self.object(), name));
}
}  // namespace detail

#define FLAMBEAU_BINARY(symbol, function)                                                                                         \
  inline Tensor operator symbol(const Tensor& a, const Tensor& b) { return detail::binary(function, a, b); }                       \
  inline Tensor operator symbol(const Tensor& a, const Scalar& b) { return detail::binary(function, a, b); }                       \
  inline Tensor operator symbol(const Scalar& a, const Tensor& b) { return detail::binary(function, a, b); }
FLAMBEAU_BINARY(+, PyNumber_Add)
FLAMBEAU_BINARY(-, PyNumber_Subtract)
FLAMBEAU_BINARY(*, PyNumber_Multiply)
FLAMBEAU_BINARY(/, PyNumber_TrueDivide)
FLAMBEAU_BINARY(%, PyNumber_Remainder)
FLAMBEAU_BINARY(&, PyNumber_And)
FLAMBEAU_BINARY(|, PyNumber_Or)
FLAMBEAU_BINARY(^, PyNumber_Xor)
FLAMBEAU_BINARY(<, detail::compare<Py_LT>)
FLAMBEAU_BINARY(<=, detail::compare<Py_LE>)
FLAMBEAU_BINARY(>, detail::compare<Py_GT>)
FLAMBEAU_BINARY(>=, detail::compare<Py_GE>)
FLAMBEAU_BINARY(==, detail::compare<Py_EQ>)
FLAMBEAU_BINARY(!=, detail::compare<Py_NE>)
#undef FLAMBEAU_BINARY
#define FLAMBEAU_IN_PLACE(symbol, function)                                                                      \
  inline Tensor& Tensor::operator symbol(const Tensor& b) { return detail::in_place(function, *this, b); }       \
  inline Tensor& Tensor::operator symbol(const Scalar& b) { return detail::in_place(function, *this, b); }
FLAMBEAU_IN_PLACE(+=, PyNumber_InPlaceAdd)
FLAMBEAU_IN_PLACE(-=, PyNumber_InPlaceSubtract)
FLAMBEAU_IN_PLACE(*=, PyNumber_InPlaceMultiply)
FLAMBEAU_IN_PLACE(/=, PyNumber_InPlaceTrueDivide)
#undef FLAMBEAU_IN_PLACE
inline Tensor Tensor::operator-() const {
  ::flambeau::Gil gil;
  return stolen(::flambeau::checked(PyNumber_Negative(object())));
}
inline Tensor Tensor::operator~() const {
  ::flambeau::Gil gil;
  return stolen(::flambeau::checked(PyNumber_Invert(object())));
}

// ---------------------------------------------------------------------------------------------- all other operators

#include <ATen/operators.inc>

inline Tensor operator!(const Tensor& t) { return logical_not(t); }
inline Tensor einsum(string_view equation, TensorList operands, OptionalIntArrayRef = nullopt) {
  return ::flambeau::helper<Tensor>("einsum", equation, operands);
}
inline int64_t size(const Tensor& t, int64_t dim) { return t.size(dim); }
inline int64_t numel(const Tensor& t) { return t.numel(); }
inline bool is_floating_point(const Tensor& t) { return t.is_floating_point(); }
inline bool is_complex(const Tensor& t) { return t.is_complex(); }

// ---------------------------------------------------------------------------------------------- methods written by hand

inline Tensor& Tensor::operator=(const Tensor& other) && { return copy_(other); }
inline Tensor& Tensor::operator=(Tensor&& other) && { return copy_(other); }
inline Tensor& Tensor::operator=(const Scalar& value) && { return fill_(value); }
inline Tensor Tensor::operator[](int64_t i) const {
  if (Tensor part = ::flambeau::native_select(*this, 0, i); part.defined()) return part;
  return detail::item(*this, i);
}
inline Tensor Tensor::operator[](const Scalar& i) const { return detail::item(*this, i); }
inline Tensor Tensor::operator[](const Tensor& i) const { return detail::item(*this, i); }
inline Tensor Tensor::index(ArrayRef<indexing::TensorIndex> indices) const {
  ::flambeau::Gil gil;
  return detail::item(*this, ::flambeau::Object::stolen(indexing::key(indices)));
}
inline Tensor Tensor::index(std::initializer_list<indexing::TensorIndex> indices) const {
  return index(ArrayRef<indexing::TensorIndex>(indices));
}
inline Tensor& Tensor::index_put_(ArrayRef<indexing::TensorIndex> indices, const Tensor& value) {
  detail::put(*this, indices, value);
  return *this;
}
inline Tensor& Tensor::index_put_(ArrayRef<indexing::TensorIndex> indices, const Scalar& value) {
  detail::put(*this, indices, value);
  return *this;
}
inline Tensor& Tensor::index_put_(std::initializer_list<indexing::TensorIndex> indices, const Tensor& value) {
  return index_put_(ArrayRef<indexing::TensorIndex>(indices), value);
}
inline Tensor& Tensor::index_put_(std::initializer_list<indexing::TensorIndex> indices, const Scalar& value) {
  return index_put_(ArrayRef<indexing::TensorIndex>(indices), value);
}
inline void* Tensor::slow_address() const { return reinterpret_cast<void*>(::flambeau::helper<int64_t>("address", *this)); }
inline Device Tensor::device() const {
  if (native_memory()) return kCPU;
  ::flambeau::Gil gil;
  return ::flambeau::from_py<Device>(field(::flambeau::Bridge::get().device_at));
}
inline Layout Tensor::layout() const { return native_memory() ? kStrided : detail::attribute<Layout>(*this, "layout"); }
inline bool Tensor::is_contiguous(MemoryFormat format) const {
  if (format != MemoryFormat::Contiguous) return ::flambeau::helper<bool>("is_contiguous", *this, format);
  int64_t step = 1;
  const auto n = sizes(), s = strides();
  for (size_t i = n.size(); i-- > 0;) {
    if (n[i] == 1) continue;
    if (s[i] != step) return numel() == 0;
    step *= n[i];
  }
  return true;
}
inline Tensor Tensor::where(const Tensor& condition, const Tensor& other) const { return at::where(condition, *this, other); }
inline Scalar Tensor::item() const {
  if (native_memory() && numel() == 1) return ::flambeau::native_item(*this);
  return detail::method<Scalar>(*this, "item");
}
inline bool Tensor::requires_grad() const { return !native_memory() && detail::attribute<bool>(*this, "requires_grad"); }
inline const Tensor& Tensor::requires_grad_(bool value) const {
  detail::method<void>(*this, "requires_grad_", value);
  return *this;
}
inline bool Tensor::is_leaf() const { return detail::attribute<bool>(*this, "is_leaf"); }
inline Tensor Tensor::grad() const { return detail::attribute<Tensor>(*this, "grad"); }
inline Tensor Tensor::data() const { return detail::attribute<Tensor>(*this, "data"); }
inline void Tensor::retain_grad() const { detail::method<void>(*this, "retain_grad"); }
inline int64_t Tensor::_version() const { return detail::attribute<int64_t>(*this, "_version"); }
inline void Tensor::backward() const { backward(Tensor()); }
inline void Tensor::backward(const Tensor& gradient, optional<bool> retain, bool create, optional<TensorList> inputs) const {
  ::flambeau::helper<void>("backward", *this, gradient, retain, create, inputs);
}
template <class F> void Tensor::register_hook(F&& hook) const { detail::method<void>(*this, "register_hook", ::flambeau::function_object(hook)); }
inline Tensor Tensor::to(TensorOptions o, bool non_blocking, bool copy, optional<MemoryFormat> format) const {
  return ::flambeau::helper<Tensor>("to", *this, o.dtype_opt(), o.device_opt(), non_blocking, copy, format ? format : o.memory_format_opt());
}

// ---------------------------------------------------------------------------------------------- making tensors

inline Tensor from_blob(void* data, IntArrayRef sizes, OptionalIntArrayRef strides, const std::function<void(void*)>& deleter,
                        const TensorOptions& options = {}) {
  if (Tensor made = ::flambeau::native_blob(data, sizes, strides, deleter, options); made.defined()) return made;
  ::flambeau::Gil gil;
  ::flambeau::Object owner;
  if (deleter)
    owner = ::flambeau::Object::stolen(::flambeau::checked(PyCapsule_New(new std::function<void()>([=] { deleter(data); }), "flambeau memory", [](PyObject* c) {
      auto* release = static_cast<std::function<void()>*>(PyCapsule_GetPointer(c, "flambeau memory"));
      (*release)();
      delete release;
    })));
  Tensor made = ::flambeau::helper<Tensor>("from_blob", reinterpret_cast<int64_t>(data), sizes, strides, options.dtype().type,
                                           options.device_opt(), owner);
  return options.requires_grad() ? made.requires_grad_() : made;
}
inline Tensor from_blob(void* data, IntArrayRef sizes, const TensorOptions& options = {}) { return from_blob(data, sizes, nullopt, nullptr, options); }
inline Tensor from_blob(void* data, IntArrayRef sizes, IntArrayRef strides, const TensorOptions& options = {}) {
  return from_blob(data, sizes, strides, nullptr, options);
}
inline Tensor from_blob(void* data, IntArrayRef sizes, const std::function<void(void*)>& deleter, const TensorOptions& options = {}) {
  return from_blob(data, sizes, nullopt, deleter, options);
}

namespace detail {
// What stands in the braces of torch::tensor({{1, 2}, {3, 4}}): a number, or a list of such.
class TensorDataContainer {
 public:
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>> TensorDataContainer(T value) { set(value); }
  TensorDataContainer(std::complex<float> v) { set(v); }
  TensorDataContainer(std::complex<double> v) { set(v); }
  TensorDataContainer(std::initializer_list<TensorDataContainer> list) {
    ::flambeau::Gil gil;
    PyObject* made = ::flambeau::checked(PyList_New(0));
    for (const auto& part : list) PyList_Append(made, part.object.get());
    object = ::flambeau::Object::stolen(made);
  }
  template <class T> TensorDataContainer(ArrayRef<T> list) { set(list); }
  template <class T> TensorDataContainer(const std::vector<T>& list) { set(list); }
  ::flambeau::Object object;

 private:
  template <class T> void set(const T& value) {
    ::flambeau::Gil gil;
    object = ::flambeau::Object::stolen(::flambeau::to_py(value));
  }
};
}  // namespace detail
inline Tensor tensor(const detail::TensorDataContainer& data, const TensorOptions& options = {}) {
  static ::flambeau::Op op{"tensor", "default", nullptr};
  return ::flambeau::Call(op).a(data.object).options(options).run<Tensor>();
}
inline Tensor scalar_to_tensor(const Scalar& s, Device = kCPU) { return scalar_tensor(s, TensorOptions(s.type())); }

// ---------------------------------------------------------------------------------------------- printing, as libtorch does it

inline std::string Tensor::toString() const {
  if (!defined()) return "UndefinedType";
  return c10::str(is_sparse() ? "Sparse" : "", DeviceTypeName(device().type()), scalar_type(), "Type");
}

namespace detail {
struct KeepFormat {
  std::ostream& out;
  std::ios saved{nullptr};
  explicit KeepFormat(std::ostream& o) : out(o) { saved.copyfmt(o); }
  ~KeepFormat() { out.copyfmt(saved); }
};
struct NumberFormat {
  double scale = 1;
  int width = 0;
};
// Sets the stream up for these numbers.
inline NumberFormat number_format(std::ostream& out, const double* p, int64_t n) {
  if (n == 0) return {};
  bool whole = true, any = false;
  double least = 0, most = 0;
  for (int64_t i = 0; i < n; i++) {
    if (!std::isfinite(p[i])) continue;
    const double z = std::fabs(p[i]);
    whole = whole && p[i] == std::ceil(p[i]);
    least = any ? std::min(least, z) : z;
    most = any ? std::max(most, z) : z;
    any = true;
  }
  auto exponent = [&](double z) { return !any || z == 0 ? 1 : static_cast<int>(std::floor(std::log10(z)) + 1); };
  const int low = exponent(least), high = exponent(most);
  NumberFormat f;
  if (whole) {
    if (high > 9) {
      f.width = 11;
      out << std::scientific << std::setprecision(4);
    } else {
      f.width = high + 1;
      out << std::defaultfloat;
    }
  } else if (high - low > 4) {
    f.width = std::abs(high) > 99 || std::abs(low) > 99 ? 12 : 11;
    out << std::scientific << std::setprecision(4);
  } else {
    if (high > 5 || high < 0) {
      f.width = 7;
      f.scale = std::pow(10, high - 1);
    } else {
      f.width = high == 0 ? 7 : high + 6;
    }
    out << std::fixed << std::setprecision(4);
  }
  return f;
}
inline void print_scale(std::ostream& out, double scale) {
  KeepFormat keep(out);
  out << std::defaultfloat << scale << " *" << '\n';
}
inline void print_matrix(std::ostream& out, const double* p, int64_t rows, int64_t columns, int64_t line, int64_t indent) {
  const NumberFormat f = number_format(out, p, rows * columns);
  const std::string margin(static_cast<size_t>(indent), ' ');
  const int64_t per_line = (line - indent) / (f.width + 1);
  for (int64_t first = 0, last; first < columns; first = last + 1) {
    last = first + per_line <= columns ? first + per_line - 1 : columns - 1;
    if (per_line < columns) out << (first ? "\n" : "") << "Columns " << first + 1 << " to " << last + 1 << margin;
    if (f.scale != 1) {
      print_scale(out, f.scale);
      out << margin;
    }
    for (int64_t r = 0; r < rows; r++)
      for (int64_t c = first; c <= last; c++) {
        out << std::setw(f.width) << p[r * columns + c] / f.scale;
        if (c < last)
          out << ' ';
        else {
          out << '\n';
          if (r + 1 < rows) out << (f.scale != 1 ? margin + ' ' : margin);
        }
      }
  }
}
inline void print_rest(std::ostream& out, const double* p, IntArrayRef sizes, int64_t line) {
  const size_t outer = sizes.size() - 2;
  const int64_t rows = sizes[outer], columns = sizes[outer + 1];
  int64_t total = 1;
  for (size_t i = 0; i < outer; i++) total *= sizes[i];
  std::vector<int64_t> at(outer, 0), strides(outer, rows * columns);
  for (size_t i = outer; i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
  for (int64_t k = 0; k < total; k++) {  // the first dimension runs fastest
    if (k) out << '\n';
    out << '(';
    const double* start = p;
    for (size_t i = 0; i < outer; i++) {
      out << at[i] + 1 << ',';
      start += at[i] * strides[i];
    }
    out << ".,.) = " << '\n';
    print_matrix(out, start, rows, columns, line, 1);
    for (size_t i = 0; i < outer && ++at[i] == sizes[i]; i++) at[i] = 0;
  }
}
inline std::vector<double> as_doubles(const Tensor& t) {
  if (t.native_memory()) return ::flambeau::native_doubles(t);
  const Tensor plain = t.detach().to(TensorOptions(kDouble).device(Device(kCPU))).contiguous();
  const double* p = plain.data_ptr<double>();
  return std::vector<double>(p, p + plain.numel());
}
}  // namespace detail

inline std::ostream& print(std::ostream& out, const Tensor& t, int64_t line = 80) {
  detail::KeepFormat keep(out);
  if (!t.defined()) return out << "[ Tensor (undefined) ]";
  if (t.is_sparse()) {
    out << "[ " << t.toString() << "{}\n";
    print(out << "indices:\n", t._indices(), line);
    print(out << "\nvalues:\n", t._values(), line);
    return out << "\nsize:\n" << t.sizes() << "\n]";
  }
  const std::vector<double> numbers = detail::as_doubles(t);
  const double* p = numbers.data();
  const int64_t n = static_cast<int64_t>(numbers.size());
  if (t.dim() == 0) {
    out << std::defaultfloat << p[0] << '\n';
  } else if (n && t.dim() == 1) {
    const auto f = detail::number_format(out, p, n);
    if (f.scale != 1) detail::print_scale(out, f.scale);
    for (int64_t i = 0; i < n; i++) out << std::setw(f.width) << p[i] / f.scale << '\n';
  } else if (n && t.dim() == 2) {
    detail::print_matrix(out, p, t.size(0), t.size(1), line, 0);
  } else if (n) {
    detail::print_rest(out, p, t.sizes(), line);
  }
  out << "[ " << t.toString() << '{';
  for (int64_t i = 0; i < t.dim(); i++) out << (i ? "," : "") << t.size(i);
  return out << "} ]";
}
inline std::ostream& operator<<(std::ostream& out, const Tensor& t) { return print(out, t, 80); }
inline void Tensor::print() const {
  if (!defined()) {
    std::fputs("[UndefinedTensor]\n", stdout);
    return;
  }
  std::fputs(c10::str('[', toString(), ' ', sizes(), "]\n").c_str(), stdout);
  std::fflush(stdout);
}

// ---------------------------------------------------------------------------------------------- modes, random numbers, threads

class AutoGradMode {
 public:
  explicit AutoGradMode(bool enabled) : previous_(is_enabled()) { set_enabled(enabled); }
  ~AutoGradMode() { set_enabled(previous_); }
  static bool is_enabled() {
    return ::flambeau::without_python() ? !::flambeau::Bridge::grad_was_off() : ::flambeau::helper<bool>("is_grad_enabled");
  }
  static void set_enabled(bool enabled) {
    ::flambeau::Bridge::grad_was_off() = !enabled;
    if (!::flambeau::without_python()) ::flambeau::helper<void>("set_grad_enabled", enabled);
  }

 private:
  bool previous_;
};
using GradMode = AutoGradMode;
struct NoGradGuard : AutoGradMode {
  NoGradGuard() : AutoGradMode(false) {}
};
struct AutoNonVariableTypeMode : AutoGradMode {
  explicit AutoNonVariableTypeMode(bool = true) : AutoGradMode(false) {}
};
using AutoDispatchBelowADInplaceOrView = AutoNonVariableTypeMode;
using AutoDispatchBelowAutograd = AutoNonVariableTypeMode;
class InferenceMode {
 public:
  explicit InferenceMode(bool enabled = true) {
    if (::flambeau::without_python())
      grad_ = std::make_unique<AutoGradMode>(!enabled);
    else
      mode_ = ::flambeau::helper("enter_inference", enabled);
  }
  ~InferenceMode() {
    if (mode_) ::flambeau::helper<void>("leave_inference", mode_);
  }

 private:
  ::flambeau::Object mode_;
  std::unique_ptr<AutoGradMode> grad_;  // before Python starts
};
class OptionalDeviceGuard {
 public:
  OptionalDeviceGuard() = default;
  explicit OptionalDeviceGuard(Device) {}
};
using DeviceGuard = OptionalDeviceGuard;  // kernels run where their tensors are
inline DeviceGuard device_guard(const Tensor& t) { return DeviceGuard(t.device()); }

inline Generator manual_seed(uint64_t seed) { return ::flambeau::helper<Generator>("manual_seed", static_cast<int64_t>(seed)); }
inline int get_num_threads() { return ::flambeau::helper<int>("get_num_threads"); }
inline void set_num_threads(int n) { ::flambeau::helper<void>("set_num_threads", n); }
namespace internal {
constexpr int64_t GRAIN_SIZE = 32768;
}
inline int64_t divup(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Calls f(first, last) for parts of the range, in threads where the program is compiled with OpenMP.
template <class F> void parallel_for(int64_t begin, int64_t end, int64_t grain, const F& f) {
  if (begin >= end) return;
#ifdef _OPENMP
  const int64_t parts = std::min<int64_t>(omp_get_max_threads(), divup(end - begin, std::max<int64_t>(grain, 1)));
  if (parts > 1 && !omp_in_parallel()) {
    ::flambeau::NoGil release;  // a part may call operators
    std::exception_ptr failure;
    const int64_t size = divup(end - begin, parts);
#pragma omp parallel for num_threads(static_cast<int>(parts)) schedule(static, 1)
    for (int64_t i = 0; i < parts; i++) {
      try {
        if (begin + i * size < end) f(begin + i * size, std::min(end, begin + (i + 1) * size));
      } catch (...) {
#pragma omp critical
        failure = std::current_exception();
      }
    }
    if (failure) std::rethrow_exception(failure);
    return;
  }
#endif
  f(begin, end);
}
template <class T, class F, class Combine>
T parallel_reduce(int64_t begin, int64_t end, int64_t, const T& identity, const F& f, const Combine&) {
  return begin < end ? f(begin, end, identity) : identity;
}

inline ScalarType promote_types(ScalarType a, ScalarType b) { return ::flambeau::helper<ScalarType>("promote_types", a, b); }
inline ScalarType promoteTypes(ScalarType a, ScalarType b) { return promote_types(a, b); }

}  // namespace at

// ---------------------------------------------------------------------------------------------- one body for many dtypes

#define FLAMBEAU_CASE(name, ...)                                    \
  case ::at::ScalarType::name: {                                    \
    using scalar_t [[maybe_unused]] = decltype(::at::detail::element<::at::ScalarType::name>()); \
    return __VA_ARGS__();                                           \
  }
namespace at::detail {
template <ScalarType type> auto element();
#define _(name, t, number) \
  template <> inline auto element<ScalarType::name>() { return t{}; }
FLAMBEAU_SCALAR_TYPES(_)
#undef _
inline ScalarType scalar_type(ScalarType t) { return t; }
inline ScalarType scalar_type(TypeMeta t) { return t.type; }
}  // namespace at::detail
#define AT_DISPATCH_CASE(type, ...)                                  \
  case type: {                                                       \
    using scalar_t [[maybe_unused]] = decltype(::at::detail::element<type>()); \
    return __VA_ARGS__();                                            \
  }
#define AT_DISPATCH_SWITCH(TYPE, NAME, ...)                                                                        \
  [&] {                                                                                                            \
    const auto the_type = ::at::detail::scalar_type(TYPE);                                                         \
    switch (the_type) {                                                                                            \
      __VA_ARGS__                                                                                                  \
      default:                                                                                                     \
        throw ::c10::NotImplementedError(::c10::str('"', NAME, "\" not implemented for '", toString(the_type), "'")); \
    }                                                                                                              \
  }()
#define FLAMBEAU_FLOATING(...) FLAMBEAU_CASE(Double, __VA_ARGS__) FLAMBEAU_CASE(Float, __VA_ARGS__)
#define FLAMBEAU_COMPLEX(...) FLAMBEAU_CASE(ComplexDouble, __VA_ARGS__) FLAMBEAU_CASE(ComplexFloat, __VA_ARGS__)
#define FLAMBEAU_INTEGRAL(...)                                                                                        \
  FLAMBEAU_CASE(Byte, __VA_ARGS__)                                                                                    \
  FLAMBEAU_CASE(Char, __VA_ARGS__) FLAMBEAU_CASE(Int, __VA_ARGS__) FLAMBEAU_CASE(Long, __VA_ARGS__) FLAMBEAU_CASE(Short, __VA_ARGS__)
#define AT_DISPATCH_CASE_FLOATING_TYPES(...) FLAMBEAU_FLOATING(__VA_ARGS__)
#define AT_DISPATCH_CASE_INTEGRAL_TYPES(...) FLAMBEAU_INTEGRAL(__VA_ARGS__)
#define AT_DISPATCH_CASE_ALL_TYPES(...) FLAMBEAU_INTEGRAL(__VA_ARGS__) FLAMBEAU_FLOATING(__VA_ARGS__)
#define AT_DISPATCH_FLOATING_TYPES(TYPE, NAME, ...) AT_DISPATCH_SWITCH(TYPE, NAME, FLAMBEAU_FLOATING(__VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND_HALF(TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, FLAMBEAU_FLOATING(__VA_ARGS__) FLAMBEAU_CASE(Half, __VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND(T1, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, FLAMBEAU_FLOATING(__VA_ARGS__) AT_DISPATCH_CASE(T1, __VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND2(T1, T2, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, FLAMBEAU_FLOATING(__VA_ARGS__) AT_DISPATCH_CASE(T1, __VA_ARGS__) AT_DISPATCH_CASE(T2, __VA_ARGS__))
#define AT_DISPATCH_COMPLEX_TYPES(TYPE, NAME, ...) AT_DISPATCH_SWITCH(TYPE, NAME, FLAMBEAU_COMPLEX(__VA_ARGS__))
#define AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, FLAMBEAU_FLOATING(__VA_ARGS__) FLAMBEAU_COMPLEX(__VA_ARGS__))
#define AT_DISPATCH_INTEGRAL_TYPES(TYPE, NAME, ...) AT_DISPATCH_SWITCH(TYPE, NAME, FLAMBEAU_INTEGRAL(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES(TYPE, NAME, ...) AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_ALL_TYPES(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND(T1, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_ALL_TYPES(__VA_ARGS__) AT_DISPATCH_CASE(T1, __VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND2(T1, T2, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_ALL_TYPES(__VA_ARGS__) AT_DISPATCH_CASE(T1, __VA_ARGS__) AT_DISPATCH_CASE(T2, __VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND_COMPLEX(TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_ALL_TYPES(__VA_ARGS__) FLAMBEAU_COMPLEX(__VA_ARGS__))
