// Package weir answers one question: may this entity spend these tokens on this resource?
//
// An entity is who asks (an API key, a project), a resource what it asks for (a model, an endpoint), and tokens are
// what is counted (requests, LLM tokens, bytes), each under a named [Limit]. One call decides over several limits, and
// over the entity's parents, all or none, in one atomic step of a store.
//
// # The guarantee
//
// A limit of amount tokens per period and a burst admits, between any two instants, at most the burst plus what was
// issued in between: exactly, under concurrency, crashes and faults. There is no tolerance and no window whose edge
// admits twice. What is given back counts from when it comes back; amounts that are added afterwards ([Lease.Adjust])
// are never refused, and hold later requests back instead. Only where an operator chose to admit when the store does
// not answer is more admitted, and those answers are marked.
//
// # Use
//
//	lim, err := weir.New(weir.Config{Store: memory.New(nil)})
//	…
//	err = lim.SetLimits(ctx, weir.Scope{Resource: "gpt-4"}, weir.PerMinute("rpm", 60), weir.PerMinute("tpm", 50_000))
//	…
//	lease, err := lim.Acquire(ctx, weir.Request{
//		Entity: "key-alice", Resource: "gpt-4",
//		Tokens: weir.Tokens{"rpm": 1, "tpm": 500}, // an estimate
//	})
//	var over *weir.ExceededError
//	if errors.As(err, &over) {
//		return retryLater(over.RetryAfter)
//	}
//	defer lease.Rollback(ctx) // gives back unless committed
//	used, err := callModel(ctx)
//	…
//	lease.Adjust(ctx, weir.Tokens{"tpm": used - 500})
//	lease.Commit(ctx)
//
// Stores: [github.com/weirlimits/weir/store/memory] for one process, [github.com/weirlimits/weir/store/disk] for one
// process that must not forget.
package weir
