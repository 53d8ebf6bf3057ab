# Language, warnings and sanitizers: the same for every room.
include(GNUInstallDirs)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set_property(GLOBAL PROPERTY USE_FOLDERS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
# Asserts guard against our own mistakes and stay on in release: NDEBUG is never defined.
set(CMAKE_C_FLAGS_RELEASE "-O3 -g1")
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g")

set(TUTTI_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize= takes them: address,undefined or thread")
option(TUTTI_TESTS "Build the tests" ON)
option(TUTTI_BENCH "Build the benchmarks" ON)
option(TUTTI_FUZZ "Build the fuzz targets (clang)" OFF)

set(TUTTI_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes
    -Wmissing-prototypes -Wvla -Werror)

# Sanitizers say the same of -O1, where gcc takes a third less, and name lines with -g1. What gcc warns of at -O1
# alone is no error: it sees less there, and the builds without sanitizers are warned at -O2. Fuzzing wants speed.
if(TUTTI_SANITIZE AND NOT TUTTI_FUZZ)
  set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O1 -g1")
  list(REMOVE_ITEM TUTTI_WARNINGS -Werror)
endif()

add_library(tutti_flags INTERFACE)
target_compile_definitions(tutti_flags INTERFACE _GNU_SOURCE)
target_compile_options(tutti_flags INTERFACE -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=
                       -fno-omit-frame-pointer -fno-math-errno -ffp-contract=off)
target_include_directories(tutti_flags INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/tests>
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/lib>
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>)
if(TUTTI_SANITIZE)
  add_compile_options(-fsanitize=${TUTTI_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${TUTTI_SANITIZE})
endif()
if(TUTTI_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
configure_file(include/tutti/version.h.in include/tutti/version.h @ONLY)

# A change of lib/base links 160 programs again: 3 seconds with gold, 7 with the linker that gcc takes by itself.
set(TUTTI_LINKER "" CACHE STRING "linker, as -fuse-ld names it; ignored where it is missing")
if(TUTTI_LINKER)
  include(CheckLinkerFlag)
  check_linker_flag(C "-fuse-ld=${TUTTI_LINKER}" TUTTI_HAS_LINKER)
  if(TUTTI_HAS_LINKER)
    add_link_options("-fuse-ld=${TUTTI_LINKER}")
  endif()
endif()
