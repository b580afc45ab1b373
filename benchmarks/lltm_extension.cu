// SPDX-License-Identifier: Apache-2.0
// lltm_extension.cu -- the LLTM cell as a torch extension of the kind that PyTorch's tutorial on C++ and CUDA extensions teaches:
// torch's own products, and one pointwise kernel each way. gpu_lltm.py --eager compiles it (torch.utils.cpp_extension) to measure
// beside it.
#include <torch/extension.h>

#include <vector>

namespace {

constexpr int kThreads = 256;

template <class T>
__device__ T sigmoid(T x) {
  return T(1) / (T(1) + exp(-x));
}

// A thread is one cell: gates is (batch, 3, state), of which it reads its three and leaves them activated in `activated`.
template <class T>
__global__ void forward_kernel(const T* gates, const T* old_cell, T* new_h, T* new_cell, T* activated, int64_t cells,
                               int64_t state) {
  const int64_t cell = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (cell >= cells) return;
  const int64_t first = cell / state * 3 * state + cell % state;
  const T in = sigmoid(gates[first]), out = sigmoid(gates[first + state]), raw = gates[first + 2 * state];
  const T candidate = raw > T(0) ? raw : exp(raw) - T(1);
  const T next = old_cell[cell] + candidate * in;
  activated[first] = in, activated[first + state] = out, activated[first + 2 * state] = candidate;
  new_cell[cell] = next;
  new_h[cell] = tanh(next) * out;
}

template <class T>
__global__ void backward_kernel(const T* grad_h, const T* grad_cell, const T* new_cell, const T* activated, T* d_gates,
                                T* d_old_cell, int64_t cells, int64_t state) {
  const int64_t cell = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (cell >= cells) return;
  const int64_t first = cell / state * 3 * state + cell % state;
  const T in = activated[first], out = activated[first + state], candidate = activated[first + 2 * state];
  const T bent = tanh(new_cell[cell]);
  const T d_cell = grad_cell[cell] + grad_h[cell] * out * (T(1) - bent * bent);
  d_gates[first] = d_cell * candidate * in * (T(1) - in);
  d_gates[first + state] = grad_h[cell] * bent * out * (T(1) - out);
  d_gates[first + 2 * state] = d_cell * in * (candidate > T(0) ? T(1) : candidate + T(1));
  d_old_cell[cell] = d_cell;
}

int blocks_of(int64_t cells) { return static_cast<int>((cells + kThreads - 1) / kThreads); }

// new_h, new_cell, and what backward reads: the activated gates and the stacked input.
std::vector<torch::Tensor> forward(torch::Tensor input, torch::Tensor weights, torch::Tensor bias, torch::Tensor old_h,
                                   torch::Tensor old_cell) {
  const auto stacked = torch::cat({old_h, input}, 1);
  const auto gates = torch::addmm(bias, stacked, weights.t());
  auto new_h = torch::empty_like(old_cell), new_cell = torch::empty_like(old_cell), activated = torch::empty_like(gates);
  const int64_t cells = old_cell.numel(), state = old_cell.size(1);
  AT_DISPATCH_FLOATING_TYPES(gates.scalar_type(), "lltm_forward", [&] {
    forward_kernel<scalar_t><<<blocks_of(cells), kThreads>>>(gates.data_ptr<scalar_t>(), old_cell.data_ptr<scalar_t>(),
                                                             new_h.data_ptr<scalar_t>(), new_cell.data_ptr<scalar_t>(),
                                                             activated.data_ptr<scalar_t>(), cells, state);
  });
  return {new_h, new_cell, activated, stacked};
}

// The gradients of input, weights, bias, old_h, old_cell.
std::vector<torch::Tensor> backward(torch::Tensor grad_h, torch::Tensor grad_cell, torch::Tensor new_cell, torch::Tensor activated,
                                    torch::Tensor stacked, torch::Tensor weights) {
  auto d_gates = torch::empty_like(activated), d_old_cell = torch::empty_like(new_cell);
  const int64_t cells = new_cell.numel(), state = new_cell.size(1);
  AT_DISPATCH_FLOATING_TYPES(activated.scalar_type(), "lltm_backward", [&] {
    backward_kernel<scalar_t><<<blocks_of(cells), kThreads>>>(
        grad_h.data_ptr<scalar_t>(), grad_cell.data_ptr<scalar_t>(), new_cell.data_ptr<scalar_t>(), activated.data_ptr<scalar_t>(),
        d_gates.data_ptr<scalar_t>(), d_old_cell.data_ptr<scalar_t>(), cells, state);
  });
  const auto d_weights = d_gates.t().mm(stacked), d_bias = d_gates.sum(0), d_stacked = d_gates.mm(weights);
  return {d_stacked.slice(1, state), d_weights, d_bias, d_stacked.slice(1, 0, state), d_old_cell};
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("forward", &forward);
  m.def("backward", &backward);
}
