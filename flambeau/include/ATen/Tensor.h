// at::Tensor: a handle of a Python tensor. Operators run in Flambeau; sizes, strides and the address of the data are read directly.
#pragma once

#include <flambeau/python.h>

namespace at {

class Tensor;
struct Generator {
  ::flambeau::Object object;
};
struct Storage {
  ::flambeau::Object object;
};
namespace indexing {
class TensorIndex;
}
using TensorList = ArrayRef<Tensor>;
using ITensorListRef = TensorList;
template <class T, size_t N> class TensorAccessor;
template <class T> struct DefaultPtrTraits {
  using PtrType = T*;
};
template <class T> struct RestrictPtrTraits {
  using PtrType = T* __restrict__;
};
template <class T, size_t N, template <class> class Traits, class I> class GenericPackedTensorAccessor;

class Tensor {
 public:
  Tensor() noexcept : impl_(nullptr) {}
  ~Tensor() { drop(); }
  Tensor(const Tensor& other) noexcept : impl_(other.impl_) { keep(); }
  Tensor(Tensor&& other) noexcept : impl_(std::exchange(other.impl_, nullptr)) {}
  Tensor& operator=(const Tensor& other) & noexcept {
    Tensor copy(other);
    std::swap(impl_, copy.impl_);
    return *this;
  }
  Tensor& operator=(Tensor&& other) & noexcept {
    std::swap(impl_, other.impl_);
    return *this;
  }
  // x[0] = ...: assignment to something without a name changes its elements
  Tensor& operator=(const Tensor& other) &&;
  Tensor& operator=(Tensor&& other) &&;
  Tensor& operator=(const Scalar& value) &&;

  // -- Python's object
  static Tensor stolen(PyObject* object) {
    Tensor t;
    if (object == Py_None)
      Py_DECREF(object);
    else
      t.impl_ = new ::flambeau::TensorImpl(object);
    return t;
  }
  static Tensor borrowed(PyObject* object) {
    Py_INCREF(object);
    return stolen(object);
  }
  static Tensor native(::flambeau::NativeMemory memory, std::vector<int64_t> sizes_and_strides) {
    Tensor t;
    t.impl_ = new ::flambeau::TensorImpl(std::move(memory), std::move(sizes_and_strides));
    return t;
  }
  PyObject* object() const { return impl_ ? impl_->python() : Py_None; }
  const ::flambeau::NativeMemory* native_memory() const { return impl_ && impl_->native() ? &impl_->memory : nullptr; }
  ::flambeau::TensorImpl* unsafeGetTensorImpl() const { return impl_; }

  // -- layout
  bool defined() const { return impl_ != nullptr; }
  explicit operator bool() const = delete;
  void reset() { *this = Tensor(); }
  bool is_same(const Tensor& other) const {
    if (impl_ == other.impl_ || native_memory() || other.native_memory()) return impl_ == other.impl_;
    return object() == other.object();
  }
  int64_t use_count() const { return impl_ ? impl_->count.load() : 0; }
  int64_t dim() const { return impl().dim(); }
  int64_t ndimension() const { return dim(); }
  IntArrayRef sizes() const {
    const int64_t* numbers = impl().read();
    return {numbers, static_cast<size_t>(dim())};
  }
  IntArrayRef strides() const {
    const int64_t* numbers = impl().read();
    const auto n = static_cast<size_t>(dim());
    return {numbers + n, n};
  }
  IntArrayRef sym_sizes() const { return sizes(); }
  int64_t size(int64_t d) const { return impl().read()[wrapped(d)]; }
  int64_t stride(int64_t d) const { return impl().read()[dim() + wrapped(d)]; }
  int64_t sym_size(int64_t d) const { return size(d); }
  int64_t numel() const {
    int64_t n = 1;
    for (int64_t s : sizes()) n *= s;
    return n;
  }
  int64_t storage_offset() const { return PyLong_AsLongLong(field(::flambeau::Bridge::get().offset_at)); }
  ScalarType scalar_type() const {
    if (auto* memory = native_memory()) return memory->type;
    auto& b = ::flambeau::Bridge::get();
    return b.scalar_type(field(b.dtype_at));
  }
  TypeMeta dtype() const { return scalar_type(); }
  size_t itemsize() const { return elementSize(scalar_type()); }
  int64_t element_size() const { return static_cast<int64_t>(itemsize()); }
  size_t nbytes() const { return static_cast<size_t>(numel()) * itemsize(); }
  Device device() const;
  Layout layout() const;
  int64_t get_device() const { return device().index(); }
  bool is_cuda() const { return device().is_cuda(); }
  bool is_cpu() const { return device().is_cpu(); }
  bool is_meta() const { return device().is_meta(); }
  bool is_sparse() const { return layout() == kSparse; }
  bool is_floating_point() const { return isFloatingType(scalar_type()); }
  bool is_complex() const { return isComplexType(scalar_type()); }
  bool is_contiguous(MemoryFormat format = MemoryFormat::Contiguous) const;
  bool is_non_overlapping_and_dense() const;
  TensorOptions options() const { return TensorOptions(scalar_type()).device(device()).layout(layout()); }
  std::string toString() const;
  ScalarType type() const { return scalar_type(); }
  void print() const;

