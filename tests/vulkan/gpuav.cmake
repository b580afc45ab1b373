# What `./run vulkan-gpuav` runs: GPU-assisted validation over the conformance suite, by a newer layer than the machine's own.
# NARROWS_VULKAN_GPUAV is the chroot that has it (scripts/chroot.sh).
set(in_chroot ${PROJECT_SOURCE_DIR}/scripts/in_chroot.sh ${NARROWS_VULKAN_GPUAV} ${PROJECT_SOURCE_DIR})

# Each pipeline is compiled once, with the layer's checks in it, which takes longer than running it does: by LLVM for lavapipe's
# narrowest vectors. Of the layer only the check of device addresses is on: the rest is for descriptors, which there are none of, and
# what `vulkan.all.validated` and `conformance.vulkan.*` see without it. Races in shared memory: docs/vulkan.md.
set(environment NARROWS_VULKAN_VALIDATION=gpu NARROWS_CHECK=1 NARROWS_VULKAN_TIMEOUT=900 NARROWS_VULKAN_CACHE= MESA_SHADER_CACHE_DISABLE=true
                LP_NATIVE_VECTOR_WIDTH=128 GALLIVM_PERF=nopt)
foreach(setting IN ITEMS VALIDATE_CORE STATELESS_PARAM THREAD_SAFETY OBJECT_LIFETIME GPUAV_DESCRIPTOR_CHECKS
                         GPUAV_POST_PROCESS_DESCRIPTOR_INDEXING GPUAV_VERTEX_ATTRIBUTE_FETCH_OOB GPUAV_BUFFERS_VALIDATION
                         GPUAV_SHADER_SANITIZER GPUAV_SHARED_MEMORY_DATA_RACE)
  list(APPEND environment VK_LAYER_${setting}=false)
endforeach()

#   narrows_add_gpuav_test(NAME COST COMMAND [ARGUMENT...])   COST: about how many seconds it takes; the longest begins first
function(narrows_add_gpuav_test name cost)
  add_test(NAME gpuav.${name} COMMAND ${in_chroot} ${ARGN})
  set_tests_properties(gpuav.${name} PROPERTIES LABELS "vulkan;gpuav" TIMEOUT 5400 COST ${cost} ENVIRONMENT "${environment}")
endfunction()
# One test of elementwise makes a thousand pipelines and more: minutes without a sign of life.
function(narrows_add_gpuav_verdict name cost)
  narrows_add_gpuav_test(${name} ${cost} $<TARGET_FILE:narrows_command> conform --backend vulkan --timeout 3600 ${ARGN})
endfunction()

narrows_add_gpuav_test(overrun 1 $<TARGET_FILE:test_vulkan> [overrun])
narrows_add_gpuav_test(shader_checks 130 $<TARGET_FILE:test_vulkan> [shader_checks])
narrows_add_gpuav_verdict(elementwise 800 "[elementwise]~[backward]~[large]")
narrows_add_gpuav_verdict(gradients 500 "[elementwise][backward]")
narrows_add_gpuav_verdict(others 30 "~[elementwise]~[conv1d]~[lltm]")
# Of the ops with loops those tests that are done in seconds.
narrows_add_gpuav_verdict(conv1d 100 "conv1d: puzzle*" "conv1d: ranks*" "conv1d: tensors without*" "conv1d trap: n*" "conv1d trap: k larger*"
                          "conv1d trap: a guard*" "conv1d trap: a fixed grid*" "conv1d_backward: an absent*" "conv1d bad input*")
narrows_add_gpuav_verdict(lltm 100 "lltm: a cell*" "lltm: features*" "lltm: batches*" "lltm: no features*" "lltm: the same state*"
                          "lltm_backward: an absent*" "lltm_backward: both*" "lltm_backward: no features*" "lltm bad input*")
