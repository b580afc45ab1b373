# Modules of elementwise and its gradients.
narrows_add_shader(elementwise_add_f32 elementwise.comp)
