package httplimit

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/answer"
)

// Middleware limits the requests of the handlers that it wraps. It is safe for concurrent use.
type Middleware struct {
	cfg Config
	log answer.Log
}

// New returns a middleware. It does not call the limiter yet.
//
// Errors: a [*weir.ConfigError] for each field of cfg that is missing or invalid, joined.
func New(cfg Config) (*Middleware, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.RollbackOn == nil {
		cfg.RollbackOn = func(_ *http.Request, res *Result) bool { return res.Panicked && res.Status == 0 }
	}
	m := &Middleware{cfg: cfg}
	if m.log.Logger = cfg.Log; m.log.Logger == nil {
		m.log.Logger = slog.Default()
	}
	return m, nil
}

// Wrap returns a handler that runs next for requests that the limits let pass. One middleware may wrap any number of
// handlers. A handler that is wrapped twice is charged twice, by the outer middleware first; the fields of the answer
// and the lease in the context are those of the inner one.
func (m *Middleware) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if m.cfg.Skip != nil && m.cfg.Skip(r) {
			next.ServeHTTP(w, r)
			return
		}
		req, err := m.request(r)
		if err != nil {
			m.refuse(w, r, req.Entity, err)
			return
		}
		lease, err := m.cfg.Limiter.Acquire(r.Context(), req)
		switch {
		case err == nil:
			m.admit(w, r, next, req, lease)
		case m.cfg.AdmitUnlimited && errors.Is(err, weir.ErrNoLimits):
			next.ServeHTTP(w, r)
		default:
			m.refuse(w, r, req.Entity, err)
		}
	})
}

func (m *Middleware) request(r *http.Request) (req weir.Request, err error) {
	req.OnUnavailable = m.cfg.OnUnavailable
	if req.Entity, err = m.cfg.Entity(r); err != nil {
		return req, err
	}
	if req.Resource, err = m.cfg.Resource(r); err != nil {
		return req, err
	}
	req.Tokens, err = m.cfg.Tokens(r)
	return req, err
}

// exchange holds the state of a request that is handled, in one allocation.
type exchange struct {
	recorder
	charge answer.Charge
	result Result
}

// admit handles a request that has spent its tokens.
func (m *Middleware) admit(
	w http.ResponseWriter, r *http.Request, next http.Handler, req weir.Request, lease *weir.Lease,
) {
	d := lease.Decision()
	answer.SetFields(w.Header(), req.Entity, answer.Tell(m.cfg.Tell).Of(d.Statuses), m.cfg.LegacyHeaders)
	if d.Degraded {
		w.Header().Set("Weir-Degraded", "store-unavailable")
		m.trouble(r, "admitted without the store", errors.New(d.Reason))
	}
	x := &exchange{recorder: recorder{ResponseWriter: w}, result: Result{Panicked: true}} // until the handler returns
	x.charge.Hold(lease, req.Tokens)
	r = r.WithContext(answer.WithCharge(lease.Context(), &x.charge))
	began := time.Now()
	defer func() { m.end(r, x, time.Since(began)) }() // also if the handler panics; the panic continues
	next.ServeHTTP(&x.recorder, r)
	x.result.Panicked = false
}

// end settles the cost of a request.
func (m *Middleware) end(r *http.Request, x *exchange, took time.Duration) {
	if !x.result.Panicked {
		x.answered()
	}
	x.result.Status, x.result.Bytes, x.result.Duration = x.status, x.bytes, took
	rollback := m.cfg.RollbackOn(r, &x.result)
	var cost weir.Tokens
	if m.cfg.After != nil && !rollback {
		cost = m.cfg.After(r, &x.result)
	}
	if err := x.charge.End(r.Context(), rollback, cost); err != nil {
		m.trouble(r, "a request's cost was not settled", err)
	}
}

func (m *Middleware) trouble(r *http.Request, what string, err error) {
	m.log.Trouble(
		r.Context(), "httplimit: "+what, err, slog.String("method", r.Method), slog.String("pattern", r.Pattern),
	)
}

// Lease returns the lease of the request that the handler's context belongs to; nil if the request was not limited. The
// middleware ends the lease when the handler returns, so do not use it in goroutines that outlive the handler. If you
// adjust the lease, do not also call [SetCost].
func Lease(ctx context.Context) *weir.Lease { return answer.ChargeFrom(ctx).Lease() }

// SetCost sets the true cost of the request that the handler's context belongs to: for each named limit the total
// amount, which replaces the requested amount and that of earlier calls. It may be called again as the cost grows. A
// cost above the requested amount is never refused, but may put a limit into debt, which holds later requests back. If
// the request was not limited, SetCost does nothing.
//
// Errors are those of [weir.Lease.Adjust]. A handler may ignore them: at worst the estimate stands.
func SetCost(ctx context.Context, cost weir.Tokens) error {
	return answer.ChargeFrom(ctx).SetCost(ctx, cost)
}
