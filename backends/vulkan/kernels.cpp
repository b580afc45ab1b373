// kernels.cpp -- see kernels.h.
#include "kernels.h"

#include <spirv/unified1/spirv.h>

#include "device.h"
#include "pipeline_cache.h"

namespace narrows::vulkan {
namespace {

// The words of an instruction and their number; the first holds both the number and the opcode.
struct Instruction {
  const uint32_t* words;
  uint32_t count;
  uint32_t opcode() const { return words[0] & 0xffff; }
};

template <class Visit>
void for_each_instruction(const Shader& shader, Visit&& visit) {
  constexpr size_t kHeader = 5;
  const size_t total = shader.size / sizeof(uint32_t);
  for (size_t i = kHeader; i < total;) {
    const Instruction instruction{shader.words + i, shader.words[i] >> 16};
    visit(instruction);
    i += instruction.count;
  }
}

bool is_float_control(uint32_t capability) {
  return capability == SpvCapabilityDenormPreserve || capability == SpvCapabilitySignedZeroInfNanPreserve ||
         capability == SpvCapabilityRoundingModeRTE;
}

// What a switch is over, if that is a specialization constant: its value. A module that serves many functions is cut down to one of
// them before a driver sees it: drivers read, inline and simplify all that can be reached first, and forget most of it afterwards.
class Choices {
 public:
  Choices(const Shader& shader, const std::vector<uint32_t>& constants) {
    for_each_instruction(shader, [&](const Instruction& i) {
      if (i.opcode() == SpvOpDecorate && i.words[2] == SpvDecorationSpecId && i.words[3] < constants.size())
        values_[i.words[1]] = constants[i.words[3]];
    });
  }
  // The label to go to; 0: `i` is no such switch.
  uint32_t target(const Instruction& i) const {
    if (i.opcode() != SpvOpSwitch) return 0;
    const auto value = values_.find(i.words[1]);
    if (value == values_.end()) return 0;
    for (uint32_t w = 3; w + 1 < i.count; w += 2)
      if (i.words[w] == value->second) return i.words[w + 1];
    return i.words[2];
  }

