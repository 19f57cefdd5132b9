package rpc

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
)

// FloorOptions are the options of a server, but for what stands in front of its handlers.
func FloorOptions() []grpc.ServerOption { return transport() }

// Codec is what a server reads and writes messages with.
func Codec() encoding.CodecV2 { return newCodec() }
