// Shader checks: one small call of every op, forward and backward, for the run in which the validation layer checks each access of
// a shader (NARROWS_VULKAN_VALIDATION=gpu), which takes lavapipe many times as long as the access. What it says is the call's
// error.
#include "calls.h"

namespace narrows::vulkan::test {
namespace {

TEST_CASE("shader checks: small calls of every op and variant", "[shader_checks]") {
  const Runtime rt;
  const Tensor run{kF32, {37}}, rows{kF32, {3, 21}}, transposed{kF32, {3, 21}, {1, 3}}, words{kI32, {37}}, halves{kF16, {37}};
  const Conv signal{1, 1, 41, 1, 3, {.pad_right = 2}}, dense{1, 9, 11, 9, 3, {}}, strided{1, 2, 11, 2, 2, {.stride = 3}};
  const Call calls[] = {elementwise(NW_EW_ADD, {run, run}, run),
                        elementwise(NW_EW_MUL, {transposed, {kF32, {21}}}, rows),
                        elementwise(NW_EW_CAST, {words}, halves),
                        elementwise(NW_EW_BITWISE_XOR, {words, words}, words),
                        elementwise_backward(NW_EW_MUL, {run, run}, run),
                        elementwise_backward(NW_EW_MUL, {{kF32, {3, 1}}, {kF32, {21}}}, rows),
                        conv1d(kF32, signal),
                        conv1d(kF16, dense),
                        conv1d_backward(kF32, signal),
                        conv1d_backward(kF32, dense),
                        conv1d_backward(kF16, strided),
                        lltm(kF32, 2, 3, 5),
                        lltm_backward(kF32, 2, 3, 5)};
  for (const Call& call : calls)
    for (const char* kernel : kernels(rt, call.op)) {
      Prepared prepared(rt, call, kernel);
      nw_error error{};
      int32_t status = prepared.run(&error);
      if (status == NW_OK) status = nw_stream_sync(rt.handle, on(0), nullptr, &error);
      INFO(call.op << ", " << (kernel ? kernel : "its own choice") << ": " << error.message);
      CHECK((status == NW_OK || (status == NW_UNSUPPORTED && kernel != nullptr)));
    }
}

}  // namespace
}  // namespace narrows::vulkan::test
