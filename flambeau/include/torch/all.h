// The whole interface without Python's module macros.
#pragma once

#include <torch/script.h>

namespace torch {

namespace indexing = at::indexing;

namespace cuda {
inline bool is_available() { return ::flambeau::helper<bool>("call", "cuda.is_available"); }
inline size_t device_count() { return static_cast<size_t>(::flambeau::helper<int64_t>("call", "cuda.device_count")); }
inline void synchronize(int64_t = -1) { ::flambeau::helper<void>("call", "cuda.synchronize"); }
inline void manual_seed(uint64_t seed) { ::flambeau::helper<void>("call", "cuda.manual_seed", static_cast<int64_t>(seed)); }
}  // namespace cuda

template <class T> void save(const T& value, const std::string& path) { ::flambeau::helper<void>("call", "save", value, path); }
inline void load(at::Tensor& value, const std::string& path) { value = ::flambeau::helper<at::Tensor>("call", "load", path); }

constexpr auto Reduction_None = 0, Reduction_Mean = 1, Reduction_Sum = 2;

namespace nn::functional {
inline at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias = {}) { return at::linear(input, weight, bias); }
inline at::Tensor relu(const at::Tensor& input) { return at::relu(input); }
inline at::Tensor gelu(const at::Tensor& input) { return at::gelu(input); }
inline at::Tensor softmax(const at::Tensor& input, int64_t dim) { return at::softmax(input, dim); }
inline at::Tensor log_softmax(const at::Tensor& input, int64_t dim) { return at::log_softmax(input, dim); }
inline at::Tensor mse_loss(const at::Tensor& input, const at::Tensor& target) { return at::mse_loss(input, target); }
inline at::Tensor cross_entropy(const at::Tensor& input, const at::Tensor& target) { return at::cross_entropy_loss(input, target); }
}  // namespace nn::functional

}  // namespace torch
