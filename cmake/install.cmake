# tutti_install(): what `cmake --install` puts in place besides the servers, the library and the
# protos, which say so where they are made: the command with its man pages and completions, the
# headers, and what CMake and pkg-config want to know.
include(CMakePackageConfigHelpers)

# The rooms' libraries, for who links libtutti.a: it is one object without them.
set(TUTTI_STATIC_LIBRARIES grpc gpr protobuf-c ssl crypto bsd pthread)

function(tutti_install)
  # The prefix can be moved: the command looks for the library beside itself.
  file(RELATIVE_PATH libraries ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(tutti PROPERTIES INSTALL_RPATH "$ORIGIN/${libraries}")
  install(TARGETS tutti)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/tutti TYPE INCLUDE FILES_MATCHING PATTERN "*.h")
  install(FILES ${PROJECT_BINARY_DIR}/include/tutti/version.h
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tutti)
  _tutti_install_pages()
  _tutti_install_pkg_config(tutti)
  _tutti_install_package()
endfunction()

# Man pages and completions are printed by the programs themselves, from their tables.
function(_tutti_install_pages)
  set(folder ${PROJECT_BINARY_DIR}/pages)
  if(CMAKE_CROSSCOMPILING)
    message(STATUS "Cross-compiling: no man pages and completions, `tutti man` makes them")
    return()
  endif()
  add_custom_command(
    OUTPUT ${folder}/stamp
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${folder}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${folder}
    COMMAND tutti man ${folder}/man
    COMMAND ${CMAKE_COMMAND} -E make_directory ${folder}/man8
    COMMAND tutti-agent --man > ${folder}/man8/tutti-agent.8
    COMMAND tutti-coordinator --man > ${folder}/man8/tutti-coordinator.8
    COMMAND tutti completion bash > ${folder}/tutti.bash
    COMMAND tutti completion zsh > ${folder}/_tutti
    COMMAND tutti completion fish > ${folder}/tutti.fish
    COMMAND ${CMAKE_COMMAND} -E touch ${folder}/stamp
    DEPENDS tutti tutti-agent tutti-coordinator
    COMMENT "Printing man pages and completions"
    VERBATIM)
  add_custom_target(tutti_pages ALL DEPENDS ${folder}/stamp)
  install(DIRECTORY ${folder}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(DIRECTORY ${folder}/man8/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man8)
  # bash and fish look for a file with the name of the program.
  foreach(program tutti tutti-agent tutti-coordinator)
    install(FILES ${folder}/tutti.bash RENAME ${program}
            DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
    install(FILES ${folder}/tutti.fish RENAME ${program}.fish
            DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
  endforeach()
  install(FILES ${folder}/_tutti DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
endfunction()

function(_tutti_install_pkg_config name)
  set(folder ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  file(RELATIVE_PATH TUTTI_PREFIX_FROM_PC ${CMAKE_INSTALL_PREFIX}/${folder} ${CMAKE_INSTALL_PREFIX})
  string(REGEX REPLACE "/$" "" TUTTI_PREFIX_FROM_PC ${TUTTI_PREFIX_FROM_PC})
  list(TRANSFORM TUTTI_STATIC_LIBRARIES PREPEND -l OUTPUT_VARIABLE TUTTI_LIBS_PRIVATE)
  list(JOIN TUTTI_LIBS_PRIVATE " " TUTTI_LIBS_PRIVATE)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${folder})
endfunction()

function(_tutti_install_package)
  set(folder ${CMAKE_INSTALL_LIBDIR}/cmake/tutti)
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/tuttiConfig.cmake.in
    ${PROJECT_BINARY_DIR}/tuttiConfig.cmake
    INSTALL_DESTINATION ${folder}
    PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_DATADIR)
  # Before 1.0 a minor version may break what the one before promised.
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/tuttiConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
  install(EXPORT tuttiTargets NAMESPACE tutti:: DESTINATION ${folder})
  install(FILES ${PROJECT_BINARY_DIR}/tuttiConfig.cmake
          ${PROJECT_BINARY_DIR}/tuttiConfigVersion.cmake DESTINATION ${folder})
endfunction()
