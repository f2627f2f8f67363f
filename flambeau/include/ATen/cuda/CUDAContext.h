// For CUDA sources: the stream that Flambeau launches on, errors, and the current GPU. Needs the CUDA toolkit's headers.
#pragma once

#include <cuda_runtime_api.h>

#include <ATen/ATen.h>

#define C10_CUDA_CHECK(call)                                                                       \
  do {                                                                                             \
    const cudaError_t flambeau_error = (call);                                                     \
    TORCH_CHECK(flambeau_error == cudaSuccess, "CUDA error: ", cudaGetErrorString(flambeau_error)); \
  } while (0)
#define AT_CUDA_CHECK(call) C10_CUDA_CHECK(call)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())

namespace c10::cuda {

// A stream of Flambeau's; kernels that are launched on it run in order with its own.
class CUDAStream {
 public:
  explicit CUDAStream(cudaStream_t stream, DeviceIndex device) : stream_(stream), device_(device) {}
  operator cudaStream_t() const { return stream_; }
  cudaStream_t stream() const { return stream_; }
  DeviceIndex device_index() const { return device_; }
  Device device() const { return Device(kCUDA, device_); }
  void synchronize() const { C10_CUDA_CHECK(cudaStreamSynchronize(stream_)); }
  bool query() const { return cudaStreamQuery(stream_) == cudaSuccess; }

 private:
  cudaStream_t stream_;
  DeviceIndex device_;
};
inline DeviceIndex current_device() { return static_cast<DeviceIndex>(::flambeau::helper<int64_t>("call", "cuda.current_device")); }
inline CUDAStream getCurrentCUDAStream(DeviceIndex device = -1) {
  const DeviceIndex at = device < 0 ? current_device() : device;
  return CUDAStream(reinterpret_cast<cudaStream_t>(::flambeau::helper<int64_t>("cuda_stream", static_cast<int64_t>(at))), at);
}

// Makes a GPU the current one, for Flambeau and for CUDA, while it exists.
class CUDAGuard {
 public:
  explicit CUDAGuard(DeviceIndex device) : before_(current_device()) { set(device); }
  explicit CUDAGuard(Device device) : CUDAGuard(device.has_index() ? device.index() : current_device()) {}
  ~CUDAGuard() { set_quietly(before_); }
  CUDAGuard(const CUDAGuard&) = delete;
  void set_index(DeviceIndex device) { set(device); }

 private:
  static void set(DeviceIndex device) {
    ::flambeau::helper<void>("call", "cuda.set_device", static_cast<int64_t>(device));
    C10_CUDA_CHECK(cudaSetDevice(device));
  }
  static void set_quietly(DeviceIndex device) noexcept {
    try {
      set(device);
    } catch (const std::exception&) {  // a destructor throws nothing; the next call on that GPU says what is wrong
    }
  }
  DeviceIndex before_;
};
class OptionalCUDAGuard {
 public:
  OptionalCUDAGuard() = default;
  template <class D> explicit OptionalCUDAGuard(D device) : guard_(std::make_unique<CUDAGuard>(device)) {}
  template <class D> explicit OptionalCUDAGuard(optional<D> device) {
    if (device) guard_ = std::make_unique<CUDAGuard>(*device);
  }

 private:
  std::unique_ptr<CUDAGuard> guard_;
};

}  // namespace c10::cuda

namespace at::cuda {
using c10::cuda::CUDAGuard;
using c10::cuda::CUDAStream;
using c10::cuda::getCurrentCUDAStream;
using c10::cuda::OptionalCUDAGuard;
inline bool is_available() { return ::flambeau::helper<bool>("call", "cuda.is_available"); }
}  // namespace at::cuda
