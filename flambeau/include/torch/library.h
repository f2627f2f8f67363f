// Operators and classes written in C++, registered in Flambeau like those written in Python.
#pragma once

#include <torch/ivalue.h>

namespace torch {

struct CustomClassHolder : c10::intrusive_ptr_target {};

namespace detail {

// How a C++ type is called in a schema.
template <class T> struct SchemaName;
#define FLAMBEAU_NAME(type, text)                   \
  template <> struct SchemaName<type> {             \
    static std::string get() { return text; }       \
  };
FLAMBEAU_NAME(at::Tensor, "Tensor")
FLAMBEAU_NAME(bool, "bool")
FLAMBEAU_NAME(int64_t, "int")
FLAMBEAU_NAME(double, "float")
FLAMBEAU_NAME(std::string, "str")
FLAMBEAU_NAME(std::string_view, "str")
FLAMBEAU_NAME(at::Scalar, "Scalar")
FLAMBEAU_NAME(at::ScalarType, "ScalarType")
FLAMBEAU_NAME(at::Device, "Device")
FLAMBEAU_NAME(at::Generator, "Generator")
#undef FLAMBEAU_NAME
template <class T> struct SchemaName<std::optional<T>> {
  static std::string get() { return SchemaName<T>::get() + "?"; }
};
template <class T> struct SchemaName<std::vector<T>> {
  static std::string get() { return SchemaName<T>::get() + "[]"; }
};
template <class T> struct SchemaName<at::ArrayRef<T>> : SchemaName<std::vector<T>> {};
template <class T> struct SchemaName<at::OptionalArrayRef<T>> {
  static std::string get() { return SchemaName<T>::get() + "[]?"; }
};
template <class T> struct SchemaName<c10::intrusive_ptr<T>> {
  static std::string get() { return "Any"; }
};
template <class R> struct Results {
  static std::string get() { return SchemaName<std::decay_t<R>>::get(); }
};
template <> struct Results<void> {
  static std::string get() { return "()"; }
};
template <class... T> struct Results<std::tuple<T...>> {
  static std::string get() {
    std::string all;
    ((all += (all.empty() ? "" : ", ") + SchemaName<T>::get()), ...);
    return "(" + all + ")";
  }
};
template <class T> struct Arguments;
template <class... A> struct Arguments<std::tuple<A...>> {
  static std::string get() {
    std::string all;
    int i = 0;
    ((all += (i ? ", " : "") + SchemaName<std::decay_t<A>>::get() + " _" + std::to_string(i), i++), ...);
    return all;
  }
};
template <class F> std::string schema_of(const std::string& name) {
  using S = ::flambeau::SignatureOf<std::decay_t<F>>;
  return name + "(" + Arguments<typename S::arguments>::get() + ") -> " + Results<typename S::result>::get();
}

}  // namespace detail

// A kernel, for all devices or for the one that its dispatch key names.
class CppFunction {
 public:
  template <class F> CppFunction(F function) : object_(::flambeau::function_object(function)), schema_(detail::schema_of<F>) {}
  static CppFunction makeFallthrough() { return CppFunction(); }
  const ::flambeau::Object& object() const { return object_; }
  std::string schema(const std::string& name) const { return schema_(name); }
  std::string key;

 private:
  CppFunction() : object_(::flambeau::helper("fallthrough")) {}
  ::flambeau::Object object_;
  std::function<std::string(const std::string&)> schema_;
};
template <class F> CppFunction dispatch(c10::DispatchKey key, F&& function) {
  CppFunction made(std::forward<F>(function));
  made.key = c10::toString(key);
  return made;
}
template <class F> CppFunction dispatch(c10::DeviceType type, F&& function) {
  return dispatch(type == at::kCUDA ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU, std::forward<F>(function));
}
#define TORCH_FN(function) function
#define TORCH_FN_TYPE(function) decltype(&function)

template <class T> class class_;

class Library {
 public:
  Library(const char* ns, const char* kind, const char* key) : namespace_(ns), library_(::flambeau::helper("library", ns, kind, key)) {}
  Library& def(const std::string& schema) {
    ::flambeau::helper<void>("define", library_, schema);
    return *this;
  }
  template <class F> Library& def(const std::string& schema, F&& function) {
    CppFunction kernel(std::forward<F>(function));
    const bool named_only = schema.find('(') == std::string::npos;
    def(named_only ? kernel.schema(schema) : schema);
    return impl(schema.substr(0, schema.find('(')), std::move(kernel));
  }
  template <class F> Library& impl(const std::string& name, F&& function) {
    CppFunction kernel(std::forward<F>(function));
    ::flambeau::helper<void>("implement", library_, name, kernel.object(), kernel.key);
    return *this;
  }
  template <class T> class_<T> class_(const std::string& name);

