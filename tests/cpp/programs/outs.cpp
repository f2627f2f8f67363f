// Results written into given tensors, and complex numbers, of which libtorch prints the real parts.
#include <torch/torch.h>

#include <iostream>
#include <limits>

int main() {
  auto b = torch::complex(torch::arange(6, torch::kFloat).reshape({2, 3}), torch::arange(6, torch::kFloat).reshape({2, 3}).neg());
  std::cout << torch::tensor({c10::complex<float>(1.5f, 2.0f), c10::complex<float>(-3.25f, 0.5f)}) << std::endl;
  std::cout << b << std::endl << b.to(torch::kComplexDouble) * 1234567.5 << std::endl;
  std::cout << torch::complex(torch::tensor(2.5), torch::tensor(-1.0)) << torch::zeros({0}, torch::kComplexFloat) << std::endl;
  auto out = torch::empty({3});
  at::add_out(out, torch::ones({3}), torch::ones({3}), 2);
  std::cout << out << std::endl;
  at::mul_outf(out, out, out);
  std::cout << out << std::endl;
  auto values = torch::empty({0}), places = torch::empty({0}, torch::kLong);
  at::topk_out(values, places, torch::arange(5, torch::kFloat), 2);
  std::cout << values << places << std::endl;
  auto options = torch::TensorOptions().dtype(torch::kInt).device(torch::kCPU);
  std::cout << torch::zeros({2}, options) << std::endl;
  auto bits = torch::tensor({0x5C, 0x21}, torch::kLong);
  std::cout << bits.__and__(0xF0).__rshift__(4) << bits.__lshift__(1) << bits.__xor__(bits) << bits << std::endl;
  bits.__ior__(3);
  std::cout << bits.__irshift__(1) << bits << std::endl;
}
