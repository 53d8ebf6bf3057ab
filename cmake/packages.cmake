# Libraries from the distribution. Each is met by name here and linked by one room.
include(CheckSymbolExists)
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PROTOBUF_C REQUIRED IMPORTED_TARGET libprotobuf-c)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(JWT REQUIRED IMPORTED_TARGET libjwt)
pkg_check_modules(MICROHTTPD REQUIRED IMPORTED_TARGET libmicrohttpd)
# Lines with history and completion in tutti session. Optional: without it lines are plain. Not
# readline: it is under the GPL, which what links it has to follow.
pkg_check_modules(LIBEDIT IMPORTED_TARGET libedit)
add_library(tutti_libedit INTERFACE)
if(LIBEDIT_FOUND)
  target_compile_definitions(tutti_libedit INTERFACE TUTTI_LIBEDIT)
  target_link_libraries(tutti_libedit INTERFACE PkgConfig::LIBEDIT)
endif()
find_package(OpenSSL REQUIRED)
find_program(PROTOC protoc REQUIRED)

# grpc.pc lists some sixty Abseil libraries that only static links want.
find_path(GRPC_INCLUDE grpc/grpc.h REQUIRED)
find_library(GRPC_LIBRARY grpc REQUIRED)
find_library(GPR_LIBRARY gpr REQUIRED)
add_library(tutti_grpc INTERFACE)
target_include_directories(tutti_grpc SYSTEM INTERFACE ${GRPC_INCLUDE})
target_link_libraries(tutti_grpc INTERFACE ${GRPC_LIBRARY} ${GPR_LIBRARY})
# gRPC 1.66 took it away.
set(CMAKE_REQUIRED_INCLUDES ${GRPC_INCLUDE})
set(CMAKE_REQUIRED_LIBRARIES ${GPR_LIBRARY})
check_symbol_exists(gpr_set_log_function grpc/support/log.h TUTTI_HAS_GPR_LOG)
unset(CMAKE_REQUIRED_INCLUDES)
unset(CMAKE_REQUIRED_LIBRARIES)
if(TUTTI_HAS_GPR_LOG)
  target_compile_definitions(tutti_grpc INTERFACE TUTTI_GPR_LOG)
endif()

find_path(UCX_INCLUDE ucp/api/ucp.h REQUIRED)
find_library(UCP_LIBRARY ucp REQUIRED)
find_library(UCS_LIBRARY ucs REQUIRED)
add_library(tutti_ucx INTERFACE)
target_include_directories(tutti_ucx SYSTEM INTERFACE ${UCX_INCLUDE})
target_link_libraries(tutti_ucx INTERFACE ${UCP_LIBRARY} ${UCS_LIBRARY})

find_path(LMDB_INCLUDE lmdb.h REQUIRED)
find_library(LMDB_LIBRARY lmdb REQUIRED)
add_library(tutti_lmdb INTERFACE)
target_include_directories(tutti_lmdb SYSTEM INTERFACE ${LMDB_INCLUDE})
target_link_libraries(tutti_lmdb INTERFACE ${LMDB_LIBRARY})

# Public interfaces that every gRPC server speaks; Debian's grpc-proto.
find_path(GRPC_PROTO_DIR grpc/health/v1/health.proto PATHS /usr/share/grpc-proto /usr/share REQUIRED)
