// The small types that C++ programs use beside tensors: dtypes, devices, lists, numbers, options. No Python here.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iomanip>
#include <limits>
#include <memory>
#include <optional>
#include <ostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#define C10_API
#define TORCH_API
#define C10_EXPORT __attribute__((visibility("default")))
#define C10_ALWAYS_INLINE inline __attribute__((always_inline))
#define C10_LIKELY(x) (__builtin_expect(static_cast<bool>(x), 1))
#define C10_UNLIKELY(x) (__builtin_expect(static_cast<bool>(x), 0))
#define C10_UNUSED __attribute__((unused))
#ifdef __CUDACC__
#define C10_HOST_DEVICE __host__ __device__
#define C10_DEVICE __device__
#else
#define C10_HOST_DEVICE
#define C10_DEVICE
#endif

namespace c10 {

using std::nullopt;
using std::nullopt_t;
using std::optional;
using std::string_view;
template <class T> constexpr optional<std::decay_t<T>> make_optional(T&& value) { return {std::forward<T>(value)}; }

// ---------------------------------------------------------------------------------------------- errors

template <class... Parts> std::string str(const Parts&... parts) {
  if constexpr (sizeof...(Parts) == 0) {
    return {};
  } else {
    std::ostringstream out;
    (out << ... << parts);
    return out.str();
  }
}

class Error : public std::exception {
 public:
  explicit Error(std::string message) : message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }
  const char* what_without_backtrace() const noexcept { return message_.c_str(); }
  const std::string& msg() const { return message_; }
  virtual const char* python_name() const noexcept { return "RuntimeError"; }

 private:
  std::string message_;
};

#define FLAMBEAU_ERROR(Name, python)                                             \
  class Name : public Error {                                                    \
   public:                                                                       \
    using Error::Error;                                                          \
    const char* python_name() const noexcept override { return python; }         \
  };
FLAMBEAU_ERROR(IndexError, "IndexError")
FLAMBEAU_ERROR(ValueError, "ValueError")
FLAMBEAU_ERROR(TypeError, "TypeError")
FLAMBEAU_ERROR(NotImplementedError, "NotImplementedError")
#undef FLAMBEAU_ERROR

namespace detail {
template <class E = Error> [[noreturn]] void torchCheckFail(const char*, const char*, uint32_t, const std::string& message) {
  throw E(message);
}
template <class... Parts> std::string check_message(const char* condition, const Parts&... parts) {
  if constexpr (sizeof...(Parts) == 0)
    return str("Expected ", condition, " to be true, but got false.  (Could this error message be improved?  If so, "
               "please report an enhancement request to PyTorch.)");
  else
    return str(parts...);
}
}  // namespace detail

