// How pybind11 hands tensors and their relatives between Python and C++.
#pragma once

#if !__has_include(<pybind11/pybind11.h>)
#error "PYBIND11_MODULE needs the headers of pybind11: pip install 'flambeau[cpp]'"
#endif
#include <pybind11/pybind11.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <torch/all.h>

namespace py = pybind11;

namespace flambeau {
// Exceptions of Python's go back as they came, c10::Error as the Python exception of its name.
inline bool translate_errors() {
  py::register_local_exception_translator([](std::exception_ptr p) {
    try {
      if (p) std::rethrow_exception(p);
    } catch (const c10::Error& error) {
      set_python_error(error);
    }
  });
  return true;
}
static const bool translating = Py_IsInitialized() && PyGILState_Check() && translate_errors();
}  // namespace flambeau

namespace pybind11::detail {

// A value that flambeau/convert.h knows, checked by a function first.
#define FLAMBEAU_CASTER(type, text, check)                                                              \
  template <> struct type_caster<type> {                                                                \
    PYBIND11_TYPE_CASTER_OF(type, text)                                                                 \
    bool load(handle source, bool) {                                                                    \
      PyObject* p = source.ptr();                                                                       \
      if (!(check)) return false;                                                                       \
      value = ::flambeau::from_py<type>(p);                                                             \
      return true;                                                                                      \
    }                                                                                                   \
    static handle cast(const type& v, return_value_policy, handle) {                                    \
      using ::flambeau::to_py;                                                                          \
      return to_py(v);                                                                                  \
    }                                                                                                   \
  };
// PYBIND11_TYPE_CASTER for types without a default constructor, too.
#define PYBIND11_TYPE_CASTER_OF(type, text)                                                             \
 protected:                                                                                             \
  ::flambeau::Slot<type> value;                                                                         \
                                                                                                        \
 public:                                                                                                \
  static constexpr auto name = const_name(text);                                                        \
  operator type*() { return &value.get(); }                                                             \
  operator type&() { return value.get(); }                                                              \
  operator type&&() && { return std::move(value.get()); }                                               \
  template <class T_> using cast_op_type = movable_cast_op_type<T_>;

}  // namespace pybind11::detail
namespace flambeau {
template <class T> struct Slot {
  std::optional<T> value;
  T& get() { return *value; }
  void operator=(T v) { value.emplace(std::move(v)); }
};
inline bool is_instance(PyObject* p, const char* what) {
  Object type = Object::stolen(Bridge::get().attribute(what));
  return PyObject_IsInstance(p, type.get()) == 1;
}
}  // namespace flambeau
namespace pybind11::detail {
FLAMBEAU_CASTER(at::Tensor, "torch.Tensor",
                p == Py_None || PyObject_TypeCheck(p, reinterpret_cast<PyTypeObject*>(::flambeau::Bridge::get().tensor)))
FLAMBEAU_CASTER(c10::Scalar, "typing.Union[torch.types.Number]", PyLong_Check(p) || PyFloat_Check(p) || PyComplex_Check(p))
FLAMBEAU_CASTER(c10::ScalarType, "torch.dtype", ::flambeau::is_instance(p, "dtype"))
FLAMBEAU_CASTER(c10::Device, "torch.device", ::flambeau::is_instance(p, "device") || PyUnicode_Check(p))
FLAMBEAU_CASTER(c10::IValue, "object", p != nullptr)
FLAMBEAU_CASTER(at::Generator, "torch.Generator", ::flambeau::is_instance(p, "Generator"))

template <> struct type_caster<c10::IntArrayRef> {
  static constexpr auto name = const_name("typing.Tuple[int, ...]");
  bool load(handle source, bool) {
    PyObject* p = source.ptr();
    if (!PyTuple_Check(p) && !PyList_Check(p)) return false;
    numbers = ::flambeau::from_py<std::vector<int64_t>>(p);
    value = numbers;
    return true;
  }
  static handle cast(c10::IntArrayRef v, return_value_policy, handle) { return ::flambeau::to_py(v); }
  operator c10::IntArrayRef*() { return &value; }
  operator c10::IntArrayRef&() { return value; }
  template <class T> using cast_op_type = pybind11::detail::cast_op_type<T>;

 private:
  std::vector<int64_t> numbers;
  c10::IntArrayRef value;
};
}  // namespace pybind11::detail

inline at::Tensor THPVariable_Unpack(PyObject* p) { return ::flambeau::from_py<at::Tensor>(p); }
inline PyObject* THPVariable_Wrap(const at::Tensor& t) { return ::flambeau::to_py(t); }
inline bool THPVariable_Check(PyObject* p) { return PyObject_TypeCheck(p, reinterpret_cast<PyTypeObject*>(::flambeau::Bridge::get().tensor)); }
