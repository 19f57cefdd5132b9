package manifest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/policy/lastgood"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/disk"
	"github.com/weirlimits/weir/store/dynamodb"
	"github.com/weirlimits/weir/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patient is a store timeout for a busy machine.
const patient = time.Minute

// stores are the stores on which everything must behave the same.
var stores = []struct {
	name string
	open func(t testing.TB) store.Store
}{
	{"memory", func(testing.TB) store.Store { return memory.New(nil) }},
	{"disk", func(t testing.TB) store.Store {
		st, err := disk.Open(t.TempDir(), nil)
		must(t, err)
		return st
	}},
	{"dynamodb", func(t testing.TB) store.Store {
		client, table := dynamotest.Client(t, dynamotest.Engine(t)), dynamotest.Table(t)
		_, err := dynamodb.Create(t.Context(), client, table, dynamodb.CreateConfig{})
		must(t, err)
		st, err := dynamodb.Open(t.Context(), dynamodb.Config{Client: client, Table: table, CallTimeout: patient, WriteTimeout: patient})
		must(t, err)
		return st
	}},
}

func onStores(t *testing.T, f func(t *testing.T, lim *weir.Limiter, st *faulty)) {
	for _, s := range stores {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			st := &faulty{Store: s.open(t)}
			f(t, limiterOn(t, st), st)
		})
	}
}

func limiterOn(t testing.TB, st store.Store) *weir.Limiter {
	t.Helper()
	lim, err := weir.New(weir.Config{Store: st, StoreTimeout: patient})
	must(t, err)
	t.Cleanup(func() { must(t, lim.Close()) })
	return lim
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var errCrash = errors.New("crashed")

// faulty is a store that counts commits and fails from one of them on, either before or after the commit is made.
type faulty struct {
	store.Store
	commits atomic.Int64
	reads   atomic.Int64
	written atomic.Int64 // records that decisions depend on
	failAt  int64        // 0: never
	made    bool         // the commit that fails is made
}

func (f *faulty) Commit(ctx context.Context, writes ...store.Write) error {
	n := f.commits.Add(1)
	for _, w := range writes {
		if !w.Check && slices.Contains(lastgood.Kinds, w.Record.Key.Kind) {
			f.written.Add(1)
		}
	}
	if f.failAt > 0 && n >= f.failAt {
		if f.made && n == f.failAt {
			if err := f.Store.Commit(ctx, writes...); err != nil {
				return err
			}
		}
		return &store.Error{Op: "commit", Err: errCrash}
	}
	return f.Store.Commit(ctx, writes...)
}

func (f *faulty) Get(ctx context.Context, keys ...store.Key) (store.Got, error) {
	f.reads.Add(1)
	return f.Store.Get(ctx, keys...)
}

func (f *faulty) List(ctx context.Context, q store.Query) (store.Page, error) {
	f.reads.Add(1)
	return f.Store.List(ctx, q)
}

// plan plans, and checks that the plan is the one that the whole namespace gives.
func plan(t testing.TB, lim *weir.Limiter, m *manifest.Manifest) *manifest.Plan {
	t.Helper()
	p, err := manifest.Make(t.Context(), lim, m, manifest.PlanOptions{})
	must(t, err)
	whole := planWhole(t, lim, m)
	whole.Unmanaged = nil
	if diff := cmp.Diff(planJSON(t, whole), planJSON(t, p)); diff != "" {
		t.Fatalf("the plan of what the manifest names differs from that of the whole namespace:\n%s", diff)
	}
	return p
}

func planJSON(t testing.TB, p *manifest.Plan) string {
	text, err := json.MarshalIndent(p, "", " ")
	must(t, err)
	return string(text)
}

func planWhole(t testing.TB, lim *weir.Limiter, m *manifest.Manifest) *manifest.Plan {
	t.Helper()
	p, err := manifest.Make(t.Context(), lim, m, manifest.PlanOptions{Whole: true})
	must(t, err)
	return p
}

func apply(t testing.TB, lim *weir.Limiter, m *manifest.Manifest) manifest.Result {
	t.Helper()
	res, err := manifest.Apply(t.Context(), lim, plan(t, lim, m), manifest.ApplyOptions{Adopt: true})
	must(t, err)
	return res
}

// changes writes a plan in short form, in its order: "create system".
func changes(p *manifest.Plan) string {
	var all []string
	for _, c := range p.Changes {
		text := string(c.Action) + " " + c.Target
		if c.Moves != "" {
			text += " (" + string(c.Moves) + ")"
		}
		if c.Outside {
			text += " outside"
		}
		all = append(all, text)
	}
	return strings.Join(all, "\n")
}

// state writes the live state of a namespace: the records, what manages them, and which revisions were applied.
func state(t testing.TB, lim *weir.Limiter) string {
	t.Helper()
	var b strings.Builder
	q := admin.DeclaredQuery{Max: 1000}
	for {
		page, err := admin.New(lim).Manifests.Declarable(t.Context(), q)
		if errors.Is(err, weir.ErrNotFound) {
			return "none"
		}
		must(t, err)
		for _, r := range page.Items {
			if e := r.Entity; e != nil {
				fmt.Fprintf(&b, "%q %q %q %q %v %v %v", e.ID, e.Name, e.Parent, e.Plan, e.Cascade, e.Metadata, r.Deleting)
			} else {
				fmt.Fprintf(&b, "%q %v %q", r.Limits.Scope, r.Limits.Limits, r.Limits.OnUnavailable)
				if t := r.Limits.NearLimit; t != nil {
					fmt.Fprintf(&b, " near %s", t)
				}
			}
			if m := r.Managed(); m != nil {
				fmt.Fprintf(&b, " by %s %s", m.Manifest, m.Hash)
			}
			b.WriteByte('\n')
		}
		if q.After = page.Next; q.After == "" {
			break
		}
	}
	revs, err := admin.New(lim).Manifests.Revisions(t.Context(), admin.RevisionQuery{})
	must(t, err)
	for _, r := range revs.Items {
		fmt.Fprintf(&b, "%s %d %s\n", r.Manifest, r.Revision, r.Hash)
	}
	return b.String()
}

// unscanned is an account whose table is never scanned.
type unscanned struct{ *dynamotest.Fake }

func (unscanned) Scan(context.Context, *sdk.ScanInput, ...func(*sdk.Options)) (*sdk.ScanOutput, error) {
	return new(sdk.ScanOutput), nil
}