 private:
  std::map<uint32_t, uint32_t> values_;  // by id
};

// The module for this device: float controls that it lacks are left out, since they only ask for what the functions are written to
// do without. A capability that it lacks otherwise is a refusal.
std::vector<uint32_t> words_for(const PhysicalDevice& device, const Shader& shader, const std::vector<uint32_t>& constants) {
  const Choices choices(shader, constants);
  std::vector<uint32_t> words(shader.words, shader.words + 5);
  std::vector<uint32_t> modes;  // float controls that stay, as capabilities
  const auto kept_mode = [&](const Instruction& i) { return device.has_float_control(i.words[2], i.words[3]); };
  for_each_instruction(shader, [&](const Instruction& i) {
    if (i.opcode() != SpvOpExecutionMode || i.count != 4 || !kept_mode(i)) return;
    if (i.words[2] == SpvExecutionModeDenormPreserve) modes.push_back(SpvCapabilityDenormPreserve);
    if (i.words[2] == SpvExecutionModeSignedZeroInfNanPreserve) modes.push_back(SpvCapabilitySignedZeroInfNanPreserve);
    if (i.words[2] == SpvExecutionModeRoundingModeRTE) modes.push_back(SpvCapabilityRoundingModeRTE);
  });
  for_each_instruction(shader, [&](const Instruction& i) {
    if (i.opcode() == SpvOpCapability) {
      const uint32_t capability = i.words[1];
      if (const char* feature = device.lacks(capability))
        refuse(NW_UNSUPPORTED, -1, "%s lacks %s (SPIR-V capability %u), which shader '%s' needs", device.properties.deviceName,
               feature, capability, shader.name);
      if (is_float_control(capability) && std::find(modes.begin(), modes.end(), capability) == modes.end()) return;
    }
    const bool is_control = i.opcode() == SpvOpExecutionMode && i.count == 4 && i.words[2] >= SpvExecutionModeDenormPreserve &&
                            i.words[2] <= SpvExecutionModeRoundingModeRTZ;
    if (is_control && !kept_mode(i)) return;
    if (const uint32_t target = choices.target(i))
      return void(words.insert(words.end(), {uint32_t{3} << 16 | SpvOpSwitch, i.words[1], target}));
    words.insert(words.end(), i.words, i.words + i.count);
  });
  return words;
}

}  // namespace

Kernels::Kernels(Device& device) : device_(device) {
  const VkPushConstantRange range{VK_SHADER_STAGE_COMPUTE_BIT, 0, kPushBytes};
  VkPipelineLayoutCreateInfo info{.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO};
  info.pushConstantRangeCount = 1;
  info.pPushConstantRanges = &range;
  device_.check(device_.vk.vkCreatePipelineLayout(device_.handle, &info, nullptr, &layout_), "creating a pipeline layout");
  load_cache();
}

void Kernels::load_cache() {
  cache_file_ = pipeline_cache_file(device_.physical);
  const std::vector<char> kept = cache_file_.empty() ? std::vector<char>{} : read_pipeline_cache(cache_file_);
  VkPipelineCacheCreateInfo info{.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
  info.initialDataSize = kept.size();
  info.pInitialData = kept.data();
  device_.check(device_.vk.vkCreatePipelineCache(device_.handle, &info, nullptr, &cache_), "creating a pipeline cache");
  was_kept_ = kept.size();
}

// Only what has grown is written.
void Kernels::save_cache() noexcept {
  if (cache_file_.empty() || made_.empty()) return;
  try {
    size_t size = 0;
    if (device_.vk.vkGetPipelineCacheData(device_.handle, cache_, &size, nullptr) < 0 || size <= was_kept_) return;
    std::vector<char> data(size);
    if (device_.vk.vkGetPipelineCacheData(device_.handle, cache_, &size, data.data()) != VK_SUCCESS) return;
    data.resize(size);
    write_pipeline_cache(cache_file_, data);
  } catch (const std::exception&) {
    // Out of memory: the next process compiles again.
  }
}

Kernels::~Kernels() {
  if (device_.is_lost()) return;
  save_cache();
  for (const auto& [key, pipeline] : made_) device_.vk.vkDestroyPipeline(device_.handle, pipeline, nullptr);
  device_.vk.vkDestroyPipelineCache(device_.handle, cache_, nullptr);
  device_.vk.vkDestroyPipelineLayout(device_.handle, layout_, nullptr);
}

Kernel Kernels::get(const Shader& shader, const std::vector<uint32_t>& constants) {
  const std::lock_guard lock(mutex_);
  VkPipeline& pipeline = made_[{&shader, constants}];
  if (pipeline == VK_NULL_HANDLE) pipeline = make(shader, constants);
  return {pipeline};
}

VkPipeline Kernels::make(const Shader& shader, const std::vector<uint32_t>& constants) {
  const std::vector<uint32_t> words = words_for(device_.physical, shader, constants);
  VkShaderModuleCreateInfo module_info{.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO};
  module_info.codeSize = words.size() * sizeof(uint32_t);
  module_info.pCode = words.data();
  VkShaderModule module = VK_NULL_HANDLE;
  device_.check(device_.vk.vkCreateShaderModule(device_.handle, &module_info, nullptr, &module), "creating a shader module");

  std::vector<VkSpecializationMapEntry> entries;
  for (uint32_t i = 0; i < constants.size(); ++i) entries.push_back({i, i * 4, 4});
  const VkSpecializationInfo specialization{static_cast<uint32_t>(entries.size()), entries.data(), constants.size() * 4,
                                            constants.data()};
  VkComputePipelineCreateInfo info{.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO};
  info.stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO};
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.module = module;
  info.stage.pName = "main";
  info.stage.pSpecializationInfo = &specialization;
  info.layout = layout_;
  VkPipeline pipeline = VK_NULL_HANDLE;
  const VkResult result = device_.vk.vkCreateComputePipelines(device_.handle, cache_, 1, &info, nullptr, &pipeline);
  device_.vk.vkDestroyShaderModule(device_.handle, module, nullptr);
  device_.check(result, "creating a compute pipeline");
  return pipeline;
}

}  // namespace narrows::vulkan
