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
// A call spends its tokens before the handler runs. One that a limit refuses never reaches the handler: it ends with
// RESOURCE_EXHAUSTED, with google.rpc.RetryInfo and QuotaFailure among the details. Metadata named ratelimit and
// ratelimit-policy have the values of the HTTP fields of draft-ietf-httpapi-ratelimit-headers-10: in the header of calls
// that pass, in the trailer of those that do not, there with retry-after and with grpc-retry-pushback-ms, which gRPC
// clients that retry by themselves heed.
//
// # What a call truly cost
//
// Where that is known only afterwards, [Config].Tokens returns an estimate, and the handler says [SetCost] once it
// knows, or [Config].After does: what was too much is given back, what was too little is added, without being refused,
// and holds later calls back. A handler that panics before it answered costs nothing.
//
// # Trust
//
// This package counts, it does not authenticate: whoever can make up entities can make up fresh limits. Chain it after
// what checks the keys, or limit by [ByPeer] before that.
package grpclimit
