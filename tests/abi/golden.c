/* golden.c -- the layout, the constants and the functions of the ABI, fixed as numbers: whoever moves a field, changes a type or
 * renumbers a constant breaks this file's compilation. Compiled as C99 and as C++17, on the build machine and for arm64; it has no
 * code to run. inventory.cmake sees to it that no struct, field, constant or function of the headers is missing.
 * Old lines are never edited. What is appended gets a line below, and its struct a new SIZE; scripts/freeze_abi.sh moves the lines
 * into the release that they appear in. */
#include "releases/0.1.0/golden.c"

#ifdef __cplusplus
extern "C" {
#endif

/* clang-format off */

/* Appended since the newest release. */

/* Now: exact sizes of what may grow. */

SIZE(nw_sig, 64)
SIZE(nw_call, 104)
SIZE(nw_op, 96)
SIZE(nw_plan_info, 32)
SIZE(nw_device_info, 288)
SIZE(nw_conv1d_params, 48)
SIZE(nw_elementwise_params, 48)
SIZE(nw_host, 32)
SIZE(nw_plugin, 176)
SIZE(nw_options, 40)
SIZE(nw_backend_info, 64)
VALUE(NW_ABI_MINOR, 0)

#ifdef __cplusplus
}
#endif