  // -- memory
  void* data_ptr() const {
    if (auto* memory = native_memory()) return numel() ? memory->data : nullptr;
    auto& b = ::flambeau::Bridge::get();
    PyObject* storage = field(b.storage_at);
    if (C10_UNLIKELY(!storage || !PyObject_TypeCheck(storage, reinterpret_cast<PyTypeObject*>(b.storage)) || PyList_GET_SIZE(b.watchers)))
      return slow_address();
    PyObject* number = ::flambeau::slot_of(storage, b.ptr_at);
    if (C10_UNLIKELY(!PyLong_Check(number))) return nullptr;  // on the device meta
    const auto start = PyLong_AsUnsignedLongLong(number);
    if (C10_UNLIKELY(!start || numel() == 0)) return nullptr;
    return reinterpret_cast<void*>(start + storage_offset() * itemsize());
  }
  void* mutable_data_ptr() const { return data_ptr(); }
  const void* const_data_ptr() const { return data_ptr(); }
  template <class T> T* data_ptr() const {
    using V = std::remove_const_t<T>;
    TORCH_CHECK(scalar_type() == CppTypeToScalarType<V>::value, "expected scalar type ", CppTypeToScalarType<V>::value, " but found ",
                scalar_type());
    return static_cast<T*>(data_ptr());
  }
  template <class T> T* data() const { return data_ptr<T>(); }
  template <class T> T* mutable_data_ptr() const { return data_ptr<T>(); }
  template <class T> const T* const_data_ptr() const { return data_ptr<T>(); }
  template <class T, size_t N> TensorAccessor<T, N> accessor() const&;
  template <class T, size_t N> TensorAccessor<T, N> accessor() && = delete;
  template <class T, size_t N, template <class> class Traits = DefaultPtrTraits>
  GenericPackedTensorAccessor<T, N, Traits, int32_t> packed_accessor32() const&;
  template <class T, size_t N, template <class> class Traits = DefaultPtrTraits>
  GenericPackedTensorAccessor<T, N, Traits, int64_t> packed_accessor64() const&;
  template <class T, size_t N, template <class> class Traits = DefaultPtrTraits, class I = int64_t>
  GenericPackedTensorAccessor<T, N, Traits, I> packed_accessor() const&;

  // -- values
  Scalar item() const;
  template <class T> T item() const { return item().to<T>(); }

  // -- indexing
  Tensor where(const Tensor& condition, const Tensor& other) const;
  Tensor operator[](int64_t i) const;
  Tensor operator[](const Tensor& i) const;
  Tensor operator[](const Scalar& i) const;
  Tensor index(ArrayRef<indexing::TensorIndex> indices) const;
  Tensor index(std::initializer_list<indexing::TensorIndex> indices) const;
  Tensor& index_put_(ArrayRef<indexing::TensorIndex> indices, const Tensor& value);
  Tensor& index_put_(ArrayRef<indexing::TensorIndex> indices, const Scalar& value);
  Tensor& index_put_(std::initializer_list<indexing::TensorIndex> indices, const Tensor& value);
  Tensor& index_put_(std::initializer_list<indexing::TensorIndex> indices, const Scalar& value);

