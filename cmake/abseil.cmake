# server/abseil.cc: the one C++ file. It needs a C++ compiler and the headers of the Abseil that gRPC is built with, which
# Debian's libgrpc-dev brings. Without them, or with TUTTI_ABSEIL=OFF, the programs do the same with a third more CPU.
include(CheckLanguage)

option(TUTTI_ABSEIL "Turn off the deadlock detection of gRPC's locks" ON)
if(TUTTI_ABSEIL)
  check_language(CXX)
  find_path(ABSEIL_INCLUDE absl/synchronization/mutex.h)
  find_library(ABSEIL_LIBRARY absl_synchronization)
  if(CMAKE_CXX_COMPILER AND ABSEIL_INCLUDE AND ABSEIL_LIBRARY)
    enable_language(CXX)
    add_library(tutti_abseil STATIC server/abseil.cc)
    target_compile_definitions(tutti_abseil PUBLIC TUTTI_ABSEIL)
    target_compile_options(tutti_abseil PRIVATE -Wall -Wextra -Werror -fno-exceptions -fno-rtti)
    target_link_libraries(tutti_abseil PUBLIC tutti_flags ${ABSEIL_LIBRARY})
    target_include_directories(tutti_abseil SYSTEM PRIVATE ${ABSEIL_INCLUDE})
  else()
    message(STATUS "gRPC's locks look for deadlocks: no C++ compiler, or no headers of Abseil")
  endif()
endif()

# Of a program that serves: its main calls server_abseil_init().
function(tutti_abseil program)
  if(TARGET tutti_abseil)
    target_link_libraries(${program} PRIVATE tutti_abseil)
    set_target_properties(${program} PROPERTIES LINKER_LANGUAGE C) # nothing in it needs the C++ library
  endif()
endfunction()
