package admin

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// bucketRow is a limit of a bucket, as printed.
type bucketRow struct {
	Entity   string    `json:"entity"`
	Resource string    `json:"resource"`
	Text     string    `json:"limit"`
	At       time.Time `json:"last_write"`
	api.BucketLimit
}

// bucket prints a row for each limit and, of a single bucket that is split, the number of items.
func bucket(r *kit.Run, all []api.Bucket, list bool) {
	bucketRows(r, all, list)
	if !list && all[0].Items > 1 {
		r.Out.Pairs("items", strconv.Itoa(all[0].Items))
	}
}

var bucketRows = kit.Rows(func(b *api.Bucket) (rows []bucketRow) {
	for _, l := range b.Limits {
		text := l.Limit.String()
		switch {
		case l.Override:
			text += " (of a request)"
		case l.Removed:
			text += " (removed)"
		}
		rows = append(rows, bucketRow{b.Entity, b.Resource, text, b.At, l})
	}
	return rows
}, kit.Columns([]kit.Column[bucketRow]{
	{Name: "entity"},
	{Name: "resource"},
	{Name: "limit"},
	{Name: "available"},
	{Name: "debited"},
	{Name: "returned"},
	{Name: "resets", Rare: true, Of: func(b *bucketRow) any {
		if b.Limit.Window.Zone() == nil {
			return nil
		}
		_, ends := b.Limit.Window.Bounds(clock.Nanos(time.Now()))
		return kit.Resets(b.Limit.Window, clock.Time(ends))
	}},
	{Name: "last write"},
}))

// bucketTotal sums a resource's buckets for one limit in force.
type bucketTotal struct {
	Limit     string  `json:"limit"`
	Buckets   int     `json:"buckets"`
	Burst     int64   `json:"burst"`
	Available int64   `json:"available"`
	Used      float64 `json:"used"` // the share of the bursts that is spent; more than 1 in debt, 0 of balances
	Debited   int64   `json:"debited"`
	Returned  int64   `json:"returned"`
}

var total = kit.Columns([]kit.Column[bucketTotal]{
	{Name: "total of", Of: func(t *bucketTotal) any { return t.Limit }},
	{Name: "buckets"},
	{Name: "burst"},
	{Name: "available"},
	{Name: "used", Of: func(t *bucketTotal) any {
		if t.Burst == 0 {
			return kit.Number("-")
		}
		return kit.Number(strings.TrimSpace(percent(t.Used)))
	}},
	{Name: "debited"},
	{Name: "returned"},
})

// BucketCmd returns the commands that look into buckets.
func BucketCmd(r *kit.Run) *cobra.Command {
	return kit.Group(&cobra.Command{
		Use:   "bucket",
		Short: "Show, reset, forgive or split what entities have spent on resources",
		Long: `A bucket holds what one entity has spent on one resource and has not yet refilled. It is shown
with the limits in force, and those that are not but have tokens outstanding, as removed. A store
may drop a bucket that is full again, along with its debited and returned totals.`,
	},
		kit.Func(r, kit.Spec{Use: "list", Short: "List buckets; with --resource, also their totals"},
			func(ctx context.Context, q *api.BucketQuery) error {
				found, next, err := kit.Pages(ctx, r, api.ListBuckets, q, nil)
				if err != nil {
					return err
				}
				view := struct {
					api.List[api.Bucket]
					Totals []bucketTotal `json:"totals,omitempty"`
				}{List: api.List[api.Bucket]{Items: found, Next: next}}
				if q.Resource != "" {
					view.Totals = totals(found)
				}
				return kit.More(r, r.Print(view, func() {
					bucket(r, found, true)
					if len(view.Totals) > 0 {
						r.Out.Println()
						total(r, view.Totals, true)
					}
				}), len(found), next)
			}),
		kit.Verb(r, api.ShowBucket, kit.Spec{Use: "show ENTITY RESOURCE", Short: "Show a bucket"}, bucket),
		kit.Verb(r, api.ResetBucket, kit.Spec{
			Use: "reset ENTITY RESOURCE", Short: "Refill a bucket, forgetting what was spent",
			Asks: "forget what {entity} has spent on {resource?%q}",
			Done: "the bucket of {entity} on {resource?%q} is full",
		}, nil),
		kit.Verb(r, api.ForgiveBucket, kit.Spec{
			Use: "forgive ENTITY RESOURCE", Short: "Forgive debts: limits in debt are raised to zero",
			Asks: "forgive what {entity} owes on {resource?%q}",
		}, bucket),
		bucketSplitCmd(r))
}

