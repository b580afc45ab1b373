# Modules of lltm and its gradients, and those that they share with conv1d: one for each dtype.
foreach(dtype IN ITEMS F32 F64 F16 BF16)
  string(TOLOWER ${dtype} suffix)
  foreach(name IN ITEMS gemm_slices lltm_scalar lltm_dots lltm_fused lltm_gate_grads lltm_product_scalar lltm_product_tiled)
    narrows_add_shader(${name}_${suffix} ${name}.comp DTYPE_${dtype})
  endforeach()
endforeach()
narrows_add_shader(gemm_fill gemm_fill.comp)
narrows_add_matrix_shader(lltm_coopmat lltm_coopmat.comp DTYPE_F16)
