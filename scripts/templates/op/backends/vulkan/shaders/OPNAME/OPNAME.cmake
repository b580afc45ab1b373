# SPDX-License-Identifier: Apache-2.0
# Modules of OPNAME: one for each dtype.
foreach(dtype IN ITEMS F32 F64 F16 BF16)
  string(TOLOWER ${dtype} suffix)
  narrows_add_shader(OPNAME_${suffix} OPNAME/OPNAME.comp DTYPE_${dtype})
endforeach()
