// TorchScript modules in C++: torch::jit::load, forward, methods, attributes.
#pragma once

#include <torch/autograd.h>
#include <torch/library.h>
#include <torch/version.h>

#include <flambeau/native_program.h>

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

// A module of TorchScript. One that has a library beside its archive runs that, and is loaded by Python when it is asked for more.
class Module {
 public:
  Module() = default;
  explicit Module(::flambeau::Object object) : object_(std::move(object)) {}
  static Module beside(const std::string& path) {
    Module made;
    made.path_ = path;
    made.programs_ = std::make_shared<::flambeau::NativePrograms>(path);
    return made;
  }
  IValue forward(const Stack& inputs, const Kwargs& kwargs = {}) {
    if (programs_ && !object_ && kwargs.empty()) {
      const IValue found = forward_natively(inputs);
      if (!found.isNone()) return found;
    }
    return ::flambeau::helper<IValue>("invoke", object(), inputs, kwargs);
  }
  template <class... A> IValue operator()(A&&... inputs) { return forward(Stack{IValue(std::forward<A>(inputs))...}); }
  Method get_method(const std::string& name) const { return {attr(name).object()}; }
  template <class... A> IValue run_method(const std::string& name, A&&... inputs) { return get_method(name)({IValue(inputs)...}); }
  IValue attr(const std::string& name) const {
    ::flambeau::Gil gil;
    return IValue(::flambeau::Object::stolen(::flambeau::checked(PyObject_GetAttrString(object().get(), name.c_str()))));
  }
  bool hasattr(const std::string& name) const {
    ::flambeau::Gil gil;
    return PyObject_HasAttrString(object().get(), name.c_str());
  }
  void setattr(const std::string& name, const IValue& value) {
    ::flambeau::Gil gil;
    if (PyObject_SetAttrString(object().get(), name.c_str(), value.object().get())) throw ::flambeau::PythonError::fetch();
  }
  void eval() {
    evaluating_ = true;
    if (object_ || !programs_) call<void>("eval");
  }
  void train(bool on = true) { call<void>("train", on); }
  bool is_training() const { return attr("training").toBool(); }
  void to(at::Device device) { call<void>("to", device); }
  void to(at::ScalarType type) { call<void>("to", type); }
  void save(const std::string& path) const { call<void>("save", path); }
  std::vector<at::Tensor> parameters() const { return ::flambeau::helper<std::vector<at::Tensor>>("listed", call("parameters")); }
  std::vector<at::Tensor> buffers() const { return ::flambeau::helper<std::vector<at::Tensor>>("listed", call("buffers")); }
  std::vector<NamedTensor> named_parameters() const { return named("named_parameters"); }
  std::vector<NamedTensor> named_buffers() const { return named("named_buffers"); }
  const ::flambeau::Object& object() const {
    if (!object_ && programs_) {
      object_ = ::flambeau::helper("load", path_, optional<at::Device>());
      if (evaluating_) call<void>("eval");
    }
    return object_;
  }

 private:
  IValue forward_natively(const Stack& inputs) {
    std::vector<at::Tensor> tensors;
    for (const IValue& value : inputs) {
      if (!value.is_native_tensor()) return {};
      const at::Tensor given = value.toTensor();
      tensors.push_back(given.is_contiguous() ? given : given.contiguous());
    }
    const auto program = programs_->find(tensors, evaluating_);
    const auto results = program ? program->run(tensors) : std::nullopt;
    if (!results) return {};
    return program->entry()->tuple ? IValue::native_tuple(*results) : IValue(results->front());
  }
  template <class R = ::flambeau::Object, class... A> R call(const char* name, const A&... a) const {
    ::flambeau::Gil gil;
    return ::flambeau::method<R>(object().get(), name, a...);
  }
  std::vector<NamedTensor> named(const char* which) const {
    std::vector<NamedTensor> found;
    for (auto& [name, value] : ::flambeau::helper<std::vector<std::tuple<std::string, at::Tensor>>>("listed", call(which))) found.push_back({name, value});
    return found;
  }
  mutable ::flambeau::Object object_;
  std::string path_;
  std::shared_ptr<::flambeau::NativePrograms> programs_;
  bool evaluating_ = false;
};
namespace script {
using Module = jit::Module;
}

inline Module load(const std::string& path, optional<at::Device> device = nullopt) {
  if (!device && ::flambeau::NativePrograms::exist(path)) return Module::beside(path);
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