#define FLAMBEAU_CHECK(type, condition, ...)                                                                        \
  do {                                                                                                              \
    if (C10_UNLIKELY(!(condition)))                                                                                 \
      ::c10::detail::torchCheckFail<type>(__func__, __FILE__, static_cast<uint32_t>(__LINE__),                      \
                                          ::c10::detail::check_message(#condition, ##__VA_ARGS__));                 \
  } while (false)
#define TORCH_CHECK(condition, ...) FLAMBEAU_CHECK(::c10::Error, condition, ##__VA_ARGS__)
#define TORCH_CHECK_INDEX(condition, ...) FLAMBEAU_CHECK(::c10::IndexError, condition, ##__VA_ARGS__)
#define TORCH_CHECK_VALUE(condition, ...) FLAMBEAU_CHECK(::c10::ValueError, condition, ##__VA_ARGS__)
#define TORCH_CHECK_TYPE(condition, ...) FLAMBEAU_CHECK(::c10::TypeError, condition, ##__VA_ARGS__)
#define TORCH_CHECK_NOT_IMPLEMENTED(condition, ...) FLAMBEAU_CHECK(::c10::NotImplementedError, condition, ##__VA_ARGS__)
#define TORCH_INTERNAL_ASSERT(condition, ...) FLAMBEAU_CHECK(::c10::Error, condition, ##__VA_ARGS__)
#define TORCH_INTERNAL_ASSERT_DEBUG_ONLY(condition, ...) TORCH_INTERNAL_ASSERT(condition, ##__VA_ARGS__)
#define AT_ASSERT(condition, ...) TORCH_CHECK(condition, ##__VA_ARGS__)
#define AT_ASSERTM(condition, ...) TORCH_CHECK(condition, ##__VA_ARGS__)
#define AT_ERROR(...) throw ::c10::Error(::c10::str(__VA_ARGS__))

// ---------------------------------------------------------------------------------------------- lists

template <class T> class ArrayRef {
 public:
  using value_type = T;
  using iterator = const T*;
  using const_iterator = const T*;
  constexpr ArrayRef() = default;
  constexpr ArrayRef(const T& one) : data_(&one), size_(1) {}
  constexpr ArrayRef(const T* data, size_t size) : data_(data), size_(size) {}
  constexpr ArrayRef(const T* begin, const T* end) : data_(begin), size_(static_cast<size_t>(end - begin)) {}
  template <class C, class = std::enable_if_t<
                         std::is_same_v<std::remove_const_t<decltype(std::declval<const C&>().data())>, const T*> &&
                         !std::is_same_v<std::decay_t<C>, ArrayRef>>>
  ArrayRef(const C& container) : data_(container.data()), size_(container.size()) {}
  template <size_t N> constexpr ArrayRef(const T (&array)[N]) : data_(array), size_(N) {}
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winit-list-lifetime"  // a list in braces lives as long as the call that it is an argument of
  ArrayRef(const std::initializer_list<T>& list) : data_(list.begin() == list.end() ? nullptr : list.begin()), size_(list.size()) {}
#pragma GCC diagnostic pop
  constexpr iterator begin() const { return data_; }
  constexpr iterator end() const { return data_ + size_; }
  constexpr const T* data() const { return data_; }
  constexpr size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr const T& operator[](size_t i) const { return data_[i]; }
  const T& at(size_t i) const {
    TORCH_CHECK(i < size_, "ArrayRef: invalid index Index = ", i, "; Length = ", size_);
    return data_[i];
  }
  const T& front() const { return at(0); }
  const T& back() const { return at(size_ - 1); }
  ArrayRef slice(size_t n, size_t count) const { return {data_ + n, count}; }
  ArrayRef slice(size_t n) const { return {data_ + n, size_ - n}; }
  std::vector<T> vec() const { return {begin(), end()}; }
  bool equals(ArrayRef other) const {
    if (size_ != other.size_) return false;
    for (size_t i = 0; i < size_; i++)
      if (!(data_[i] == other.data_[i])) return false;
    return true;
  }

 private:
  const T* data_ = nullptr;
  size_t size_ = 0;
};
template <class T> bool operator==(ArrayRef<T> a, ArrayRef<T> b) { return a.equals(b); }
template <class T> bool operator!=(ArrayRef<T> a, ArrayRef<T> b) { return !a.equals(b); }
template <class T> bool operator==(ArrayRef<T> a, const std::vector<T>& b) { return a.equals(b); }
template <class T> bool operator==(const std::vector<T>& a, ArrayRef<T> b) { return b.equals(a); }
template <class T> bool operator!=(ArrayRef<T> a, const std::vector<T>& b) { return !a.equals(b); }
template <class T> std::ostream& operator<<(std::ostream& out, ArrayRef<T> list) {
  out << '[';
  for (size_t i = 0; i < list.size(); i++) out << (i ? ", " : "") << list[i];
  return out << ']';
}
using IntArrayRef = ArrayRef<int64_t>;
using SymInt = int64_t;
using SymIntArrayRef = IntArrayRef;

// An optional list; a number or a list in braces will do.
template <class T> class OptionalArrayRef {
 public:
  OptionalArrayRef() = default;
  OptionalArrayRef(nullopt_t) {}
  OptionalArrayRef(ArrayRef<T> list) : list_(list) {}
  OptionalArrayRef(const optional<ArrayRef<T>>& list) : list_(list) {}
  OptionalArrayRef(const T& one) : list_(ArrayRef<T>(one)) {}
  OptionalArrayRef(const std::vector<T>& list) : list_(ArrayRef<T>(list)) {}
  OptionalArrayRef(const std::initializer_list<T>& list) : list_(ArrayRef<T>(list)) {}
  bool has_value() const { return list_.has_value(); }
  explicit operator bool() const { return has_value(); }
  const ArrayRef<T>& value() const { return list_.value(); }
  const ArrayRef<T>& operator*() const { return *list_; }
  const ArrayRef<T>* operator->() const { return &*list_; }

 private:
  optional<ArrayRef<T>> list_;
};
using OptionalIntArrayRef = OptionalArrayRef<int64_t>;

template <class T, unsigned = 0> using SmallVector = std::vector<T>;

// ---------------------------------------------------------------------------------------------- numbers of 16 bits, complex numbers

template <class T> using complex = std::complex<T>;

struct alignas(2) BFloat16 {
  uint16_t x = 0;
  BFloat16() = default;
  C10_HOST_DEVICE BFloat16(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    x = value != value ? 0x7FC0 : static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
  }
  C10_HOST_DEVICE operator float() const {
    uint32_t bits = static_cast<uint32_t>(x) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
  }
};

struct alignas(2) Half {
  uint16_t x = 0;
  Half() = default;
  Half(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    const uint32_t sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7FFFFFFF;
    if (magnitude >= 0x47800000) {  // too large, infinite or not a number
      x = static_cast<uint16_t>(sign | (magnitude > 0x7F800000 ? 0x7E00 : 0x7C00));
    } else if (magnitude < 0x38800000) {  // a subnormal number: a multiple of 2^-24, rounded to even by the addition
      float f;
      std::memcpy(&f, &magnitude, 4);
      f += 0.5f;
      uint32_t sum;
      std::memcpy(&sum, &f, 4);
      x = static_cast<uint16_t>(sign | (sum - 0x3F000000));
    } else {
      x = static_cast<uint16_t>(sign | ((magnitude - 0x38000000 + 0xFFF + ((magnitude >> 13) & 1)) >> 13));
    }
  }
  operator float() const {
    const uint32_t sign = static_cast<uint32_t>(x & 0x8000) << 16, rest = x & 0x7FFF;
    float value;
    if (rest < 0x400) {
      value = static_cast<float>(rest) * 5.9604644775390625e-8f;
      return sign ? -value : value;
    }
    const uint32_t bits = sign | (rest >= 0x7C00 ? 0x7F800000 | ((rest & 0x3FF) << 13) : (rest << 13) + 0x38000000);
    std::memcpy(&value, &bits, 4);
    return value;
  }
};

// ---------------------------------------------------------------------------------------------- dtypes

// name, C++ type, number
#define FLAMBEAU_SCALAR_TYPES(_)          \
  _(Byte, uint8_t, 0)                     \
  _(Char, int8_t, 1)                      \
  _(Short, int16_t, 2)                    \
  _(Int, int, 3)                          \
  _(Long, int64_t, 4)                     \
  _(Half, ::c10::Half, 5)                 \
  _(Float, float, 6)                      \
  _(Double, double, 7)                    \
  _(ComplexFloat, ::c10::complex<float>, 9)   \
  _(ComplexDouble, ::c10::complex<double>, 10) \
  _(Bool, bool, 11)                       \
  _(BFloat16, ::c10::BFloat16, 15)        \
  _(UInt16, uint16_t, 27)                 \
  _(UInt32, uint32_t, 28)                 \
  _(UInt64, uint64_t, 29)

enum class ScalarType : int8_t {
#define _(name, type, number) name = number,
  FLAMBEAU_SCALAR_TYPES(_)
#undef _
      Undefined = 44,
};
#define _(name, type, number) constexpr ScalarType k##name = ScalarType::name;
FLAMBEAU_SCALAR_TYPES(_)
#undef _
constexpr ScalarType kUInt8 = kByte, kInt8 = kChar, kInt16 = kShort, kInt32 = kInt, kInt64 = kLong, kFloat16 = kHalf,
                     kFloat32 = kFloat, kFloat64 = kDouble, kComplexFloat32 = kComplexFloat;

inline const char* toString(ScalarType type) {
  switch (type) {
#define _(name, t, number) \
  case ScalarType::name:   \
    return #name;
    FLAMBEAU_SCALAR_TYPES(_)
#undef _
    default:
      return "UNKNOWN_SCALAR";
  }
}
inline size_t elementSize(ScalarType type) {
  switch (type) {
#define _(name, t, number) \
  case ScalarType::name:   \
    return sizeof(t);
    FLAMBEAU_SCALAR_TYPES(_)
#undef _
    default:
      throw Error("Unknown ScalarType");
  }
}
inline std::ostream& operator<<(std::ostream& out, ScalarType type) { return out << toString(type); }
inline bool isFloatingType(ScalarType t) { return t == kFloat || t == kDouble || t == kHalf || t == kBFloat16; }
inline bool isComplexType(ScalarType t) { return t == kComplexFloat || t == kComplexDouble; }
inline bool isIntegralType(ScalarType t, bool with_bool = false) {
  return (t >= kByte && t <= kLong) || t == kUInt16 || t == kUInt32 || t == kUInt64 || (with_bool && t == kBool);
}

template <class T> struct CppTypeToScalarType;
#define _(name, type, number)                          \
  template <> struct CppTypeToScalarType<type> {       \
    static constexpr ScalarType value = ScalarType::name; \
  };
FLAMBEAU_SCALAR_TYPES(_)
#undef _
template <> struct CppTypeToScalarType<std::conditional_t<std::is_same_v<int64_t, long>, long long, long>> {
  static constexpr ScalarType value = ScalarType::Long;
};

// The type of a dtype as `tensor.dtype()` gives it: comparable with torch::kFloat32.
struct TypeMeta {
  ScalarType type = ScalarType::Undefined;
  TypeMeta() = default;
  TypeMeta(ScalarType t) : type(t) {}
  ScalarType toScalarType() const { return type; }
  size_t itemsize() const { return elementSize(type); }
  std::string_view name() const {
    switch (type) {
      case kFloat: return "float";
      case kDouble: return "double";
      case kLong: return "long int";
      case kInt: return "int";
      case kShort: return "short int";
      case kChar: return "signed char";
      case kByte: return "unsigned char";
      case kBool: return "bool";
      case kHalf: return "c10::Half";
      case kBFloat16: return "c10::BFloat16";
      case kComplexFloat: return "c10::complex<float>";
      case kComplexDouble: return "c10::complex<double>";
      default: return toString(type);
    }
  }
};
inline bool operator==(TypeMeta a, TypeMeta b) { return a.type == b.type; }
inline bool operator!=(TypeMeta a, TypeMeta b) { return a.type != b.type; }
inline std::ostream& operator<<(std::ostream& out, TypeMeta meta) { return out << meta.name(); }
inline ScalarType typeMetaToScalarType(TypeMeta meta) { return meta.type; }

enum class Layout : int8_t { Strided, Sparse, SparseCsr, Mkldnn };
constexpr Layout kStrided = Layout::Strided, kSparse = Layout::Sparse, kSparseCsr = Layout::SparseCsr;
inline std::ostream& operator<<(std::ostream& out, Layout layout) {
  return out << (layout == kStrided ? "Strided" : layout == kSparse ? "Sparse" : "SparseCsr");
}
enum class MemoryFormat : int8_t { Contiguous, Preserve, ChannelsLast, ChannelsLast3d };

// ---------------------------------------------------------------------------------------------- devices

enum class DeviceType : int8_t { CPU = 0, CUDA = 1, Meta = 14 };
constexpr DeviceType kCPU = DeviceType::CPU, kCUDA = DeviceType::CUDA, kMeta = DeviceType::Meta;
using DeviceIndex = int8_t;
inline std::string DeviceTypeName(DeviceType type, bool lower = false) {
  return type == kCPU ? (lower ? "cpu" : "CPU") : type == kCUDA ? (lower ? "cuda" : "CUDA") : (lower ? "meta" : "META");
}
inline std::ostream& operator<<(std::ostream& out, DeviceType type) { return out << DeviceTypeName(type, true); }

struct Device {
  Device(DeviceType type, DeviceIndex index = -1) : type_(type), index_(index) {}
  Device(const std::string& text) : type_(kCPU) {
    const auto colon = text.find(':');
    const std::string head = text.substr(0, colon);
    TORCH_CHECK(head == "cpu" || head == "cuda" || head == "meta",
                "Expected one of cpu, cuda, meta device type at start of device string: ", text);
    type_ = head == "cpu" ? kCPU : head == "cuda" ? kCUDA : kMeta;
    if (colon != std::string::npos) index_ = static_cast<DeviceIndex>(std::stoi(text.substr(colon + 1)));
  }
  Device(const char* text) : Device(std::string(text)) {}
  DeviceType type() const { return type_; }
  DeviceIndex index() const { return index_; }
  bool has_index() const { return index_ >= 0; }
  void set_index(DeviceIndex index) { index_ = index; }
  bool is_cuda() const { return type_ == kCUDA; }
  bool is_cpu() const { return type_ == kCPU; }
  bool is_meta() const { return type_ == kMeta; }
  bool operator==(const Device& other) const { return type_ == other.type_ && index_ == other.index_; }
  bool operator!=(const Device& other) const { return !(*this == other); }
  std::string str() const { return DeviceTypeName(type_, true) + (index_ >= 0 ? ":" + std::to_string(int(index_)) : ""); }

 private:
  DeviceType type_;
  DeviceIndex index_ = -1;
};
inline std::ostream& operator<<(std::ostream& out, const Device& device) { return out << device.str(); }

// ---------------------------------------------------------------------------------------------- a number

class Scalar {
 public:
  Scalar() : Scalar(int64_t(0)) {}
  Scalar(bool v) : tag_('b'), i_(v) {}
  Scalar(double v) : tag_('d'), d_(v) {}
  Scalar(float v) : Scalar(double(v)) {}
  Scalar(Half v) : Scalar(double(float(v))) {}
  Scalar(BFloat16 v) : Scalar(double(float(v))) {}
  template <class T, class = std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>>>
  Scalar(T v) : tag_('i'), i_(static_cast<int64_t>(v)) {}
  template <class T> Scalar(std::complex<T> v) : tag_('z'), d_(v.real()), imaginary_(v.imag()) {}
  bool isFloatingPoint() const { return tag_ == 'd'; }
  bool isIntegral(bool with_bool = false) const { return tag_ == 'i' || (with_bool && tag_ == 'b'); }
  bool isBoolean() const { return tag_ == 'b'; }
  bool isComplex() const { return tag_ == 'z'; }
  ScalarType type() const { return tag_ == 'b' ? kBool : tag_ == 'i' ? kLong : tag_ == 'd' ? kDouble : kComplexDouble; }
  template <class T> T to() const {
    if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>) {
      using R = typename T::value_type;
      return T(static_cast<R>(isIntegral(true) ? double(i_) : d_), static_cast<R>(imaginary_));
    } else if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
      return T(static_cast<float>(toDouble()));
    } else {
      TORCH_CHECK(tag_ != 'z' || imaginary_ == 0, "value cannot be converted to type ", toString(CppTypeToScalarType<T>::value),
                  " without overflow");
      return isIntegral(true) ? static_cast<T>(i_) : static_cast<T>(d_);
    }
  }
  double toDouble() const { return to<double>(); }
  float toFloat() const { return to<float>(); }
  int64_t toLong() const { return to<int64_t>(); }
  int toInt() const { return to<int>(); }
  bool toBool() const { return to<bool>(); }
  std::complex<double> toComplexDouble() const { return to<std::complex<double>>(); }
  template <class T> bool equal(T v) const { return tag_ != 'z' && (isIntegral(true) ? double(i_) : d_) == double(v); }
  Scalar operator-() const {
    return tag_ == 'z' ? Scalar(std::complex<double>(-d_, -imaginary_)) : isIntegral(true) ? Scalar(-i_) : Scalar(-d_);
  }

 private:
  char tag_;
  union {
    int64_t i_;
    double d_;
  };
  double imaginary_ = 0;
};
inline std::ostream& operator<<(std::ostream& out, const Scalar& s) {
  if (s.isBoolean()) return out << (s.toBool() ? "true" : "false");
  if (s.isComplex()) return out << s.toComplexDouble();
  return s.isIntegral() ? out << s.toLong() : out << s.toDouble();
}

