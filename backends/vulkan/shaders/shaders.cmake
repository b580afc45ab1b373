# The modules of the vulkan backend, by op.
include(${CMAKE_CURRENT_LIST_DIR}/elementwise.cmake)
