// SPDX-License-Identifier: Apache-2.0
// lltm_model.h -- an LLTM with a linear read-out that predicts how the next frame differs from this one, and its training by
// truncated back-propagation through time. Every number of it is computed by the runtime's ops: lltm, lltm_backward, conv1d with
// one tap as the linear layer, elementwise for the rest.
#pragma once

#include "engine.h"
#include "reference.h"

namespace narrows::tools {

// Recordings side by side, padded with zeros to the longest. T steps, B rows, F features.
struct Sequences {
  int64_t steps = 0, rows = 0, features = 0;
  Tensor input;             // (T, B, F)
  Tensor target;            // (T, B, F): the next frame less this one
  Tensor weight;            // (T, B, 1): 1 where there is a frame and a next one, else 0
  int64_t predictions = 0;  // how many weights are 1
};

class LltmModel {
 public:
  struct Shape {
    int64_t features, states;
  };
  struct Rates {
    double learning_rate, momentum, decay;
  };

  // Weights uniform in +-1/sqrt(states); the read-out begins at 0, so that an untrained model predicts no change.
  LltmModel(const Engine& engine, Shape shape, uint32_t seed);

  // One pass over the sequences in pieces of `truncation` steps, with an update after each. Returns the mean squared error.
  double train(const Sequences& sequences, int64_t truncation, const Rates& rates);
  // The predicted changes, (T, B, F) on the host.
  std::vector<float> predict(const Sequences& sequences);

  // The operations that training is made of, each once: its results, what they are compared with, and its time.
  struct Timed {
    const char* op;
    std::string shapes;
    Chosen chosen;
    double seconds, flops;
  };
  struct CellCheck {
    LltmStep step;
    std::vector<float> new_h, new_cell, gates, grad_h, grad_cell, d_input, d_weights, d_bias, d_old_h, d_old_cell;
    std::vector<Timed> timed;
  };
  struct ReadOutCheck {
    int64_t rows;
    std::vector<float> grad_y, x, w, d_x, d_w, d_bias;
    std::vector<Timed> timed;
  };
  // On a step of `sequences` with the state that the steps before it lead to; gradients at random.
  CellCheck check_cell(const Sequences& sequences);
  // On `count` steps.
  ReadOutCheck check_read_out(const Sequences& sequences, int64_t count);

 private:
  struct Parameter {
    Tensor value, velocity, gradient;
  };
  // What a pass over sequences of a given size needs: states for every step, gradients for one.
  struct Buffers {
    int64_t steps = 0, rows = 0;
    Tensor h, cell, gates;              // (T+1, B, S), (T+1, B, S), (T, B, 3S)
    Tensor prediction;                  // (T, B, F)
    Tensor d_prediction, d_h;           // (T, B, F), (T, B, S)
    Tensor d_state[2], d_cell[2];       // (B, S): of this step and of the one after it, in turn
    Tensor d_weights, d_bias, squared;  // of one step; (T, B, F)
  };

  Parameter parameter(std::initializer_list<int64_t> shape, std::span<const float> values) const;
  void prepare(Buffers& buffers, const Sequences& sequences) const;
  void forward(const Buffers& buffers, const Sequences& sequences, int64_t begin, int64_t count) const;
  void backward(const Buffers& buffers, const Sequences& sequences, int64_t begin, int64_t count) const;
  void update(const Parameter& parameter, const Rates& rates) const;
  Timed timed(const Operation& operation, const std::string& shapes, double flops) const;
  Operation cell_operation(const Tensor& input, const Tensor& h, const Tensor& cell, const Tensor& new_h, const Tensor& new_cell,
                           const Tensor* gates) const;

  const Engine& engine_;
  Shape shape_;
  Parameter weights_, bias_, out_weights_, out_bias_;
  Buffers training_, predicting_;
};

}  // namespace narrows::tools
