# The modules of the vulkan backend, by op.
include(${CMAKE_CURRENT_LIST_DIR}/elementwise.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/lltm.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/conv1d.cmake)
