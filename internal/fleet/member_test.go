package fleet_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/fleet"
)

// headed is grants of nothing.
type headed struct{ fleet.Head }

// idle reports nothing, and reads reports that confirm an epoch.
type idle struct {
	confirmed uint64
	followed  fleet.Version
}

func (*idle) Beat() (time.Duration, bool)                       { return time.Hour, false }
func (*idle) Report(_ context.Context, seq uint64) (any, error) { return seq, nil }
func (*idle) None() *headed                                     { return new(headed) }
func (p *idle) Follow(_ context.Context, g *headed)             { p.followed = g.Version }
func (p *idle) Reports(context.Context) (uint64, error)         { return p.confirmed, nil }
func (*idle) TakeOver(*headed)                                  {}
func (*idle) Issue(h fleet.Head) *headed                        { return &headed{h} }
func (*idle) Commit(context.Context, *headed) error             { return nil }

func put(t *testing.T, r fleet.Registry, text string) {
	t.Helper()
	rec, err := r.Get(t.Context(), fleet.GrantsName)
	if err == nil {
		_, err = r.Put(t.Context(), fleet.GrantsName, []byte(text), rec.Version)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Grants are newer than any that a member confirms, whatever the registry has lost.
func TestEpochs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, grants    string
		confirmed, want uint64
	}{
		{"nothing yet", "", 0, 1},
		{"no leader", `{"epoch": 5, "seq": 9}`, 5, 6},
		{"all lost", "", 5, 6},
		{"the newest lost", `{"epoch": 5, "seq": 9}`, 8, 9},
	} {
		r, p := &fleet.Memory{}, &idle{confirmed: tt.confirmed}
		if tt.grants != "" {
			put(t, r, tt.grants)
		}
		m := fleet.NewMember(fleet.Place{Registry: r, ID: "m"}, p)
		if err := m.Beat(t.Context()); err != nil || p.followed.Epoch != tt.want || !m.State().Leads {
			t.Errorf("%s: epoch %d, want %d; %+v, %v", tt.name, p.followed.Epoch, tt.want, m.State(), err)
		}
		p.confirmed = tt.want + 3 // by a member that returns
		if err := m.Beat(t.Context()); err != nil || p.followed.Epoch != tt.want+4 || !m.State().Leads {
			t.Errorf("%s: epoch %d after a later one was confirmed; %v", tt.name, p.followed.Epoch, err)
		}
	}
}

// A member neither follows nor replaces grants of a newer format, not even if nobody leads.
func TestNewerFormat(t *testing.T) {
	t.Parallel()
	r, p := &fleet.Memory{}, &idle{}
	m := fleet.NewMember(fleet.Place{Registry: r, ID: "m"}, p)
	if err := m.Beat(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := p.followed
	put(t, r, `{"epoch": 7, "seq": 9, "format": 2, "leader": ""}`)
	if err := m.Beat(t.Context()); err == nil || !strings.Contains(err.Error(), "format 2") || p.followed != before {
		t.Errorf("it follows %+v: %v", p.followed, err)
	}
	if rec, err := r.Get(t.Context(), fleet.GrantsName); err != nil || !strings.Contains(string(rec.Value), `"format": 2`) {
		t.Errorf("the grants are %s, %v", rec.Value, err)
	}
	put(t, r, `{"epoch": 7, "seq": 10, "format": 1, "leader": "another"}`)
	if err := m.Beat(t.Context()); err != nil || p.followed.Seq != 10 {
		t.Errorf("it follows %+v: %v", p.followed, err)
	}
}

// If a registry loses grants, their leader writes them again at once. Any other member waits until all have confirmed what
// they follow, because it may not have the newest.
func TestLostGrants(t *testing.T) {
	t.Parallel()
	const older, newest = `{"epoch": 5, "seq": 9, "leader": "a"}`, `{"epoch": 5, "seq": 10, "leader": "a"}`
	for id, leads := range map[string]bool{"a": true, "b": false} {
		synctest.Test(t, func(t *testing.T) {
			r, p := &fleet.Memory{}, &idle{confirmed: 5}
			m := fleet.NewMember(fleet.Place{Registry: r, ID: id}, p)
			beat := func(want fleet.Version, leads bool) {
				t.Helper()
				if err := m.Beat(t.Context()); err != nil || p.followed != want || m.State().Leads != leads {
					t.Errorf("%s follows %+v, want %+v; %+v, %v", id, p.followed, want, m.State(), err)
				}
			}
			put(t, r, newest)
			if !leads {
				beat(fleet.Version{Epoch: 5, Seq: 10}, false)
				put(t, r, older)
				beat(fleet.Version{Epoch: 5, Seq: 10}, false)
				time.Sleep(2 * time.Hour)
				beat(fleet.Version{Epoch: 5, Seq: 10}, false)
				time.Sleep(2 * time.Hour)
				beat(fleet.Version{Epoch: 6, Seq: 11}, true)
				return
			}
			beat(fleet.Version{Epoch: 6, Seq: 11}, true) // it is not sure of its own write: the outcome was unknown
			beat(fleet.Version{Epoch: 6, Seq: 12}, true)
			put(t, r, newest)
			beat(fleet.Version{Epoch: 7, Seq: 13}, true)
		})
	}
}
