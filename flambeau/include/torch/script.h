// TorchScript modules in C++: torch::jit::load, forward, methods, attributes.
#pragma once

#include <torch/autograd.h>
#include <torch/library.h>
#include <torch/version.h>

namespace torch::jit {

using IValue = c10::IValue;
using Stack = std::vector<IValue>;
using Kwargs = std::unordered_map<std::string, IValue>;

struct Method {
  ::flambeau::Object function;
  IValue operator()(const Stack& stack, const Kwargs& kwargs = {}) const { return ::flambeau::helper<IValue>("invoke", function, stack, kwargs); }
};

struct NamedTensor {
  std::string name;
  at::Tensor value;
};

class Module {
 public:
  Module() = default;
  explicit Module(::flambeau::Object object) : object_(std::move(object)) {}
  IValue forward(const Stack& inputs, const Kwargs& kwargs = {}) { return ::flambeau::helper<IValue>("invoke", object_, inputs, kwargs); }
  template <class... A> IValue operator()(A&&... inputs) { return forward(Stack{IValue(std::forward<A>(inputs))...}); }
  Method get_method(const std::string& name) const { return {attr(name).object()}; }
  template <class... A> IValue run_method(const std::string& name, A&&... inputs) { return get_method(name)({IValue(inputs)...}); }
  IValue attr(const std::string& name) const {
    ::flambeau::Gil gil;
    return IValue(::flambeau::Object::stolen(::flambeau::checked(PyObject_GetAttrString(object_.get(), name.c_str()))));
  }
  bool hasattr(const std::string& name) const {
    ::flambeau::Gil gil;
    return PyObject_HasAttrString(object_.get(), name.c_str());
  }
  void setattr(const std::string& name, const IValue& value) {
    ::flambeau::Gil gil;
    if (PyObject_SetAttrString(object_.get(), name.c_str(), value.object().get())) throw ::flambeau::PythonError::fetch();
  }
  void eval() { call<void>("eval"); }
  void train(bool on = true) { call<void>("train", on); }
  bool is_training() const { return attr("training").toBool(); }
  void to(at::Device device) { call<void>("to", device); }
  void to(at::ScalarType type) { call<void>("to", type); }
  void save(const std::string& path) const { call<void>("save", path); }
  std::vector<at::Tensor> parameters() const { return ::flambeau::helper<std::vector<at::Tensor>>("listed", call("parameters")); }
  std::vector<at::Tensor> buffers() const { return ::flambeau::helper<std::vector<at::Tensor>>("listed", call("buffers")); }
  std::vector<NamedTensor> named_parameters() const { return named("named_parameters"); }
  std::vector<NamedTensor> named_buffers() const { return named("named_buffers"); }
  const ::flambeau::Object& object() const { return object_; }

 private:
  template <class R = ::flambeau::Object, class... A> R call(const char* name, const A&... a) const {
    ::flambeau::Gil gil;
    return ::flambeau::method<R>(object_.get(), name, a...);
  }
  std::vector<NamedTensor> named(const char* which) const {
    std::vector<NamedTensor> found;
    for (auto& [name, value] : ::flambeau::helper<std::vector<std::tuple<std::string, at::Tensor>>>("listed", call(which))) found.push_back({name, value});
    return found;
  }
  ::flambeau::Object object_;
};
namespace script {
using Module = jit::Module;
}

inline Module load(const std::string& path, optional<at::Device> device = nullopt) {
  return Module(::flambeau::helper("load", path, device));
}
inline Module freeze(const Module& module) { return Module(::flambeau::helper("freeze", module.object())); }
inline Module optimize_for_inference(const Module& module) { return freeze(module); }
struct CompilationUnit {
  ::flambeau::Object object;
  template <class... A> IValue run_method(const std::string& name, A&&... inputs) const {
    ::flambeau::Gil gil;
    ::flambeau::Object f = ::flambeau::Object::stolen(::flambeau::checked(PyObject_GetAttrString(object.get(), name.c_str())));
    return Method{f}({IValue(inputs)...});
  }
};
inline std::shared_ptr<CompilationUnit> compile(const std::string& source) {
  return std::make_shared<CompilationUnit>(CompilationUnit{::flambeau::helper("compile_source", source)});
}

}  // namespace torch::jit
namespace torch {
using jit::IValue;
}
