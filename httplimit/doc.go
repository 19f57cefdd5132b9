// Package httplimit limits the requests that a net/http server handles.
//
//	limit, err := httplimit.New(httplimit.Config{
//		Limiter:  lim,                             // a *weir.Limiter
//		Entity:   httplimit.ByHeader("X-Api-Key"), // who
//		Resource: httplimit.ByPattern,             // what
//		Tokens:   httplimit.Each("rpm"),           // how much
//	})
//	…
//	mux.Handle("POST /v1/orders", limit.Wrap(orders))
//
// A request spends its tokens before the handler runs. A request that a limit refuses never reaches the handler: it is
// answered with 429, a Retry-After that is never too early, the RateLimit fields of
// draft-ietf-httpapi-ratelimit-headers-11, and a problem+json body, like the answers of weir serve. Answers to requests
// that pass have the RateLimit fields, too.
//
// # Cost known afterwards
//
// If the true cost of a request is known only afterwards, let [Config].Tokens return an estimate, and correct it by
// calling [SetCost] in the handler or by setting [Config].After. Tokens that were not needed are given back. Additional
// tokens are debited without being refused, and hold later requests back. A handler that panics before it answers costs
// nothing.
//
// # Trust
//
// This package counts; it does not authenticate. A client that can invent entities can give itself fresh limits. Put
// the middleware behind whatever checks the keys, or limit by [ByRemoteAddr] in front of it.
package httplimit
