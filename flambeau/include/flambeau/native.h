// Tensors of a program that has not started Python: enough to give a model its inputs and to look at its results. Everything else, and
// every error, is Python's: a function here gives an undefined tensor for what it does not do.
#pragma once

#include <cstring>

#include <flambeau/convert.h>

namespace flambeau {

using c10::IntArrayRef;
using c10::Scalar;
using c10::TensorOptions;

inline bool without_python() { return !Py_IsInitialized(); }

inline Tensor native_tensor(NativeMemory memory, const std::vector<int64_t>& sizes) {
  std::vector<int64_t> numbers(sizes);
  numbers.resize(2 * sizes.size());
  int64_t step = 1;
  for (size_t i = sizes.size(); i-- > 0; step *= std::max<int64_t>(sizes[i], 1)) numbers[sizes.size() + i] = step;
  return Tensor::native(std::move(memory), std::move(numbers));
}
inline NativeMemory native_bytes(size_t bytes, ScalarType type) {
  void* place = nullptr;
  if (posix_memalign(&place, 64, std::max<size_t>(bytes, 1))) throw std::bad_alloc();
  return {std::shared_ptr<void>(place, std::free), static_cast<char*>(place), type};
}
// How many elements there are, or -1 where sizes are negative or too many.
inline int64_t native_count(IntArrayRef sizes) {
  int64_t n = 1;
  for (int64_t s : sizes)
    if (s < 0 || __builtin_mul_overflow(n, s, &n) || n > (int64_t(1) << 48)) return -1;
  return n;
}
inline bool plain(const TensorOptions& o) {
  return (!o.device_opt() || o.device_opt()->is_cpu()) && (!o.layout_opt() || *o.layout_opt() == c10::kStrided) && !o.requires_grad() &&
         !o.pinned_memory() && !o.memory_format_opt();
}
template <class F> bool by_type(ScalarType type, const F& f) {
  switch (type) {
    case ScalarType::Float: f(float()); return true;
    case ScalarType::Double: f(double()); return true;
    case ScalarType::Long: f(int64_t()); return true;
    case ScalarType::Int: f(int32_t()); return true;
    case ScalarType::Short: f(int16_t()); return true;
    case ScalarType::Char: f(int8_t()); return true;
    case ScalarType::Byte: f(uint8_t()); return true;
    case ScalarType::Bool: f(bool()); return true;
    default: return false;
  }
}

inline Tensor native_empty(IntArrayRef sizes, const TensorOptions& options) {
  const int64_t n = native_count(sizes);
  if (!without_python() || n < 0 || !plain(options)) return {};
  const ScalarType type = options.dtype_opt() ? *options.dtype_opt() : ScalarType::Float;
  if (!by_type(type, [](auto) {})) return {};
  return native_tensor(native_bytes(static_cast<size_t>(n) * c10::elementSize(type), type), sizes.vec());
}
inline Tensor native_full(IntArrayRef sizes, const Scalar& value, TensorOptions options) {
  if (!without_python() || value.isComplex()) return {};
  if (!options.dtype_opt()) options = options.dtype(value.isBoolean() ? ScalarType::Bool : value.isIntegral() ? ScalarType::Long : ScalarType::Float);
  Tensor made = native_empty(sizes, options);
  if (made.defined())
    by_type(made.scalar_type(), [&](auto zero) {
      using T = decltype(zero);
      T* p = reinterpret_cast<T*>(made.native_memory()->data);
      std::fill(p, p + made.numel(), value.to<T>());
    });
  return made;
}
inline Tensor native_filled(IntArrayRef sizes, double value, const TensorOptions& options) {
  return native_full(sizes, value, options.dtype_opt() ? options : options.dtype(ScalarType::Float));
}
inline Tensor native_blob(void* data, IntArrayRef sizes, c10::OptionalIntArrayRef strides, const std::function<void(void*)>& deleter,
                          const TensorOptions& options) {
  if (!without_python() || native_count(sizes) < 0 || !plain(options) || strides) return {};
  const ScalarType type = options.dtype_opt() ? *options.dtype_opt() : ScalarType::Float;
  if (!by_type(type, [](auto) {})) return {};
  std::shared_ptr<void> owner;
  if (deleter) owner = std::shared_ptr<void>(data, deleter);
  return native_tensor({owner, static_cast<char*>(data), type}, sizes.vec());
}

// -- views -----------------------------------------------------------------------------------------------------------------------

inline Tensor native_view(const Tensor& t, int64_t skipped, std::vector<int64_t> numbers) {
  NativeMemory memory = *t.native_memory();
  memory.data += skipped * static_cast<int64_t>(c10::elementSize(memory.type));
  return Tensor::native(std::move(memory), std::move(numbers));
}
inline std::vector<int64_t> native_numbers(const Tensor& t) {
  std::vector<int64_t> numbers = t.sizes().vec();
  for (int64_t s : t.strides()) numbers.push_back(s);
  return numbers;
}
inline bool native_axis(const Tensor& t, int64_t& dim) {
  if (!t.native_memory() || dim >= t.dim() || dim < -t.dim()) return false;
  if (dim < 0) dim += t.dim();
  return true;
}
inline Tensor native_slice(const Tensor& t, int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end, int64_t step) {
  if (!native_axis(t, dim) || step < 1) return {};
  const int64_t n = t.size(dim);
  auto bounded = [n](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + n : i, 0, n); };
  const int64_t first = bounded(start.value_or(0)), last = std::max(first, bounded(end.value_or(n)));
  auto numbers = native_numbers(t);
  numbers[dim] = (last - first + step - 1) / step;
  const int64_t skipped = first * t.stride(dim);
  numbers[t.dim() + dim] *= step;
  return native_view(t, skipped, std::move(numbers));
}
inline Tensor native_select(const Tensor& t, int64_t dim, int64_t index) {
  if (!native_axis(t, dim) || index >= t.size(dim) || index < -t.size(dim)) return {};
  auto numbers = native_numbers(t);
  numbers.erase(numbers.begin() + t.dim() + dim);
  numbers.erase(numbers.begin() + dim);
  return native_view(t, (index < 0 ? index + t.size(dim) : index) * t.stride(dim), std::move(numbers));
}
inline Tensor native_alias(const Tensor& t) {
  return t.native_memory() ? native_view(t, 0, native_numbers(t)) : Tensor();
}

