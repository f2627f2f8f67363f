#include <torch/torch.h>
#include <torch/library.h>
#include <torch/custom_class.h>
#include <vector>

at::Tensor twice(const at::Tensor& x) {
  TORCH_CHECK(x.dim() == 1, "expected a vector, but got ", x.dim(), " dimensions");
  return x * 2;
}
at::Tensor scaled_sum(at::TensorList xs, double scale, c10::optional<int64_t> shift) {
  at::Tensor total = torch::zeros_like(xs[0]);
  for (const auto& x : xs) total += x;
  return total * scale + shift.value_or(0);
}
std::tuple<at::Tensor, int64_t> split(const at::Tensor& x, at::IntArrayRef sizes, std::string mode, bool flag) {
  return {x.reshape(sizes), static_cast<int64_t>(mode.size()) + flag};
}
template <class T> void relu_kernel(const T* x, T* y, int64_t n) {
  at::parallel_for(0, n, 1024, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; i++) y[i] = x[i] > 0 ? x[i] : T(0);
  });
}
at::Tensor my_relu_cpu(const at::Tensor& x) {
  at::Tensor in = x.contiguous(), out = at::empty_like(in);
  AT_DISPATCH_FLOATING_TYPES(in.scalar_type(), "my_relu", [&] { relu_kernel(in.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), in.numel()); });
  return out;
}
at::Tensor my_relu_meta(const at::Tensor& x) { return at::empty_like(x); }
struct Relu : torch::autograd::Function<Relu> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, at::Tensor x) {
    ctx->save_for_backward({x});
    return my_relu_cpu(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx, torch::autograd::variable_list grads) {
    return {grads[0] * (ctx->get_saved_variables()[0] > 0)};
  }
};
at::Tensor my_relu_autograd(const at::Tensor& x) { return Relu::apply(x); }

struct Stack : torch::CustomClassHolder {
  std::vector<std::string> items;
  explicit Stack(std::vector<std::string> given) : items(std::move(given)) {}
  void push(std::string s) { items.push_back(std::move(s)); }
  std::string pop() {
    TORCH_CHECK_INDEX(!items.empty(), "the stack is empty");
    auto last = items.back();
    items.pop_back();
    return last;
  }
  c10::intrusive_ptr<Stack> clone() const { return c10::make_intrusive<Stack>(items); }
};
int64_t stack_size(const c10::intrusive_ptr<Stack>& stack) { return static_cast<int64_t>(stack->items.size()); }

TORCH_LIBRARY(shop, m) {
  m.def("twice(Tensor x) -> Tensor", &twice);
  m.def("scaled_sum(Tensor[] xs, float scale=1., int? shift=None) -> Tensor");
  m.def("split", split);
  m.def("my_relu(Tensor x) -> Tensor");
  m.def("stack_size(Any stack) -> int", stack_size);
  m.class_<Stack>("Stack")
      .def(torch::init<std::vector<std::string>>())
      .def("push", &Stack::push)
      .def("pop", &Stack::pop)
      .def("clone", &Stack::clone)
      .def("size", [](const c10::intrusive_ptr<Stack>& self) { return stack_size(self); })
      .def_pickle([](const c10::intrusive_ptr<Stack>& self) { return self->items; },
                  [](std::vector<std::string> items) { return c10::make_intrusive<Stack>(std::move(items)); });
}
TORCH_LIBRARY_IMPL(shop, CPU, m) {
  m.impl("scaled_sum", TORCH_FN(scaled_sum));
  m.impl("my_relu", my_relu_cpu);
}
TORCH_LIBRARY_IMPL(shop, Autograd, m) { m.impl("my_relu", my_relu_autograd); }
TORCH_LIBRARY_IMPL(shop, Meta, m) { m.impl("my_relu", my_relu_meta); }
TORCH_LIBRARY_FRAGMENT(shop, m) { m.def("half(Tensor x) -> Tensor", [](const at::Tensor& x) { return x / 2; }); }
static auto registry = torch::RegisterOperators("shop::older", &twice);
