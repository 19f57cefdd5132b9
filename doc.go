// Package weir is a rate limiter. It answers one question: may this entity spend these tokens on this resource?
//
// An entity is the caller to be limited (an API key, a project), a resource is what the caller uses (a model, an
// endpoint), and tokens are what is counted (requests, LLM tokens, bytes), each under a named [Limit]. One call decides
// over several limits, and over the entity's parents, all or none.
//
// # The guarantee
//
// A limit of amount tokens per period with a burst admits, between any two instants, at most the burst plus the tokens
// issued in between, as exactly as the store keeps what was spent and the time: docs/guarantees.md has the details. A
// token given back counts as unspent from then on, unless the limit is strict (see [Limit]). Tokens that are added
// afterwards ([Lease.Adjust]) are not refused; they hold later requests back instead. Where the operator chose to admit
// requests while the store does not answer (see [OnUnavailable]), weir may admit more, and marks those decisions.
//
// # Usage
//
// Create a limiter over a store ([New]), set limits, and acquire tokens before doing the work: an estimate
// ([Limiter.Acquire]). Then adjust the lease to what it needed, and commit it; a rollback gives the tokens back. The
// example of the package shows it.
//
// [Limiter.Allow] is the short form for limits that count requests, [Limiter.Do] runs a function with a lease,
// [Limiter.Wait] waits instead of refusing, and [Limiter.AcquireAll] decides over several requests at once. The package
// [github.com/weirlimits/weir/admin] manages entities, limits and namespaces.
//
// # Stores
//
// Package memory keeps buckets in the process, and disk in a file of one process. Any number of processes share what
// dynamodb or redis keep. All are in [github.com/weirlimits/weir/store].
package weir
