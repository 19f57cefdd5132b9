package configflow_test

import (
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/fleet/configflow"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/store"
)

// A store that is away when a process starts is used once it answers; until then the last known values apply.
func TestLate(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r, file := newRemote(t), filepath.Join(t.TempDir(), "known")
		a := r.start(t, "")
		a.set("", 10)
		if err := admin.New(a.Limiter).Limits.SetOnUnavailable(t.Context(), admin.Scope{}, weir.OnUnavailableAllow); err != nil {
			t.Fatal(err)
		}
		known := keep(t, r, file)
		var tries atomic.Int64
		late := configflow.OpenLate(func() (store.Store, error) {
			if tries.Add(1) < 4 {
				return nil, errDown
			}
			return r.handle(), nil
		}, errDown, slog.New(slog.DiscardHandler))
		lim, err := weir.New(weir.Config{Store: late})
		if err != nil {
			t.Fatal(err)
		}
		parts.Of(lim).Policies.Use(nil, known.LastGood)
		ask := func() bool {
			lease, err := lim.Acquire(t.Context(), weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rpm": 1}})
			if err != nil {
				t.Fatal(err)
			}
			return lease.Decision().Degraded
		}
		if !ask() {
			t.Error("decided by a store that is away")
		}
		if _, err := late.Epochs(t.Context(), "default"); err == nil {
			t.Error("an epoch of a store that is away")
		}
		time.Sleep(time.Minute)
		if ask() {
			t.Error("not decided by a store that answers")
		}
		if ns, err := late.Epochs(t.Context(), "default"); err != nil || ns[0] == 0 {
			t.Errorf("epochs %v, error %v", ns, err)
		}
		if err := lim.Close(); err != nil {
			t.Error(err)
		}
	})
	bubble(t, func(t *testing.T) { // closed before it ever answered
		late := configflow.OpenLate(func() (store.Store, error) { return nil, errDown }, errDown, slog.New(slog.DiscardHandler))
		time.Sleep(time.Minute)
		if err := late.Close(); err != nil {
			t.Error(err)
		}
	})
}
