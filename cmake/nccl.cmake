# tutti_nccl(): tutti-nccl.so, the module that moves CUDA tensors, and for tests the same module
# over stand-ins for the CUDA runtime and for NCCL. As cmake/cuda.cmake, which comes before.
#
# -DNCCL_ROOT says where NCCL is. Kernels are compiled where nvcc is; where it is not, the module
# has none, and says so when one is needed.
set(TUTTI_NCCL_STANDIN_DIR ${PROJECT_SOURCE_DIR}/tests/support/nccl_standin)
set(places HINTS ${NCCL_ROOT} ENV NCCL_ROOT ENV NCCL_HOME ${CUDAToolkit_ROOT} ENV CUDA_HOME
    PATHS /usr/local/cuda /opt/cuda)
if(TUTTI_CUDA_FOUND)
  find_path(TUTTI_NCCL_HEADERS nccl.h ${places} PATH_SUFFIXES include)
  find_library(TUTTI_NCCL nccl ${places} PATH_SUFFIXES lib64 lib)
  find_program(TUTTI_NVCC nvcc HINTS ${CUDAToolkit_ROOT} ENV CUDA_HOME PATHS /usr/local/cuda /opt/cuda
               PATH_SUFFIXES bin)
endif()
if(TUTTI_CUDA_FOUND AND TUTTI_NCCL_HEADERS AND TUTTI_NCCL)
  set(TUTTI_NCCL_FOUND TRUE)
  set(TUTTI_NCCL_INCLUDE ${TUTTI_CUDA_INCLUDE} ${TUTTI_NCCL_HEADERS})
  message(STATUS "NCCL: ${TUTTI_NCCL_HEADERS}, ${TUTTI_NCCL}; nvcc: ${TUTTI_NVCC}")
else()
  set(TUTTI_NCCL_FOUND FALSE)
  set(TUTTI_NCCL_INCLUDE ${TUTTI_CUDA_INCLUDE} ${TUTTI_NCCL_STANDIN_DIR}/include)
  message(STATUS "NCCL: skipped, no CUDA, nccl.h or libnccl (-DNCCL_ROOT says where)")
endif()

# The kernels as bytes in an object; 64 zeros where there is no nvcc.
function(tutti_nccl_kernels ret_source)
  set(source ${PROJECT_BINARY_DIR}/nccl/nccl_fatbin.c)
  set(head "#include \"coll/nccl/fatbin.h\"\n\n")
  if(TUTTI_NCCL_FOUND AND TUTTI_NVCC)
    set(fatbin ${PROJECT_BINARY_DIR}/nccl/nccl_reduce.fatbin)
    set(kernels ${PROJECT_SOURCE_DIR}/lib/coll/nccl/reduce.cu)
    add_custom_command(OUTPUT ${fatbin}
      COMMAND ${TUTTI_NVCC} -fatbin -arch=all-major -Wno-deprecated-gpu-targets -Werror all-warnings
              -I ${PROJECT_SOURCE_DIR}/include -I ${PROJECT_SOURCE_DIR}/lib -o ${fatbin} ${kernels}
      DEPENDS ${kernels} ${PROJECT_SOURCE_DIR}/lib/coll/nccl/kernel.h
      COMMENT "Compiling kernels with nvcc" VERBATIM)
    file(CONFIGURE OUTPUT ${source} CONTENT "${head}__asm__(\".section .rodata\\n.balign 64\\n\"
        \".globl tutti_nccl_fatbin\\n.hidden tutti_nccl_fatbin\\n\"
        \"tutti_nccl_fatbin:\\n.incbin \\\"${fatbin}\\\"\\n.previous\\n\");\n")
    set_source_files_properties(${source} PROPERTIES OBJECT_DEPENDS ${fatbin})
  else()
    file(CONFIGURE OUTPUT ${source} CONTENT "${head}const unsigned char tutti_nccl_fatbin[64] = {0};\n")
  endif()
  set(${ret_source} ${source} PARENT_SCOPE)
endfunction()

# Modules, those for tests too, for who builds single programs.
add_custom_target(tutti_modules)

function(tutti_nccl)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/lib/coll/nccl/*.c)
  list(REMOVE_ITEM sources ${PROJECT_SOURCE_DIR}/lib/coll/nccl/load.c)
  if(NOT TUTTI_NCCL_FOUND AND NOT TUTTI_TESTS)
    return()
  endif()
  tutti_nccl_kernels(fatbin)
  tutti_cuda_objects(tutti_nccl_objects ${sources} ${fatbin})
  target_include_directories(tutti_nccl_objects SYSTEM PRIVATE ${TUTTI_NCCL_INCLUDE})
  if(NOT TUTTI_NCCL_FOUND OR NOT TUTTI_NVCC)
    target_compile_definitions(tutti_nccl_objects PRIVATE TUTTI_NCCL_FATBIN_EMPTY=1)
  endif()
  set(rooms tutti_coll tutti_tensor tutti_base m Threads::Threads)
  if(TUTTI_NCCL_FOUND)
    tutti_module(tutti_nccl_module nccl ${PROJECT_BINARY_DIR} tutti_nccl_objects ${rooms}
                 ${TUTTI_NCCL} ${TUTTI_CUDART})
    install(TARGETS tutti_nccl_module LIBRARY DESTINATION lib/tutti)
  endif()
  if(TUTTI_TESTS)
    file(GLOB standin CONFIGURE_DEPENDS ${TUTTI_NCCL_STANDIN_DIR}/*.c)
    add_library(tutti_nccl_standin SHARED ${standin})
    target_compile_options(tutti_nccl_standin PRIVATE ${TUTTI_WARNINGS})
    target_include_directories(tutti_nccl_standin SYSTEM PUBLIC ${TUTTI_NCCL_INCLUDE})
    target_include_directories(tutti_nccl_standin PUBLIC ${TUTTI_NCCL_STANDIN_DIR})
    set_target_properties(tutti_nccl_standin PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${TUTTI_STANDIN_MODULES})
    target_link_libraries(tutti_nccl_standin PRIVATE tutti_flags tutti_reduce tutti_base Threads::Threads
                          PUBLIC tutti_cuda_standin)
    tutti_module(tutti_nccl_module_standin nccl ${TUTTI_STANDIN_MODULES} tutti_nccl_objects ${rooms}
                 tutti_nccl_standin tutti_cuda_standin)
    # For tests that run the backend in their own process.
    add_library(tutti_nccl_here INTERFACE)
    target_sources(tutti_nccl_here INTERFACE $<TARGET_OBJECTS:tutti_nccl_objects>)
    target_link_libraries(tutti_nccl_here INTERFACE ${rooms} tutti_nccl_standin tutti_cuda_standin)
  endif()
  foreach(module tutti_cuda_module tutti_cuda_module_standin tutti_nccl_module tutti_nccl_module_standin)
    if(TARGET ${module})
      add_dependencies(tutti_modules ${module})
    endif()
  endforeach()
endfunction()