  // -- autograd
  bool requires_grad() const;
  const Tensor& requires_grad_(bool value = true) const;
  const Tensor& set_requires_grad(bool value) const { return requires_grad_(value); }
  bool is_leaf() const;
  Tensor grad() const;
  Tensor& mutable_grad();
  Tensor data() const;
  Tensor variable_data() const { return data(); }
  Tensor tensor_data() const { return data(); }
  void backward() const;
  void backward(const Tensor& gradient, optional<bool> retain_graph = nullopt, bool create_graph = false,
                optional<TensorList> inputs = nullopt) const;
  void retain_grad() const;
  template <class F> void register_hook(F&& hook) const;
  int64_t _version() const;

  // -- places and dtypes
  Tensor cpu() const { return to(Device(kCPU)); }
  Tensor cuda() const { return to(Device(kCUDA)); }
  Tensor to(TensorOptions options, bool non_blocking = false, bool copy = false, optional<MemoryFormat> format = nullopt) const;
  Tensor to(Device device, ScalarType type, bool non_blocking = false, bool copy = false) const {
    return to(TensorOptions(type).device(device), non_blocking, copy);
  }
  Tensor to(ScalarType type, bool non_blocking = false, bool copy = false) const { return to(TensorOptions(type), non_blocking, copy); }
  Tensor to(const Tensor& like, bool non_blocking = false, bool copy = false) const {
    return to(TensorOptions(like.scalar_type()).device(like.device()), non_blocking, copy);
  }
  Tensor toType(ScalarType type) const { return to(type); }

  // -- operators
  Tensor operator-() const;
  Tensor operator~() const;
  Tensor& operator+=(const Tensor& other);
  Tensor& operator+=(const Scalar& other);
  Tensor& operator-=(const Tensor& other);
  Tensor& operator-=(const Scalar& other);
  Tensor& operator*=(const Tensor& other);
  Tensor& operator*=(const Scalar& other);
  Tensor& operator/=(const Tensor& other);
  Tensor& operator/=(const Scalar& other);

#include <ATen/tensor_methods.inc>

