package cells_test

import (
	"testing"
	"time"
)

// A process that died without leaving is listed until it has missed ten beats, and clocks may differ by a minute.
func TestDeadProcess(t *testing.T) {
	t.Parallel()
	bubble(t, strict, func(w *world) {
		w.join("a")
		w.start("a")
		dead := w.start("a")
		processes := func() int {
			v, err := w.reg.Inspect(w.t.Context())
			if err != nil {
				w.t.Fatal(err)
			}
			return len(v.Cells[0].Instances)
		}
		time.Sleep(time.Minute)
		if n := processes(); n != 2 {
			w.t.Fatalf("%d processes, want 2", n)
		}
		dead.registry.setCut(true)
		time.Sleep(68 * time.Second)
		if n := processes(); n != 2 {
			w.t.Errorf("%d processes, want 2: the clock of one may be behind", n)
		}
		time.Sleep(4 * time.Second)
		if n := processes(); n != 1 {
			w.t.Errorf("%d processes, want 1", n)
		}
	})
}
