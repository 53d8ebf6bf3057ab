/*
 * All of libtutti-rpc: gRPC servers and clients in C, for services whose messages protobuf-c has
 * generated. docs/rpc.md begins with a server and a client.
 */
#ifndef TUTTI_RPC_PUBLIC_RPC_H
#define TUTTI_RPC_PUBLIC_RPC_H

#include "tutti-rpc/client.h"
#include "tutti-rpc/message.h"
#include "tutti-rpc/server.h"
#include "tutti-rpc/status.h"

#endif
