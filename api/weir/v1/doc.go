// Package weirv1 is the native gRPC API of weir: a client of weir.v1.Limiter, generated from limiter.proto, whose comments
// say what each field means. `weir serve` answers it, on 127.0.0.1:8081 unless told otherwise; docs/guide/grpc.md is the
// manual.
//
// A refusal by a limit is a response with Allowed false, not an error.
package weirv1
