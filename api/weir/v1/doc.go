// Package weirv1 is the native gRPC API of weir: a client of weir.v1.Limiter, generated from limiter.proto, whose
// comments describe every field. `weir serve` serves it, on 127.0.0.1:8081 by default; docs/integrate/grpc.md explains
// how to use it.
//
// A refusal by a limit is a response with Allowed false, not an error.
package weirv1