// ---------------------------------------------------------------------------------------------- options

// What a new tensor shall be like; what was not said stays open.
struct TensorOptions {
  TensorOptions() = default;
  TensorOptions(ScalarType type) : dtype_(type) {}
  TensorOptions(TypeMeta meta) : dtype_(meta.type) {}
  TensorOptions(Layout layout) : layout_(layout) {}
  TensorOptions(MemoryFormat format) : format_(format) {}
  template <class T, class = std::enable_if_t<std::is_same_v<std::decay_t<T>, Device>>> TensorOptions(T&& device) : device_(device) {}
  TensorOptions(DeviceType device) : device_(Device(device)) {}
  TensorOptions(const std::string& device) : device_(Device(device)) {}
  TensorOptions(const char* device) : device_(Device(device)) {}
  TensorOptions dtype(optional<ScalarType> type) const { return with([&](auto& o) { o.dtype_ = type; }); }
  TensorOptions dtype(ScalarType type) const { return dtype(optional<ScalarType>(type)); }
  TensorOptions dtype(TypeMeta type) const { return dtype(optional<ScalarType>(type.type)); }
  template <class T> TensorOptions dtype() const { return dtype(CppTypeToScalarType<T>::value); }
  TensorOptions layout(optional<Layout> layout) const { return with([&](auto& o) { o.layout_ = layout; }); }
  TensorOptions device(optional<Device> device) const { return with([&](auto& o) { o.device_ = device; }); }
  TensorOptions device(Device device) const { return with([&](auto& o) { o.device_ = device; }); }
  TensorOptions device(DeviceType type, DeviceIndex index = -1) const { return device(Device(type, index)); }
  TensorOptions requires_grad(optional<bool> value) const { return with([&](auto& o) { o.requires_grad_ = value; }); }
  TensorOptions pinned_memory(optional<bool> value) const { return with([&](auto& o) { o.pinned_ = value; }); }
  TensorOptions memory_format(optional<MemoryFormat> value) const { return with([&](auto& o) { o.format_ = value; }); }
  TypeMeta dtype() const { return dtype_.value_or(kFloat); }
  Device device() const { return device_.value_or(Device(kCPU)); }
  Layout layout() const { return layout_.value_or(kStrided); }
  bool requires_grad() const { return requires_grad_.value_or(false); }
  bool pinned_memory() const { return pinned_.value_or(false); }
  DeviceIndex device_index() const { return device().index(); }
  bool is_sparse() const { return layout_ == kSparse; }
  optional<ScalarType> dtype_opt() const { return dtype_; }
  optional<Device> device_opt() const { return device_; }
  optional<Layout> layout_opt() const { return layout_; }
  optional<bool> requires_grad_opt() const { return requires_grad_; }
  optional<bool> pinned_memory_opt() const { return pinned_; }
  optional<MemoryFormat> memory_format_opt() const { return format_; }
  bool has_dtype() const { return dtype_.has_value(); }
  bool has_device() const { return device_.has_value(); }

