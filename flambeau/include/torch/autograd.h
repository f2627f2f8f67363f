// Gradients: torch::autograd::Function, backward, grad.
#pragma once

#include <torch/ivalue.h>

namespace torch {
using Variable = at::Tensor;
using at::AutoGradMode;
using at::NoGradGuard;
using variable_list = std::vector<at::Tensor>;

namespace autograd {
using Variable = at::Tensor;
using variable_list = std::vector<at::Tensor>;
using edge_list = variable_list;

inline void backward(const variable_list& tensors, const variable_list& gradients = {}, optional<bool> retain = nullopt, bool create = false,
                     const variable_list& inputs = {}) {
  ::flambeau::helper<void>("backward_all", tensors, gradients, retain, create, inputs);
}
inline variable_list grad(const variable_list& outputs, const variable_list& inputs, const variable_list& gradients = {},
                          optional<bool> retain = nullopt, bool create = false, bool allow_unused = false) {
  return ::flambeau::helper<variable_list>("grad", outputs, inputs, gradients, retain, create, allow_unused);
}

// What the forward of a Function leaves for its backward.
class AutogradContext {
 public:
  using Data = std::unordered_map<std::string, at::IValue>;
  explicit AutogradContext(::flambeau::Object context, std::shared_ptr<Data> data)
      : saved_data(*data), context_(std::move(context)), data_(std::move(data)) {}
  Data& saved_data;
  void save_for_backward(const variable_list& tensors) { ::flambeau::helper<void>("save_for_backward", context_, tensors); }
  variable_list get_saved_variables() const {
    ::flambeau::Gil gil;
    return ::flambeau::taken<variable_list>(PyObject_GetAttrString(context_.get(), "saved_tensors"));
  }
  void mark_dirty(const variable_list& tensors) { ::flambeau::helper<void>("mark", context_, "dirty", tensors); }
  void mark_non_differentiable(const variable_list& tensors) { ::flambeau::helper<void>("mark", context_, "non_differentiable", tensors); }
  void set_materialize_grads(bool value) { ::flambeau::helper<void>("set_materialize_grads", context_, value); }
  bool needs_input_grad(size_t i) const {
    ::flambeau::Gil gil;
    auto needs = ::flambeau::taken<std::vector<bool>>(PyObject_GetAttrString(context_.get(), "needs_input_grad"));
    return i + 2 < needs.size() && needs[i + 2];  // after the two C++ functions
  }

 private:
  ::flambeau::Object context_;
  std::shared_ptr<Data> data_;
};

template <class T> struct Function {
  // Calls T::forward(ctx, arguments...), recording T::backward(ctx, gradients) where an argument requires grad.
  template <class X = T, class... A> static auto apply(A&&... arguments) {
    using R = decltype(X::forward(nullptr, arguments...));
    auto held = std::make_shared<std::tuple<std::decay_t<A>...>>(std::forward<A>(arguments)...);
    auto data = std::make_shared<AutogradContext::Data>();
    variable_list tensors;
    std::vector<int> place;  // of each argument's tensors in the list that autograd sees
    std::apply([&](auto&... one) { (collect(one, tensors, place), ...); }, *held);
    ::flambeau::Object run = ::flambeau::callable([held, data](PyObject* const* values, Py_ssize_t) {
      AutogradContext context(::flambeau::Object::borrowed(values[0]), data);
      return ::flambeau::to_py(std::apply([&](auto&... one) { return X::forward(&context, one...); }, *held));
    });
    ::flambeau::Object back = ::flambeau::callable([data, place](PyObject* const* values, Py_ssize_t count) {
      AutogradContext context(::flambeau::Object::borrowed(values[0]), data);
      variable_list grads;
      for (Py_ssize_t i = 1; i < count; i++) grads.push_back(::flambeau::from_py<at::Tensor>(values[i]));
      const variable_list found = X::backward(&context, std::move(grads));
      variable_list kept;
      for (size_t i = 0, k = 0; i < place.size(); i++) {
        if (place[i] < 0) {
          k++;  // no tensor: its gradient is undefined
          continue;
        }
        TORCH_CHECK(k < found.size(), "function returned an incorrect number of gradients (expected ", place.size(), ", got ", found.size(), ")");
        kept.push_back(found[k++]);
      }
      return ::flambeau::to_py(kept);
    });
    const auto result = ::flambeau::helper("apply", ::flambeau::type_name(typeid(X)), run, back, tensors);
    ::flambeau::Gil gil;
    return ::flambeau::from_py<R>(result.get());
  }

 private:
  static void collect(const at::Tensor& t, variable_list& tensors, std::vector<int>& place) {
    place.push_back(static_cast<int>(tensors.size()));
    tensors.push_back(t);
  }
  static void collect(const optional<at::Tensor>& t, variable_list& tensors, std::vector<int>& place) {
    collect(t.value_or(at::Tensor()), tensors, place);
  }
  static void collect(const variable_list& list, variable_list& tensors, std::vector<int>& place) {
    for (const auto& t : list) collect(t, tensors, place);
  }
  template <class U> static void collect(const U&, variable_list&, std::vector<int>& place) { place.push_back(-1); }
};
}  // namespace autograd
}  // namespace torch
