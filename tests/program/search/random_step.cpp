// SPDX-License-Identifier: Apache-2.0
// random_step.cpp -- see random_step.h.
#include "random_step.h"

#include <set>

#include "core/program/walk.h"

namespace narrows::search {
namespace {

using program::Buffer;

class StepMaker {
 public:
  StepMaker(Random& random, const program::Schedule& schedule, bool for_gpu)
      : random_(random), schedule_(schedule), blocks_(schedule.blocks()), for_gpu_(for_gpu) {}

  std::string run() {
    block_ = random_.pick(blocks_);
    if (is_product() && random_.chance(20)) return tensorize();
    if (for_gpu_ && random_.chance(33)) return step_for_gpu();
    switch (random_.integer(0, 23)) {
      case 0:
      case 1:
      case 2: return "split(loop=" + loop() + ", factors=" + factors() + ")";
      case 3: return "fuse(loops=" + neighbours(2) + ")";
      case 4:
      case 5: return "reorder(loops=" + shuffled() + ")";
      case 6: return "parallel(loop=" + loop() + ")";
      case 7: return "vectorize(loop=" + loop() + ")";
      case 8: return "unroll(loop=" + loop() + ")";
      case 9: return bind();
      case 10:
      case 11: return "compute_at(block=" + quoted(block_) + ", loop=" + foreign_loop() + ")";
      case 12:
      case 13: return "reverse_compute_at(block=" + quoted(block_) + ", loop=" + foreign_loop() + ")";
      case 14: return "compute_inline(block=" + quoted(block_) + ")";
      case 15: return "reverse_compute_inline(block=" + quoted(block_) + ")";
      case 16: return "decompose_reduction(block=" + quoted(block_) + ", loop=" + loop() + ")";
      case 17: return "rfactor(loop=" + loop() + ", axis=" + std::to_string(random_.integer(-2, 1)) + ")";
      case 18: return cache();
      case 19: return pad();
      case 20: return pipeline();
      case 21: return is_product() || random_.chance(10) ? tensorize() : pipeline();
      case 22: return annotate();
      default: return memory();
    }
  }

 private:
  static std::string quoted(const std::string& name) { return "\"" + name + "\""; }
  static std::string listed(const std::vector<std::string>& names) {
    std::string out;
    for (const std::string& name : names) out += (out.empty() ? "" : ", ") + quoted(name);
    return "[" + out + "]";
  }

  std::string loop_of(const std::string& block) {
    const std::vector<std::string> loops = schedule_.loops(block);
    return quoted(loops.empty() ? "none" : random_.pick(loops));
  }
  std::string loop() { return loop_of(block_); }
  std::string foreign_loop() { return loop_of(random_.chance(90) ? other_block() : block_); }
  const std::string& other_block() {
    for (int i = 0; i < 8; ++i)
      if (const std::string& found = random_.pick(blocks_); found != block_) return found;
    return block_;
  }

  std::string bind() { return "bind(loop=" + loop() + ", thread=\"" + random_.pick(kThreads) + "\")"; }
  std::string step_for_gpu() {
    const std::vector<Buffer>& all = schedule_.program().allocations;
    switch (random_.integer(0, 5)) {
      case 0: return cache();
      case 1: return scope(all.empty() ? "A" : random_.pick(all).name);
      default: return bind();
    }
  }
  std::string scope(const std::string& allocation) {
    return "set_scope(buffer=" + quoted(allocation) + ", scope=" + (random_.chance(50) ? "\"local\")" : "\"shared\")");
  }

  std::string factors() {
    const auto number = [&] { return std::to_string(random_.integer(1, 5)); };
    switch (random_.integer(0, 3)) {
      case 0: return "[" + number() + ", None]";
      case 1: return "[" + number() + ", " + number() + "]";
      case 2: return "[None, " + number() + ", " + number() + "]";
      default: return "[None, " + number() + "]";
    }
  }

  std::string neighbours(size_t count) {
    const std::vector<std::string> loops = schedule_.loops(block_);
    if (loops.size() < count) return listed(loops);
    const auto first = static_cast<size_t>(random_.integer(0, static_cast<int64_t>(loops.size() - count)));
    return listed({loops.begin() + static_cast<int64_t>(first), loops.begin() + static_cast<int64_t>(first + count)});
  }

  std::string shuffled() {
    std::vector<std::string> loops = schedule_.loops(block_);
    for (size_t i = loops.size(); i > 1; --i)
      std::swap(loops[i - 1], loops[static_cast<size_t>(random_.integer(0, static_cast<int64_t>(i) - 1))]);
    while (loops.size() > 2 && random_.chance(40)) loops.pop_back();
    return listed(loops);
  }

  // Mostly what the block reads or writes, so that the step has a meaning.
  std::string buffer(bool is_read) {
    std::vector<std::string> own, all;
    program::for_each_block(schedule_.program(), [&](const program::Block& block, const program::Loops&) {
      std::vector<std::string>& list = block.name == block_ ? own : all;
      if (is_read)
        program::for_each_load(block, [&](const program::Expr& load) { list.push_back(load.name); });
      else
        for (const program::Store& store : block.body) list.push_back(store.buffer);
    });
    const std::vector<std::string>& chosen = own.empty() || (random_.chance(10) && !all.empty()) ? all : own;
    return chosen.empty() ? "none" : random_.pick(chosen);
  }

  std::string annotate() {
    const std::string what = random_.chance(50) ? "block=" + quoted(block_) : "loop=" + loop();
    return "annotate(" + what + ", key=\"" + (random_.chance(50) ? "contract" : "note") + "\", value=\"true\")";
  }

