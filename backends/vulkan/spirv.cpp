// SPDX-License-Identifier: Apache-2.0
// spirv.cpp -- see spirv.h.
#include "spirv.h"

#define SPV_ENABLE_UTILITY_CODE  // which instructions have a result
#include <spirv/unified1/spirv.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string_view>

namespace narrows::vulkan {
namespace {

constexpr size_t kHeader = 5;  // words before the first instruction

// The words of an instruction and their number; the first holds both the number and the opcode.
struct Instruction {
  const uint32_t* words;
  uint32_t count;
  uint32_t opcode() const { return words[0] & 0xffff; }
  uint32_t operator[](uint32_t i) const { return words[i]; }
  // The id that it defines; 0: none.
  uint32_t result() const {
    bool has_result = false, has_type = false;
    SpvHasResultAndType(static_cast<SpvOp>(opcode()), &has_result, &has_type);
    return has_result ? words[has_type ? 2 : 1] : 0;
  }
};

std::vector<Instruction> instructions_of(const Shader& shader) {
  std::vector<Instruction> list;
  for (size_t i = kHeader; i < shader.size / sizeof(uint32_t); i += list.back().count)
    list.push_back({shader.words + i, shader.words[i] >> 16});
  return list;
}

// ---- what can be reached ----

// Marks the instructions of a module that can be reached once the specialization constants are known.
class Reach {
 public:
  Reach(const std::vector<Instruction>& list, const std::vector<uint32_t>& constants);
  bool keeps(size_t i) const { return kept_[i]; }
  bool is_defined(uint32_t id) const { return defined_.count(id) != 0; }
  // Whether control may go from one block to another.
  bool has_edge(uint32_t from, uint32_t to) const { return edges_.count({from, to}) != 0; }
  // The only label that a switch goes to; 0: it is none over a specialization constant.
  uint32_t target(const Instruction& i) const;

 private:
  void visit_function(size_t begin);
  void visit_block(uint32_t label);
  void go(uint32_t from, uint32_t to);

