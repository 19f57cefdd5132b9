package governor_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/governor"
)

func TestReportWritesALineASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &stub{answer: answering(200, consumed("5"))}
		g := mustNew(t, governor.Config{ReadUnits: governor.Unlimited, WriteUnits: 10, Burst: time.Second})
		c := s.client(g)
		ctx, cancel := context.WithTimeout(t.Context(), 4500*time.Millisecond)
		defer cancel()
		for range 2 {
			go func() {
				for put(ctx, c) == nil { // ends with the context
				}
			}()
		}
		var out strings.Builder
		g.Report(ctx, &out, 1100*time.Millisecond)
		synctest.Wait()
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 4 || lines[2] != "write 10.0/s (average 12.1, budget 10), 2 waiting, 0 throttled" {
			t.Errorf("got %q", lines)
		}
	})
}

func TestStatusOfAFleet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		coord := &flaky{}
		g := mustNew(t, governor.Config{ReadUnits: 10, WriteUnits: 10, Coordinator: coord, Worker: "glue"})
		if got := g.Status().String(); got != "nothing consumed yet | of 1 workers" {
			t.Errorf("at first: %q", got)
		}
		time.Sleep(time.Second)
		if err := g.Spend(t.Context(), governor.Read, 1); err != nil {
			t.Fatal(err)
		}
		coord.down.Store(true)
		time.Sleep(time.Minute)
		if got := g.Status().String(); !strings.HasPrefix(got, "read 0.0/s (average 0.0, budget 5 of 10), 0 waiting") || !strings.HasSuffix(got, "| safe share, no contact") {
			t.Errorf("without the coordinator: %q", got)
		}
		if s := g.Status().Fleet; s.Err == nil || s.Granted || !strings.HasPrefix(s.Worker, "glue-") {
			t.Errorf("%+v", s)
		}
		coord.down.Store(false)
	})
}

// By default a budget begins with what a second issues, and holds what two do.
func TestDefaultBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := mustNew(t, governor.Config{ReadUnits: 1500, WriteUnits: 500})
		begun := time.Now()
		for _, after := range []time.Duration{0, 500 * time.Millisecond, 500 * time.Millisecond, time.Second} {
			time.Sleep(after)
			for dir, rate := range map[governor.Direction]float64{governor.Read: 1500, governor.Write: 500} {
				want := min(rate*(1+time.Since(begun).Seconds()), 2*rate)
				if b := budgetOf(g, "", "", dir); b.Available != want {
					t.Errorf("%v: %v are available, want %v", dir, b.Available, want)
				}
			}
		}
	})
}
