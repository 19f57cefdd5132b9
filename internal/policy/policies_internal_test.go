package policy

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
)

// Whatever happens to the map meanwhile, a reader gets the policy that it asked for or none.
func TestPoliciesConcurrently(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 7, 100, 100_000} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			t.Parallel()
			all := New(Config{Entries: 1})
			p := all.state("n", "name").full
			var wg sync.WaitGroup
			for g := range 4 {
				wg.Go(func() {
					r := rand.New(rand.NewPCG(uint64(g), 1))
					for i := range 5000 {
						entity, resource := fmt.Sprint("e", r.IntN(500)), fmt.Sprint("r", r.IntN(3))
						switch {
						case g < 2:
							all.keep(p, &Policy{Entity: entity, Resource: resource}, limit)
							if n := all.Stats().Policies; n > limit+1 { // the other writer is about to remove some
								t.Errorf("%d policies, at most %d", n, limit)
								return
							}
							if g == 0 && i%2000 == 1999 {
								all.kept.Add(-p.drop(0))
							}
						default:
							if pl := p.find(entity, resource); pl != nil && (pl.Entity != entity || pl.Resource != resource) {
								t.Errorf("asked for %s %s, got %s %s", entity, resource, pl.Entity, pl.Resource)
								return
							}
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

func TestPoliciesFindsAll(t *testing.T) {
	t.Parallel()
	p := newPolicies()
	for round := range 2 { // the second round replaces
		for i := range 5000 {
			pl := &Policy{Entity: fmt.Sprint("e", i), Resource: "r"}
			p.put(pl)
			if p.find(pl.Entity, "r") != pl {
				t.Fatalf("round %d: policy %d is not found", round, i)
			}
		}
		if p.size != 5000 {
			t.Fatalf("%d policies", p.size)
		}
	}
	for i := range 5000 {
		if p.find(fmt.Sprint("e", i), "r") == nil {
			t.Fatalf("policy %d is gone", i)
		}
	}
	// Keys whose names concatenate to the same string are different.
	p.put(&Policy{Entity: "ab", Resource: "c"})
	if p.find("a", "bc") != nil || p.find("c", "ab") != nil || p.find("ab", "c") == nil {
		t.Error("mixed up")
	}
	for p.size > 0 {
		p.drop(0)
	}
	if len(*p.heads.Load()) != 64 || p.find("e1", "r") != nil {
		t.Error("not empty")
	}
}

// All namespaces together have room for so many policies. Whoever has few keeps them when others have many.
func TestPoliciesDrop(t *testing.T) {
	t.Parallel()
	r := New(Config{Entries: 1})
	entity := func(i int) string { return fmt.Sprint("e", i) }
	few := r.state("few", "few").parents
	for i := range 20 {
		r.keep(few, &Policy{Entity: entity(i), Resource: "r"}, 1000)
	}
	for i := range 20_000 {
		in := r.state(fmt.Sprint("many", i%3), "many").full
		r.keep(in, &Policy{Entity: entity(i), Resource: fmt.Sprint("r", i)}, 1000)
		if n := r.Stats().Policies; n > 1000 || i > 1000 && n < 700 {
			t.Fatalf("%d policies after %d", n, i)
		}
	}
	found := few.size
	for i := range 3 {
		in := r.state(fmt.Sprint("many", i), "many").full
		if len(in.resources) > in.size {
			t.Errorf("%d names for %d policies", len(in.resources), in.size)
		}
		for j := range 20_000 {
			if in.find(entity(j), fmt.Sprint("r", j)) != nil {
				found++
			}
		}
	}
	if few.size != 20 || found != r.Stats().Policies {
		t.Errorf("%d policies of who has few, %d found, %d counted", few.size, found, r.Stats().Policies)
	}
	for i := range 1001 { // more namespaces than policies
		r.keep(r.state(entity(i), "one").full, &Policy{Entity: "e", Resource: "r"}, 1000)
	}
	if n := r.Stats().Policies; n > 1000 {
		t.Errorf("%d policies of as many namespaces", n)
	}
}

func TestChangeConcerns(t *testing.T) {
	t.Parallel()
	p := &Policy{Entity: "a", Resource: "r", made: made{beside: &others{parents: []string{"b"}}}}
	for _, tt := range []struct {
		change change
		want   bool
	}{
		{change{all: true}, true},
		{change{entity: "a"}, true},
		{change{entity: "b"}, true},
		{change{entity: "c"}, false},
		{change{resource: "r"}, true},
		{change{resource: "s"}, false},
		{change{entity: "b", resource: "r"}, true},
		{change{entity: "b", resource: "s"}, false},
		{change{entity: "c", resource: "r"}, false},
	} {
		if got := tt.change.concerns(p); got != tt.want {
			t.Errorf("%+v: %v", tt.change, got)
		}
	}
}

// A policy that missed more changes than are remembered counts as changed. A policy that missed only unrelated changes does not.
func TestChangesOverflow(t *testing.T) {
	t.Parallel()
	s := New(Config{Entries: 10, OnChange: func(string) {}}).state("n", "name")
	p := &Policy{Entity: "a", Resource: "r"}
	p.generation.Store(s.generation.Load())
	for i := range maxChanges * 3 {
		s.changed(change{entity: "other"})
		if i%50 == 0 && !s.current(p) {
			t.Fatalf("change %d was of another entity", i)
		}
	}
	s.changed(change{entity: "a"})
	for range maxChanges / 4 {
		s.changed(change{entity: "other"})
	}
	if s.current(p) {
		t.Error("missed a change")
	}

	q := &Policy{Entity: "q", Resource: "r"}
	q.generation.Store(s.generation.Load())
	s.changed(change{entity: "q"})
	for range 2 * maxChanges { // the change itself is forgotten
		s.changed(change{entity: "other"})
	}
	if s.current(q) {
		t.Error("missed a change that was forgotten")
	}
	if len(s.changes) > maxChanges {
		t.Errorf("%d changes are remembered", len(s.changes))
	}
}
