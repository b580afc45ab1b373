# SPDX-License-Identifier: Apache-2.0
# The modules of the vulkan backend, by op.
include(${CMAKE_CURRENT_LIST_DIR}/elementwise/elementwise.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/lltm/lltm.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/conv1d/conv1d.cmake)
narrows_add_shader(long_loop long_loop.comp)
narrows_add_shader(copy copy.comp)
