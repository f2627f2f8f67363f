// Between C++ and the Python process that computes: the interpreter's lock, errors, objects, and what is known of a tensor's memory
// without calling Python.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <cxxabi.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <typeinfo>

#include <c10/types.h>

namespace flambeau {

using c10::ScalarType;

// ---------------------------------------------------------------------------------------------- the interpreter

// A program that is not run by Python starts an interpreter with its first tensor. CMake's target `torch` says which one.
inline void start_interpreter() {
#ifdef FLAMBEAU_PYTHON
  PyConfig config;
  PyConfig_InitPythonConfig(&config);
  config.parse_argv = 0;
  config.install_signal_handlers = 0;
  PyConfig_SetBytesString(&config, &config.program_name, FLAMBEAU_PYTHON);
  PyStatus status = Py_InitializeFromConfig(&config);
  PyConfig_Clear(&config);
  if (PyStatus_Exception(status)) throw c10::Error(c10::str("Python did not start: ", status.err_msg ? status.err_msg : "?"));
#else
  Py_InitializeEx(0);
#endif
#ifdef FLAMBEAU_HOME
  PyObject* path = PySys_GetObject("path");
  PyObject* home = PyUnicode_FromString(FLAMBEAU_HOME);
  PyList_Insert(path, 0, home);
  Py_DECREF(home);
#endif
  PyEval_SaveThread();
}

// Holds the interpreter's lock while it exists.
class Gil {
 public:
  Gil() {
    if (!Py_IsInitialized()) start_interpreter();
    taken_ = !PyGILState_Check();
    if (taken_) state_ = PyGILState_Ensure();
  }
  ~Gil() {
    if (taken_) PyGILState_Release(state_);
  }
  Gil(const Gil&) = delete;

 private:
  bool taken_;
  PyGILState_STATE state_ = PyGILState_UNLOCKED;
};

// Gives the lock away while it exists, if this thread has it.
class NoGil {
 public:
  NoGil() : state_(Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}
  ~NoGil() {
    if (state_) PyEval_RestoreThread(state_);
  }

 private:
  PyThreadState* state_;
};

// ---------------------------------------------------------------------------------------------- objects and errors

// An object of Python. Copies may be made and dropped by any thread: the object itself is touched only when the last one goes.
class Object {
 public:
  Object() = default;
  static Object stolen(PyObject* p) { return Object(p); }
  static Object borrowed(PyObject* p) {
    Py_XINCREF(p);
    return Object(p);
  }
  PyObject* get() const { return p_.get(); }
  PyObject* new_reference() const {
    Py_XINCREF(p_.get());
    return p_.get();
  }
  explicit operator bool() const { return p_ != nullptr; }

 private:
  struct Drop {
    void operator()(PyObject* p) const {
      if (!p || !Py_IsInitialized()) return;
      Gil gil;
      Py_DECREF(p);
    }
  };
  explicit Object(PyObject* p) {
    if (p) p_ = std::shared_ptr<PyObject>(p, Drop());
  }
  std::shared_ptr<PyObject> p_;
};

// An exception of Python's on its way through C++; back in Python it is the same exception.
class PythonError : public c10::Error {
 public:
  static PythonError fetch() {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    std::string text = "unknown error";
    if (PyObject* s = value ? PyObject_Str(value) : nullptr) {
      if (const char* utf8 = PyUnicode_AsUTF8(s)) text = utf8;
      Py_DECREF(s);
    }
    PyErr_Clear();
    return PythonError(std::move(text), Object::stolen(type), Object::stolen(value), Object::stolen(trace));
  }
  void restore() const { PyErr_Restore(type_.new_reference(), value_.new_reference(), trace_.new_reference()); }

 private:
  PythonError(std::string text, Object type, Object value, Object trace)
      : c10::Error(std::move(text)), type_(std::move(type)), value_(std::move(value)), trace_(std::move(trace)) {}
  Object type_, value_, trace_;
};

inline std::string type_name(const std::type_info& type) {
  int status;
  char* text = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  const std::string found = text ? text : type.name();
  std::free(text);
  return found;
}

inline PyObject* checked(PyObject* result) {
  if (!result) throw PythonError::fetch();
  return result;
}

// The Python exception for what C++ code has thrown.
inline void set_python_error(const std::exception& error) {
  if (auto* python = dynamic_cast<const PythonError*>(&error)) return python->restore();
  const char* name = "RuntimeError";
  if (auto* own = dynamic_cast<const c10::Error*>(&error)) name = own->python_name();
  else if (dynamic_cast<const std::invalid_argument*>(&error) || dynamic_cast<const std::domain_error*>(&error)) name = "ValueError";
  else if (dynamic_cast<const std::out_of_range*>(&error)) name = "IndexError";
  else if (dynamic_cast<const std::bad_alloc*>(&error)) name = "MemoryError";
  PyObject* type = PyDict_GetItemString(PyEval_GetBuiltins(), name);
  PyErr_SetString(type ? type : PyExc_RuntimeError, error.what());
}

// ---------------------------------------------------------------------------------------------- the library

// What C++ knows of Flambeau: its module `flambeau.cpp.bridge`, and where in a tensor object the fields are.
struct Bridge {
  PyObject *module, *tensor, *storage, *watchers;
  Py_ssize_t shape_at, strides_at, storage_at, offset_at, dtype_at, device_at, ptr_at;
  PyObject* dtypes[64] = {};

