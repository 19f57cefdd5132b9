package metrics_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/serve/metrics"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// TestOverview checks that rates cover the last ten seconds, the history the last two minutes, and totals everything.
func TestOverview(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, metrics.Config{Version: "1.2"})
		time.Sleep(500 * time.Millisecond) // virtual time: into the middle of a second
		if o := r.m.Overview("default"); o.PerSecond != (metrics.Rates{}) || len(o.History) != 0 {
			t.Errorf("at first %+v", o)
		}
		for range 150 {
			for range 2 {
				r.take("alice", "api", weir.Tokens{"tph": 1})
			}
			time.Sleep(time.Second)
		}
		o := r.m.Overview("default")
		if o.PerSecond.Allowed != 2 || o.Totals.Allowed != 300 || o.Version != "1.2" || o.Namespace != "default" {
			t.Errorf("%+v", o)
		}
		if len(o.History) != 120 || o.History[0].Allowed != 2 || !o.History[119].At.After(o.History[118].At) || o.Started.After(o.History[0].At) {
			t.Errorf("%d seconds, %+v", len(o.History), o.History[:1])
		}
		if o.Store.CallsPerDecision != 1 || o.Store.CacheHitRatio == 0 {
			t.Errorf("%+v", o.Store)
		}
		time.Sleep(20 * time.Second)
		o = r.m.Overview("*")
		if o.PerSecond.Allowed != 0 || o.Totals.Allowed != 300 || len(o.Spending) != 1 || o.Spending[0].Tokens != 300 {
			t.Errorf("later %+v", o)
		}
		if o := r.m.Overview("nobody"); o.Totals != (metrics.Totals{}) || o.History == nil || o.Spending == nil || o.Refused == nil {
			t.Errorf("of another namespace %+v", o)
		}
	})
}

func TestLatency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, err := metrics.New(metrics.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		decided := m.Observer().Decided
		for i := range 100 {
			e := weir.DecidedEvent{Namespace: "default", Entity: strconv.Itoa(i), Resource: "api", Allowed: true, Took: time.Millisecond}
			if i >= 97 {
				e.Took = 300 * time.Millisecond
			}
			decided(t.Context(), e)
		}
		time.Sleep(1500 * time.Millisecond)
		if l := m.Overview("default").Latency; l != (metrics.Latency{P50: 1, P99: 300, Max: 300}) {
			t.Errorf("%+v", l)
		}
		time.Sleep(10 * time.Second)
		if l := m.Overview("default").Latency; l != (metrics.Latency{}) {
			t.Errorf("long after %+v", l)
		}
	})
}

// TestTopShare checks that a limit with large numbers leaves room for another limit.
func TestTopShare(t *testing.T) {
	t.Parallel()
	r := setup(t, metrics.Config{})
	for i := range 30 {
		r.take("entity-"+strconv.Itoa(i), "api", weir.Tokens{"rph": 1, "tph": int64(100 + i)})
	}
	o := r.m.Overview("default")
	by := make(map[string]int)
	for i, s := range o.Spending {
		by[s.Limit]++
		if i > 0 && s.Tokens > o.Spending[i-1].Tokens {
			t.Errorf("%+v after %+v", s, o.Spending[i-1])
		}
	}
	if by["rph"] != 10 || by["tph"] != 10 || o.Spending[0].Entity != "entity-29" {
		t.Errorf("%v, %+v", by, o.Spending)
	}
}

func TestFollow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, metrics.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		var quick, slow []time.Time
		var followers sync.WaitGroup
		began := time.Now()
		follow := func(namespace string, send func([]byte) error) {
			followers.Go(func() { r.m.Follow(ctx, namespace, send) })
		}
		follow("default", func(b []byte) error {
			var o metrics.Overview
			if err := json.Unmarshal(b, &o); err != nil || o.Namespace != "default" || bytes.ContainsRune(b, '\n') {
				t.Errorf("%s: %v", b, err)
			}
			quick = append(quick, time.Now())
			return nil
		})
		follow("*", func([]byte) error {
			slow = append(slow, time.Now())
			time.Sleep(3500 * time.Millisecond) // virtual time: a slow client
			return nil
		})
		time.Sleep(10*time.Second + time.Millisecond)
		cancel()
		followers.Wait()
		if len(quick) != 11 || !quick[0].Equal(began) {
			t.Errorf("%d overviews in 10 s", len(quick))
		}
		if len(slow) > 4 {
			t.Errorf("%d overviews for who takes 3.5 s for each", len(slow))
		}
		done := make(chan bool)
		go func() { done <- r.m.Follow(t.Context(), "default", func([]byte) error { return nil }) }()
		synctest.Wait()
		r.m.Close()
		if !<-done {
			t.Error("those who went left no room")
		}
		if r.m.Follow(t.Context(), "default", func([]byte) error { return nil }) {
			t.Error("followed what has ended")
		}
	})
}

