# NARROWS_SANITIZE: what gcc's -fsanitize= takes, for everything that is built; a finding ends the program.
set(NARROWS_SANITIZE "" CACHE STRING "Sanitizers, ',' between: address,undefined or thread")
if(NARROWS_SANITIZE)
  add_compile_options(-fsanitize=${NARROWS_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${NARROWS_SANITIZE})
endif()
