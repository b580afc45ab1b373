# SPDX-License-Identifier: Apache-2.0
# What `./run check vulkan-gpuav` runs: GPU-assisted validation over the conformance suite, by a newer layer than the machine's own.
# NARROWS_VULKAN_GPUAV is the chroot that has it (scripts/lib/chroot.sh).
set(in_chroot ${PROJECT_SOURCE_DIR}/scripts/lib/in_chroot.sh ${NARROWS_VULKAN_GPUAV} ${PROJECT_SOURCE_DIR})

# Compiling the layer's checks takes longer than running them does: by LLVM for lavapipe's narrowest vectors, and what was compiled once
# comes from Mesa's cache. Without AVX-512, for which LLVM 19 makes wrong code of some shaders. Of the layer only the check of device addresses is on: the rest is for descriptors, which there are none of,
# and what `vulkan.all.validated` and `conformance.vulkan.*` see without it. Races in shared memory: docs/internals/vulkan_tests.md.
set(environment NARROWS_VULKAN_VALIDATION=gpu NARROWS_CHECK=1 NARROWS_VULKAN_TIMEOUT=900 NARROWS_VULKAN_CACHE=
                MESA_SHADER_CACHE_DIR=${CMAKE_CURRENT_BINARY_DIR}/mesa LP_NATIVE_VECTOR_WIDTH=128 GALLIUM_OVERRIDE_CPU_CAPS=avx)
foreach(setting IN ITEMS VALIDATE_CORE STATELESS_PARAM THREAD_SAFETY OBJECT_LIFETIME GPUAV_DESCRIPTOR_CHECKS
                         GPUAV_POST_PROCESS_DESCRIPTOR_INDEXING GPUAV_VERTEX_ATTRIBUTE_FETCH_OOB GPUAV_BUFFERS_VALIDATION
                         GPUAV_SHADER_SANITIZER GPUAV_SHARED_MEMORY_DATA_RACE)
  list(APPEND environment VK_LAYER_${setting}=false)
endforeach()

#   narrows_add_gpuav_test(NAME COST COMMAND [ARGUMENT...])   COST: about how many seconds of a core it takes; the longest begins first
function(narrows_add_gpuav_test name cost)
  add_test(NAME gpuav.${name} COMMAND ${in_chroot} ${ARGN})
  set_tests_properties(gpuav.${name} PROPERTIES LABELS vulkan TIMEOUT 5400 COST ${cost} ENVIRONMENT "${environment};GALLIVM_PERF=nopt")
endfunction()
# By two processes, so that one part alone, as CI runs them, has work for two cores. One test of elementwise makes a thousand pipelines
# and more: minutes without a sign of life.
function(narrows_add_gpuav_verdict name cost)
  narrows_add_gpuav_test(${name} ${cost} $<TARGET_FILE:narrows_command> conform --backend vulkan --timeout 3600 --jobs 2 ${ARGN})
  set_tests_properties(gpuav.${name} PROPERTIES PROCESSORS 2)
endfunction()

narrows_add_gpuav_test(overrun 1 $<TARGET_FILE:test_vulkan> [overrun])
narrows_add_gpuav_test(shader_checks 45 $<TARGET_FILE:test_vulkan> [shader_checks])
# All of the suite but what wants more than 2^31 elements. CI names these parts too.
set(forward "[elementwise]~[backward]~[large]")
narrows_add_gpuav_verdict(elementwise 1400 "${forward}~[special]~[trap]~[refusal]~cast*")
narrows_add_gpuav_verdict(elementwise_values 700 "${forward}[special]" "${forward}[trap]" "${forward}[refusal]" "${forward}cast*")
narrows_add_gpuav_verdict(elementwise_backward 750 "[elementwise][backward]")
narrows_add_gpuav_verdict(conv1d 620 "[conv1d]~[backward]~[elementwise]~[large]")
narrows_add_gpuav_verdict(conv1d_backward 470 "[conv1d][backward]~[elementwise]~[large]")
narrows_add_gpuav_verdict(lltm 410 "[lltm]~[conv1d]~[elementwise]")
narrows_add_gpuav_verdict(others 1000 "~[elementwise]~[conv1d]~[lltm]~[leak]")
# Which makes few pipelines, and long calls.
set_tests_properties(gpuav.others PROPERTIES ENVIRONMENT "${environment}")
