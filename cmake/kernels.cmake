# tutti_kernels(STEM): flags for STEM_base.c, STEM_avx2.c and STEM_avx512.c, which hold the same
# kernels for one instruction set each. The last two compile to nothing on other processors.
#
# Loops become vectors in every build type (-O3 does the same for half as much code again). Floats
# behave as elsewhere: -fno-trapping-math only says that nobody looks at exception flags, without
# which gcc makes no vectors of what has a condition in it.
set(TUTTI_KERNEL_FLAGS -O2 -ftree-vectorize -fno-trapping-math
    $<$<C_COMPILER_ID:GNU>:-fvect-cost-model=dynamic> $<$<C_COMPILER_ID:Clang>:-Wno-pass-failed>)
set(TUTTI_KERNEL_AVX2_FLAGS -mavx2 -mf16c)
set(TUTTI_KERNEL_AVX512_FLAGS ${TUTTI_KERNEL_AVX2_FLAGS} -mavx512f -mavx512bw -mavx512dq -mavx512vl
    -mprefer-vector-width=256)

function(tutti_kernels stem)
  set(stem ${PROJECT_SOURCE_DIR}/${stem})
  if(NOT CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
    set(TUTTI_KERNEL_AVX2_FLAGS "")
    set(TUTTI_KERNEL_AVX512_FLAGS "")
  endif()
  set_property(SOURCE ${stem}_base.c PROPERTY COMPILE_OPTIONS ${TUTTI_KERNEL_FLAGS})
  set_property(SOURCE ${stem}_avx2.c PROPERTY COMPILE_OPTIONS ${TUTTI_KERNEL_FLAGS}
               ${TUTTI_KERNEL_AVX2_FLAGS})
  set_property(SOURCE ${stem}_avx512.c PROPERTY COMPILE_OPTIONS ${TUTTI_KERNEL_FLAGS}
               ${TUTTI_KERNEL_AVX512_FLAGS})
endfunction()