// bucketSplit is into how many items to split a bucket.
type bucketSplit struct {
	api.BucketKey

	Into int `json:"into" values:"1,2,4,8,16,32,64"`
}

// bucketItems is the number of items that a bucket is split into.
type bucketItems struct {
	Entity   string `json:"entity"`
	Resource string `json:"resource"`
	Items    int    `json:"items"`
}

// splitter is a store that keeps a bucket in several items if it is written often.
type splitter interface {
	// Split doubles the number of items until there are n, and returns how many there are.
	Split(ctx context.Context, b store.Bucket, n int) (int, error)
}

func bucketSplitCmd(r *kit.Run) *cobra.Command {
	return kit.Func(r, kit.Spec{
		Use: "split ENTITY RESOURCE", Short: "Show into how many items a bucket is split, or split it further",
		Long: `Shows into how many items a bucket in DynamoDB is split. With --into, doubles them until there
are so many, each with its exact share of every limit. Processes do this themselves once a bucket
is written more often than one item can be: do it beforehand for load that is known to come. The
split ends by itself about a week after the bucket is full, if it is no longer written to.`,
		Example: "  weir bucket split key-alice gpt-4 --into 8",
	}, func(ctx context.Context, q *bucketSplit) error {
		return r.With(stores.Existing, func(lim *weir.Limiter) error {
			st, ok := r.Opened.(splitter)
			if !ok {
				return kit.Usagef("only buckets in DynamoDB are split")
			}
			ns, err := admin.New(lim).Namespaces.Get(ctx, lim.Namespace())
			if err != nil {
				return err
			}
			b := store.Bucket{Namespace: ns.ID, Entity: q.Entity, Resource: q.Resource}
			n, err := st.Split(ctx, b, max(1, q.Into))
			if err == nil && n < q.Into {
				err = kit.Usagef("%d of %d items: a bucket exists from its first request on, such as "+
					"weir acquire %s %s LIMIT=1, and has at most max-shards items", n, q.Into, q.Entity, q.Resource)
			}
			if err != nil {
				return err
			}
			return r.Print(bucketItems{q.Entity, q.Resource, n}, func() { r.Out.Println(kit.Plural(n, "item")) })
		})
	})
}

// totals sums the limits in force, by name.
func totals(buckets []api.Bucket) []bucketTotal {
	all := []bucketTotal{}
	for _, b := range buckets {
		for _, l := range b.Limits {
			if l.Override || l.Removed {
				continue
			}
			i := slices.IndexFunc(all, func(t bucketTotal) bool { return t.Limit == l.Limit.Name })
			if i < 0 {
				i = len(all)
				all = append(all, bucketTotal{Limit: l.Limit.Name})
			}
			t := &all[i]
			t.Buckets++
			t.Burst = clock.Add(t.Burst, max(l.Limit.Burst, l.Limit.Slots))
			t.Available += l.Available
			t.Debited += l.Debited
			t.Returned += l.Returned
		}
	}
	for i := range all {
		t := &all[i]
		t.Used = math.Round(1e4*usedOf(t.Available, t.Burst)) / 1e4
	}
	slices.SortFunc(all, func(a, b bucketTotal) int { return cmp.Compare(a.Limit, b.Limit) })
	return all
}