// remote is a faulty store outside the process: local shares decide without it.
type remote struct {
	store.Store
	err error
}

func (r *remote) Take(ctx context.Context, t store.Take) (store.Outcome, error) {
	if r.err != nil {
		return store.Outcome{}, r.err
	}
	return r.Store.Take(ctx, t)
}

// TestUnanswered checks that an overview has the share of the decisions that the store did not answer in time, what
// became of them, and whether the store is called.
func TestUnanswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, err := metrics.New(metrics.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		away := &remote{Store: memory.New(nil)}
		lim, err := weir.New(weir.Config{
			Store: away, Observer: m.Observer(), DecideWithin: 10 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer lim.Close()
		limits := admin.New(lim).Limits
		for _, on := range []weir.OnUnavailable{weir.OnUnavailableDeny, weir.OnUnavailableAllow, weir.OnUnavailableLocal} {
			scope := admin.Scope{Resource: string(on)}
			if err := limits.Set(t.Context(), scope, weir.PerHour("tph", 1000)); err != nil {
				t.Fatal(err)
			}
			if err := limits.SetOnUnavailable(t.Context(), scope, on); err != nil {
				t.Fatal(err)
			}
		}
		m.Watch(lim, away)
		acquire := func(n int, on weir.OnUnavailable) {
			for range n {
				_, _ = lim.Acquire(t.Context(), weir.Request{
					Entity: "alice", Resource: string(on), Tokens: weir.Tokens{"tph": 1},
				})
				time.Sleep(5 * time.Millisecond)
			}
		}
		want := func(breaker string, unanswered float64, totals metrics.Totals) {
			t.Helper()
			time.Sleep(time.Second)
			o := m.Overview("default")
			if o.Store.Breaker != breaker || o.Store.Unanswered != unanswered || o.Totals != totals {
				t.Errorf("got %+v, %+v; want %s, %v, %+v", o.Store, o.Totals, breaker, unanswered, totals)
			}
		}
		acquire(6, weir.OnUnavailableLocal)
		away.err = errDown
		acquire(1, weir.OnUnavailableLocal)
		acquire(1, weir.OnUnavailableAllow)
		want("closed", 0.25, metrics.Totals{Allowed: 6, Degraded: 2, Local: 1})
		acquire(16, weir.OnUnavailableDeny)
		want("open", 0.75, metrics.Totals{Allowed: 6, Degraded: 2, Local: 1, Failed: 16})
	})
}

// TestEpisode checks that an unavailable store is logged once when it fails and once when it is back.
func TestEpisode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := setup(t, metrics.Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
		fail := func(seconds int) {
			for range seconds {
				_, _ = r.lim.Acquire(t.Context(), weir.Request{Entity: "alice", Resource: "api"})
				time.Sleep(time.Second)
			}
		}
		fail(3)
		r.store.err = errDown
		fail(30)
		r.has(`weir_degraded 1`)
		r.store.err = nil
		fail(5)
		r.store.err = errDown
		fail(1)
		r.store.err = nil
		fail(30)
		r.has(`weir_degraded 0`)
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], "did not answer") || !strings.Contains(lines[1], "again") || !strings.Contains(lines[1], "failed=31") {
			t.Errorf("%s", log.String())
		}
	})
}

// Followers of one namespace cannot keep out followers of others, and there is a maximum in total.
func TestFollowOthers(t *testing.T) {
	t.Parallel()
	r := setup(t, metrics.Config{})
	const most = 64
	open := map[string]int{}
	// fill follows a namespace as often as it may, and then calls then.
	var fill func(namespace string, then func())
	fill = func(namespace string, then func()) {
		follows := r.m.Follow(t.Context(), namespace, func([]byte) error {
			open[namespace]++
			fill(namespace, then)
			return context.Canceled
		})
		if !follows {
			then()
		}
	}
	r.take("alice", "api", weir.Tokens{"rph": 1}) // the namespace is now one that is counted
	fill("default", func() {
		if open["default"] != most*3/4 {
			t.Errorf("one namespace has %d of %d places", open["default"], most)
		}
		fill(metrics.All, func() {
			if open[metrics.All] != 12 {
				t.Errorf("the next has %d of the other 16 places", open[metrics.All])
			}
		})
	})
}
