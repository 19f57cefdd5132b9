package decide_test

import (
	"errors"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/store/memory"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	lim, err := weir.New(weir.Config{Store: memory.New(nil)})
	if err != nil {
		t.Fatal(err)
	}
	defer lim.Close()
	for field, cfg := range map[string]decide.Config{
		"Config.Limiter":        {},
		"Config.LeaseTTL":       {Limiter: lim, LeaseTTL: 25 * time.Hour},
		"Config.Grace":          {Limiter: lim, Grace: -1},
		"Config.MaxConnections": {Limiter: lim, MaxConnections: -1},
		"Config.MaxInflight":    {Limiter: lim, MaxInflight: -1},
		"Config.MaxBuckets":     {Limiter: lim, MaxBuckets: -1},
	} {
		var bad *weir.ConfigError
		if _, err := decide.New(cfg); !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
	cfg := decide.Config{Limiter: lim, LeaseTTL: time.Second}
	if d, err := decide.New(cfg); err != nil || d.Grace == 0 || d.MaxConnections == 0 || d.MaxInflight == 0 || d.Log == nil || d.Watch == nil {
		t.Errorf("got %+v, %v", d, err)
	}
}

// A context without a caller may do nothing.
func TestNobody(t *testing.T) {
	t.Parallel()
	c := decide.CallerOf(t.Context())
	if c.May(auth.Access{Role: auth.Read, Namespace: "default"}) || c.Has(auth.Acquire) || c.Audit("http") != "http" {
		t.Errorf("got %+v", c)
	}
	want := &decide.Caller{Principal: auth.Anybody()}
	if got := decide.CallerOf(decide.With(t.Context(), want)); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