  static Bridge& get() {
    static Bridge bridge;
    return bridge;
  }
  static bool& grad_was_off() {  // in this thread, before Python started
    thread_local bool off = false;
    return off;
  }
  PyObject* attribute(const char* name) { return checked(PyObject_GetAttrString(module, name)); }
  PyObject* dtype(ScalarType type) {
    PyObject* found = dtypes[static_cast<int>(type)];
    if (!found) throw c10::Error("this dtype has no counterpart in Python");
    return found;
  }
  ScalarType scalar_type(PyObject* dtype) {
    for (int i = 0; i < 64; i++)
      if (dtypes[i] == dtype) return static_cast<ScalarType>(i);
    throw c10::Error("this dtype has no counterpart in C++");
  }

 private:
  Bridge() {
    Gil gil;
    module = checked(PyImport_ImportModule("flambeau.cpp.bridge"));
    tensor = attribute("Tensor");
    storage = attribute("UntypedStorage");
    watchers = attribute("watchers");
    shape_at = slot(tensor, "shape"), strides_at = slot(tensor, "_strides"), storage_at = slot(tensor, "_storage");
    offset_at = slot(tensor, "_offset"), dtype_at = slot(tensor, "dtype"), device_at = slot(tensor, "device");
    ptr_at = slot(storage, "ptr");
    PyObject *numbers = attribute("DTYPES"), *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(numbers, &position, &key, &value)) dtypes[PyLong_AsLong(key)] = value;
    if (grad_was_off()) Py_DECREF(checked(PyObject_CallFunctionObjArgs(attribute("set_grad_enabled"), Py_False, nullptr)));
  }
  static Py_ssize_t slot(PyObject* type, const char* name) {
    PyObject* member = checked(PyObject_GetAttrString(type, name));
    if (Py_TYPE(member) != &PyMemberDescr_Type) throw c10::Error(c10::str("Flambeau's tensors have changed: no slot ", name));
    const Py_ssize_t offset = reinterpret_cast<PyMemberDescrObject*>(member)->d_member->offset;
    Py_DECREF(member);
    return offset;
  }
};

inline PyObject* slot_of(PyObject* object, Py_ssize_t offset) {
  return *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + offset);
}

// ---------------------------------------------------------------------------------------------- tensors

// Memory of a tensor that was made before Python was needed: strided, on the CPU.
struct NativeMemory {
  std::shared_ptr<void> owner;
  char* data;
  ScalarType type;
};

// What all copies of one at::Tensor share: the Python object, and its sizes and strides, read once. A program that has not started Python
// has native tensors, which get an object when an operator of Python's is called with them.
struct TensorImpl {
  std::atomic<int> count{1};
  std::atomic<PyObject*> object;
  PyObject *shape = nullptr, *steps = nullptr;  // the tuples that `numbers` was read from
  std::vector<int64_t> numbers;                 // sizes, strides, and one more, so that there is an address
  NativeMemory memory{};

  explicit TensorImpl(PyObject* owned) : object(owned) {}
  TensorImpl(NativeMemory held, std::vector<int64_t> sizes_and_strides)
      : object(nullptr), numbers(std::move(sizes_and_strides)), memory(std::move(held)) {
    numbers.push_back(0);
  }
  ~TensorImpl() {
    if (!object || !Py_IsInitialized()) return;
    Gil gil;
    Py_XDECREF(shape);
    Py_XDECREF(steps);
    Py_DECREF(object.load());
  }
  bool native() const { return !object.load(std::memory_order_acquire); }
  PyObject* python() {
    if (C10_UNLIKELY(native())) become_python();
    return object.load(std::memory_order_acquire);
  }
  const int64_t* read() {
    if (C10_UNLIKELY(native())) return numbers.data();
    Bridge& b = Bridge::get();
    PyObject *shape_now = slot_of(object, b.shape_at), *steps_now = slot_of(object, b.strides_at);
    if (C10_UNLIKELY(shape_now != shape || steps_now != steps || !shape)) refresh(shape_now, steps_now);
    return numbers.data();
  }
  int64_t dim() {
    if (C10_UNLIKELY(native())) return static_cast<int64_t>(numbers.size() / 2);
    return PyTuple_GET_SIZE(slot_of(object, Bridge::get().shape_at));
  }

 private:
  void become_python();
  void refresh(PyObject* shape_now, PyObject* steps_now) {
    Gil gil;
    const Py_ssize_t n = PyTuple_GET_SIZE(shape_now);
    numbers.resize(2 * n + 1);
    for (Py_ssize_t i = 0; i < n; i++) {
      numbers[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape_now, i));
      numbers[n + i] = steps_now ? PyLong_AsLongLong(PyTuple_GET_ITEM(steps_now, i)) : 0;  // a sparse tensor has none
    }
    Py_INCREF(shape_now);
    Py_XINCREF(steps_now);
    Py_XDECREF(shape);
    Py_XDECREF(steps);
    shape = shape_now, steps = steps_now;
  }
};

}  // namespace flambeau
