package manifest

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest/claims"
	"github.com/weirlimits/weir/internal/manifest/live"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
)

// ClaimedError reports that a manifest declares records that others manage.
type ClaimedError = claims.Error

// DeclaredAt returns where the manifest declares the record that a plan names so; "" if it does not.
func (m *Manifest) DeclaredAt(target string) string {
	for k, r := range m.Records {
		if k.String() == target {
			return r.at.String()
		}
	}
	return ""
}

// Giver is a manifest from which records move.
type Giver struct {
	Manifest string `json:"manifest"`
	Moved    int    `json:"moved"`
	Left     int    `json:"left"` // that it still manages, and the plan's manifest does not declare
}

// ownership reads which manifests the document's one takes records from, and whether it keeps what it no longer
// declares.
func (d *decoder) ownership(members map[string]*yaml.Node, name string) (from []string, keep bool) {
	if n := members["moved"]; n != nil {
		given := 0
		read := d.Fields(n, "moved", []string{"from"}, func(_ string, v *yaml.Node) {
			if !d.List(v, "moved.from", func(path string, v *yaml.Node) {
				given++
				switch other, ok := d.name(v, path, ""); {
				case ok && other == name:
					d.Bad(v, path, "name the manifest that manages the records now", "is this manifest itself")
				case ok:
					from = append(from, other)
				}
			}) {
				given++ // it was reported
			}
		})
		if read && given == 0 {
			d.Bad(n, "moved", "write from: [NAME], with the manifests that manage the records now", "names no manifest")
		}
	}
	if n := members["removed"]; n != nil {
		text, ok := d.Text(n, "removed")
		keep = ok && oneOf("keep")(d, n, "removed", text)
	}
	return from, keep
}

// link finds which records of manifests move to others among them.
func link(all []*Manifest) {
	for _, to := range all {
		for _, from := range all {
			if from.Namespace != to.Namespace || !slices.Contains(to.Moved, from.Name) {
				continue
			}
			for k := range to.Records {
				if from.moving == nil {
					from.moving = make(map[Key]string)
				}
				from.moving[k] = to.Name
			}
		}
	}
}

// MovesTo returns the manifests to which records move from this one, of those that were decoded with it.
func (m *Manifest) MovesTo() []string {
	return slices.Compact(slices.Sorted(maps.Values(m.moving)))
}

// leaves reports whether a record stays live although the manifest does not declare it any more.
func (m *Manifest) leaves(k Key) bool { return m.Keep || m.moving[k] != "" }

// stays reports whether a live record stays that the manifest does not declare.
func (p *Plan) stays(k Key, by *admin.Managed) bool {
	return by == nil || by.Manifest != p.Manifest || p.manifest.leaves(k)
}

// release returns the record without the mark of a manifest.
func release(d admin.Declared) *admin.Declared {
	if d.Entity != nil {
		e := *d.Entity
		e.Managed = nil
		return &admin.Declared{Entity: &e}
	}
	l := *d.Limits
	l.Managed = nil
	return &admin.Declared{Limits: &l}
}

// giver reads the state of a manifest from which records move, and returns why none may move now; "" if they may.
func giver(ctx context.Context, lim *weir.Limiter, name string) (s admin.ManifestState, problem string, err error) {
	if s, err = admin.New(lim).Manifests.State(ctx, name); err != nil {
		return s, "", err
	}
	left, err := ongoing(s.Rollout, name, "")
	if left != nil {
		problem = fmt.Sprintf("a rollout of manifest %s is unfinished, at %d%%: let it end before records move from it",
			strictyaml.Quote(name), left.Percent)
	}
	return s, problem, err
}

// givable returns an error if a rollout began, since the plan was made, of a manifest from which records move.
func (p *Plan) givable(ctx context.Context, lim *weir.Limiter) error {
	for _, g := range p.Givers {
		_, problem, err := giver(ctx, lim, g.Manifest)
		if err == nil && problem != "" {
			err = fmt.Errorf("%s: %w", problem, weir.ErrConflict)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// givers counts what moves from other manifests, and finds those from which nothing may move now.
func (p *Plan) givers(ctx context.Context, lim *weir.Limiter, lv *reading) (problems []string, err error) {
	moved := make(map[string]int)
	for i := range p.Changes {
		if c := &p.Changes[i]; c.Action == Move {
			moved[c.Manager]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(moved)) {
		state, problem, err := giver(ctx, lim, name)
		if err != nil {
			return nil, err
		}
		if problem != "" {
			problems = append(problems, problem)
		}
		if state.Managed == nil {
			lv.All(ctx)
		}
		lv.Load(ctx, live.With(state.Managed)...)
		g := Giver{Manifest: name, Moved: moved[name]}
		for _, k := range lv.managedBy(name) {
			if p.manifest.Records[k] == nil {
				g.Left++
			}
		}
		p.Givers = append(p.Givers, g)
	}
	return problems, lv.Err()
}
