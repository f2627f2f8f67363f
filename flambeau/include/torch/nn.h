// Modules and optimizers in C++: classes over Flambeau's own, with libtorch's names.
#pragma once

#include <torch/all.h>

namespace torch {

template <class T> class OrderedDictItem {
 public:
  OrderedDictItem(std::string key, T value) : key_(std::move(key)), value_(std::move(value)) {}
  const std::string& key() const { return key_; }
  const T& value() const { return value_; }
  T& value() { return value_; }
  const T& operator*() const { return value_; }

 private:
  std::string key_;
  T value_;
};

namespace nn {

template <class T> class ModuleHolder;

// A module: parameters, buffers and other modules under names. Layers hold the Python module that computes.
class Module : public std::enable_shared_from_this<Module> {
 public:
  Module() = default;
  explicit Module(std::string name) : name_(std::move(name)) {}
  virtual ~Module() = default;

  at::Tensor& register_parameter(const std::string& name, at::Tensor value, bool requires_grad = true) {
    value.requires_grad_(requires_grad);
    return add(parameters_, name, std::move(value));
  }
  at::Tensor& register_buffer(const std::string& name, at::Tensor value) { return add(buffers_, name, std::move(value)); }
  template <class T> std::shared_ptr<T> register_module(const std::string& name, std::shared_ptr<T> module) {
    children_.emplace_back(name, module);
    return module;
  }
  template <class T> std::shared_ptr<T> register_module(const std::string& name, const ModuleHolder<T>& holder) {
    return register_module(name, holder.ptr());
  }
  std::vector<OrderedDictItem<at::Tensor>> named_parameters(bool recurse = true) const { return collected(&Module::parameters_, recurse); }
  std::vector<OrderedDictItem<at::Tensor>> named_buffers(bool recurse = true) const { return collected(&Module::buffers_, recurse); }
  std::vector<at::Tensor> parameters(bool recurse = true) const {
    std::vector<at::Tensor> found;
    for (const auto& item : named_parameters(recurse)) found.push_back(item.value());
    return found;
  }
  std::vector<std::shared_ptr<Module>> children() const {
    std::vector<std::shared_ptr<Module>> found;
    for (const auto& item : children_) found.push_back(item.value());
    return found;
  }
  virtual void train(bool on = true) {
    training_ = on;
    if (layer_) call("train", on);
    for (auto& child : children_) child.value()->train(on);
  }
  void eval() { train(false); }
  bool is_training() const { return training_; }
  void zero_grad() {
    for (const auto& p : parameters()) ::flambeau::helper<void>("forget_grad", p);
  }
  virtual void to(at::Device device) { for_all([&](at::Tensor& t) { ::flambeau::helper<void>("move_data", t, device, c10::optional<at::ScalarType>()); }); }
  virtual void to(at::ScalarType type) {
    for_all([&](at::Tensor& t) { if (t.is_floating_point()) ::flambeau::helper<void>("move_data", t, c10::optional<at::Device>(), type); });
  }
  std::string name() const { return name_.empty() ? ::flambeau::type_name(typeid(*this)) : name_; }
  virtual void pretty_print(std::ostream& out) const { out << name(); }

 protected:
  // A layer of Python's: its parameters are this module's.
  void adopt(const ::flambeau::Object& layer) {
    layer_ = layer;
    for (auto& [name, value] : ::flambeau::helper<std::vector<std::tuple<std::string, at::Tensor>>>("named_tensors", layer, "parameters"))
      parameters_.emplace_back(name, value);
    for (auto& [name, value] : ::flambeau::helper<std::vector<std::tuple<std::string, at::Tensor>>>("named_tensors", layer, "buffers"))
      buffers_.emplace_back(name, value);
  }
  at::Tensor run(const at::Tensor& input) {
    ::flambeau::Gil gil;
    return ::flambeau::call<at::Tensor>(layer_.get(), input);
  }

