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
// A request spends its tokens before the handler runs. One that a limit refuses never reaches the handler: it is answered
// with 429, a Retry-After that is never too early, the RateLimit fields of draft-ietf-httpapi-ratelimit-headers-10 and a
// problem+json body, as weir serve does. Answers of requests that pass have the RateLimit fields, too.
//
// # What a request truly cost
//
// Where that is known only afterwards, [Config].Tokens returns an estimate, and the handler says [SetCost] once it
// knows, or [Config].After does: what was too much is given back, what was too little is added, without being refused,
// and holds later requests back. A handler that panics before it answered costs nothing.
//
// # Trust
//
// This package counts, it does not authenticate: whoever can make up entities can make up fresh limits. Put it behind
// what checks the keys, or limit by [ByRemoteAddr] in front of that.
package httplimit
