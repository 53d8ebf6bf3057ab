# tutti_protos(TARGET FOLDER): C code and the descriptor set of every .proto, made at build time.
#
# Tutti's own protos lie under FOLDER; health and reflection are gRPC's published interfaces. The
# generated code is a library of its own with milder flags: it is not ours to warn about.
set(TUTTI_FOREIGN_PROTOS
  grpc/health/v1/health.proto
  grpc/reflection/v1/reflection.proto
  grpc/reflection/v1alpha/reflection.proto
  google/protobuf/any.proto
  google/protobuf/descriptor.proto)

function(tutti_protos target folder)
  set(root ${PROJECT_SOURCE_DIR}/${folder})
  set(out ${PROJECT_BINARY_DIR}/gen)
  file(MAKE_DIRECTORY ${out})
  file(GLOB_RECURSE own CONFIGURE_DEPENDS RELATIVE ${root} ${root}/*.proto)
  set(all ${own} ${TUTTI_FOREIGN_PROTOS})
  set(own_paths ${own})
  list(TRANSFORM own_paths PREPEND ${root}/)
  foreach(proto ${all})
    string(REGEX REPLACE "\\.proto$" ".pb-c" stem ${proto})
    list(APPEND generated ${out}/${stem}.c)
    list(APPEND headers ${out}/${stem}.h)
  endforeach()
  set(protoc_command ${PROTOC} -I ${root} -I ${GRPC_PROTO_DIR} -I /usr/include)
  add_custom_command(
    OUTPUT ${generated} ${headers} ${out}/tutti.pb
    COMMAND ${protoc_command} --c_out=${out} ${all}
    COMMAND ${protoc_command} --include_imports --descriptor_set_out=${out}/tutti.pb ${all}
    DEPENDS ${own_paths}
    COMMENT "Generating C from ${folder}/"
    VERBATIM)
  add_custom_command(
    OUTPUT ${out}/descriptor_set.c
    COMMAND ${CMAKE_COMMAND} -D INPUT=${out}/tutti.pb -D OUTPUT=${out}/descriptor_set.c
            -D NAME=tutti_descriptor_set -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${out}/tutti.pb ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
    VERBATIM)
  add_library(tutti_${target} STATIC ${generated} ${headers} ${out}/descriptor_set.c)
  target_compile_options(tutti_${target} PRIVATE -w)
  target_include_directories(tutti_${target} SYSTEM PUBLIC ${out})
  target_link_libraries(tutti_${target} PUBLIC PkgConfig::PROTOBUF_C)
  install(DIRECTORY ${root}/ DESTINATION ${CMAKE_INSTALL_DATADIR}/tutti/proto
          FILES_MATCHING PATTERN "*.proto")
endfunction()
