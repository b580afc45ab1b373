# SPDX-License-Identifier: Apache-2.0
# The modules of the vulkan backend: each folder's own list, and those of no op.
file(GLOB lists CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*/*.cmake)
foreach(list IN LISTS lists)
  include(${list})
endforeach()
narrows_add_shader(long_loop long_loop.comp)
narrows_add_shader(copy copy.comp)
