// Package grpclimit limits the calls that a gRPC server handles.
//
//	limit, err := grpclimit.New(grpclimit.Config{
//		Limiter:  lim,                               // a *weir.Limiter
//		Entity:   grpclimit.ByMetadata("x-api-key"), // who
//		Resource: grpclimit.ByMethod,                // what
//		Tokens:   grpclimit.Each("rpm"),             // how much
//	})
//	…
//	srv := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(limit.UnaryServerInterceptor()),
//		grpc.ChainStreamInterceptor(limit.StreamServerInterceptor()),
//	)
//
// A call spends its tokens before the handler runs. A call that a limit refuses never reaches the handler: it ends with
// RESOURCE_EXHAUSTED, with google.rpc.RetryInfo and QuotaFailure among the details. The metadata ratelimit and
// ratelimit-policy have the values of the HTTP fields of draft-ietf-httpapi-ratelimit-headers-11. They are in the
// header of calls that pass, and in the trailer of calls that do not, together with retry-after and
// grpc-retry-pushback-ms, which gRPC clients with automatic retries respect.
//
// # Cost known afterwards
//
// If the true cost of a call is known only afterwards, let [Config].Tokens return an estimate, and correct it by
// calling [SetCost] in the handler or by setting [Config].After. Tokens that were not needed are given back. Additional
// tokens are debited without being refused, and hold later calls back. A handler that panics before it answers costs
// nothing.
//
// # Trust
//
// This package counts; it does not authenticate. A client that can invent entities can give itself fresh limits. Chain
// the interceptor after whatever checks the keys, or limit by [ByPeer] before it.
package grpclimit
