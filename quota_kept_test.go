package weir_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/policy"
)

func parsed(t testing.TB, text string) weir.Limit {
	t.Helper()
	l, err := weir.ParseLimit(text)
	must(t, err)
	return l
}

// A lease that is given back within its window frees its tokens; after the window it gives nothing, also through a token.
func TestQuotaLeases(t *testing.T) {
	t.Parallel()
	for name, hand := range map[string]func(lim *weir.Limiter, le *weir.Lease) *weir.Lease{
		"as it is": func(_ *weir.Limiter, le *weir.Lease) *weir.Lease { return le },
		"by token": func(lim *weir.Limiter, le *weir.Lease) *weir.Lease {
			le, err := lim.LeaseFromToken(t.Context(), le.Token(time.Now().String(), time.Now().Add(24*time.Hour)))
			if err != nil {
				t.Error(err)
			}
			return le
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { // begins at midnight
				lim := sharing(t, &fixed{share: policy.Whole}, parsed(t, "usd:100/hour@UTC"))
				defer lim.Close()
				take := func(tokens int64) (*weir.Lease, error) {
					return lim.Acquire(t.Context(), weir.Request{Entity: "e", Resource: "r", Tokens: weir.Tokens{"usd": tokens}})
				}
				le, err := take(100)
				must(t, err)
				time.Sleep(time.Hour - 1)
				must(t, hand(lim, le).Rollback(t.Context()))
				le, err = take(100)
				must(t, err)
				time.Sleep(time.Nanosecond)
				_, err = take(100)
				must(t, err)
				must(t, hand(lim, le).Rollback(t.Context()))
				if _, err := take(1); !errors.Is(err, weir.ErrExceeded) {
					t.Errorf("a return after its window: %v", err)
				}
			})
		})
	}
}

// Cells divide rates only: a part of a quota that moves would admit several in one window. Nothing is admitted, whatever
// on_unavailable says.
func TestQuotaNotShared(t *testing.T) {
	t.Parallel()
	f := &fixed{share: policy.Share{Num: 1, Den: 2, Epoch: 1}}
	lim := sharing(t, f, parsed(t, "usd:100/month@UTC"))
	defer lim.Close()
	r := weir.Request{Entity: "e", Resource: "r", Tokens: weir.Tokens{"usd": 1}, OnUnavailable: weir.OnUnavailableAllow}
	var config *weir.ConfigError
	if _, err := lim.Acquire(t.Context(), r); !errors.As(err, &config) || config.Field != "limit usd" {
		t.Errorf("with half a share: %v", err)
	}
	own := weir.Request{Entity: "e", Resource: "o", Tokens: r.Tokens, Limits: []weir.Limit{parsed(t, "usd:9/day@UTC")}}
	if _, err := lim.Acquire(t.Context(), own); !errors.As(err, &config) || config.Field != "limit usd" {
		t.Errorf("a request's own, with half a share: %v", err)
	}
	f.share = policy.Share{Num: 2, Den: 2, Epoch: 2}
	policies(lim).SharesChanged()
	if _, err := lim.Acquire(t.Context(), r); err != nil {
		t.Errorf("with all of it: %v", err)
	}
	prepaid := sharing(t, &fixed{share: policy.Share{Num: 1, Den: 2, Epoch: 1}}, weir.PerHour("rpm", 9))
	defer prepaid.Close()
	must(t, admin.New(prepaid).Limits.Set(t.Context(), admin.Scope{Resource: r.Resource}, parsed(t, "credits:balance")))
	r.Tokens = weir.Tokens{"credits": 1}
	_, err := prepaid.Acquire(t.Context(), r)
	if !errors.As(err, &config) || config.Field != "limit credits" || !strings.Contains(config.Reason, "weir cell drain") {
		t.Errorf("a balance, with half a share: %v", err)
	}
}
