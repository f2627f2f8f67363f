// at::IValue: any value that TorchScript knows; here, an object of Python.
#pragma once

#include <ATen/ATen.h>

namespace c10 {

class IValue;

struct TupleValue {
  std::vector<IValue> elements_;
  const std::vector<IValue>& elements() const { return elements_; }
  size_t size() const { return elements_.size(); }
};

class IValue {
 public:
  IValue() = default;
  IValue(::flambeau::Object object) : object_(std::move(object)) {}
  IValue(at::Tensor tensor) : tensor_(std::move(tensor)) {
    if (!tensor_.native_memory()) object_ = python(tensor_);
  }
  static IValue native_tuple(const std::vector<at::Tensor>& tensors) {
    IValue made;
    made.tuple_ = std::make_shared<TupleValue>();
    for (const at::Tensor& t : tensors) made.tuple_->elements_.push_back(t);
    return made;
  }
  template <class T, class = decltype(::flambeau::to_py(std::declval<const T&>())),
            class = std::enable_if_t<!std::is_same_v<T, IValue> && !std::is_same_v<T, at::Tensor> && !std::is_same_v<T, ::flambeau::Object>>>
  IValue(const T& value) {
    ::flambeau::Gil gil;
    object_ = ::flambeau::Object::stolen(::flambeau::to_py(value));
  }
  template <class T> IValue(const intrusive_ptr<T>& holder);
  const ::flambeau::Object& object() const {
    if (!object_ && tensor_.defined()) object_ = python(tensor_);
    if (!object_ && tuple_) object_ = python(tuple_->elements_);
    return object_;
  }
  friend PyObject* to_py(const IValue& v) { return ::flambeau::to_py(v.object()); }
  bool is_native_tensor() const { return tensor_.native_memory() != nullptr; }
  template <class T> T to() const {
    ::flambeau::Gil gil;
    return ::flambeau::from_py<T>(get());
  }
  at::Tensor toTensor() const {
    if (tensor_.defined()) return tensor_;
    TORCH_CHECK(isTensor(), "Expected Tensor but got ", tagKind());
    return to<at::Tensor>();
  }
  int64_t toInt() const { return to<int64_t>(); }
  double toDouble() const { return to<double>(); }
  bool toBool() const { return to<bool>(); }
  Scalar toScalar() const { return to<Scalar>(); }
  std::string toStringRef() const { return to<std::string>(); }
  std::vector<at::Tensor> toTensorVector() const { return to<std::vector<at::Tensor>>(); }
  std::vector<at::Tensor> toTensorList() const { return toTensorVector(); }
  std::vector<int64_t> toIntVector() const { return to<std::vector<int64_t>>(); }
  std::vector<double> toDoubleVector() const { return to<std::vector<double>>(); }
  std::vector<IValue> toListRef() const { return to<std::vector<IValue>>(); }
  std::vector<IValue> toList() const { return toListRef(); }
  std::shared_ptr<TupleValue> toTuple() const {
    if (tuple_) return tuple_;
    TORCH_CHECK(isTuple(), "Expected Tuple but got ", tagKind());
    return std::make_shared<TupleValue>(TupleValue{toListRef()});
  }
  std::unordered_map<std::string, IValue> toGenericDict() const { return to<std::unordered_map<std::string, IValue>>(); }
  template <class T> intrusive_ptr<T> toCustomClass() const { return to<intrusive_ptr<T>>(); }
  bool isNone() const { return !tensor_.defined() && !tuple_ && (!object_ || object_.get() == Py_None); }
  bool isTensor() const { return tensor_.defined() || PyObject_TypeCheck(get(), reinterpret_cast<PyTypeObject*>(::flambeau::Bridge::get().tensor)); }
  bool isBool() const { return PyBool_Check(get()); }
  bool isInt() const { return PyLong_Check(get()) && !isBool(); }
  bool isDouble() const { return PyFloat_Check(get()); }
  bool isString() const { return PyUnicode_Check(get()); }
  bool isTuple() const { return tuple_ || PyTuple_Check(get()); }
  bool isList() const { return PyList_Check(get()); }
  bool isGenericDict() const { return PyDict_Check(get()); }
  std::string tagKind() const {
    return isNone() ? "None" : isTensor() ? "Tensor" : isBool() ? "Bool" : isInt() ? "Int" : isDouble() ? "Double" : isString() ? "String"
           : isTuple() ? "Tuple" : isList() ? "GenericList" : isGenericDict() ? "GenericDict" : "Object";
  }

 private:
  PyObject* get() const {
    const ::flambeau::Object& held = object();
    return held ? held.get() : Py_None;
  }
  template <class T> static ::flambeau::Object python(const T& value) {
    ::flambeau::Gil gil;
    return ::flambeau::Object::stolen(::flambeau::to_py(value));
  }
  mutable ::flambeau::Object object_;  // made when it is asked for, of a value that needed no Python
  at::Tensor tensor_;
  std::shared_ptr<TupleValue> tuple_;
};

}  // namespace c10

namespace flambeau {
template <> struct From<c10::IValue> {
  static c10::IValue read(PyObject* p) { return c10::IValue(Object::borrowed(p)); }
};
}  // namespace flambeau

namespace c10 {
inline std::ostream& operator<<(std::ostream& out, const IValue& v) {
  if (v.isTensor()) return out << v.toTensor();
  ::flambeau::Gil gil;
  return out << ::flambeau::taken<std::string>(PyObject_Str(v.object() ? v.object().get() : Py_None));
}
}  // namespace c10
