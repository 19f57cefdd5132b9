package admin

import (
	"context"
	"fmt"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/drift"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
)

// configuration reports, for each manifest of the namespace, how many records were changed by hand since it was
// applied.
func configuration(ctx context.Context, r *kit.Run) (all []stores.Finding) {
	err := r.With(stores.Existing, func(lim *weir.Limiter) error {
		page, err := admin.New(lim).Manifests.Revisions(ctx, admin.RevisionQuery{})
		for i := range page.Items {
			all = append(all, drifted(ctx, lim, &page.Items[i]))
		}
		return err
	})
	if err != nil {
		all = append(all, stores.Finding{Name: "configuration", OK: true, Detail: unknown(err)})
	}
	return all
}

// drifted compares the live records with the manifest of a revision.
func drifted(ctx context.Context, lim *weir.Limiter, rev *admin.Revision) stores.Finding {
	f := stores.Finding{Name: "configuration", OK: true}
	p, err := planOf(ctx, lim, rev)
	if err != nil {
		f.Detail = "manifest " + rev.Manifest + ": " + unknown(err)
		return f
	}
	reports, err := drift.Reports(ctx, nil, []*manifest.Plan{p})
	if err != nil {
		f.Detail = "manifest " + rev.Manifest + ": " + unknown(err)
		return f
	}
	hand := 0
	for _, d := range reports[0].Drift {
		if d.Why.Hand() {
			hand++
		}
	}
	if hand == 0 {
		f.Detail = fmt.Sprintf("manifest %s is as applied in revision %d", rev.Manifest, rev.Revision)
		return f
	}
	f.Detail = fmt.Sprintf("%d of %d records of manifest %s were changed by hand since revision %d", hand,
		p.Unchanged+len(p.Changes), rev.Manifest, rev.Revision)
	f.Remedy = "weir limits diff -f FILE shows by whom: take the changes into the manifest, or apply it again"
	return f
}

// planOf plans to apply the manifest of a revision again.
func planOf(ctx context.Context, lim *weir.Limiter, rev *admin.Revision) (*manifest.Plan, error) {
	_, text, err := admin.New(lim).Manifests.Revision(ctx, rev.Manifest, rev.Revision)
	if err != nil {
		return nil, err
	}
	ms, err := manifest.Decode([]strictyaml.Source{{Name: "revision", Text: text}}, strictyaml.Options{})
	if err != nil {
		return nil, err
	}
	return manifest.Make(ctx, lim, ms[0], manifest.PlanOptions{})
}

func unknown(err error) string { return "is not known: " + secret.Redact(err.Error()) }
