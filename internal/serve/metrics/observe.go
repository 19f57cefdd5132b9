package metrics

import (
	"context"
	"errors"
	"hash/maphash"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/store"
)

// Observer returns the observer that feeds m. Use it as the limiter's, or join it with others.
func (m *Metrics) Observer() *weir.Observer {
	return &weir.Observer{Decided: m.decided, Called: m.called, WouldRefuse: m.wouldRefuse, Adjusted: m.adjusted}
}

func (m *Metrics) decided(ctx context.Context, e weir.DecidedEvent) {
	o, over := outcomeOf(&e)
	exists := o == allowed || o == refused // only then were limits found
	s := m.space(e.Namespace, exists)
	k := key{e.Entity, e.Resource}
	resource := 0
	if exists {
		resource = m.resource(e.Namespace, e.Entity, e.Resource)
	} else if o != invalid {
		resource = m.resources.known.All()[e.Resource]
	}
	sh := m.shard(s, e.Entity)
	sh.mu.Lock()
	sh.totals[o]++
	sh.of(resource)[o]++
	if o != invalid {
		sh.took.observe(e.Took)
		sh.max = max(sh.max, e.Took)
	}
	switch o {
	case invalid:
		if errors.Is(e.Err, weir.ErrBucketQuota) {
			sh.quota++
		}
	case allowed:
		for limit, tokens := range e.Spent() {
			sh.spend(k, limit, tokens)
		}
	case refused:
		sh.refuse(k)
		if over != nil && e.Index == 0 { // the requests of one call share the error
			for i := range over.Statuses {
				if st := &over.Statuses[i]; st.Refused && !st.Shadow {
					limit := m.limits.of(st.Limit, func() bool { return st.Source != weir.SourceRequest })
					sh.tally.refuse(limitKey{limit, m.resource(e.Namespace, st.Entity, st.Resource)}, 1)
				}
			}
		}
	default:
	}
	sh.mu.Unlock()
	m.cfg.Tracing.decided(ctx, &e, o)
}

// resource returns the number of a resource that an entity has limits for.
func (m *Metrics) resource(namespace, entity, resource string) int {
	return m.resources.of(resource, func() bool {
		lim := m.limiter.Load()
		return lim != nil && parts.Of(lim.In(namespace)).Policies.Names(entity, resource)
	})
}

func (m *Metrics) shard(s *space, entity string) *shard {
	return &s.shards[maphash.String(m.seed, entity)%shards]
}

// outcomeByCode has the outcome of a decision for each code of its error.
var outcomeByCode = [weir.Codes]outcome{
	weir.CodeOK:           allowed,
	weir.CodeInternal:     failed,
	weir.CodeInvalid:      invalid,
	weir.CodeExceeded:     refused,
	weir.CodeExceedsBurst: invalid,
	weir.CodeNoLimits:     invalid,
	weir.CodeNotFound:     invalid,
	weir.CodeNoUsage:      invalid,
	weir.CodeExists:       failed,
	weir.CodeConflict:     failed,
	weir.CodeSettled:      failed,
	weir.CodeExpired:      failed,
	weir.CodeUnavailable:  failed,
	weir.CodeCanceled:     failed,
	weir.CodeMaxDebt:      failed, // never: it is of an adjustment

	weir.CodeUnknownEntity: invalid,
	weir.CodeBucketQuota:   invalid,
}

// outcomeOf returns the outcome of a decision and, if Acquire was refused, the error.
func outcomeOf(e *weir.DecidedEvent) (outcome, *weir.ExceededError) {
	switch {
	case e.Allowed && e.Local:
		return local, nil
	case e.Allowed && e.Degraded:
		return unmetered, nil
	case e.Allowed:
		return allowed, nil
	case e.Err == nil:
		return refused, nil
	}
	//nolint:errorlint // it is usually unwrapped, and refusals are many
	if over, ok := e.Err.(*weir.ExceededError); ok {
		return refused, over
	}
	if parts.NoShare(e.Err) {
		return noShare, nil
	}
	var over *weir.ExceededError
	errors.As(e.Err, &over)
	return outcomeByCode[weir.CodeOf(e.Err)], over
}

func (m *Metrics) wouldRefuse(_ context.Context, e weir.WouldRefuseEvent) {
	limit := m.limits.of(e.Limit, func() bool { return true }) // requests bring no limits in shadow
	sh := m.shard(m.space(e.Namespace, true), e.Entity)
	sh.mu.Lock()
	sh.tally.wouldRefuse(limit, 1)
	sh.mu.Unlock()
}

func (m *Metrics) adjusted(_ context.Context, e weir.AdjustedEvent) {
	k := key{e.Entity, e.Resource}
	sh := m.shard(m.space(e.Namespace, true), e.Entity)
	sh.mu.Lock()
	for limit, tokens := range e.Spent() {
		sh.spend(k, limit, tokens)
	}
	sh.mu.Unlock()
}

func (m *Metrics) called(ctx context.Context, e weir.CalledEvent) {
	m.calls.observe(callKey{e.Op, resultOf(e.Err)}, e.Took)
	m.cfg.Tracing.called(ctx, &e)
}

// The results of a call. A rejected call was answered; the others except ok are store errors, unless the caller gave
// up.
const (
	resultOK       = "ok"
	resultRejected = "rejected"
	resultCanceled = "canceled"
	resultTimeout  = "timeout"
	resultError    = "error"
)

// answers are the errors with which a store answers.
var answers = []error{
	store.ErrStaleLimits, store.ErrTooManyOverrides, store.ErrOverflow, store.ErrDuplicateBucket, store.ErrSettled,
	store.ErrExpired, store.ErrConflict, store.ErrBadCursor, store.ErrNoUsage, store.ErrInvalid, store.ErrClosed,
}

func resultOf(err error) string {
	switch {
	case err == nil:
		return resultOK
	case errors.Is(err, context.DeadlineExceeded):
		return resultTimeout
	case errors.Is(err, context.Canceled):
		return resultCanceled
	}
	for _, answer := range answers {
		if errors.Is(err, answer) {
			return resultRejected
		}
	}
	return resultError
}

// troubled reports whether a result counts as an error of the store.
func troubled(result string) bool { return result == resultTimeout || result == resultError }
