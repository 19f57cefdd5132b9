package weir_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store"
)

func TestAvailable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.chain("child", "parent")
	b.set("", "", weir.PerMinute("rpm", 60), weir.PerMinute("tpm", 600))
	b.set("parent", "api", weir.PerMinute("rpm", 30))
	av, err := b.Available(b.ctx, "child", "api")
	must(t, err)
	if page := must1(b.admin.Buckets.List(b.ctx, admin.BucketQuery{})); len(page.Items) != 0 {
		t.Errorf("looking made %+v", page.Items)
	}
	if len(av.Statuses) != 3 || !av.At.Equal(noon) || av.Statuses[2].Entity != "parent" || av.Statuses[2].Source != weir.SourceEntity ||
		av.Statuses[0].Available != 60 || av.Statuses[0].Full != 0 || av.Statuses[0].Refused {
		t.Errorf("%+v", av)
	}
	lease := b.take("child", weir.Tokens{"rpm": 30, "tpm": 600})
	must(t, errOf(lease.Adjust(b.ctx, weir.Tokens{"tpm": 60})))
	av, err = b.Available(b.ctx, "child", "api")
	must(t, err)
	if tpm := av.Statuses[1]; tpm.Available != -60 || !tpm.Refused || tpm.RetryAfter != 6*time.Second || tpm.Full != 66*time.Second {
		t.Errorf("%+v", tpm)
	}
	for _, tt := range []struct {
		tokens weir.Tokens
		want   time.Duration
	}{
		{nil, 6 * time.Second},
		{weir.Tokens{"tpm": 40}, 10 * time.Second},
		{weir.Tokens{"rpm": 1}, 6 * time.Second},
		{weir.Tokens{"rpm": 30, "tpm": 1}, time.Minute},
	} {
		d, err := av.RetryAfter(tt.tokens)
		fits, err2 := av.Fits(tt.tokens)
		if d != tt.want || err != nil || fits || err2 != nil {
			t.Errorf("%v: %v, %v, %v, %v", tt.tokens, d, err, fits, err2)
		}
	}
	b.clock.advance(50 * time.Millisecond) // -59.5 tokens: the shortfall is not 59
	if got := b.left("child", "tpm"); got != -60 {
		t.Errorf("%d left", got)
	}
	b.clock.advance(10*time.Second - 50*time.Millisecond)
	av, err = b.Available(b.ctx, "child", "api")
	must(t, err)
	if fits, err := av.Fits(weir.Tokens{"rpm": 5, "tpm": 40}); !fits || err != nil {
		t.Errorf("%v, %v", fits, err)
	}
	for field, tokens := range map[string]weir.Tokens{
		"tokens.rps": {"rps": 1}, "tokens.rpm": {"rpm": -1}, "tokens.tpm": {"tpm": math.MinInt64},
	} {
		_, err := av.Fits(tokens)
		wantConfigError(t, err, field)
		_, err = av.RetryAfter(tokens)
		wantConfigError(t, err, field)
	}
	var burst *weir.BurstError
	if _, err := av.RetryAfter(weir.Tokens{"rpm": 31}); !errors.As(err, &burst) || burst.Entity != "parent" || burst.Burst != 30 {
		t.Errorf("got %v", err)
	}
	if fits, err := av.Fits(weir.Tokens{"rpm": math.MaxInt64}); fits || !errors.Is(err, weir.ErrExceedsBurst) {
		t.Errorf("%v, %v", fits, err)
	}
}

// must1 returns v and panics on an error, for calls that cannot fail.
func must1[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Acquire does what Available predicts, also right after a limit change.
func TestAvailableIsTrue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		b := setup(t)
		b.chain("child", "parent")
		limit := func(name string) weir.Limit {
			return weir.Limit{
				Name: name, Amount: rapid.Int64Range(1, 50).Draw(rt, "amount"),
				Period: time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(rt, "period")) + time.Millisecond,
				Burst:  rapid.Int64Range(1, 50).Draw(rt, "burst"),
			}
		}
		b.set("child", "", limit("a"), limit("b"))
		b.set("parent", "", limit("b"))
		for range 20 {
			b.clock.advance(time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(rt, "pause")))
			if rapid.IntRange(0, 5).Draw(rt, "change") == 0 {
				b.set("child", "", limit("a"), limit("b"))
			}
			tokens := weir.Tokens{"a": rapid.Int64Range(0, 30).Draw(rt, "n"), "b": rapid.Int64Range(0, 30).Draw(rt, "m")}
			av, err := b.Available(b.ctx, "child", "api")
			if err != nil {
				rt.Fatal(err)
			}
			wait, impossible := av.RetryAfter(tokens)
			lease, err := b.Acquire(b.ctx, weir.Request{Entity: "child", Resource: "api", Tokens: tokens})
			var over *weir.ExceededError
			switch {
			case impossible != nil:
				if !errors.Is(err, weir.ErrExceedsBurst) {
					rt.Fatalf("Available says %v, Acquire %v", impossible, err)
				}
			case wait == 0:
				if err != nil {
					rt.Fatalf("Available says that it fits, Acquire %v", err)
				}
				if rapid.Bool().Draw(rt, "adjust") {
					_, err := lease.Adjust(b.ctx, weir.Tokens{"b": rapid.Int64Range(0, 40).Draw(rt, "more")})
					if err != nil && !errors.Is(err, weir.ErrMaxDebt) {
						rt.Fatal(err)
					}
				}
			case !errors.As(err, &over) || over.RetryAfter != wait:
				rt.Fatalf("Available says %v, Acquire %v", wait, err)
			}
		}
	})
}

func TestAvailableReportsTrouble(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *weir.Config) { c.OnUnavailable = weir.OnUnavailableAllow })
	b.set("", "", weir.PerMinute("rpm", 1))
	b.fake.does(func(f *fakeStore) {
		f.peek = func(context.Context, ...store.Bucket) (store.Snapshot, error) { return store.Snapshot{}, errDown }
	})
	_, err := b.Available(b.ctx, "alice", "api")
	wantErr(t, err, errDown)
	_, err = b.Available(b.ctx, "", "api")
	wantConfigError(t, err, "entity")
}
