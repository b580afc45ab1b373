# SPDX-License-Identifier: Apache-2.0
# Is every function that a release exported exported still? cmake -DOLD=<its exports.txt> -DNEW=<exports.txt> -P exports_kept.cmake
file(STRINGS ${OLD} old)
file(STRINGS ${NEW} new)
list(LENGTH old count)
if(count LESS 24)
  message(FATAL_ERROR "${OLD} has ${count} functions, fewer than ABI 1 began with")
endif()
list(REMOVE_ITEM old ${new})
if(old)
  list(JOIN old " " gone)
  message(FATAL_ERROR "no longer exported: ${gone}")
endif()
message(STATUS "${count} functions, all still there")