  const std::vector<Instruction>& list_;
  std::vector<bool> kept_;
  std::map<uint32_t, uint32_t> values_;       // of specialization constants, by id
  std::map<uint32_t, size_t> starts_;         // of functions and blocks, by id
  std::vector<uint32_t> functions_, blocks_;  // still to be visited
  std::set<std::pair<uint32_t, uint32_t>> edges_;
  std::set<uint32_t> defined_;
};

Reach::Reach(const std::vector<Instruction>& list, const std::vector<uint32_t>& constants) : list_(list), kept_(list.size()) {
  bool in_functions = false;
  for (size_t n = 0; n < list.size(); ++n) {
    const Instruction& i = list[n];
    const uint32_t op = i.opcode();
    if (op == SpvOpEntryPoint) functions_.push_back(i[2]);
    if (op == SpvOpDecorate && i[2] == SpvDecorationSpecId && i[3] < constants.size()) values_[i[1]] = constants[i[3]];
    in_functions |= op == SpvOpFunction;
    kept_[n] = !in_functions;
    if (op == SpvOpFunction || op == SpvOpLabel) starts_[i.result()] = n;
  }
  while (!functions_.empty()) {
    const size_t begin = starts_.at(functions_.back());
    functions_.pop_back();
    if (!kept_[begin]) visit_function(begin);
  }
  for (size_t n = 0; n < list.size(); ++n)
    if (kept_[n]) defined_.insert(list[n].result());
}

uint32_t Reach::target(const Instruction& i) const {
  if (i.opcode() != SpvOpSwitch) return 0;
  const auto value = values_.find(i[1]);
  if (value == values_.end()) return 0;
  for (uint32_t w = 3; w + 1 < i.count; w += 2)
    if (i[w] == value->second) return i[w + 1];
  return i[2];
}

void Reach::visit_function(size_t begin) {
  size_t n = begin;
  for (; list_[n].opcode() != SpvOpLabel; ++n) kept_[n] = true;
  blocks_.push_back(list_[n].result());
  while (!blocks_.empty()) {
    const uint32_t label = blocks_.back();
    blocks_.pop_back();
    if (!kept_[starts_.at(label)]) visit_block(label);
  }
  while (list_[n].opcode() != SpvOpFunctionEnd) ++n;
  kept_[n] = true;
}

void Reach::go(uint32_t from, uint32_t to) {
  edges_.insert({from, to});
  blocks_.push_back(to);
}

// A block ends where the next one, or none, begins. The blocks that a merge instruction names have to be there.
void Reach::visit_block(uint32_t label) {
  size_t n = starts_.at(label);
  do {
    kept_[n] = true;
    const Instruction& i = list_[n];
    switch (i.opcode()) {
      case SpvOpFunctionCall: functions_.push_back(i[3]); break;
      case SpvOpLoopMerge: blocks_.push_back(i[2]); [[fallthrough]];
      case SpvOpSelectionMerge: blocks_.push_back(i[1]); break;
      case SpvOpBranch: go(label, i[1]); break;
      case SpvOpBranchConditional:
        go(label, i[2]);
        go(label, i[3]);
        break;
      case SpvOpSwitch:
        if (const uint32_t only = target(i); only != 0) {
          go(label, only);
        } else {
          for (uint32_t w = 2; w < i.count; w += 2) go(label, i[w]);
        }
        break;
      default: break;
    }
    ++n;
  } while (list_[n].opcode() != SpvOpLabel && list_[n].opcode() != SpvOpFunctionEnd);
}

// ---- what the device can do ----

bool is_float_control(const Instruction& i) {
  return i.opcode() == SpvOpExecutionMode && i.count == 4 && i[2] >= SpvExecutionModeDenormPreserve &&
         i[2] <= SpvExecutionModeRoundingModeRTZ;
}

// Modules of long sums that the driver may fuse: all but elementwise's and programs', of which each product is rounded.
bool is_of_sums(const Shader& shader) {
  const std::string_view name = shader.name;
  return name.substr(0, 11) != "elementwise" && name != "program";
}

// Capabilities that only float controls need, and that those which the device has do need.
class FloatControls {
 public:
  FloatControls(const PhysicalDevice& device, const Shader& shader, const std::vector<Instruction>& list)
      : device_(device), fuses_(device.fuses_unasked && is_of_sums(shader)) {
    for (const Instruction& i : list) {
      if (!is_float_control(i) || !keeps(i)) continue;
      if (i[2] == SpvExecutionModeDenormPreserve) needed_.insert(SpvCapabilityDenormPreserve);
      if (i[2] == SpvExecutionModeSignedZeroInfNanPreserve) needed_.insert(SpvCapabilitySignedZeroInfNanPreserve);
      if (i[2] == SpvExecutionModeRoundingModeRTE) needed_.insert(SpvCapabilityRoundingModeRTE);
    }
  }
  bool keeps(const Instruction& i) const {
    if (is_float_control(i) && i[2] == SpvExecutionModeSignedZeroInfNanPreserve && fuses_) return false;
    if (is_float_control(i)) return device_.has_float_control(i[2], i[3]);
    if (i.opcode() != SpvOpCapability) return true;
    const bool is_for_control = i[1] == SpvCapabilityDenormPreserve || i[1] == SpvCapabilitySignedZeroInfNanPreserve ||
                                i[1] == SpvCapabilityRoundingModeRTE;
    return !is_for_control || needed_.count(i[1]) != 0;
  }