 private:
  using Tensors = std::vector<OrderedDictItem<at::Tensor>>;
  static at::Tensor& add(Tensors& list, const std::string& name, at::Tensor value) {
    list.emplace_back(name, std::move(value));
    return list.back().value();
  }
  template <class R = void, class... A> R call(const char* name, const A&... a) {
    ::flambeau::Gil gil;
    return ::flambeau::method<R>(layer_.get(), name, a...);
  }
  Tensors collected(Tensors Module::*which, bool recurse) const {
    Tensors found = this->*which;
    if (recurse)
      for (const auto& child : children_)
        for (const auto& item : child.value()->collected(which, true)) found.emplace_back(child.key() + "." + item.key(), item.value());
    return found;
  }
  template <class F> void for_all(F change) {
    for (auto& item : collected(&Module::parameters_, true)) change(item.value());
    for (auto& item : collected(&Module::buffers_, true)) change(item.value());
  }
  std::string name_;
  bool training_ = true;
  Tensors parameters_, buffers_;
  std::vector<OrderedDictItem<std::shared_ptr<Module>>> children_;
  ::flambeau::Object layer_;
};
inline std::ostream& operator<<(std::ostream& out, const Module& module) {
  module.pretty_print(out);
  return out;
}

// Linear is a pointer to a LinearImpl, made with the same arguments.
template <class T> class ModuleHolder {
 public:
  using ContainedType = T;
  ModuleHolder() : impl_(std::make_shared<T>()) {}
  ModuleHolder(std::nullptr_t) {}
  ModuleHolder(std::shared_ptr<T> impl) : impl_(std::move(impl)) {}
  template <class Head, class... Tail, class = std::enable_if_t<!std::is_base_of_v<ModuleHolder, std::decay_t<Head>> && std::is_constructible_v<T, Head, Tail...>>>
  explicit ModuleHolder(Head&& head, Tail&&... tail) : impl_(std::make_shared<T>(std::forward<Head>(head), std::forward<Tail>(tail)...)) {}
  T* operator->() const { return impl_.get(); }
  T& operator*() const { return *impl_; }
  const std::shared_ptr<T>& ptr() const { return impl_; }
  bool is_empty() const { return !impl_; }
  explicit operator bool() const { return impl_ != nullptr; }
  template <class... A> auto operator()(A&&... a) const { return impl_->forward(std::forward<A>(a)...); }

 protected:
  std::shared_ptr<T> impl_;
};
#define TORCH_MODULE_IMPL(Name, ImplType)                       \
  class Name : public torch::nn::ModuleHolder<ImplType> {       \
   public:                                                      \
    using torch::nn::ModuleHolder<ImplType>::ModuleHolder;      \
    using Impl = ImplType;                                      \
  }
#define TORCH_MODULE(Name) TORCH_MODULE_IMPL(Name, Name##Impl)

struct LinearOptions {
  LinearOptions(int64_t in, int64_t out) : in_(in), out_(out) {}
  int64_t in_, out_;
  bool bias_ = true;
  LinearOptions& bias(bool value) {
    bias_ = value;
    return *this;
  }
};
class LinearImpl : public Module {
 public:
  LinearImpl(int64_t in, int64_t out) : LinearImpl(LinearOptions(in, out)) {}
  explicit LinearImpl(const LinearOptions& o) {
    adopt(::flambeau::helper("layer", "Linear", std::make_tuple(o.in_, o.out_, o.bias_)));
    weight = parameters(false)[0];
    if (o.bias_) bias = parameters(false)[1];
  }
  at::Tensor forward(const at::Tensor& input) { return functional::linear(input, weight, bias); }
  at::Tensor weight, bias;
};
TORCH_MODULE(Linear);

struct Conv2dOptions {
  Conv2dOptions(int64_t in, int64_t out, int64_t kernel) : in_(in), out_(out), kernel_(kernel) {}
  int64_t in_, out_, kernel_, stride_ = 1, padding_ = 0, dilation_ = 1, groups_ = 1;
  bool bias_ = true;
  Conv2dOptions& stride(int64_t v) { stride_ = v; return *this; }
  Conv2dOptions& padding(int64_t v) { padding_ = v; return *this; }
  Conv2dOptions& dilation(int64_t v) { dilation_ = v; return *this; }
  Conv2dOptions& groups(int64_t v) { groups_ = v; return *this; }
  Conv2dOptions& bias(bool v) { bias_ = v; return *this; }
};
class Conv2dImpl : public Module {
 public:
  Conv2dImpl(int64_t in, int64_t out, int64_t kernel) : Conv2dImpl(Conv2dOptions(in, out, kernel)) {}
  explicit Conv2dImpl(const Conv2dOptions& o) {
    adopt(::flambeau::helper("layer", "Conv2d",
                             std::make_tuple(o.in_, o.out_, o.kernel_, o.stride_, o.padding_, o.dilation_, o.groups_, o.bias_)));
    weight = parameters(false)[0];
    if (o.bias_) bias = parameters(false)[1];
  }
  at::Tensor forward(const at::Tensor& input) { return run(input); }
  at::Tensor weight, bias;
};
TORCH_MODULE(Conv2d);

// Layers that take numbers only.
#define FLAMBEAU_LAYER(Name)                                                                                     \
  class Name##Impl : public Module {                                                                             \
   public:                                                                                                       \
    template <class... A> explicit Name##Impl(A... a) {                                                          \
      adopt(::flambeau::helper("layer", #Name, std::make_tuple(a...)));                                          \
    }                                                                                                            \
    at::Tensor forward(const at::Tensor& input) { return run(input); }                                           \
  };                                                                                                             \
  TORCH_MODULE(Name)
FLAMBEAU_LAYER(BatchNorm1d);
FLAMBEAU_LAYER(BatchNorm2d);
FLAMBEAU_LAYER(LayerNorm);
FLAMBEAU_LAYER(Dropout);
FLAMBEAU_LAYER(Embedding);
FLAMBEAU_LAYER(Flatten);
FLAMBEAU_LAYER(GELU);
FLAMBEAU_LAYER(MaxPool2d);
FLAMBEAU_LAYER(ReLU);
FLAMBEAU_LAYER(Sigmoid);
FLAMBEAU_LAYER(Tanh);
#undef FLAMBEAU_LAYER

// One module after the other.
class SequentialImpl : public Module {
 public:
  template <class... M> explicit SequentialImpl(M... modules) { (push_back(std::move(modules)), ...); }
  template <class H> void push_back(H holder) {
    register_module(std::to_string(steps_.size()), holder.ptr());
    steps_.push_back([holder](const at::Tensor& x) { return holder->forward(x); });
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& step : steps_) x = step(x);
    return x;
  }
  size_t size() const { return steps_.size(); }

