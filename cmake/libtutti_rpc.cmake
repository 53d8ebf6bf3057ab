# tutti_rpc_library(): libtutti-rpc.so and libtutti-rpc.a, the room lib/rpc/door and all it stands on, made as
# libtutti.cmake makes libtutti; with its headers, pkg-config, and the package tutti-rpc for CMake.
# In the static one the functions of include/tutti, which lib/base has, are hidden too: a program may link both.
set(TUTTI_RPC_SOVERSION 0)
set(TUTTI_RPC_ROOMS rpc_door rpc lane base rpc_protos)

function(tutti_rpc_library)
  list(TRANSFORM TUTTI_RPC_ROOMS PREPEND tutti_ OUTPUT_VARIABLE rooms)
  add_library(libtutti_rpc SHARED $<TARGET_OBJECTS:tutti_rpc_door>)
  set_target_properties(libtutti_rpc PROPERTIES OUTPUT_NAME tutti-rpc EXPORT_NAME tutti-rpc LINKER_LANGUAGE C
    VERSION ${PROJECT_VERSION} SOVERSION ${TUTTI_RPC_SOVERSION}
    LINK_DEPENDS ${PROJECT_SOURCE_DIR}/lib/rpc/door/libtutti-rpc.map)
  target_link_options(libtutti_rpc PRIVATE -Wl,--gc-sections
    -Wl,--version-script=${PROJECT_SOURCE_DIR}/lib/rpc/door/libtutti-rpc.map)
  if(NOT TUTTI_SANITIZE)
    target_link_options(libtutti_rpc PRIVATE -Wl,-z,defs)
    _tutti_static_library(tutti-rpc "tuttirpc_*" "${rooms}")
  endif()
  target_link_libraries(libtutti_rpc PRIVATE ${rooms})
  target_include_directories(libtutti_rpc INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  install(TARGETS libtutti_rpc EXPORT tuttiRpcTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/tutti-rpc TYPE INCLUDE FILES_MATCHING PATTERN "*.h")
  _tutti_install_pkg_config(tutti-rpc)
  _tutti_install_rpc_package()
endfunction()

function(_tutti_install_rpc_package)
  set(folder ${CMAKE_INSTALL_LIBDIR}/cmake/tutti-rpc)
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/tutti-rpcConfig.cmake.in
    ${PROJECT_BINARY_DIR}/tutti-rpcConfig.cmake
    INSTALL_DESTINATION ${folder} PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/tutti-rpcConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
  install(EXPORT tuttiRpcTargets NAMESPACE tutti-rpc:: DESTINATION ${folder})
  install(FILES ${PROJECT_BINARY_DIR}/tutti-rpcConfig.cmake ${PROJECT_BINARY_DIR}/tutti-rpcConfigVersion.cmake
                ${PROJECT_SOURCE_DIR}/cmake/embed.cmake DESTINATION ${folder})
endfunction()
