package rates_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/fleet"
	"github.com/weirlimits/weir/internal/fleet/rates"
)

// late is a registry whose reads return data that is four seconds old.
type late struct {
	*fleet.Memory
	cut      atomic.Bool
	reported map[uint64]time.Time // when each report was sent
	answered time.Time            // when the report was sent that the last grants read answer
}

var errCut = errors.New("cut off")

func (l *late) Put(ctx context.Context, name string, value []byte, version string) (string, error) {
	if l.cut.Load() {
		return "", errCut
	}
	var r struct{ Seq uint64 }
	if err := json.Unmarshal(value, &r); err != nil {
		return "", err
	}
	l.reported[r.Seq] = time.Now()
	return l.Memory.Put(ctx, name, value, version)
}

func (l *late) Get(ctx context.Context, name string) (fleet.Record, error) {
	rec, err := l.Memory.Get(ctx, name)
	time.Sleep(4 * time.Second) // virtual time: in a bubble
	var g struct {
		Workers map[string]struct{ Seq uint64 }
	}
	if err := json.Unmarshal(rec.Value, &g); err == nil {
		for id, w := range g.Workers {
			if strings.HasPrefix(id, "late") {
				l.answered = l.reported[w.Seq]
			}
		}
	}
	return rec, err
}

// A lease counts from the report that it answers, not from when the answer was read: by then the answer may be old.
func TestLeaseCountsFromTheReport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &fleet.Memory{}
		first, err := rates.Join(t.Context(), config(m))
		if err != nil {
			t.Fatal(err)
		}
		l := &late{Memory: m, reported: make(map[uint64]time.Time)}
		cfg := config(l)
		cfg.Worker = "late"
		var mu sync.Mutex
		var share int64
		var since time.Time
		has := func() int64 {
			mu.Lock()
			defer mu.Unlock()
			return share
		}
		cfg.Granted = func(shares []int64) { // after the cut, called by the timer only
			mu.Lock()
			defer mu.Unlock()
			if shares[0] != share {
				share, since = shares[0], time.Now()
			}
		}
		second, err := rates.Join(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(62 * time.Second)
		synctest.Wait()
		if has() != 500 {
			t.Fatalf("the share is %d", has())
		}
		l.cut.Store(true)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if has() != 250 {
			t.Errorf("the safe share is %d", has())
		}
		if held := since.Sub(l.answered); held > 20*time.Second || held < 18*time.Second {
			t.Errorf("the lease of 20 s was held for %v after the report", held)
		}
		l.cut.Store(false)
		if err := errors.Join(first.Close(), second.Close()); err != nil {
			t.Error(err)
		}
	})
}

// Grants that were deleted and written again are used, although the record is a new one.
func TestGrantsThatWereRemoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &fleet.Memory{}
		var share int64
		cfg := config(m)
		cfg.Granted = func(shares []int64) { share = shares[0] }
		member, err := rates.Join(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if err := m.Delete(t.Context(), "grants"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := member.Status(); share != 1000 || s.Epoch != 2 || !s.Leads || !s.Granted || s.Err != nil {
			t.Errorf("share %d, %+v", share, s)
		}
		if err := member.Close(); err != nil {
			t.Error(err)
		}
	})
}

// severed is a registry that a worker cannot write any more, or in which removing fails once.
type severed struct {
	*fleet.Memory
	cut, keeps atomic.Bool
}

func (s *severed) Put(ctx context.Context, name string, value []byte, version string) (string, error) {
	if s.cut.Load() {
		return "", errCut
	}
	return s.Memory.Put(ctx, name, value, version)
}

func (s *severed) Delete(ctx context.Context, name string) error {
	if s.keeps.Swap(false) || s.cut.Load() {
		return errCut
	}
	return s.Memory.Delete(ctx, name)
}

// A dead worker's report that could not be removed takes nothing from those that live.
func TestForgottenReportThatStays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &fleet.Memory{}
		leading, dying := &severed{Memory: m}, &severed{Memory: m}
		var share atomic.Int64
		cfg := config(leading)
		cfg.Granted = func(shares []int64) { share.Store(shares[0]) }
		first, err := rates.Join(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		second, err := rates.Join(t.Context(), config(dying))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		dying.cut.Store(true)
		leading.keeps.Store(true)
		time.Sleep(270 * time.Second)
		if !leading.keeps.Load() {
			t.Fatal("it was forgotten too soon")
		}
		for range 10 {
			time.Sleep(time.Minute)
			synctest.Wait()
			if leading.keeps.Load() || share.Load() != 1000 {
				t.Errorf("the share is %d, the report was removed: %t", share.Load(), !leading.keeps.Load())
			}
		}
		if left, err := m.List(t.Context(), "worker/"); err != nil || len(left) != 1 {
			t.Errorf("%d reports are left, %v", len(left), err)
		}
		if err := first.Close(); err != nil {
			t.Error(err)
		}
		_ = second.Close() // it is cut off
	})
}
