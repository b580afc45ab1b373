# SPDX-License-Identifier: Apache-2.0
# Modules of conv1d and its gradients: one for each dtype. Those that they share with lltm are in lltm.cmake.
foreach(dtype IN ITEMS F32 F64 F16 BF16)
  string(TOLOWER ${dtype} suffix)
  foreach(name IN ITEMS conv1d_scalar conv1d_dots conv1d_windows conv1d_fir conv1d_short conv1d_gemm conv1d_sums conv1d_grad_w)
    narrows_add_shader(${name}_${suffix} conv1d/${name}.comp DTYPE_${dtype})
  endforeach()
endforeach()
narrows_add_shader(conv1d_pack conv1d/conv1d_pack.comp DTYPE_F16)  # of bf16 too: it moves bits
foreach(dtype IN ITEMS F16 BF16)
  string(TOLOWER ${dtype} suffix)
  narrows_add_matrix_shader(conv1d_coopmat_${suffix} conv1d/conv1d_coopmat.comp DTYPE_${dtype})
  narrows_add_matrix_shader(conv1d_grad_w_coopmat_${suffix} conv1d/conv1d_grad_w_coopmat.comp DTYPE_${dtype})
endforeach()