 private:
  std::string namespace_;
  ::flambeau::Object library_;
};

namespace detail {
struct LibraryInit {
  LibraryInit(void (*fill)(Library&), const char* ns, const char* kind, const char* key) {
    Library library(ns, kind, key);
    fill(library);
  }
};
}  // namespace detail

#define FLAMBEAU_JOIN_(a, b) a##b
#define FLAMBEAU_JOIN(a, b) FLAMBEAU_JOIN_(a, b)
#define FLAMBEAU_LIBRARY(ns, kind, key, m, id)                                                           \
  static void FLAMBEAU_JOIN(flambeau_library_, id)(torch::Library&);                                     \
  static const torch::detail::LibraryInit FLAMBEAU_JOIN(flambeau_library_init_, id)(                     \
      FLAMBEAU_JOIN(flambeau_library_, id), ns, kind, key);                                              \
  static void FLAMBEAU_JOIN(flambeau_library_, id)(torch::Library & m)
#define TORCH_LIBRARY(ns, m) FLAMBEAU_LIBRARY(#ns, "DEF", "", m, FLAMBEAU_JOIN(ns, __COUNTER__))
#define TORCH_LIBRARY_FRAGMENT(ns, m) FLAMBEAU_LIBRARY(#ns, "FRAGMENT", "", m, FLAMBEAU_JOIN(ns, __COUNTER__))
#define TORCH_LIBRARY_IMPL(ns, key, m) FLAMBEAU_LIBRARY(#ns, "IMPL", #key, m, FLAMBEAU_JOIN(ns, __COUNTER__))

// The older way: static auto registry = torch::RegisterOperators("myops::twice", &twice);
class RegisterOperators {
 public:
  class Options {
   public:
    Options& schema(const std::string& text) {
      schema_ = text;
      return *this;
    }
    template <class F> Options& kernel(c10::DispatchKey key, F&& function) {
      kernel_ = std::make_shared<CppFunction>(dispatch(key, std::forward<F>(function)));
      return *this;
    }
    template <class F> Options& catchAllKernel(F&& function) {
      kernel_ = std::make_shared<CppFunction>(std::forward<F>(function));
      return *this;
    }

   private:
    friend class RegisterOperators;
    std::string schema_;
    std::shared_ptr<CppFunction> kernel_;
  };
  static Options options() { return {}; }
  RegisterOperators() = default;
  template <class F> RegisterOperators(const std::string& schema, F&& function) { op(schema, std::forward<F>(function)); }
  template <class F> RegisterOperators& op(const std::string& schema, F&& function) & {
    add(schema, CppFunction(std::forward<F>(function)));
    return *this;
  }
  template <class F> RegisterOperators op(const std::string& schema, F&& function) && {
    op(schema, std::forward<F>(function));
    return *this;
  }
  RegisterOperators& op(const std::string& schema, const Options& options) & {
    add(schema, *options.kernel_);
    return *this;
  }