 private:
  std::vector<std::function<at::Tensor(const at::Tensor&)>> steps_;
};
TORCH_MODULE(Sequential);

}  // namespace nn

namespace optim {
// An optimizer of Python's over parameters of C++.
class Optimizer {
 public:
  Optimizer(const char* kind, std::vector<at::Tensor> parameters, const std::map<std::string, double>& options)
      : parameters_(std::move(parameters)), object_(::flambeau::helper("optimizer", kind, parameters_, options)) {}
  void step() { ::flambeau::helper<void>("invoke", ::flambeau::helper("attribute", object_, "step"), std::vector<at::Tensor>(), std::map<std::string, double>()); }
  void zero_grad() {
    for (const auto& p : parameters_) ::flambeau::helper<void>("forget_grad", p);
  }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }

 private:
  std::vector<at::Tensor> parameters_;
  ::flambeau::Object object_;
};
struct SGDOptions {
  explicit SGDOptions(double lr) { values["lr"] = lr; }
  std::map<std::string, double> values;
  SGDOptions& momentum(double v) { values["momentum"] = v; return *this; }
  SGDOptions& weight_decay(double v) { values["weight_decay"] = v; return *this; }
};
struct SGD : Optimizer {
  SGD(std::vector<at::Tensor> parameters, const SGDOptions& o) : Optimizer("SGD", std::move(parameters), o.values) {}
  SGD(std::vector<at::Tensor> parameters, double lr) : SGD(std::move(parameters), SGDOptions(lr)) {}
};
struct AdamOptions {
  explicit AdamOptions(double lr = 1e-3) { values["lr"] = lr; }
  std::map<std::string, double> values;
  AdamOptions& eps(double v) { values["eps"] = v; return *this; }
  AdamOptions& weight_decay(double v) { values["weight_decay"] = v; return *this; }
};
struct Adam : Optimizer {
  Adam(std::vector<at::Tensor> parameters, const AdamOptions& o = AdamOptions()) : Optimizer("Adam", std::move(parameters), o.values) {}
  Adam(std::vector<at::Tensor> parameters, double lr) : Adam(std::move(parameters), AdamOptions(lr)) {}
};
}  // namespace optim

// A module's state dict, in the format of torch.save.
inline void save(const std::shared_ptr<nn::Module>& module, const std::string& path) {
  std::map<std::string, at::Tensor> state;
  for (const auto& item : module->named_parameters()) state.emplace(item.key(), item.value().detach());
  for (const auto& item : module->named_buffers()) state.emplace(item.key(), item.value());
  ::flambeau::helper<void>("call", "save", state, path);
}
inline void load(std::shared_ptr<nn::Module>& module, const std::string& path) {
  auto state = ::flambeau::helper<std::unordered_map<std::string, at::Tensor>>("call", "load", path);
  NoGradGuard guard;
  for (auto items : {module->named_parameters(), module->named_buffers()})
    for (auto& item : items) {
      TORCH_CHECK(state.count(item.key()), "the file has no ", item.key());
      item.value().copy_(state.at(item.key()));
    }
}
template <class T> void save(const nn::ModuleHolder<T>& holder, const std::string& path) { save(std::shared_ptr<nn::Module>(holder.ptr()), path); }
template <class T> void load(nn::ModuleHolder<T>& holder, const std::string& path) {
  std::shared_ptr<nn::Module> module = holder.ptr();
  load(module, path);
}

}  // namespace torch