 private:
  template <class Change> TensorOptions with(Change change) const {
    TensorOptions copy = *this;
    change(copy);
    return copy;
  }
  optional<ScalarType> dtype_;
  optional<Device> device_;
  optional<Layout> layout_;
  optional<bool> requires_grad_, pinned_;
  optional<MemoryFormat> format_;
};
inline TensorOptions dtype(ScalarType type) { return TensorOptions(type); }
inline TensorOptions dtype(TypeMeta type) { return TensorOptions(type); }
template <class T> TensorOptions dtype() { return TensorOptions(CppTypeToScalarType<T>::value); }
inline TensorOptions layout(Layout layout) { return TensorOptions(layout); }
inline TensorOptions device(Device device) { return TensorOptions(device); }
inline TensorOptions device(DeviceType type, DeviceIndex index = -1) { return TensorOptions(Device(type, index)); }
inline TensorOptions device_index(DeviceIndex index) { return TensorOptions(Device(kCUDA, index)); }
inline TensorOptions requires_grad(bool value = true) { return TensorOptions().requires_grad(value); }
inline TensorOptions memory_format(MemoryFormat format) { return TensorOptions(format); }

enum class DispatchKey { CPU, CUDA, Meta, Autograd, AutogradCPU, AutogradCUDA, CompositeImplicitAutograd, CompositeExplicitAutograd, CatchAll };
inline const char* toString(DispatchKey key) {
  constexpr const char* names[] = {"CPU", "CUDA", "Meta", "Autograd", "AutogradCPU", "AutogradCUDA",
                                   "CompositeImplicitAutograd", "CompositeExplicitAutograd", "CatchAll"};
  return names[static_cast<int>(key)];
}

// Objects held by several: std::shared_ptr under the name that PyTorch's own pointer has.
class intrusive_ptr_target {
 public:
  virtual ~intrusive_ptr_target() = default;
};
template <class T> class intrusive_ptr : public std::shared_ptr<T> {
 public:
  using std::shared_ptr<T>::shared_ptr;
  intrusive_ptr(std::shared_ptr<T> p) : std::shared_ptr<T>(std::move(p)) {}
  template <class... A> static intrusive_ptr make(A&&... a) { return {std::make_shared<T>(std::forward<A>(a)...)}; }
  bool defined() const { return this->get() != nullptr; }
};
template <class T, class... A> intrusive_ptr<T> make_intrusive(A&&... a) { return intrusive_ptr<T>::make(std::forward<A>(a)...); }

}  // namespace c10

namespace at {
using namespace c10;
}
namespace torch {
using namespace at;
}
