package governor

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/term"
	"github.com/weirlimits/weir/internal/fleet"
	worker "github.com/weirlimits/weir/internal/fleet/rates"
)

// A fleet of two: one continues, the other falls silent.
func TestGovernorWatchShowsAFleet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		coordinator := &fleet.Memory{}
		join := func(name string, want int64) *worker.Worker {
			m, err := worker.Join(t.Context(), worker.Config{
				Registry: coordinator, Worker: name, Budgets: []worker.Budget{{Name: "account write", Limit: 1_000_000}},
				Demand: func(int) (int64, int64) { return want, 40_000 }, Granted: func([]int64) {},
			})
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		busy, idle := join("busy", -1), join("idle", 50_000)
		defer busy.Close()
		defer idle.Close()
		time.Sleep(time.Minute)
		var out bytes.Buffer
		w := &watch{Run: &kit.Run{Out: &term.Screen{W: &out, Width: 80}, Output: "table"}, coordinator: coordinator, seen: make(map[string]lastReport)}
		if err := w.show(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		text := out.String()
		for _, want := range []string{"epoch 1, led by busy-", "account write: limit 1000/s, shared 1000, used 80", "\t950\t40\tall\t250\tleads", "\t50\t40\t50\t50\t-"} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in\n%s", want, text)
			}
		}
		for id := range w.seen { // as if it had been seen a while ago
			if strings.HasPrefix(id, "idle") {
				s := w.seen[id]
				s.since = s.since.Add(-time.Minute)
				w.seen[id] = s
			}
		}
		out.Reset()
		if err := w.show(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "silent for 1m") {
			t.Errorf("nobody is silent in\n%s", out.String())
		}
	})
}
