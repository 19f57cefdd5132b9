// Package weir is a rate limiter. It answers one question: may this entity spend these tokens on this resource?
//
// An entity is the caller to be limited (an API key, a project), a resource is what the caller uses (a model, an
// endpoint), and tokens are what is counted (requests, LLM tokens, bytes), each under a named [Limit]. One call decides
// over several limits, and over the entity's parents, all or none.
//
// # The guarantee
//
// A limit of amount tokens per period with a burst admits, between any two instants, at most the burst plus the tokens
// issued in between: exactly, under concurrency, crashes and faults. There is no tolerance, and no window whose edge
// admits twice. Tokens that are given back can be spent from the moment they come back. Tokens that are added
// afterwards ([Lease.Adjust]) are never refused; they hold later requests back instead. weir admits more only where the
// operator chose to admit requests while the store does not answer (see [OnUnavailable]), and it marks those decisions.
//
// # Usage
//
// Create a limiter over a store, set limits, and acquire tokens before doing the work:
//
//	lim, err := weir.New(weir.Config{Store: memory.New(nil)})
//	…
//	err = admin.New(lim).Limits.Set(ctx, admin.Scope{Resource: "gpt-4"},
//		weir.PerMinute("rpm", 60), weir.PerMinute("tpm", 50_000))
//	…
//	lease, err := lim.Acquire(ctx, weir.Request{
//		Entity: "key-alice", Resource: "gpt-4",
//		Tokens: weir.Tokens{"rpm": 1, "tpm": 500}, // an estimate
//	})
//	var over *weir.ExceededError
//	if errors.As(err, &over) {
//		return retryLater(over.RetryAfter)
//	}
//	…
//	defer lease.Rollback(ctx) // gives the tokens back unless committed
//	used, err := callModel(ctx)
//	…
//	lease.Adjust(ctx, weir.Tokens{"tpm": used - 500})
//	lease.Commit(ctx)
//
// [Limiter.Allow] is the short form for limits that count requests, [Limiter.Do] runs a function with a lease,
// [Limiter.Wait] waits instead of refusing, and [Limiter.AcquireAll] decides over several requests at once. The package
// [github.com/weirlimits/weir/admin] manages entities, limits and namespaces.
//
// # Stores
//
//   - [github.com/weirlimits/weir/store/memory]: one process; the state is lost when it ends.
//   - [github.com/weirlimits/weir/store/disk]: one process; the state survives crashes.
//   - [github.com/weirlimits/weir/store/dynamodb]: any number of processes, on one DynamoDB table.
//   - [github.com/weirlimits/weir/store/redis]: any number of processes, on Redis or Valkey.
package weir