 private:
  static void add(const std::string& schema, CppFunction kernel) {
    const auto colons = schema.find("::");
    TORCH_CHECK(colons != std::string::npos, "expected an operator's name with its namespace, such as myops::", schema);
    Library(schema.substr(0, colons).c_str(), "FRAGMENT", "").def(schema.substr(colons + 2), std::move(kernel));
  }
};

// ---------------------------------------------------------------------------------------------- classes

template <class... A> struct init {};

namespace detail {
// The Python class of a method's result, where it is one of C++'s.
template <class R> struct ResultClass {
  static ::flambeau::Object get() { return {}; }
};
template <class T> struct ResultClass<c10::intrusive_ptr<T>> {
  static ::flambeau::Object get() { return class_<T>::known(); }
};
}  // namespace detail

// A C++ class as torch.classes.<namespace>.<name>; TorchScript knows its methods' schemas.
template <class T> class class_ {
 public:
  class_(const std::string& ns, const std::string& name) : class__(::flambeau::helper("new_class", ns, name)) { known() = class__; }
  template <class... A> class_& def(init<A...>) {
    return add<void, A...>("__init__", ::flambeau::callable([](PyObject* const* values, Py_ssize_t count) {
      TORCH_CHECK_TYPE(count == sizeof...(A) + 1, "expected ", sizeof...(A), " arguments, but got ", count - 1);
      hold(values[0], make<A...>(values + 1, std::index_sequence_for<A...>()));
      return ::flambeau::none();
    }));
  }
  template <class R, class... A> class_& def(const std::string& name, R (T::*f)(A...)) {
    return add<R, A...>(name, bound<R, A...>([f](T& self, A... a) -> R { return (self.*f)(std::forward<A>(a)...); }));
  }
  template <class R, class... A> class_& def(const std::string& name, R (T::*f)(A...) const) {
    return add<R, A...>(name, bound<R, A...>([f](T& self, A... a) -> R { return (self.*f)(std::forward<A>(a)...); }));
  }
  template <class F> class_& def(const std::string& name, F f) {
    using S = ::flambeau::SignatureOf<std::decay_t<F>>;
    return add(name, ::flambeau::function_object(f), detail::Arguments<typename S::arguments>::get(), detail::Results<typename S::result>::get(),
               detail::ResultClass<std::decay_t<typename S::result>>::get());
  }
  template <class Get, class Set> class_& def_pickle(Get get, Set set) {
    def("__getstate__", get);
    using State = std::decay_t<std::tuple_element_t<0, typename ::flambeau::SignatureOf<Set>::arguments>>;
    return add<void, State>("__setstate__", ::flambeau::callable([set](PyObject* const* values, Py_ssize_t) mutable {
      hold(values[0], set(::flambeau::from_py<State>(values[1])));
      return ::flambeau::none();
    }));
  }
  static ::flambeau::Object& known() {
    static ::flambeau::Object object;
    return object;
  }
  static void hold(PyObject* self, c10::intrusive_ptr<T> value) {
    ::flambeau::Object capsule = ::flambeau::Object::stolen(::flambeau::checked(PyCapsule_New(
        new c10::intrusive_ptr<T>(std::move(value)), typeid(T).name(),
        [](PyObject* c) { delete static_cast<c10::intrusive_ptr<T>*>(PyCapsule_GetPointer(c, typeid(T).name())); })));
    if (PyObject_SetAttrString(self, "_held", capsule.get())) throw ::flambeau::PythonError::fetch();
  }

 private:
  template <class... A, size_t... I> static c10::intrusive_ptr<T> make(PyObject* const* values, std::index_sequence<I...>) {
    return c10::intrusive_ptr<T>::make(::flambeau::from_py<typename ::flambeau::Held<std::decay_t<A>>::type>(values[I])...);
  }
  template <class R, class... A, class F> ::flambeau::Object bound(F f) {
    return ::flambeau::callable([f](PyObject* const* values, Py_ssize_t count) {
      TORCH_CHECK_TYPE(count > 0, "a method needs its object");
      auto self = ::flambeau::from_py<c10::intrusive_ptr<T>>(values[0]);
      auto call = [&](A... a) -> R { return f(*self, std::forward<A>(a)...); };
      return ::flambeau::Signature<R, A...>::invoke(call, values + 1, count - 1);
    });
  }
  class_& add(const std::string& name, const ::flambeau::Object& function, const std::string& arguments, const std::string& results,
              const ::flambeau::Object& result_class) {
    ::flambeau::helper<void>("add_method", class__, name, function, name + "(" + arguments + ") -> " + results, result_class);
    return *this;
  }
  template <class R, class... A> class_& add(const std::string& name, const ::flambeau::Object& function) {
    const std::string rest = detail::Arguments<std::tuple<A...>>::get();
    return add(name, function, "Any self" + (rest.empty() ? "" : ", " + rest), detail::Results<R>::get(), detail::ResultClass<std::decay_t<R>>::get());
  }
  ::flambeau::Object class__;
};
template <class T> class_<T> Library::class_(const std::string& name) { return torch::class_<T>(namespace_, name); }

}  // namespace torch

namespace flambeau {
template <class T> struct From<c10::intrusive_ptr<T>> {
  static c10::intrusive_ptr<T> read(PyObject* p) {
    Object capsule = Object::stolen(checked(PyObject_GetAttrString(p, "_held")));
    auto* found = static_cast<c10::intrusive_ptr<T>*>(PyCapsule_GetPointer(capsule.get(), typeid(T).name()));
    check_error();
    return *found;
  }
};
}  // namespace flambeau
namespace c10 {
template <class T> PyObject* to_py(const intrusive_ptr<T>& value) {
  PyObject* made = ::flambeau::helper("bare", torch::class_<T>::known()).new_reference();
  torch::class_<T>::hold(made, value);
  return made;
}
template <class T> IValue::IValue(const intrusive_ptr<T>& holder) {
  ::flambeau::Gil gil;
  object_ = ::flambeau::Object::stolen(to_py(holder));
}
}  // namespace c10
