// SPDX-License-Identifier: Apache-2.0
// unfit.cpp -- a shared object that breaks the rules of exports.cmake and dynamic.cmake: gcc makes an inline variable GNU-unique
// where no version script hides it, a library is needed, and it may be unloaded.
#include <cstdio>

inline int unique_one = 1;
extern "C" int* narrows_plugin_query() {
  std::puts("unfit");
  return &unique_one;
}
