package serve

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/cli/kit"
	limiter "github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// distant is a store that is some way away.
type distant struct {
	store.Store
	away atomic.Int64
}

func (d *distant) wait(ctx context.Context) error {
	trip := time.NewTimer(time.Duration(d.away.Load())) // virtual time: in a bubble
	defer trip.Stop()
	select {
	case <-trip.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *distant) Get(ctx context.Context, keys ...store.Key) (store.Got, error) {
	if err := d.wait(ctx); err != nil {
		return store.Got{}, err
	}
	return d.Store.Get(ctx, keys...)
}

func (d *distant) Take(ctx context.Context, t store.Take) (store.Outcome, error) {
	if err := d.wait(ctx); err != nil {
		return store.Outcome{}, err
	}
	return d.Store.Take(ctx, t)
}

// TestDecideWithinFollowsTheStore checks that decisions have the time that they need over a distant store, at the start
// and later, and that the log shows what they need whenever that changes much.
func TestDecideWithinFollowsTheStore(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, store string
		set         time.Duration // by the flag
		away, later time.Duration
		least, then time.Duration // that decisions get
		log         []string
	}{
		{
			"near", "redis://x", 0, 200 * time.Microsecond, 200 * time.Microsecond,
			decideFast, decideFast,
			[]string{"INFO p50=224µs p99=224µs cold=1.344ms decide_within=12ms"},
		},
		{
			"near DynamoDB", "dynamodb://x", 0, 5 * time.Millisecond, 200 * time.Millisecond,
			decideDurable, time.Second,
			[]string{
				"INFO p50=5.12ms p99=5.12ms cold=30.72ms decide_within=60ms",
				"WARN p50=5.12ms p99=229.376ms cold=1.376256s decide_within=1s",
			},
		},
		{
			"distant", "redis://x", 0, 30 * time.Millisecond, 80 * time.Millisecond,
			6 * 30 * time.Millisecond, 6 * 80 * time.Millisecond,
			[]string{
				"INFO p50=32.768ms p99=32.768ms cold=196.608ms decide_within=196.608ms",
				"INFO p50=32.768ms p99=81.92ms cold=491.52ms decide_within=491.52ms",
			},
		},
		{
			"nearer later", "redis://x", 0, 80 * time.Millisecond, time.Millisecond,
			6 * 80 * time.Millisecond, decideFast,
			[]string{
				"INFO p50=81.92ms p99=81.92ms cold=491.52ms decide_within=491.52ms",
				"INFO p50=1.024ms p99=1.024ms cold=6.144ms decide_within=12ms",
			},
		},
		{
			"no answer at the start", "redis://x", 0, 2 * time.Second, 30 * time.Millisecond,
			decideFast, 6 * 30 * time.Millisecond,
			[]string{"INFO p50=32.768ms p99=32.768ms cold=196.608ms decide_within=196.608ms"},
		},
		{
			"set too short", "redis://x", 60 * time.Millisecond, 30 * time.Millisecond, time.Millisecond,
			60 * time.Millisecond, 60 * time.Millisecond,
			[]string{
				"WARN p50=32.768ms p99=32.768ms cold=196.608ms decide_within=60ms",
				"INFO p50=1.024ms p99=1.024ms cold=6.144ms decide_within=60ms",
			},
		},
		{
			"set", "redis://x", 300 * time.Millisecond, 30 * time.Millisecond, 60 * time.Millisecond,
			300 * time.Millisecond, 300 * time.Millisecond,
			[]string{
				"INFO p50=32.768ms p99=32.768ms cold=196.608ms decide_within=300ms",
				"WARN p50=32.768ms p99=65.536ms cold=393.216ms decide_within=300ms",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				st := &distant{Store: memory.New(nil)}
				s := &serving{
					parts: &parts{decide: decideFlags{Within: tt.set}}, log: slog.New(slog.NewTextHandler(&log, nil)),
					run: &kit.Run{Store: secret.Address(tt.store), Opened: st},
				}
				f := &s.decide
				must := func(err error) {
					t.Helper()
					if err != nil {
						t.Fatal(err)
					}
				}
				must(f.open(t.Context(), s))
				var err error
				s.lim, err = weir.New(weir.Config{Store: st, DecideWithin: s.run.Config.DecideWithin})
				must(err)
				must(admin.New(s.lim).Limits.Set(t.Context(), admin.Scope{}, weir.PerSecond("rps", 100)))
				st.away.Store(int64(tt.away))
				must(f.start(t.Context(), s))
				p := limiter.Of(s.lim)
				within := func(least time.Duration) {
					t.Helper()
					if got := p.Within.Get(); got < least || got > least*5/4 {
						t.Errorf("decisions get %s, want %s", got, least)
					}
				}
				within(tt.least)
				for i := range 30 {
					_, err := s.lim.Acquire(t.Context(), weir.Request{Entity: fmt.Sprint(i), Resource: "api", Requests: 1})
					if err != nil && p.Within.Get() >= limiter.Cold(tt.away) {
						t.Fatalf("cold decision %d: %v", i, err)
					}
				}
				st.away.Store(int64(tt.later))
				ctx, end := context.WithTimeout(t.Context(), 2*time.Minute)
				defer end()
				must(together(ctx, s.tasks))
				within(tt.then)
				var got []string
				for line := range strings.Lines(log.String()) {
					_, level, _ := strings.Cut(line, "level=")
					level, _, _ = strings.Cut(level, " ")
					_, figures, _ := strings.Cut(strings.TrimSpace(line), "p50=")
					got = append(got, level+" p50="+figures)
				}
				if strings.Join(got, "\n") != strings.Join(tt.log, "\n") {
					t.Errorf("logged\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.log, "\n"))
				}
				must(s.lim.Close())
			})
		})
	}
}
