# What protoc makes of .proto files, at build time: C code (protobuf-c) and descriptor sets.
#
# Everything lies in build/gen, an include directory: "tutti/v1/types.pb-c.h". Generated code is a
# library of its own with milder flags: it is not ours to warn about.
set(TUTTI_GEN ${PROJECT_BINARY_DIR}/gen)

# What every server of lib/rpc speaks besides its own services. google/rpc is declared by us, with
# the public names and numbers: Debian has no googleapis, and clients bring their own.
set(TUTTI_RPC_PROTO_ROOT ${PROJECT_SOURCE_DIR}/lib/rpc/proto)
set(TUTTI_RPC_PROTO_INCLUDES -I ${TUTTI_RPC_PROTO_ROOT} -I ${GRPC_PROTO_DIR} -I /usr/include)
set(TUTTI_RPC_SERVED
  google/rpc/error_details.proto
  google/rpc/status.proto
  grpc/health/v1/health.proto
  grpc/reflection/v1/reflection.proto
  grpc/reflection/v1alpha/reflection.proto)

# _tutti_proto_library(TARGET INCLUDES flags PROTOS ... DEPENDS files LINKS ... [SET symbol SERVED ...])
function(_tutti_proto_library target)
  cmake_parse_arguments(ARG "" "SET" "INCLUDES;PROTOS;DEPENDS;LINKS;SERVED" ${ARGN})
  file(MAKE_DIRECTORY ${TUTTI_GEN})
  foreach(proto ${ARG_PROTOS})
    string(REGEX REPLACE "\\.proto$" ".pb-c" stem ${proto})
    list(APPEND generated ${TUTTI_GEN}/${stem}.c ${TUTTI_GEN}/${stem}.h)
  endforeach()
  add_custom_command(
    OUTPUT ${generated}
    COMMAND ${PROTOC} ${ARG_INCLUDES} --c_out=${TUTTI_GEN} ${ARG_PROTOS}
    DEPENDS ${ARG_DEPENDS}
    COMMENT "Generating C for ${target}"
    VERBATIM)
  if(ARG_SET)
    set(set_file ${TUTTI_GEN}/${ARG_SET}.pb)
    add_custom_command(
      OUTPUT ${set_file} ${TUTTI_GEN}/${ARG_SET}.c ${TUTTI_GEN}/${ARG_SET}.h
      COMMAND ${PROTOC} ${ARG_INCLUDES} --include_imports --descriptor_set_out=${set_file}
              ${ARG_PROTOS} ${ARG_SERVED}
      COMMAND ${CMAKE_COMMAND} -D INPUT=${set_file} -D OUTPUT=${TUTTI_GEN}/${ARG_SET}
              -D NAME=${ARG_SET} -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
      DEPENDS ${ARG_DEPENDS} ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
      COMMENT "Generating the descriptor set of ${target}"
      VERBATIM)
    list(APPEND generated ${TUTTI_GEN}/${ARG_SET}.c ${TUTTI_GEN}/${ARG_SET}.h)
  endif()
  add_library(${target} STATIC ${generated})
  target_compile_options(${target} PRIVATE -w)
  target_include_directories(${target} SYSTEM PUBLIC ${TUTTI_GEN})
  target_link_libraries(${target} PUBLIC ${ARG_LINKS} PkgConfig::PROTOBUF_C)
endfunction()

# tutti_rpc_protos: health, reflection and error details, for lib/rpc alone; libtutti-rpc adds their set to its user's.
file(GLOB_RECURSE _own CONFIGURE_DEPENDS ${TUTTI_RPC_PROTO_ROOT}/*.proto)
_tutti_proto_library(tutti_rpc_protos
  INCLUDES ${TUTTI_RPC_PROTO_INCLUDES}
  PROTOS ${TUTTI_RPC_SERVED} google/protobuf/any.proto google/protobuf/descriptor.proto
  DEPENDS ${_own}
  SET tutti_rpc_descriptor_set)

# tutti_proto_folder(NAME FOLDER SET symbol): target tutti_NAME with the C code of every .proto under
# FOLDER, and a FileDescriptorSet of all a server with these services serves, declared in
# "symbol.h" as symbol[] and symbol_size.
function(tutti_proto_folder name folder)
  cmake_parse_arguments(ARG "" "SET" "" ${ARGN})
  set(root ${PROJECT_SOURCE_DIR}/${folder})
  file(GLOB_RECURSE protos CONFIGURE_DEPENDS RELATIVE ${root} ${root}/*.proto)
  set(paths ${protos})
  list(TRANSFORM paths PREPEND ${root}/)
  _tutti_proto_library(tutti_${name}
    INCLUDES -I ${root} ${TUTTI_RPC_PROTO_INCLUDES}
    PROTOS ${protos}
    DEPENDS ${paths}
    SET ${ARG_SET}
    SERVED ${TUTTI_RPC_SERVED}
    LINKS tutti_rpc_protos)
endfunction()

# tutti_protos(NAME FOLDER): the same for the public interface, which is installed for clients.
function(tutti_protos name folder)
  tutti_proto_folder(${name} ${folder} SET tutti_descriptor_set)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder}/ DESTINATION ${CMAKE_INSTALL_DATADIR}/tutti/proto
          FILES_MATCHING PATTERN "*.proto")
endfunction()
