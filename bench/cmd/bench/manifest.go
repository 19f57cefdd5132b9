package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/bench/internal/harness"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/disk"
)

// declaredEntities is the number of entities that the manifest declares, each with limits on two resources.
const declaredEntities = 10_000

// applied is what it cost to take one manifest through all its steps, in one run.
type applied struct {
	decode, plan, apply, again, edit float64 // seconds
	reads                            float64 // store calls for a plan while everything is live
	peak                             float64 // megabytes
}

func manifestRows() []row {
	of := func(what string) string { return "manifest, 10,000 entities × 2, disk: " + what }
	run := sync.OnceValues(applyManifest)
	figure := func(pick func(*applied) float64) []contender {
		return []contender{{name: "weir", size: func(*harness.Env) (float64, error) {
			a, err := run()
			return pick(&a), err
		}}}
	}
	return []row{
		{name: of("decode"), unit: seconds, contenders: figure(func(a *applied) float64 { return a.decode })},
		{name: of("plan, nothing live"), unit: seconds, contenders: figure(func(a *applied) float64 {
			return a.plan
		}), target: target{value: 3}},
		{name: of("apply"), unit: seconds, contenders: figure(func(a *applied) float64 {
			return a.apply
		}), target: target{value: 30}},
		{name: of("plan, all live"), unit: seconds, contenders: figure(func(a *applied) float64 {
			return a.again
		}), target: target{value: 3}},
		{name: of("plan, all changed"), unit: seconds, contenders: figure(func(a *applied) float64 {
			return a.edit
		}), target: target{value: 3}},
		{name: of("store reads per plan"), unit: calls, contenders: figure(func(a *applied) float64 {
			return a.reads
		}), target: target{value: 2*declaredEntities/100 + 10}},
		{name: of("peak heap"), unit: megabytes, contenders: figure(func(a *applied) float64 {
			return a.peak
		}), target: target{value: 300}},
	}
}

// applyManifest decodes, plans, applies and plans again.
func applyManifest() (a applied, err error) {
	dir, err := os.MkdirTemp("", "bench-manifest-")
	if err != nil {
		return a, err
	}
	defer os.RemoveAll(dir)
	st, err := disk.Open(dir, nil)
	if err != nil {
		return a, err
	}
	counted := &countedReads{Store: st}
	lim, err := weir.New(weir.Config{Store: counted, StoreTimeout: time.Minute})
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, lim.Close()) }()
	stop := watchHeap()
	defer func() { a.peak = stop() }()

	ctx := context.Background()
	var m, other *manifest.Manifest
	if err = timed(&a.decode, func() error { m, err = declared(100); return err }); err != nil {
		return a, err
	}
	if other, err = declared(200); err != nil {
		return a, err
	}
	var p *manifest.Plan
	plan := func(m *manifest.Manifest) func() error {
		return func() error { p, err = manifest.Make(ctx, lim, m, manifest.PlanOptions{}); return err }
	}
	if err = timed(&a.plan, plan(m)); err != nil {
		return a, err
	}
	err = timed(&a.apply, func() error {
		_, err := manifest.Apply(
			ctx, lim, p, manifest.ApplyOptions{Rate: 2000},
		)
		return err
	})
	if err != nil {
		return a, err
	}
	before := counted.n.Load()
	if err = timed(&a.again, plan(m)); err != nil {
		return a, err
	}
	a.reads = float64(counted.n.Load() - before)
	if !p.Empty() {
		return a, fmt.Errorf("%d changes are left", len(p.Changes))
	}
	if err = timed(&a.edit, plan(other)); err == nil && len(p.Changes) != 2*declaredEntities {
		err = fmt.Errorf("%d changes", len(p.Changes))
	}
	return a, err
}

func timed(into *float64, f func() error) error {
	began := time.Now()
	err := f()
	*into = time.Since(began).Seconds()
	return err
}

// declared decodes a manifest whose limits have the given number of tokens.
func declared(capacity int) (*manifest.Manifest, error) {
	var b strings.Builder
	b.WriteString("namespace: default\nentities:\n")
	for i := range declaredEntities {
		fmt.Fprintf(&b, "  user-%05d:\n    resources:\n", i)
		for _, r := range []string{"gpt-4", "claude-3"} {
			fmt.Fprintf(
				&b,
				"      %s:\n        limits:\n          rpm: {capacity: %d}\n          tpm: {capacity: 50K, burst: "+
					"75K}\n",
				r, capacity,
			)
		}
	}
	src := strictyaml.Source{Name: "bench.yaml", Text: []byte(b.String())}
	ms, err := manifest.Decode([]strictyaml.Source{src}, strictyaml.Options{})
	if err != nil {
		return nil, err
	}
	return ms[0], nil
}

// countedReads counts the calls that read the catalog.
type countedReads struct {
	store.Store
	n atomic.Int64
}

func (c *countedReads) Get(ctx context.Context, keys ...store.Key) (store.Got, error) {
	c.n.Add(1)
	return c.Store.Get(ctx, keys...)
}

func (c *countedReads) List(ctx context.Context, q store.Query) (store.Page, error) {
	c.n.Add(1)
	return c.Store.List(ctx, q)
}

// watchHeap returns a function that stops watching and returns the largest growth of the heap, in megabytes.
func watchHeap() func() float64 {
	base, peak := heap(), int64(0)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak = max(peak, int64(m.HeapAlloc)-base)
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	})
	return func() float64 {
		close(done)
		wg.Wait()
		return float64(peak) / 1e6
	}
}
