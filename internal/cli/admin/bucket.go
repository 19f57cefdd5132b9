package admin

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/cli/term"
)

// bucketView is a bucket as printed.
type bucketView struct {
	Entity   string            `json:"entity"`
	Resource string            `json:"resource"`
	ID       string            `json:"id"`
	At       time.Time         `json:"at"`
	Limits   []bucketLimitView `json:"limits"`
}

// bucketLimitView is one limit of a bucket.
type bucketLimitView struct {
	Limit     weir.Limit `json:"limit"`
	Override  bool       `json:"override,omitempty"`
	Available int64      `json:"available"`
	Debited   int64      `json:"debited"`
	Returned  int64      `json:"returned"`
}

// totalView sums a resource's buckets for one limit name.
type totalView struct {
	Limit     string `json:"limit"`
	Buckets   int    `json:"buckets"`
	Available int64  `json:"available"`
	Debited   int64  `json:"debited"`
	Returned  int64  `json:"returned"`
}

func bucketViewOf(b weir.Bucket) bucketView {
	v := bucketView{b.Entity, b.Resource, strconv.FormatUint(b.ID, 16), b.At.UTC(), make([]bucketLimitView, len(b.Limits))}
	for i, l := range b.Limits {
		v.Limits[i] = bucketLimitView(l)
	}
	return v
}

func BucketCmd(a *kit.Run) *cobra.Command {
	return kit.Group(&cobra.Command{
		Use:   "bucket",
		Short: "Show or reset what entities have spent on resources",
		Long: `A bucket holds what one entity has spent on one resource and has not yet refilled. A store
may drop a bucket that is full again, along with its debited and returned totals.`,
	}, bucketListCmd(a), bucketShowCmd(a), bucketResetCmd(a))
}

func bucketListCmd(a *kit.Run) *cobra.Command {
	var query weir.BucketQuery
	var page kit.PageFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List buckets; with --resource, also their totals",
		Args:  kit.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.With(stores.Existing, func(lim *weir.Limiter) error {
				found, next, err := kit.Collect(&page, func(after string, size int) ([]bucketView, string, error) {
					query.After, query.Max = after, size
					page, err := lim.Buckets(cmd.Context(), query)
					views := make([]bucketView, len(page.Buckets))
					for i, b := range page.Buckets {
						views[i] = bucketViewOf(b)
					}
					return views, page.Next, err
				})
				if err != nil {
					return err
				}
				view := struct {
					kit.PageView[bucketView]
					Totals []totalView `json:"totals,omitempty"`
				}{PageView: kit.PageView[bucketView]{Items: found, Next: next}}
				if query.Resource != "" {
					view.Totals = totals(found)
				}
				return a.More(a.Print(view, func() {
					printBuckets(a, found)
					printTotals(a, view.Totals)
				}), next)
			})
		},
	}
	cmd.Flags().StringVar(&query.Entity, "entity", "", "list only the buckets of the entity with this `ID`")
	cmd.Flags().StringVar(&query.Resource, "resource", "", "list only the buckets of the resource with this `NAME`, with totals")
	return page.Add(cmd)
}

func bucketShowCmd(a *kit.Run) *cobra.Command {
	return &cobra.Command{
		Use:   "show ENTITY RESOURCE",
		Short: "Show a bucket",
		Args:  kit.Args("ENTITY", "RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.With(stores.Existing, func(lim *weir.Limiter) error {
				b, err := lim.Bucket(cmd.Context(), args[0], args[1])
				if err != nil {
					return err
				}
				view := bucketViewOf(b)
				return a.Print(view, func() { printBuckets(a, []bucketView{view}) })
			})
		},
	}
}

func bucketResetCmd(a *kit.Run) *cobra.Command {
	var yes bool
	return kit.YesFlag(&cobra.Command{
		Use:   "reset ENTITY RESOURCE",
		Short: "Refill a bucket, forgetting what was spent",
		Args:  kit.Args("ENTITY", "RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.Confirm(cmd.Context(), yes, "forget what %q has spent on %q", args[0], args[1]); err != nil {
				return err
			}
			return a.With(stores.Existing, func(lim *weir.Limiter) error {
				if err := lim.ResetBucket(kit.As(cmd.Context()), args[0], args[1]); err != nil {
					return err
				}
				return a.Did("the bucket of %q on %q is full", args[0], args[1])
			})
		},
	}, &yes)
}

func printBuckets(a *kit.Run, buckets []bucketView) {
	t := &term.Table{
		Header: []string{"ENTITY", "RESOURCE", "LIMIT", "AVAILABLE", "DEBITED", "RETURNED", "LAST WRITE"},
		Right:  []int{3, 4, 5},
	}
	for _, b := range buckets {
		for _, l := range b.Limits {
			limit := l.Limit.String()
			if l.Override {
				limit += " (of a request)"
			}
			t.Row(b.Entity, b.Resource, limit, a.Out.Count(l.Available), a.Out.Count(l.Debited), a.Out.Count(l.Returned), kit.Instant(b.At))
		}
	}
	a.Out.Table(t)
}

func printTotals(a *kit.Run, all []totalView) {
	if len(all) == 0 {
		return
	}
	t := &term.Table{Header: []string{"TOTAL OF", "BUCKETS", "AVAILABLE", "DEBITED", "RETURNED"}, Right: []int{1, 2, 3, 4}}
	for _, s := range all {
		t.Row(s.Limit, a.Out.Count(int64(s.Buckets)), a.Out.Count(s.Available), a.Out.Count(s.Debited), a.Out.Count(s.Returned))
	}
	a.Out.Println()
	a.Out.Table(t)
}

func totals(buckets []bucketView) []totalView {
	all := []totalView{}
	for _, b := range buckets {
		for _, l := range b.Limits {
			i := slices.IndexFunc(all, func(t totalView) bool { return t.Limit == l.Limit.Name })
			if i < 0 {
				i = len(all)
				all = append(all, totalView{Limit: l.Limit.Name})
			}
			t := &all[i]
			t.Buckets++
			t.Available += l.Available
			t.Debited += l.Debited
			t.Returned += l.Returned
		}
	}
	slices.SortFunc(all, func(a, b totalView) int { return cmp.Compare(a.Limit, b.Limit) })
	return all
}
