#include <torch/torch.h>
#include <iostream>
using namespace torch::indexing;
#define P(x) std::cout << #x << ":\n" << (x) << std::endl
struct Square : torch::autograd::Function<Square> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, at::Tensor x, int64_t k) {
    ctx->save_for_backward({x});
    ctx->saved_data["k"] = k;
    return x * x * k;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx, torch::autograd::variable_list g) {
    auto x = ctx->get_saved_variables()[0];
    return {g[0] * 2 * x * ctx->saved_data["k"].toInt(), at::Tensor()};
  }
};
int main() {
  torch::manual_seed(3);
  P(torch::rand({2, 3}));
  P(torch::randn({3, 25}));
  P(torch::arange(60).reshape({3, 4, 5}));
  P(torch::arange(24, torch::kFloat).reshape({2, 3, 2, 2}) / 7);
  P(torch::tensor(3.5));
  P(torch::tensor(7));
  P(torch::tensor({1e10, 2.0, 3e-5}));
  P(torch::tensor({123456.789, 2.5}));
  P(torch::tensor({0.001, 0.0025}));
  P(torch::tensor({{1.5, 2.0}, {100000.25, 3.0}}));
  P(torch::tensor({int64_t(1000000000000), int64_t(3)}));
  P(torch::arange(120).reshape({2, 2, 30}));
  P(torch::arange(120).reshape({2, 2, 30}) * 0.001);
  P(torch::tensor({true, false}));
  P(torch::zeros({0}));
  P(torch::zeros({2, 0}));
  P(torch::zeros({2, 0, 3}));
  P(torch::tensor({1.0f, NAN, INFINITY}));
  P(torch::full({2, 2}, 1.5, torch::kHalf));
  P(torch::full({2}, -2.25, torch::kBFloat16));
  P(torch::full({2}, -2.25, torch::kDouble));
  P(torch::tensor({1, -200, 30}, torch::kInt));
  P(at::Tensor());
  auto x = torch::arange(6, torch::kFloat).reshape({2, 3}).requires_grad_();
  auto y = (x * x).sum();
  y.backward();
  P(x.grad());
  P(x.sizes()); P(x.strides()); P(x.scalar_type()); P(x.dtype()); P(x.device());
  P(std::get<0>(x.detach().max(1)));
  P(x.detach().index({Slice(), Slice(None, None, 2)}));
  P(x.detach().index({"...", 1}));
  P(x.detach().index({torch::tensor({1, 0})}));
  P(torch::einsum("ij,kj->ik", {x.detach(), x.detach()}));
  P(torch::cat({x.detach(), x.detach()}, 1).sum({0, 1}));
  P(torch::stack({x.detach(), x.detach()}).mean(0, true));
  P(std::get<1>(x.detach().topk(2)));
  auto z = torch::zeros({2, 2}); z[0][1] = 5; z += 1; z.index_put_({0, 0}, -3); P(z);
  P(torch::softmax(z, 1)); P(torch::conv2d(torch::ones({1,1,4,4}), torch::ones({1,1,3,3}), {}, 1, 1));
  auto w = torch::ones({3}, torch::requires_grad());
  auto s = Square::apply(w, 3); s.sum().backward(); P(w.grad());
  { torch::NoGradGuard g; P((w * 2).requires_grad()); }
  try { torch::ones({2}) + torch::ones({3}); } catch (const c10::Error& e) { std::cout << e.what_without_backtrace() << std::endl; }
  try { TORCH_CHECK(false, "bad ", 3); } catch (const c10::Error& e) { std::cout << e.what_without_backtrace() << std::endl; }
  AT_DISPATCH_FLOATING_TYPES(w.scalar_type(), "f", [&] { std::cout << sizeof(scalar_t) << std::endl; });
  P(torch::linspace(0, 1, 5)); P(torch::eye(3)); P(torch::tensor(2.0).item<double>());
  P((z > 0)); P(z.t()); P(z.view({4})); P(z.view(-1)); P(z.unsqueeze(0).sizes()); P(-z); P(2 - z); P(torch::where(z > 0, z, torch::zeros_like(z)));
  P(torch::nn::functional::relu(z)); P(torch::allclose(z, z)); P(z.options().dtype() == torch::kFloat32);
}
