package limits

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/claims"
	"github.com/weirlimits/weir/internal/manifest/drift"
)

// planner plans and applies manifests: on a store, through a server, or in the function of a stack.
type planner interface {
	plan(ctx context.Context, m *manifest.Manifest, opts manifest.PlanOptions) (*manifest.Plan, error)
	apply(ctx context.Context, p *manifest.Plan, opts manifest.ApplyOptions) (manifest.Result, error)
	diff(ctx context.Context, m *manifest.Manifest, exact bool) (drift.Report, error)
}

// with calls f with the planner that the flags name. It prints the records that other manifests manage, if that is the
// error.
func (f *lambdaFlags) with(ctx context.Context, r *kit.Run, how stores.Access, do func(planner) error) (err error) {
	switch {
	case f.Stack != "":
		var p *provisioner
		if p, err = f.provisioner(ctx); err == nil {
			err = do(p)
		}
	case r.Server != "":
		err = r.Call(api.PlanManifests.Op, func(c api.Caller) error { return do(onServer{c}) })
	default:
		r.WarnLost(how)
		err = r.With(how, func(lim *weir.Limiter) error { return do(onStore{lim}) })
	}
	bad, ok := errors.AsType[*manifest.ClaimedError](err)
	if !ok {
		return err
	}
	at, _ := errors.AsType[located](err)
	for i := range bad.Claims {
		if at.of != nil { // it is of the text that was sent
			bad.Claims[i].Declared = at.of.DeclaredAt(bad.Claims[i].Target)
		}
	}
	return errors.Join(err, r.Print(map[string][]claims.Claim{"conflicts": bad.Claims}, func() {
		claimed(r, bad.Claims, true)
		if bad.LeftOut > 0 {
			r.Out.Printf("and %d more\n", bad.LeftOut)
		}
	}))
}

var claimed = kit.Columns([]kit.Column[claims.Claim]{
	{Name: "record", Of: func(c *claims.Claim) any { return c.Target }},
	{Name: "declared at"},
	{Name: "managed by"},
})

// call calls f with what runs an operation that reads manifests.
func (f *lambdaFlags) call(ctx context.Context, r *kit.Run, o *api.Op, do func(api.Caller) error) error {
	if f.Stack == "" {
		return r.Call(o, do)
	}
	p, err := f.provisioner(ctx)
	if err != nil {
		return err
	}
	p.namespace = r.Requested()
	return do(p)
}

// needStore returns an error for a flag that works only on a store.
func (f *lambdaFlags) needStore(r *kit.Run, flag string) error {
	if f.Stack != "" || r.Server != "" {
		return kit.Usagef("%s works only on a store: give --store URL, and neither --server nor --via-lambda", flag)
	}
	return nil
}

// makePlans makes the plans of manifests.
func makePlans(
	ctx context.Context, p planner, ms []*manifest.Manifest, opts manifest.PlanOptions,
) ([]*manifest.Plan, error) {
	var plans []*manifest.Plan
	for _, m := range ms {
		made, err := p.plan(ctx, m, opts)
		if err != nil {
			return nil, err
		}
		plans = append(plans, made)
	}
	return plans, nil
}

type onStore struct{ lim *weir.Limiter }

func (s onStore) plan(ctx context.Context, m *manifest.Manifest, opts manifest.PlanOptions) (*manifest.Plan, error) {
	return manifest.Make(ctx, s.lim, m, opts)
}

func (s onStore) apply(
	ctx context.Context, p *manifest.Plan, opts manifest.ApplyOptions,
) (manifest.Result, error) {
	return manifest.Apply(ctx, s.lim, p, opts)
}

func (s onStore) diff(ctx context.Context, m *manifest.Manifest, exact bool) (drift.Report, error) {
	return reported(ctx, s, s.lim, m, exact)
}

// reported plans a manifest for a drift report.
func reported(
	ctx context.Context, by planner, lim *weir.Limiter, m *manifest.Manifest, exact bool,
) (drift.Report, error) {
	p, err := by.plan(ctx, m, manifest.PlanOptions{Exact: exact, Whole: true})
	if err != nil {
		return drift.Report{}, err
	}
	all, err := drift.Reports(ctx, lim, []*manifest.Plan{p})
	if err != nil {
		return drift.Report{}, err
	}
	return all[0], nil
}

type onServer struct{ api.Caller }

func (s onServer) diff(ctx context.Context, m *manifest.Manifest, exact bool) (drift.Report, error) {
	got, _, err := api.DiffManifests.Call(ctx, s, &api.PlanQuery{Text: string(m.Text()), Exact: exact})
	switch {
	case err != nil:
		return drift.Report{}, located{err, m, "body"}
	case len(got.Manifests) != 1:
		return drift.Report{}, fmt.Errorf("the server compared %d manifests instead of 1", len(got.Manifests))
	}
	return got.Manifests[0], nil
}

func (s onServer) plan(ctx context.Context, m *manifest.Manifest, opts manifest.PlanOptions) (*manifest.Plan, error) {
	got, _, err := api.PlanManifests.Call(ctx, s, &api.PlanQuery{Text: string(m.Text()), Exact: opts.Exact})
	switch {
	case err != nil:
		return nil, located{err, m, "body"}
	case len(got.Plans) != 1 || got.Plans[0] == nil:
		return nil, fmt.Errorf("the server made %d plans of 1 manifest", len(got.Plans))
	}
	return got.Plans[0].Of(m, "body")
}

// located is an error about a manifest, which was sent under a name, with places in the user's own files.
type located struct {
	error

	of   *manifest.Manifest
	name string
}

func (e located) Error() string { return e.of.Located(e.error.Error(), e.name) }
func (e located) Unwrap() error { return e.error }

func (s onServer) apply(
	ctx context.Context, p *manifest.Plan, opts manifest.ApplyOptions,
) (manifest.Result, error) {
	may := api.Permitted{Adopt: opts.Adopt, Delete: new(!opts.Keep), State: p.State}
	var got api.Applied
	var err error
	if opts.Rollback > 0 {
		got, _, err = api.RollbackManifest.Call(ctx, s, &api.Rollback{
			Name: p.Manifest, Revision: opts.Rollback, Permitted: may,
		})
	} else {
		got, _, err = api.ApplyManifests.Call(ctx, s, &api.ManifestChange{Text: p.Text(), Permitted: may})
	}
	switch {
	case err != nil:
		return manifest.Result{}, err
	case len(got.Results) != 1:
		return manifest.Result{}, fmt.Errorf("the server applied %d manifests of 1", len(got.Results))
	}
	return got.Results[0], nil
}
