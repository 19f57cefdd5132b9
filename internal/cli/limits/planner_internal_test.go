package limits

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
)

// server is a server that has made a plan, refuses any other, and keeps the last request.
type server struct{ got any }

func (s *server) Call(_ context.Context, o *api.Op, req any) (any, error) {
	if s.got = req; o == api.PlanManifests.Op || o == api.DiffManifests.Op {
		return nil, &weir.ConfigError{Field: "manifest", Reason: "x is declared in body:6, not in body:60"}
	}
	return api.Applied{Results: make([]manifest.Result, 1)}, nil
}

// Through a server, only the plan that was shown is applied, and mistakes are placed in the user's own files.
func TestOnServer(t *testing.T) {
	t.Parallel()
	ms, err := manifest.Decode([]strictyaml.Source{{
		Name: "own.yaml", Text: []byte("namespace: a\nresources: {x: {limits: {rpm: {capacity: 1}}}, y: {limits: {rpm: {capacity: 2}}}}\n"),
	}}, strictyaml.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := &server{}
	by := onServer{s}
	_, err = by.plan(t.Context(), ms[0], manifest.PlanOptions{Exact: true})
	want := "manifest: x is declared in own.yaml:2, not in body:60"
	if err == nil || err.Error() != want || weir.CodeOf(err) != weir.CodeInvalid {
		t.Errorf("%v, want %s", err, want)
	}
	text := string(ms[0].Text())
	if d := cmp.Diff(&api.PlanQuery{Text: text, Exact: true}, s.got); d != "" {
		t.Error(d)
	}
	if _, err = by.diff(t.Context(), ms[0], false); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	p, err := (&manifest.Plan{Manifest: "m", State: "s"}).Of(ms[0], "body")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		opts manifest.ApplyOptions
		want any
	}{
		{
			manifest.ApplyOptions{Adopt: true},
			&api.ManifestChange{Text: string(ms[0].Source()), Permitted: api.Permitted{Adopt: true, Delete: new(true), State: "s"}},
		},
		{
			manifest.ApplyOptions{Keep: true, Rollback: 3},
			&api.Rollback{Name: "m", Revision: 3, Permitted: api.Permitted{Delete: new(false), State: "s"}},
		},
	} {
		_, err := by.apply(t.Context(), p, tt.opts)
		if d := cmp.Diff(tt.want, s.got); d != "" || err != nil {
			t.Errorf("%v %s", err, d)
		}
	}
}
