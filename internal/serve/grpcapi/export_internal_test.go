package grpcapi

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
)

// FloorOptions returns a server's options, without those for interceptors.
func FloorOptions() []grpc.ServerOption { return transport() }

// Codec returns the codec with which a server reads and writes messages.
func Codec() encoding.CodecV2 { return newCodec() }