// -- values ----------------------------------------------------------------------------------------------------------------------

// Calls f(address) for each element, the last dimension fastest.
template <class F> void native_each(const Tensor& t, const F& f) {
  const auto sizes = t.sizes().vec(), strides = t.strides().vec();
  const int64_t width = static_cast<int64_t>(t.itemsize()), total = t.numel();
  std::vector<int64_t> at(sizes.size(), 0);
  const char* place = t.native_memory()->data;
  for (int64_t k = 0; k < total; k++) {
    f(place);
    for (size_t i = sizes.size(); i-- > 0;) {
      place += strides[i] * width;
      if (++at[i] < sizes[i]) break;
      place -= sizes[i] * strides[i] * width;
      at[i] = 0;
    }
  }
}
inline std::vector<double> native_doubles(const Tensor& t) {
  std::vector<double> found;
  by_type(t.scalar_type(), [&](auto zero) {
    native_each(t, [&](const char* p) { found.push_back(static_cast<double>(*reinterpret_cast<const decltype(zero)*>(p))); });
  });
  return found;
}
inline Scalar native_item(const Tensor& t) {
  Scalar found;
  by_type(t.scalar_type(), [&](auto zero) { found = Scalar(*reinterpret_cast<const decltype(zero)*>(t.native_memory()->data)); });
  return found;
}
inline Tensor native_contiguous(const Tensor& t, c10::MemoryFormat format) {
  if (!t.native_memory() || format != c10::MemoryFormat::Contiguous) return {};
  if (t.is_contiguous()) return t;
  const size_t width = t.itemsize();
  NativeMemory made = native_bytes(t.nbytes(), t.scalar_type());
  char* to = made.data;
  native_each(t, [&](const char* p) {
    std::memcpy(to, p, width);
    to += width;
  });
  return native_tensor(std::move(made), t.sizes().vec());
}

// Python is needed now: the same memory, as an object.
inline void TensorImpl::become_python() {
  Gil gil;
  if (!native()) return;  // another thread was faster
  const size_t n = numbers.size() / 2;
  auto* owner = new std::shared_ptr<void>(memory.owner);
  Object kept = Object::stolen(checked(PyCapsule_New(owner, "flambeau memory", [](PyObject* c) {
    delete static_cast<std::shared_ptr<void>*>(PyCapsule_GetPointer(c, "flambeau memory"));
  })));
  Object made = helper("from_blob", reinterpret_cast<int64_t>(memory.data), IntArrayRef(numbers.data(), n), IntArrayRef(numbers.data() + n, n),
                       memory.type, std::optional<c10::Device>(), kept);
  object.store(made.new_reference(), std::memory_order_release);
}

}  // namespace flambeau
