# tutti_python(): the extension of the Python package, build/.../python/_native.abi3.so. It uses the stable ABI, so one
# file serves CPython 3.11 and newer; without Python's headers the package goes by grpcio. It is installed where
# TUTTI_PYTHON_DIR says (Debian's packages), or as the component `python` into lib/tutti/python (./run install, which puts the
# package around it); the wheel takes it from the build.
function(tutti_python)
  find_path(TUTTI_PYTHON_HEADERS Python.h PATHS /usr/include/python3.11 /usr/include/python3.12 /usr/include/python3.13
            /usr/include/python3.14 NO_DEFAULT_PATH)
  if(NOT TUTTI_PYTHON_HEADERS OR TUTTI_SANITIZE)
    message(STATUS "Python's extension: not built")
    return()
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/client/python/native/*.c)
  add_library(tutti_native MODULE ${sources})
  set_target_properties(tutti_native PROPERTIES PREFIX "" OUTPUT_NAME _native SUFFIX .abi3.so
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/python BUILD_RPATH "$ORIGIN/..")
  # Slots of types hold functions as void *.
  target_compile_options(tutti_native PRIVATE ${TUTTI_WARNINGS} -Wno-pedantic)
  target_include_directories(tutti_native SYSTEM PRIVATE ${TUTTI_PYTHON_HEADERS})
  target_link_libraries(tutti_native PRIVATE libtutti tutti_flags)
  set(folder lib/tutti/python/tutti)
  set(unless_asked COMPONENT python EXCLUDE_FROM_ALL)
  if(TUTTI_PYTHON_DIR)
    set(folder ${TUTTI_PYTHON_DIR})
    set(unless_asked)
  endif()
  file(RELATIVE_PATH libraries ${CMAKE_INSTALL_PREFIX}/${folder} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(tutti_native PROPERTIES INSTALL_RPATH "$ORIGIN/${libraries}")
  install(TARGETS tutti_native LIBRARY DESTINATION ${folder} ${unless_asked})
endfunction()
