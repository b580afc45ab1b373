/* SPDX-License-Identifier: Apache-2.0 */
/* witness.c -- one function per struct of the ABI, so that debug information has every one of them; layout.py reads it with pahole.
 * Params travel as void*, so no function of libnarrows names them: a comparison of its own debug information, such as abidiff's,
 * would not see two of their fields change places. */
#include <narrows/narrows.h>
#include <narrows/plugin.h>
#include <narrows/program.h>
#include <narrows/vulkan.h>

#define WITNESS(type)                  \
  void witness_##type(const type* it); \
  void witness_##type(const type* it) { (void)it; }

/* abi.h */
WITNESS(nw_error)
WITNESS(nw_spec)
WITNESS(nw_tensor_sig)
WITNESS(nw_sig)
WITNESS(nw_call)
WITNESS(nw_param)
WITNESS(nw_op)
WITNESS(nw_plan_info)
WITNESS(nw_device_info)

/* ops.h */
WITNESS(nw_conv1d_params)
WITNESS(nw_elementwise_params)

/* plugin.h */
WITNESS(nw_host)
WITNESS(nw_plugin)
WITNESS(nw_program_text)

/* program.h */
WITNESS(nw_program_source)
WITNESS(nw_program_exporter)

/* narrows.h */
WITNESS(nw_options)
WITNESS(nw_backend_info)

/* vulkan.h */
WITNESS(nw_vulkan_device)
WITNESS(nw_vulkan)