 private:
  ::flambeau::TensorImpl* impl_;
  ::flambeau::TensorImpl& impl() const {
    TORCH_CHECK(impl_, "tensor does not have a device");
    return *impl_;
  }
  PyObject* field(Py_ssize_t offset) const { return ::flambeau::slot_of(impl().python(), offset); }
  int64_t wrapped(int64_t d) const {
    const int64_t n = dim();
    TORCH_CHECK_INDEX(n > 0 || d == 0 || d == -1, "Dimension specified as ", d, " but tensor has no dimensions");
    TORCH_CHECK_INDEX(d >= -n && d < n, "Dimension out of range (expected to be in range of [", -n, ", ", n - 1, "], but got ", d, ")");
    return d < 0 ? d + n : d;
  }
  void* slow_address() const;
  void keep() {
    if (impl_) impl_->count.fetch_add(1, std::memory_order_relaxed);
  }
  void drop() {
    if (impl_ && impl_->count.fetch_sub(1, std::memory_order_acq_rel) == 1) delete impl_;
  }
};

// ---------------------------------------------------------------------------------------------- elements

template <class T, size_t N, class Pointer = T*, class I = int64_t> class TensorAccessorBase {
 public:
  C10_HOST_DEVICE TensorAccessorBase(Pointer data, const I* sizes, const I* strides) : data_(data), sizes_(sizes), strides_(strides) {}
  C10_HOST_DEVICE I size(I i) const { return sizes_[i]; }
  C10_HOST_DEVICE I stride(I i) const { return strides_[i]; }
  C10_HOST_DEVICE Pointer data() const { return data_; }
  IntArrayRef sizes() const { return {sizes_, N}; }
  IntArrayRef strides() const { return {strides_, N}; }

 protected:
  Pointer data_;
  const I *sizes_, *strides_;
};
template <class T, size_t N> class TensorAccessor : public TensorAccessorBase<T, N> {
 public:
  using TensorAccessorBase<T, N>::TensorAccessorBase;
  C10_HOST_DEVICE TensorAccessor<T, N - 1> operator[](int64_t i) const {
    return {this->data_ + this->strides_[0] * i, this->sizes_ + 1, this->strides_ + 1};
  }
};
template <class T> class TensorAccessor<T, 1> : public TensorAccessorBase<T, 1> {
 public:
  using TensorAccessorBase<T, 1>::TensorAccessorBase;
  C10_HOST_DEVICE T& operator[](int64_t i) const { return this->data_[this->strides_[0] * i]; }
};

// Carries its sizes with it, so that it can be handed to a kernel on a GPU.
template <class T, size_t N, template <class> class Traits = DefaultPtrTraits, class I = int64_t> class GenericPackedTensorAccessor {
 public:
  using Pointer = typename Traits<T>::PtrType;
  GenericPackedTensorAccessor(Pointer data, const int64_t* sizes, const int64_t* strides) : data_(data) {
    for (size_t i = 0; i < N; i++) sizes_[i] = static_cast<I>(sizes[i]), strides_[i] = static_cast<I>(strides[i]);
  }
  C10_HOST_DEVICE I size(I i) const { return sizes_[i]; }
  C10_HOST_DEVICE I stride(I i) const { return strides_[i]; }
  C10_HOST_DEVICE Pointer data() const { return data_; }
  struct Part {
    Pointer data;
    const I *sizes, *strides;
  };
  template <size_t M> struct Accessor {
    Pointer data_;
    const I *sizes_, *strides_;
    C10_HOST_DEVICE I size(I i) const { return sizes_[i]; }
    C10_HOST_DEVICE decltype(auto) operator[](I i) const {
      if constexpr (M == 1)
        return (data_[strides_[0] * i]);
      else
        return Accessor<M - 1>{data_ + strides_[0] * i, sizes_ + 1, strides_ + 1};
    }
  };
  C10_HOST_DEVICE decltype(auto) operator[](I i) const { return Accessor<N>{data_, sizes_, strides_}[i]; }

 private:
  Pointer data_;
  I sizes_[N], strides_[N];
};
template <class T, size_t N, template <class> class P = DefaultPtrTraits> using PackedTensorAccessor32 = GenericPackedTensorAccessor<T, N, P, int32_t>;
template <class T, size_t N, template <class> class P = DefaultPtrTraits> using PackedTensorAccessor64 = GenericPackedTensorAccessor<T, N, P, int64_t>;

template <class T, size_t N> TensorAccessor<T, N> Tensor::accessor() const& {
  static_assert(N > 0, "accessor is used for indexing tensor, for scalars use *data_ptr<T>()");
  TORCH_CHECK(dim() == static_cast<int64_t>(N), "TensorAccessor expected ", N, " dims but tensor has ", dim());
  T* data = data_ptr<T>();
  return {data, sizes().data(), strides().data()};
}
template <class T, size_t N, template <class> class P, class I> GenericPackedTensorAccessor<T, N, P, I> Tensor::packed_accessor() const& {
  TORCH_CHECK(dim() == static_cast<int64_t>(N), "TensorAccessor expected ", N, " dims but tensor has ", dim());
  return {data_ptr<T>(), sizes().data(), strides().data()};
}
template <class T, size_t N, template <class> class P> GenericPackedTensorAccessor<T, N, P, int32_t> Tensor::packed_accessor32() const& {
  return packed_accessor<T, N, P, int32_t>();
}
template <class T, size_t N, template <class> class P> GenericPackedTensorAccessor<T, N, P, int64_t> Tensor::packed_accessor64() const& {
  return packed_accessor<T, N, P, int64_t>();
}

}  // namespace at