  // Mostly other blocks that read the buffer, which then read the copy, too.
  std::string consumers(const std::string& buffer) {
    std::vector<std::string> readers;
    program::for_each_block(schedule_.program(), [&](const program::Block& block, const program::Loops&) {
      bool is_reader = false;
      program::for_each_load(block, [&](const program::Expr& load) { is_reader = is_reader || load.name == buffer; });
      if (is_reader && block.name != block_) readers.push_back(block.name);
    });
    if (random_.chance(10)) readers.push_back(random_.pick(blocks_));
    if (readers.empty()) return "";
    while (readers.size() > 1 && random_.chance(40)) readers.pop_back();
    return ", consumers=" + listed(readers);
  }

  std::string cache() {
    const bool is_read = random_.chance(50);
    const std::string chosen = buffer(is_read);
    return "cache_" + std::string(is_read ? "read" : "write") + "(block=" + quoted(block_) + ", buffer=" + quoted(chosen) +
           (is_read && random_.chance(25) ? consumers(chosen) : "") +
           (random_.chance(30)               ? ", scope=\"local\")"
            : for_gpu_ && random_.chance(60) ? ", scope=\"shared\")"
                                             : ")");
  }

  std::string pad() {
    const std::vector<Buffer>& all = schedule_.program().allocations;
    const std::string name = all.empty() || random_.chance(5) ? "A" : random_.pick(all).name;
    return "pad(buffer=" + quoted(name) + ", axis=" + std::to_string(random_.integer(0, random_.chance(80) ? 1 : 2)) +
           ", elements=" + std::to_string(random_.integer(0, 3)) + ")";
  }

  // Of a loop whose body has several statements, of which the first is a copy; where there is none, a step towards it.
  std::string pipeline() {
    std::set<std::string> found;
    std::vector<const program::Block*> copies;
    program::for_each_block(schedule_.program(), [&](const program::Block& block, const program::Loops& loops) {
      if (block.body[0].value->kind != program::Expr::Kind::load) return;
      copies.push_back(&block);
      for (const auto& loop : loops)
        if (loop->body.size() > 1 && block.name == first_block(*loop).name) found.insert(loop->name);
    });
    if (found.empty() && random_.chance(80)) return copies.empty() ? cache() : copy_at(*random_.pick(copies));
    const std::string chosen = found.empty() ? loop() : quoted(random_.pick(std::vector<std::string>(found.begin(), found.end())));
    return "pipeline(loop=" + chosen + ", stages=" + std::to_string(random_.integer(2, 4)) + ")";
  }

  std::string copy_at(const program::Block& copy) {
    std::vector<std::string> readers;
    program::for_each_block(schedule_.program(), [&](const program::Block& block, const program::Loops&) {
      program::for_each_load(block, [&](const program::Expr& load) {
        if (load.name == copy.body[0].buffer) readers.push_back(block.name);
      });
    });
    return "compute_at(block=" + quoted(copy.name) + ", loop=" + loop_of(readers.empty() ? copy.name : random_.pick(readers)) + ")";
  }

  static const program::Block& first_block(const program::For& loop) {
    const auto* const inner = std::get_if<std::shared_ptr<const program::For>>(&loop.body[0]);
    return inner != nullptr ? first_block(**inner) : *std::get<std::shared_ptr<const program::Block>>(loop.body[0]);
  }

  program::DType factor_dtype() const { return schedule_.program().tensors[0].dtype; }
  bool is_product() const { return factor_dtype() != program::DType::f32 && factor_dtype() != program::DType::i32; }
  std::string tensorize() { return "tensorize(loop=" + product_loop() + ", intrinsic=\"" + intrinsic() + "\")"; }

  // Mostly the outermost of as many innermost ones as a product has.
  std::string product_loop() {
    const std::vector<std::string> loops = schedule_.loops(block_);
    const size_t count = factor_dtype() == program::DType::i8 ? 1 : 3;
    return loops.size() < count || random_.chance(40) ? loop() : quoted(loops[loops.size() - count]);
  }

  // Mostly one whose factors the block reads.
  std::string intrinsic() {
    static const std::vector<std::string> kAll = {"mma.f16.f32", "mma.bf16.f32", "dot.i8.i32"};
    if (random_.chance(10)) return random_.pick(kAll);
    return kAll[factor_dtype() == program::DType::i8 ? 2 : factor_dtype() == program::DType::bf16 ? 1 : 0];
  }

  std::string memory() {
    const std::vector<Buffer>& all = schedule_.program().allocations;
    if (all.empty()) return "set_scope(buffer=\"A\", scope=\"local\")";
    const Buffer& chosen = random_.pick(all);
    if (random_.chance(30)) return scope(chosen.name);
    static const std::vector<std::string> kOne = {"i -> i // 2, i % 2", "i -> i % 3, i // 3", "i -> i + 1", "i -> 0, i",
                                                  "i -> i // 2"};
    static const std::vector<std::string> kTwo = {"i, j -> j, i", "i, j -> i, j // 2, j % 2", "i, j -> i + j, j",
                                                  "i, j -> i // 2, j, i % 2", "i, j -> i + j"};
    return "transform_layout(buffer=" + quoted(chosen.name) +
           ", map=" + quoted(random_.pick(chosen.shape.size() == 1 ? kOne : kTwo)) + ")";
  }

  static inline const std::vector<std::string> kThreads = {"block.x", "block.y", "thread.x", "thread.y"};
  Random& random_;
  const program::Schedule& schedule_;
  std::vector<std::string> blocks_;
  std::string block_;
  const bool for_gpu_;
};

}  // namespace

std::string random_step(Random& random, const program::Schedule& schedule, bool for_gpu) {
  return StepMaker(random, schedule, for_gpu).run();
}

}  // namespace narrows::search
