# What makes a fault in memory harder to exploit, for every object and program of every build type: position
# independence, read-only relocations, stack protector, checked libc calls, and branch targets and return addresses
# that the processor checks, where compiler and processor have that.
#
# Sanitizers look at the same accesses themselves and replace the functions that _FORTIFY_SOURCE does.
# tests/house/test_house_elf.py reads it from the programs.
include(CheckCCompilerFlag)
include(CheckPIESupported)

check_pie_supported(LANGUAGES C) # without it CMake compiles for PIE, but leaves linking to the compiler's default
set(TUTTI_HARDENED OFF)
set(TUTTI_CET OFF)
if(NOT TUTTI_SANITIZE AND NOT TUTTI_FUZZ)
  set(TUTTI_HARDENED ON)
  add_compile_options(-fstack-protector-strong)
  # glibc warns of it where nothing is optimized.
  add_compile_options("$<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>")
  add_link_options(-Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
  check_c_compiler_flag(-fcf-protection=full TUTTI_CC_HAS_CET)
  if(TUTTI_CC_HAS_CET AND CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
    set(TUTTI_CET ON)
    add_compile_options(-fcf-protection=full)
  endif()
endif()
