// SPDX-License-Identifier: Apache-2.0
// program.cpp -- see program.h.
#include "program/program.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/program_bind.h"
#include "core/error.h"
#include "core/program/text.h"
#include "ops/tasks.h"
#include "program/c_source.h"
#include "program/compile.h"
#include "program/cost.h"
#include "program/functions.h"
#include "program/interpreter.h"
#include "program/memory.h"

namespace narrows::cpu {

const char* const kProgramKernels[] = {"compiled", "interpreter", nullptr};

namespace {

enum Variant { kCompiled, kInterpreter };

int64_t bits_of_double(double value) {
  int64_t out = 0;
  std::memcpy(&out, &value, sizeof(out));
  return out;
}

double bytes_of_tensors(const Bound& bound) {
  double out = 0;
  for (const auto& [name, buffer] : bound.buffers)
    if (buffer.present && (buffer.input >= 0 || buffer.output >= 0))
      out += static_cast<double>(buffer.elements()) * static_cast<double>(bytes_of(buffer.buffer->dtype));
  return out;
}

int64_t number_for(const CNumber& number, const Instance& instance, const Bound& bound) {
  switch (number.kind) {
    case CNumber::Kind::size: return bound.numbers.at(number.name);
    case CNumber::Kind::stride: return bound.buffers.at(number.name).strides[number.dimension];
    case CNumber::Kind::kept: return bytes_of_tensors(bound) > kBytesWorthStreaming ? 0 : 1;
    case CNumber::Kind::cost: return bits_of_double(cost_of(number.loop->body, bound.numbers));
    case CNumber::Kind::param: {
      for (const ir::Param& param : bound.lowered->program.params) {
        if (param.name != number.name) continue;
        int64_t out = 0;
        std::memcpy(&out, param_scalar(instance, param.dtype, bound.params.at(param.name)).bytes, sizeof(out));
        return out;
      }
    }
  }
  refuse(NW_FAILED, -1, "the program has no '%s'", number.name.c_str());
}

class CompiledPlan : public Plan {
 public:
  CompiledPlan(const Instance& instance, const Bound& bound, const Programs::Compiled& compiled)
      : instance_(instance), object_(compiled.object), is_empty_(bound.is_empty),
        memory_(instance, bound, compiled.source->buffers, frame_bytes(compiled.source->buffers.size())) {
    const CSource& source = *compiled.source;
    for (const CNumber& number : source.numbers) numbers_.push_back(number_for(number, instance, bound));
    for (const CFunction& f : source.functions) {
      const Kernel kernel_of =
          f.function.empty() ? conversion_kernel(instance, f.from, f.to) : function_kernel(instance, f.function, f.from);
      functions_.push_back(reinterpret_cast<const void*>(kernel_of));
    }
    if (object_ != nullptr) entry_ = reinterpret_cast<CEntry>(object_->symbol(kCEntry));
    if (object_ != nullptr && entry_ == nullptr) refuse(NW_FAILED, -1, "the compiled program has no function %s", kCEntry);
    workspace_size = memory_.workspace_size();
    kernel = kProgramKernels[kCompiled];
  }

  void launch(const nw_call& call) const override {
    if (is_empty_) return;
    char* few[kFewBuffers];
    char** const base = memory_.num_buffers() <= kFewBuffers ? few : reinterpret_cast<char**>(memory_.frame(call, -1));
    memory_.begin(call, base);
    Context context{this, &call};
    const CServices services{&context, run_parallel, enter, call_function, functions_.data()};
    entry_(base, numbers_.data(), &services);
  }

 private:
  struct Context {
    const CompiledPlan* plan;
    const nw_call* call;
  };

  // Few bases stand on the stack: then a program without allocations needs no workspace.
  static constexpr size_t kFewBuffers = 48;
  static uint64_t frame_bytes(size_t buffers) { return buffers <= kFewBuffers ? 0 : buffers * sizeof(char*); }

  static void run_parallel(void* context, int64_t n, double cost, void (*body)(void*, int64_t, int64_t, int64_t), void* arg) {
    const CompiledPlan& plan = *static_cast<Context*>(context)->plan;
    if (n > 0) run_tasks(plan.instance_, n, cost, [&](int64_t slot, int64_t begin, int64_t end) { body(arg, slot, begin, end); });
  }
  static void enter(void* context, int64_t slot, char** base) {
    const Context& here = *static_cast<Context*>(context);
    here.plan->memory_.enter(*here.call, slot, base);
  }
  static void call_function(const void* function, const void* a, const void* b, const void* c, void* out, int64_t n, double alpha) {
    Run run;
    run.in[0] = a;
    run.in[1] = b;
    run.in[2] = c;
    run.out = out;
    run.n = n;
    run.alpha = alpha;
    reinterpret_cast<Kernel>(const_cast<void*>(function))(run);
  }

