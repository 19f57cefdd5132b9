package env

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

// Take takes, and fails the test on an error.
func (e *Env) Take(debits ...store.Debit) store.Outcome {
	e.Helper()
	out, err := e.Store.Take(e.Context(), store.Take{Debits: debits})
	if err != nil {
		e.Fatalf("take: %v", err)
	}
	return out
}

// TakeQuietly is Take for goroutines.
func (e *Env) TakeQuietly(debits ...store.Debit) store.Outcome {
	out, err := e.Store.Take(e.Context(), store.Take{Debits: debits})
	if err != nil {
		e.Errorf("take: %v", err)
	}
	return out
}

// Allow is Take of what must be admitted.
func (e *Env) Allow(debits ...store.Debit) store.Outcome {
	e.Helper()
	out := e.Take(debits...)
	if !out.Allowed {
		e.Fatalf("refused, want allowed: %s", Show(out))
	}
	return out
}

// Refuse is Take of what must be refused.
func (e *Env) Refuse(debits ...store.Debit) store.Outcome {
	e.Helper()
	out := e.Take(debits...)
	if out.Allowed {
		e.Fatalf("allowed, want refused: %s", Show(out))
	}
	return out
}

// TakeFails checks that a take fails with an error.
func (e *Env) TakeFails(want error, debits ...store.Debit) {
	e.Helper()
	out, err := e.Store.Take(e.Context(), store.Take{Debits: debits})
	if !errors.Is(err, want) {
		e.Fatalf("take: error %v, want %v (allowed %t)", err, want, out.Allowed)
	}
}

// Settle settles, and fails the test on an error.
func (e *Env) Settle(debits ...store.Debit) store.Outcome {
	e.Helper()
	out, err := e.Store.Settle(e.Context(), store.Settle{Debits: debits})
	if err != nil {
		e.Fatalf("settle: %v", err)
	}
	return out
}

// SettleQuietly is Settle for goroutines.
func (e *Env) SettleQuietly(debits ...store.Debit) store.Outcome {
	out, err := e.Store.Settle(e.Context(), store.Settle{Debits: debits})
	if err != nil {
		e.Errorf("settle: %v", err)
	}
	return out
}

// SettleFails checks that a settle fails with an error.
func (e *Env) SettleFails(want error, s store.Settle) {
	e.Helper()
	if _, err := e.Store.Settle(e.Context(), s); !errors.Is(err, want) {
		e.Fatalf("settle: error %v, want %v", err, want)
	}
}

// Soon returns an expiry time for settles of this test.
func (e *Env) Soon() time.Time { return e.Now().Add(time.Hour) }

// Once returns a settle with an ID that expires soon.
func (e *Env) Once(id string, debits ...store.Debit) store.Settle {
	return store.Settle{Debits: debits, ID: id, Expires: e.Soon()}
}

// SettleOnce makes a settle that must be applied.
func (e *Env) SettleOnce(s store.Settle) store.Outcome {
	e.Helper()
	out, err := e.Store.Settle(e.Context(), s)
	if err != nil {
		e.Fatalf("settle %q: %v", s.ID, err)
	}
	return out
}

// Credit credits tokens to a balance, and fails the test on an error.
func (e *Env) Credit(b store.Bucket, limit string, tokens int64, id string) store.Credited {
	e.Helper()
	return e.CreditRaw(b, limit, tokens*Token, id)
}

// CreditRaw is Credit in millitokens.
func (e *Env) CreditRaw(b store.Bucket, limit string, millitokens int64, id string) store.Credited {
	e.Helper()
	out, err := e.Store.Credit(e.Context(), store.Credit{Bucket: b, Limit: limit, Amount: millitokens, ID: id})
	if err != nil {
		e.Fatalf("credit %q: %v", id, err)
	}
	return out
}

// CreditFails checks that a credit fails with an error.
func (e *Env) CreditFails(want error, b store.Bucket, limit string, tokens int64, id string) {
	e.Helper()
	c := store.Credit{Bucket: b, Limit: limit, Amount: tokens * Token, ID: id}
	if out, err := e.Store.Credit(e.Context(), c); !errors.Is(err, want) {
		e.Fatalf("credit %q: %+v, error %v, want %v", id, out, err, want)
	}
}

// Forget forgets buckets.
func (e *Env) Forget(buckets ...store.Bucket) {
	e.Helper()
	if err := e.Store.Forget(e.Context(), buckets...); err != nil {
		e.Fatalf("forget: %v", err)
	}
}

// Show formats an outcome for a message.
func Show(out store.Outcome) string {
	var b strings.Builder
	fmt.Fprintf(&b, "allowed %t at %s", out.Allowed, out.At.Format("15:04:05.000000000"))
	for _, l := range out.Levels {
		fmt.Fprintf(&b, "; %s available %d", l.Limit.Name, reckon.Room(l.Limit, l.Level, out.At))
		if l.Refused {
			b.WriteString(" refused")
		}
	}
	return b.String()
}

// RetryAfter returns when an amount will fit, according to a level of an outcome; false if it never will.
func RetryAfter(out store.Outcome, i int, amount int64) (time.Duration, bool) {
	l := out.Levels[i]
	return l.Limit.Params().RetryAfter(l.Level, clock.Nanos(out.At), amount)
}
