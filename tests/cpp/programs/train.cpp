#include <torch/torch.h>
#include <iostream>
struct Net : torch::nn::Module {
  Net() {
    fc1 = register_module("fc1", torch::nn::Linear(4, 8));
    fc2 = register_module("fc2", torch::nn::Linear(torch::nn::LinearOptions(8, 1).bias(false)));
    scale = register_parameter("scale", torch::ones({1}));
  }
  torch::Tensor forward(torch::Tensor x) { return fc2(torch::relu(fc1->forward(x))) * scale; }
  torch::nn::Linear fc1{nullptr}, fc2{nullptr};
  torch::Tensor scale;
};
int main() {
  torch::manual_seed(1);
  auto net = std::make_shared<Net>();
  for (const auto& p : net->named_parameters()) std::cout << p.key() << " " << p.value().sizes() << "\n";
  auto x = torch::rand({16, 4}), y = x.sum(1, true);
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.5));
  double first = 0, last = 0;
  for (int i = 0; i < 40; i++) {
    sgd.zero_grad();
    auto loss = torch::mse_loss(net->forward(x), y);
    loss.backward();
    sgd.step();
    (i ? last : first) = loss.item<double>();
  }
  std::cout << std::setprecision(5) << first << " " << last << " " << (last < 0.2 * first ? "learned" : "did not learn") << "\n";
  torch::nn::Sequential s(torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 2, 3).padding(1)), torch::nn::ReLU(), torch::nn::Flatten(), torch::nn::Linear(32, 3));
  std::cout << s->forward(torch::ones({2, 1, 4, 4})).sizes() << " " << s->parameters().size() << "\n";
}
