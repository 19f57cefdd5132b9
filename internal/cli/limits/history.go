package limits

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
)

// historyQuery selects the revisions of a manifest, or one of them.
type historyQuery struct {
	named
	lambdaFlags
	Revision *int `json:"revision" arg:"REVISION" range:"1.."`
	api.Page
}

var revisions = []kit.Column[admin.Revision]{
	{Name: "revision"},
	{Name: "at"},
	{Name: "by"},
	{Name: "summary", Cut: true},
	{Name: "hash", Of: func(r *admin.Revision) any { return shortHash(r.Hash) }},
}

func list(r *kit.Run) *cobra.Command {
	columns := kit.Columns(append([]kit.Column[admin.Revision]{{Name: "manifest"}}, revisions...))
	return kit.Func(r, kit.Spec{
		Use: "list", Short: "List the manifests of the namespace, with their last revision",
		Example: "  weir limits list",
	}, func(ctx context.Context, q *listQuery) error {
		return q.call(ctx, r, api.ListManifests.Op, func(c api.Caller) error {
			return listed(ctx, r, c, api.ListManifests, &q.Page, columns,
				"no manifests yet: weir limits apply adds one")
		})
	})
}

// listQuery selects manifests.
type listQuery struct {
	lambdaFlags
	api.Page
}

// listed shows all pages of a list of revisions, or beside an empty table that there are none.
func listed[Q any](
	ctx context.Context, r *kit.Run, c api.Caller, o api.Of[Q, api.List[admin.Revision]], q *Q,
	columns kit.View[admin.Revision], none string,
) error {
	all, next, err := kit.All(ctx, c, o, q, nil)
	table := func() { columns(r, all, true) }
	page := any(q).(interface{ Cursor() *api.Page }).Cursor() //nolint:forcetypeassert // as All
	switch {
	case err != nil:
		return err
	case len(all) == 0 && page.After == "" && r.Output == "table":
		r.Err.Println(none)
		return r.Buffered(table)
	}
	return kit.PrintPage(r, all, next, table)
}

func history(r *kit.Run) *cobra.Command {
	return kit.Func(r, kit.Spec{
		Use: "history [REVISION]", Short: "List the applied revisions, or print the manifest of one",
		Example: "  weir limits history\n  weir limits history 3",
	}, func(ctx context.Context, q *historyQuery) error {
		return q.call(ctx, r, api.ShowRevision.Op, func(c api.Caller) error {
			if q.Revision == nil {
				revs := &api.RevisionQuery{Name: q.Manifest, Page: q.Page}
				none := fmt.Sprintf("no revisions of manifest %q yet: weir limits apply makes the first", q.Manifest)
				return listed(ctx, r, c, api.ListRevisions, revs, kit.Columns(revisions), none)
			}
			found, _, err := api.ShowRevision.Call(ctx, c, &api.RevisionKey{Name: q.Manifest, Revision: *q.Revision})
			if err != nil {
				return err
			}
			return printText(r, []byte(found.Text))
		})
	})
}

// shortHash returns enough of a hash to distinguish manifests.
func shortHash(hash string) string {
	hash = strings.TrimPrefix(hash, "sha256:")
	return hash[:min(12, len(hash))]
}

// rollbackRequest names a revision to apply again.
type rollbackRequest struct {
	named
	applyFlags
	lambdaFlags
	Revision int `json:"revision" arg:"REVISION" range:"1.."`
}

func rollback(r *kit.Run) *cobra.Command {
	return kit.Func(r, kit.Spec{
		Use: "rollback REVISION", Short: "Plan and apply the manifest of an earlier revision",
		Long: `Plans and applies the manifest of an earlier revision, which becomes the newest revision. Your
manifest file does not change: applying it again undoes the rollback.`,
		Example: "  weir limits rollback 3",
	}, func(ctx context.Context, q *rollbackRequest) error {
		return q.call(ctx, r, api.ShowRevision.Op, func(c api.Caller) error {
			found, _, err := api.ShowRevision.Call(ctx, c, &api.RevisionKey{Name: q.Manifest, Revision: q.Revision})
			if err != nil {
				return err
			}
			source := strictyaml.Source{Name: fmt.Sprintf("revision %d", q.Revision), Text: []byte(found.Text)}
			ms, err := manifest.Decode([]strictyaml.Source{source}, strictyaml.Options{})
			if err != nil {
				return fmt.Errorf("revision %d was written by another version of weir: %w", q.Revision, err)
			}
			var p planner = onServer{c}
			switch c := c.(type) {
			case api.Local:
				p = onStore{c.Limiter}
			case *provisioner:
				p = c
			}
			plans, err := makePlans(ctx, p, ms, manifest.PlanOptions{})
			if err != nil {
				return unchanged(ctx, err)
			}
			return applyPlans(ctx, r, p, plans, &q.applyFlags, new(stageFlags), q.Revision)
		})
	})
}