 private:
  const PhysicalDevice& device_;
  const bool fuses_;
  std::set<uint32_t> needed_;
};

// A work group that is too large would crash some drivers.
void check_work_group(const PhysicalDevice& device, const Shader& shader, const Instruction& i) {
  if (i.opcode() != SpvOpExecutionMode || i.count < 6 || i[2] != SpvExecutionModeLocalSize) return;
  const VkPhysicalDeviceLimits& limits = device.properties.limits;
  const uint64_t threads = uint64_t{i[3]} * i[4] * i[5];
  if (i[3] > limits.maxComputeWorkGroupSize[0] || i[4] > limits.maxComputeWorkGroupSize[1] ||
      i[5] > limits.maxComputeWorkGroupSize[2] || threads > limits.maxComputeWorkGroupInvocations)
    refuse(NW_UNSUPPORTED, -1, "shader '%s' has work groups of %u x %u x %u threads; %s runs up to %u", shader.name, i[3], i[4],
           i[5], device.properties.deviceName, limits.maxComputeWorkGroupInvocations);
}

void check_capability(const PhysicalDevice& device, const Shader& shader, const Instruction& i) {
  if (i.opcode() != SpvOpCapability) return;
  if (const char* feature = device.lacks(i[1]))
    refuse(NW_UNSUPPORTED, -1, "%s lacks %s (SPIR-V capability %u), which shader '%s' needs", device.properties.deviceName, feature,
           i[1], shader.name);
}

// ---- the words ----

void append(std::vector<uint32_t>* words, const Instruction& i) { words->insert(words->end(), i.words, i.words + i.count); }

// The values of the blocks that control may still come from.
void append_phi(std::vector<uint32_t>* words, const Instruction& i, const Reach& reach, uint32_t block) {
  const size_t first = words->size();
  words->insert(words->end(), i.words, i.words + 3);
  for (uint32_t w = 3; w + 1 < i.count; w += 2)
    if (reach.has_edge(i[w + 1], block)) words->insert(words->end(), {i[w], i[w + 1]});
  (*words)[first] = static_cast<uint32_t>(words->size() - first) << 16 | SpvOpPhi;
}

bool is_annotation(uint32_t op) {
  return op == SpvOpName || op == SpvOpMemberName || op == SpvOpDecorate || op == SpvOpMemberDecorate || op == SpvOpDecorateId;
}

}  // namespace

void check_module(const std::vector<uint32_t>& words) {
  if (words.size() <= kHeader || words[0] != SpvMagicNumber)
    refuse(NW_INVALID, -1, "vulkan: %zu words, the first of them 0x%x; expected a SPIR-V module, which begins with 0x%x",
           words.size(), words.empty() ? 0 : words[0], SpvMagicNumber);
  bool has_main = false, in_function = false, has_block = true;
  for (size_t n = kHeader; n < words.size(); n += words[n] >> 16) {
    const Instruction i{words.data() + n, words[n] >> 16};
    if (i.count == 0 || i.count > words.size() - n) refuse(NW_INVALID, -1, "vulkan: the SPIR-V module breaks off at word %zu", n);
    const uint32_t op = i.opcode();
    if (op == SpvOpEntryPoint && i.count >= 5 && i[1] == SpvExecutionModelGLCompute)
      has_main = has_main || std::memcmp(i.words + 3, "main", 5) == 0;  // its NUL, too
    if (op == SpvOpDecorate && i.count >= 3 && (i[2] == SpvDecorationBinding || i[2] == SpvDecorationDescriptorSet))
      refuse(NW_INVALID, -1,
             "vulkan: the SPIR-V module has a descriptor (layout(binding = ...)); expected tensors by address, as push constants");
    if (op == SpvOpFunction) in_function = true, has_block = false;
    if (op == SpvOpLabel) has_block = true;
    if (op == SpvOpFunctionEnd) in_function = !has_block;
  }
  if (!has_main || in_function || !has_block)
    refuse(NW_INVALID, -1, "vulkan: the SPIR-V module %s; expected a compute shader with an entry point 'main'",
           !has_main ? "has no such entry point" : "has a function without an end or a body");
}

bool uses_matrices(const std::vector<uint32_t>& words) {
  for (size_t i = kHeader; i + 1 < words.size() && (words[i] & 0xffff) == SpvOpCapability; i += words[i] >> 16)
    if (words[i + 1] == kCooperativeMatrix) return true;
  return false;
}

std::vector<uint32_t> words_for(const PhysicalDevice& device, const Shader& shader, const std::vector<uint32_t>& constants) {
  const std::vector<Instruction> list = instructions_of(shader);
  const Reach reach(list, constants);
  const FloatControls controls(device, shader, list);
  std::vector<uint32_t> words(shader.words, shader.words + kHeader);
  uint32_t block = 0;
  for (size_t n = 0; n < list.size(); ++n) {
    const Instruction& i = list[n];
    const uint32_t op = i.opcode();
    check_capability(device, shader, i);
    check_work_group(device, shader, i);
    if (!reach.keeps(n) || !controls.keeps(i) || (is_annotation(op) && !reach.is_defined(i[1]))) continue;
    if (op == SpvOpLabel) block = i.result();
    if (const uint32_t target = reach.target(i); target != 0)
      words.insert(words.end(), {uint32_t{3} << 16 | SpvOpSwitch, i[1], target});
    else if (op == SpvOpPhi)
      append_phi(&words, i, reach, block);
    else
      append(&words, i);
  }
  return words;
}

}  // namespace narrows::vulkan
