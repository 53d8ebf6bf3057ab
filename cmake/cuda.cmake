# tutti_cuda(): tutti-cuda.so, the module behind --device cuda:N, and for tests the same module over
# a stand-in for the runtime.
#
# Both are made of the same objects. Where CUDA's headers are not installed, these are compiled with
# those of the stand-in and serve the tests alone.
option(TUTTI_CUDA "Build tutti-cuda.so where CUDA is found" ON)
set(TUTTI_STANDIN_DIR ${PROJECT_SOURCE_DIR}/tests/support/cuda_standin)
set(TUTTI_STANDIN_MODULES ${PROJECT_BINARY_DIR}/standin)

set(places HINTS ${CUDAToolkit_ROOT} ENV CUDAToolkit_ROOT ENV CUDA_PATH ENV CUDA_HOME
    PATHS /usr/local/cuda /opt/cuda)
if(TUTTI_CUDA)
  find_path(TUTTI_CUDA_HEADERS cuda_runtime_api.h ${places} PATH_SUFFIXES include)
  find_library(TUTTI_CUDART cudart ${places} PATH_SUFFIXES lib64 lib)
endif()
if(TUTTI_CUDA AND TUTTI_CUDA_HEADERS AND TUTTI_CUDART)
  set(TUTTI_CUDA_FOUND TRUE)
  set(TUTTI_CUDA_INCLUDE ${TUTTI_CUDA_HEADERS})
  message(STATUS "CUDA: ${TUTTI_CUDA_HEADERS}, ${TUTTI_CUDART}")
else()
  set(TUTTI_CUDA_FOUND FALSE)
  set(TUTTI_CUDA_INCLUDE ${TUTTI_STANDIN_DIR}/include)
  if(TUTTI_CUDA)
    message(STATUS "CUDA: skipped, no cuda_runtime_api.h or no libcudart (-DCUDAToolkit_ROOT says where)")
  else()
    message(STATUS "CUDA: skipped, as TUTTI_CUDA=OFF asks")
  endif()
endif()

# tutti_cuda_objects(NAME sources): what a module is made of.
function(tutti_cuda_objects name)
  add_library(${name} OBJECT ${ARGN})
  target_compile_options(${name} PRIVATE ${TUTTI_WARNINGS})
  target_include_directories(${name} SYSTEM PRIVATE ${TUTTI_CUDA_INCLUDE})
  target_link_libraries(${name} PRIVATE tutti_flags)
endfunction()

# tutti_module(TARGET MODULE FOLDER OBJECTS links): FOLDER/tutti-MODULE.so of objects and libraries.
function(tutti_module target module folder objects)
  add_library(${target} MODULE $<TARGET_OBJECTS:${objects}>)
  set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME tutti-${module}
    LIBRARY_OUTPUT_DIRECTORY ${folder} INSTALL_RPATH "$ORIGIN" INSTALL_RPATH_USE_LINK_PATH ON LINKER_LANGUAGE C)
  target_link_libraries(${target} PRIVATE ${ARGN} tutti_flags)
  if(NOT TUTTI_SANITIZE)
    target_link_options(${target} PRIVATE -Wl,-z,defs)
  endif()
endfunction()

function(tutti_cuda)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/lib/tensor/cuda/*.c)
  list(REMOVE_ITEM sources ${PROJECT_SOURCE_DIR}/lib/tensor/cuda/load.c)
  if(NOT TUTTI_CUDA_FOUND AND NOT TUTTI_TESTS)
    return()
  endif()
  tutti_cuda_objects(tutti_cuda_objects ${sources})
  if(TUTTI_CUDA_FOUND)
    tutti_module(tutti_cuda_module cuda ${PROJECT_BINARY_DIR} tutti_cuda_objects
                 tutti_tensor tutti_base ${TUTTI_CUDART} Threads::Threads)
    install(TARGETS tutti_cuda_module LIBRARY DESTINATION lib/tutti)
  endif()
  if(TUTTI_TESTS)
    file(GLOB standin CONFIGURE_DEPENDS ${TUTTI_STANDIN_DIR}/*.c)
    add_library(tutti_cuda_standin SHARED ${standin})
    target_compile_options(tutti_cuda_standin PRIVATE ${TUTTI_WARNINGS})
    target_include_directories(tutti_cuda_standin SYSTEM PUBLIC ${TUTTI_CUDA_INCLUDE})
    target_include_directories(tutti_cuda_standin PUBLIC ${TUTTI_STANDIN_DIR})
    set_target_properties(tutti_cuda_standin PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${TUTTI_STANDIN_MODULES})
    target_link_libraries(tutti_cuda_standin PRIVATE tutti_flags Threads::Threads)
    tutti_module(tutti_cuda_module_standin cuda ${TUTTI_STANDIN_MODULES} tutti_cuda_objects
                 tutti_tensor tutti_base tutti_cuda_standin Threads::Threads)
  endif()
endfunction()
