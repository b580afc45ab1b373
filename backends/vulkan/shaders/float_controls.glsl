// SPDX-License-Identifier: Apache-2.0
// float_controls.glsl -- what every module with floating point asks of a device: NaN, infinities and the sign of zero mean
// something, subnormal numbers stay, sums and products round to nearest even. A device may lack any of them: the host strips the
// mode from the module then (the operands are capabilities and modes of SPV_KHR_float_controls). Included after #version.
#extension GL_EXT_spirv_intrinsics : require

spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4464], 4459, 32);  // DenormPreserve
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4466], 4461, 32);  // SignedZeroInfNanPreserve
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4467], 4462, 32);  // RoundingModeRTE
#ifdef NARROWS_FLOAT64
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4464], 4459, 64);
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4466], 4461, 64);
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4467], 4462, 64);
#endif
