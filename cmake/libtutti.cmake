# tutti_library(): libtutti.so and libtutti.a, of the room `client` and all it stands on.
#
# The shared one shows what include/tutti declares. The static one is a single object whose hidden
# names are made local: it brings generated code and our words along, and must not clash with those
# of the program it is linked into. With a sanitizer it is not built: instrumented objects do not
# survive that.
set(TUTTI_SOVERSION 0)
set(TUTTI_CLIENT_ROOMS client rpc lane tensor share base protos rpc_protos)

function(tutti_library)
  list(TRANSFORM TUTTI_CLIENT_ROOMS PREPEND tutti_ OUTPUT_VARIABLE rooms)
  # Whole rooms where public functions live, of the others what these need.
  add_library(libtutti SHARED $<TARGET_OBJECTS:tutti_client> $<TARGET_OBJECTS:tutti_base>)
  set_target_properties(libtutti PROPERTIES OUTPUT_NAME tutti EXPORT_NAME tutti
    VERSION ${PROJECT_VERSION} SOVERSION ${TUTTI_SOVERSION}
    LINK_DEPENDS ${PROJECT_SOURCE_DIR}/client/libtutti.map)
  target_link_options(libtutti PRIVATE -Wl,--gc-sections
    -Wl,--version-script=${PROJECT_SOURCE_DIR}/client/libtutti.map)
  if(NOT TUTTI_SANITIZE) # clang keeps a sanitizer's own symbols for the program
    target_link_options(libtutti PRIVATE -Wl,-z,defs)
  endif()
  set_target_properties(libtutti PROPERTIES LINKER_LANGUAGE C)
  target_link_libraries(libtutti PRIVATE ${rooms})
  target_include_directories(libtutti INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  install(TARGETS libtutti EXPORT tuttiTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})

  if(NOT TUTTI_SANITIZE)
    _tutti_static_library(tutti "tutti_*" "${rooms}")
  endif()
endfunction()

function(_tutti_static_library name public rooms)
  set(object ${PROJECT_BINARY_DIR}/lib${name}.o)
  set(archive ${PROJECT_BINARY_DIR}/lib${name}.a)
  foreach(room ${rooms})
    list(APPEND files $<TARGET_FILE:${room}>)
  endforeach()
  add_custom_command(
    OUTPUT ${archive}
    COMMAND ${CMAKE_LINKER} -r -o ${object} --whole-archive ${files}
    COMMAND ${CMAKE_OBJCOPY} --localize-hidden --wildcard --keep-global-symbol=${public} ${object}
    COMMAND ${CMAKE_COMMAND} -E rm -f ${archive}
    COMMAND ${CMAKE_AR} qc ${archive} ${object}
    COMMAND ${CMAKE_RANLIB} ${archive}
    DEPENDS ${rooms}
    COMMENT "Linking lib${name}.a"
    VERBATIM)
  add_custom_target(lib${name}_static ALL DEPENDS ${archive})
  install(FILES ${archive} DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()
