package cost_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
)

// TestChanges checks what changes of the configuration cost at most, as docs/operate/cost.md states it, and that this is
// not far from what they do cost.
func TestChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t, weir.PerMinute("rpm", 1000))
		defer st.close()
		st.acquire("a")
		st.since()
		a, ctx, entity := admin.New(st.lim), t.Context(), admin.Scope{Entity: "a", Resource: "api"}
		set := func(s admin.Scope, rpm int64) error {
			return a.Limits.Set(ctx, s, weir.PerMinute("rpm", rpm), weir.PerMinute("tpm", 100*rpm))
		}
		change := dynamotest.Units{Read: 8, Write: 11}
		st.changes("the first set of limits", set(admin.Scope{Resource: "api"}, 1), dynamotest.Units{Read: 15, Write: 11})
		st.changes("other limits of a resource", set(admin.Scope{Resource: "api"}, 2), change)
		st.changes("limits of an entity", set(entity, 3), change)
		st.changes("other limits of an entity", set(entity, 4), change)
		st.changes("no limits of an entity", a.Limits.Delete(ctx, entity), change)
		st.changes("an entity", a.Entities.Create(ctx, admin.Entity{ID: "a"}), change)
		st.changes("its limits", set(entity, 5), change)
		st.changes("no entity", a.Entities.Delete(ctx, "a", admin.DeleteOptions{}), dynamotest.Units{Read: 26, Write: 25})

		for _, n := range []int{1, 10, 100} {
			var text strings.Builder
			fmt.Fprintf(&text, "namespace: default\nmanifest: m%d\nresources:\n", n)
			for i := range n {
				fmt.Fprintf(&text, "  r%d-%d: {limits: {rpm: 10/min}}\n", n, i)
			}
			ms, err := manifest.Decode([]strictyaml.Source{{Name: "m", Text: []byte(text.String())}}, strictyaml.Options{})
			if err != nil {
				t.Fatal(err)
			}
			plan := func() *manifest.Plan {
				p, err := manifest.Make(ctx, st.lim, ms[0], manifest.PlanOptions{})
				if err != nil {
					t.Fatal(err)
				}
				return p
			}
			p := plan()
			st.since() // how many live buckets a plan examines depends on them
			_, err = manifest.Apply(ctx, st.lim, p, manifest.ApplyOptions{})
			most := dynamotest.Units{Read: float64(2*n + 30), Write: float64(7*n + 40)}
			st.changes(fmt.Sprint("an apply of ", n), err, most)
			p = plan()
			st.changes(fmt.Sprint("a plan of ", n, " that are live"), nil, dynamotest.Units{Read: float64(n + 11)})
			_, err = manifest.Apply(ctx, st.lim, p, manifest.ApplyOptions{})
			st.changes(fmt.Sprint("an apply of no change of ", n), err, dynamotest.Units{})
		}
	})
}

// changes compares the units consumed since the previous check with the most that is stated, of which they are a third or
// more.
func (st *stage) changes(what string, err error, most dynamotest.Units) {
	st.Helper()
	if err != nil {
		st.Fatal(what, ": ", err)
	}
	u := st.fake.Capacity()
	read, write := u.Read-st.units.Read, u.Write-st.units.Write
	if read > most.Read || write > most.Write || read < most.Read/3 || write < most.Write/3 {
		st.Errorf("%s: %g RCU, %g WCU; at most %g and %g are stated", what, read, write, most.Read, most.Write)
	}
	st.since()
}