  const Instance& instance_;
  const std::shared_ptr<const CObject> object_;  // nullptr: the plan is only asked for
  const bool is_empty_;
  const Memory memory_;
  std::vector<int64_t> numbers_;
  std::vector<const void*> functions_;
  CEntry entry_ = nullptr;
};

std::vector<std::string> object_flags(const Instance& instance, const CSource& source) {
  std::vector<std::string> out = {"-x", "c", "-shared", "-nostdlib"};
  for (const std::vector<std::string>& more : {c_flags(source.contracts), c_machine_flags(instance)})
    out.insert(out.end(), more.begin(), more.end());
#ifdef NARROWS_SANITIZE
  out.insert(out.end(), {"-fsanitize=" NARROWS_SANITIZE, "-fno-sanitize-recover=all", "-g1"});
#endif
  return out;
}

// All that a source depends on beside the program: see print_c().
std::string layout_of(const Bound& bound) {
  std::string out;
  for (const auto& [name, buffer] : bound.buffers) {
    out += buffer.present ? buffer.is_dense() ? 'd' : 's' : '-';
    for (const int64_t stride : buffer.strides) out += stride == 1 ? '1' : 'n';
  }
  return out;
}

void check_threads(const std::vector<Node>& body) {
  for (const Node& node : body) {
    if (node.kind != Node::Kind::loop) continue;
    if (node.loop_kind == ir::For::Kind::bind && node.thread.rfind("block", 0) != 0)
      refuse(NW_UNSUPPORTED, -1, "loop '%s' is bound to %s; the cpu backend has no such threads", node.name.c_str(),
             node.thread.c_str());
    check_threads(node.body);
  }
}

}  // namespace

Lowered lowered_text(std::string_view text) {
  Lowered out = lower(ir::parse(text));
  check_threads(out.body);
  return out;
}

CTarget c_target(const Instance& instance) {
  const std::string_view target = instance.target;
  if (target == "amx" || target.starts_with("avx512")) return {64, true, true};
  if (target == "avx2") return {32, true, true};
  return {16, target == "neon", target == "neon" || target == "sse4"};
}

std::vector<std::string> c_flags(bool contracts) {
  return {"-std=gnu11",
          "-O2",
          "-fPIC",
          "-w",
          "-fvisibility=hidden",
          "-fwrapv",
          "-fno-strict-aliasing",
          "-fno-math-errno",
          "-fno-trapping-math",
          "-fno-stack-protector",
          contracts ? "-ffp-contract=fast" : "-ffp-contract=off"};
}

// Never what the compiler would take for itself: the kernels' target may be below the machine's.
std::vector<std::string> c_machine_flags(const Instance& instance) {
  const std::string_view target = instance.target;
  if (target == "amx" || target.starts_with("avx512")) return {"-march=x86-64-v4"};
  if (target == "avx2") return {"-march=x86-64-v3"};
  if (target == "sse4") return {"-march=x86-64-v2"};
  return {};
}

std::shared_ptr<Programs::Known> Programs::read(std::string_view text) {
  const auto key = std::string_view(text);
  {
    const std::lock_guard hold(programs_lock());
    if (std::shared_ptr<Known> found = known_.find(key); found != nullptr) return found;
  }
  auto known = std::make_shared<Known>();
  known->lowered = lowered_text(text);
  known->direct = without_copies(known->lowered);
  std::shared_ptr<Known> dropped;  // freed without the lock
  const std::lock_guard hold(programs_lock());
  dropped = known_.keep(key, known);
  return known;
}

Programs::Compiled Programs::compile(const Instance& instance, Known* known, const Bound& bound, bool asks) {
  const std::string layout = layout_of(bound) + (bound.lowered == &known->lowered ? "" : "!");
  Compiled out;
  {
    const std::lock_guard hold(programs_lock());
    if (const auto found = known->compiled.find(layout); found != known->compiled.end())
      out = {found->second.source, found->second.object.lock()};
  }
  if (out.source != nullptr && (asks || out.object != nullptr)) return out;
  if (out.source == nullptr) out.source = std::make_shared<const CSource>(print_c(bound, c_target(instance)));
  if (!asks) out.object = compiler_.build(out.source->text, object_flags(instance, *out.source));
  const std::lock_guard hold(programs_lock());
  known->compiled[layout] = {out.source, out.object};
  return out;
}

bool fuses(const Instance& instance) { return c_target(instance).fuses; }

std::unique_ptr<Plan> plan_program(const Instance& instance, std::string_view text, const nw_sig& sig, bool asks) {
  try {
    const int forced = forced_kernel(sig, kProgramKernels);
    const std::shared_ptr<Programs::Known> known = instance.programs->read(text);
    Bound bound = bind(known->lowered, sig);
    if (forced == kInterpreter || (forced < 0 && !CCompiler::is_present())) return plan_interpreter(instance, bound);
    if (known->direct.has_value() && is_small_without_copies(*known->direct, bound)) bound = bind(known->direct->lowered, sig);
    return std::make_unique<CompiledPlan>(instance, bound,
                                          instance.programs->compile(instance, known.get(), bound, asks || bound.is_empty));
  } catch (const Failure& failure) {
    throw Refusal{failure.status, failure.argument, failure.message, failure.native_code};
  }
}

}  // namespace narrows::cpu
