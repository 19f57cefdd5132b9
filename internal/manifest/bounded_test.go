package manifest_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/drift"
	"github.com/weirlimits/weir/internal/manifest/gates"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
	"github.com/weirlimits/weir/store/memory"
)

const boundedText = `namespace: default
plans:
  pro:
    default:
      limits:
        rpm: {capacity: 100}
      bounded: [{until: "2100-12-04T18:00@Europe/Berlin", scale: 10}]
    total:
      bounded: [{from: "2100-01-01T00:00@UTC", until: "2100-12-31T23:00:00Z", limits: {rpm: {capacity: 9}, "t:m": {capacity: 7, refill_period: 1h}}}, {from: "2101-01-01T00:00@UTC", limits: {rpm: {capacity: 8}}}]
entities:
  user-123:
    total:
      bounded: [{until: "2100-12-04T18:00@Europe/Berlin", limits: {rpm: {capacity: 1000000}}}]
`

// TestBounded: on every store, a manifest declares limits that begin and end, and only these; what is changed by hand is
// drift, and what is no longer declared is removed.
func TestBounded(t *testing.T) {
	t.Parallel()
	onStores(t, testBounded)
	onRedis(t, testBounded)
}

func testBounded(t *testing.T, lim *weir.Limiter, st *faulty) {
	m, ctx := decodeOne(t, boundedText), t.Context()
	if got := string(m.Text()); got != boundedText {
		t.Errorf("written as\n%s", got)
	}
	if got := changes(plan(t, lim, m)); got != "create plan pro (loosens)\ncreate plan pro on the total (tightens)\n"+
		"create entity user-123 on the total (tightens)" {
		t.Errorf("planned\n%s", got)
	}
	apply(t, lim, m)
	exported, _, err := manifest.Export(ctx, lim, manifest.DefaultName)
	must(t, err)
	if string(exported.Text()) != boundedText {
		t.Errorf("exported\n%s", exported.Text())
	}
	must(t, admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "alice", Plan: "pro"}))
	if n := burst(t, lim, "alice", "api"); n != 1000 {
		t.Errorf("the boost gives %d, want 1000", n)
	}
	if n := burst(t, lim, "user-123", "api"); n != 1_000_000 {
		t.Errorf("user-123 has %d", n)
	}
	unchanged := func(when string) {
		t.Helper()
		before := st.commits.Load()
		if apply(t, lim, m); st.commits.Load() != before {
			t.Errorf("%s, another apply writes", when)
		}
	}
	unchanged("once applied")
	must(t, admin.New(lim).Limits.DeleteBounded(ctx, admin.Scope{Plan: "pro"}))
	if got := changes(plan(t, lim, m)); got != "update plan pro (loosens) outside" {
		t.Errorf("after a change by hand, planned %s", got)
	}
	apply(t, lim, m)
	unchanged("restored")
	less := decodeOne(t, strings.Replace(boundedText, `      bounded: [{until: "2100-12-04T18:00@Europe/Berlin", scale: 10}]`+"\n", "", 1))
	p := plan(t, lim, less)
	if got := changes(p); got != "update plan pro (tightens)" || len(p.Changes[0].Fields) != 1 ||
		p.Changes[0].Fields[0].Old != "10 × as much until 2100-12-04T18:00@Europe/Berlin" || p.Changes[0].Touches.Buckets != 1 {
		t.Errorf("planned %s: %+v", got, p.Changes)
	}
	apply(t, lim, less)
	if n := burst(t, lim, "alice", "api"); n != 100 {
		t.Errorf("without the boost, %d, want 100", n)
	}
	apply(t, lim, decodeOne(t, "namespace: default\nplans: {pro: {}}\n"))
	if _, err := admin.New(lim).Limits.Get(ctx, admin.Scope{Entity: "user-123", Resource: weir.TotalResource}); err == nil {
		t.Error("what is no longer declared is still there")
	}
}

// TestBoundedEnds: limits that have ended are no drift, whether the manifest still has them or not, and are not written
// again; a plan warns of them. Limits that are extended before their end are an update.
func TestBoundedEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &faulty{Store: memory.New(nil)}
		lim := limiterOn(t, st)
		const text = "namespace: default\nsystem: {limits: [rpm:60/min]}\n" +
			"resources: {r: {limits: [rpm:60/min], bounded: [{until: 2000-01-02@UTC, scale: 10}]}}\n" +
			"entities: {user-123: {total: {bounded: [{until: 2000-01-02@UTC, limits: [rpm:1M/min]}]}}}\n"
		m := decodeOne(t, text)
		if p := plan(t, lim, m); len(p.Warnings) > 0 {
			t.Errorf("warnings %q", p.Warnings)
		}
		apply(t, lim, m)
		longer := decodeOne(t, strings.ReplaceAll(text, "2000-01-02", "2000-01-03"))
		if got := changes(plan(t, lim, longer)); got != "update resource r (loosens)\nupdate entity user-123 on the total (tightens)" {
			t.Errorf("extended: %s", got)
		}
		time.Sleep(24 * time.Hour)
		without := decodeOne(t, "namespace: default\nsystem: {limits: [rpm:60/min]}\nresources: {r: {limits: [rpm:60/min]}}\n")
		for range 2 { // on the day of the end, and when all traces of it may be gone
			p := plan(t, lim, m)
			reports, err := drift.Reports(t.Context(), lim, []*manifest.Plan{p})
			must(t, err)
			if len(p.Changes) > 0 || len(reports[0].Drift) > 0 {
				t.Errorf("ended: %s", changes(p))
			}
			if len(p.Warnings) != 2 || !strings.Contains(p.Warnings[0], "of resource r (test.yaml:3), the limits until 2000-01-02T00:00@UTC have ended") {
				t.Errorf("warnings %q", p.Warnings)
			}
			before := st.commits.Load()
			if apply(t, lim, m); st.commits.Load() != before {
				t.Error("an apply writes what has ended")
			}
			if got := changes(plan(t, lim, without)); got != "delete entity user-123 on the total" {
				t.Errorf("no longer declared: %s", got)
			}
			time.Sleep(30 * 24 * time.Hour)
		}
		other := limiterOn(t, memory.New(nil))
		if got := changes(plan(t, other, m)); got != "create system (loosens)\ncreate resource r (loosens)" {
			t.Errorf("created anew: %s", got)
		}
		apply(t, other, m)
		if sl, err := admin.New(other).Limits.Get(t.Context(), admin.Scope{Resource: "r"}); err != nil || len(sl.Bounded) > 0 {
			t.Errorf("%+v, %v", sl, err)
		}
		if p := plan(t, other, m); !p.Empty() {
			t.Errorf("created without what has ended: %s", changes(p))
		}
		apply(t, lim, without)
		if p := plan(t, lim, without); !p.Empty() {
			t.Error(changes(p))
		}
	})
}

// TestBoundedMoves: a plan shows in which direction limits that begin and end move admission, at any time from now on, and
// whom that concerns.
func TestBoundedMoves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lim := limiterOn(t, memory.New(nil))
		with := func(bounded string) *manifest.Manifest {
			return decodeOne(t, "namespace: default\nsystem: {limits: [rpm:60/min]}\n"+bounded)
		}
		apply(t, lim, with(""))
		for range 50 {
			burst(t, lim, "alice", "r")
		}
		for text, want := range map[string]struct {
			moves         string
			buckets, over int
		}{
			"resources: {r: {bounded: [{until: 2000-01-02@UTC, limits: [rpm:600/min]}]}}":                         {"loosens", 1, 0},
			"resources: {r: {bounded: [{until: 2000-01-02@UTC, limits: [rpm:6/min]}]}}":                           {"tightens", 1, 1},
			"resources: {r: {bounded: [{from: 2000-01-02@UTC, limits: [rpm:6/min]}]}}":                            {"tightens", 1, 0},
			"resources: {q: {bounded: [{from: 2000-01-02@UTC, limits: [rpm:6/min]}]}}":                            {"tightens", 0, 0},
			"resources: {r: {limits: [rpm:60/min], bounded: [{from: 2000-01-02@UTC, scale: 2}]}}":                 {"loosens", 1, 0},
			"resources: {r: {limits: [rpm:50/min], bounded: [{from: 2000-01-02@UTC, scale: 2}]}}":                 {"both", 1, 0},
			"resources: {r: {limits: [rpm:50/min], bounded: [{until: 2000-01-02@UTC, scale: 2}]}}":                {"both", 1, 0},
			"resources: {r: {limits: [rpm:60/min], bounded: [{until: 1999-01-02@UTC, scale: 2}]}}":                {"", 1, 0},
			"total: {bounded: [{from: 2000-01-02@UTC, until: 2000-01-03@UTC, limits: [rpm:6/min]}]}":              {"tightens", 0, 0},
			"entities: {alice: {resources: {r: {bounded: [{from: 2000-01-02@UTC, limits: [rpm:60/min:5]}]}}}}":    {"tightens", 1, 0},
			"entities: {alice: {resources: {_default_: {bounded: [{from: 2000-01-02@UTC, limits: [rpm:9/s]}]}}}}": {"both", 1, 0},
		} {
			p := plan(t, lim, with(text+"\n"))
			if len(p.Changes) != 1 {
				t.Fatalf("%s: %s", text, changes(p))
			}
			c := p.Changes[0]
			if string(c.Moves) != want.moves || c.Touches == nil || c.Touches.Buckets != want.buckets || c.Touches.Over != want.over {
				t.Errorf("%s: %s, %+v, want %+v", text, c.Moves, c.Touches, want)
			}
		}
		apply(t, lim, with("resources: {r: {limits: [rpm:60/min]}}\n"))
		burst(t, lim, "alice", "r")
		p := plan(t, lim, with("resources: {r: {limits: [rpm:60/min], bounded: [{from: 2000-01-02@UTC, scale: 2}]}}\n"))
		if c := p.Changes[0]; c.Moves != "loosens" || c.Touches.Buckets != 1 || c.Touches.Entities != 1 {
			t.Errorf("added for later: %s, %+v", c.Moves, c.Touches)
		}
	})
}

// TestBoundedMistakes: each mistake is shown with its line and the remedy.
func TestBoundedMistakes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"    - {until: 2100-12-04@UTC, scale: 2}\n    - {from: 2100-12-03@UTC, scale: 3}": {
			"a.yaml:6:7: resources.r.bounded[1]: the limits from 2100-12-03T00:00@UTC overlap those until 2100-12-04T00:00@UTC",
			"give times that do not, or remove the others first; these are in line 5",
		},
		"    - {from: 2100-12-04@UTC, scale: 2}\n    - {until: 2100-12-03@UTC, scale: 3}\n    - {from: 2101-01-01@UTC, scale: 3}": {
			"a.yaml:7:7: resources.r.bounded[2]: the limits from 2101-01-01T00:00@UTC overlap those from 2100-12-04T00:00@UTC", "line 5",
		},
		"    - {until: Friday, scale: 2}":                               {`a.yaml:5:15: resources.r.bounded[0].until: "Friday" is not a time`, "write 2026-12-04T18:00@Europe/Berlin"},
		"    - {until: 2100-12-04, scale: 2}":                           {`a.yaml:5:15: resources.r.bounded[0].until: "2100-12-04" is not a time`, "write 2026"},
		"    - {until: 2100-12-04T18:00, scale: 2}":                     {"a.yaml:5:15: ", "is not a time", "write 2026"},
		"    - {until: 2100-12-04T18:00@Berlin, scale: 2}":              {"a.yaml:5:15: ", `the time zone "Berlin" is unknown`, "did you mean Europe/Berlin?"},
		"    - {until: 2026-03-29T02:30@Europe/Berlin, scale: 2}":       {"a.yaml:5:15: ", `"2026-03-29T02:30" does not exist: the clocks of Europe/Berlin skip it`},
		"    - {until: 5, scale: 2}":                                    {"a.yaml:5:15: ", "is a number, not a time"},
		"    - {until: '', scale: 2}":                                   {"a.yaml:5:15: ", "is empty"},
		"    - {from: 2100-12-04@UTC, until: 2100-12-03@UTC, scale: 2}": {"a.yaml:5:7: ", "until: must be after from"},
		"    - {scale: 2}":                                              {"a.yaml:5:7: ", "until: is missing"},
		"    - {until: 2100-12-04@UTC}":                                 {"a.yaml:5:7: ", "limits: must name at least one"},
		"    - {until: 2100-12-04@UTC, scale: 2, limits: [rpm:1/s]}":    {"a.yaml:5:7: ", "scale: cannot be combined with limits: give either"},
		"    - {until: 2100-12-04@UTC, scale: 1001}":                    {"a.yaml:5:7: ", "scale: must be between 1 and 1000"},
		"    - {until: 2100-12-04@UTC, scale: 0}":                       {"a.yaml:5:38: ", "whole number of at least 1"},
		"    - {until: 2100-12-04@UTC, limits: [credits:balance]}":      {"a.yaml:5:7: ", "limit credits: is a balance, which neither begins nor ends"},
		"    - {untli: 2100-12-04@UTC, scale: 2}":                       {"a.yaml:5:8: ", "unknown key untli", "did you mean until?"},
		"     {until: 2100-12-04@UTC, scale: 2}":                        {"a.yaml:5:6: ", "write [{until: 2026-12-04T18:00@Europe/Berlin, scale: 10}]"},
		"     []":                                                       {"a.yaml:5:6: ", "write [{until"},
		"    - {until: 2001-12-04@UTC, scale: 2}\n" + strings.Join([]string{
			"    - {from: 2002-12-04@UTC, until: 2003-12-04@UTC, scale: 2}", "    - {from: 2004-12-04@UTC, until: 2005-12-04@UTC, scale: 2}",
			"    - {from: 2006-12-04@UTC, until: 2007-12-04@UTC, scale: 2}", "    - {from: 2008-12-04@UTC, until: 2009-12-04@UTC, scale: 2}",
			"    - {from: 2010-12-04@UTC, until: 2011-12-04@UTC, scale: 2}",
		}, "\n"): {"a.yaml:10:7: ", "begin and end at most 5 times: remove others first"},
	} {
		wantMistake(t, "namespace: default\nresources:\n  r:\n    bounded:\n"+text+"\n    limits: [rpm:60/min]\n", text, want)
	}
	for text, want := range map[string][]string{
		"resources: {r: {bounded: [{until: 2100-12-04@UTC, scale: 2}]}}":                               {"a.yaml:2:", "scale: has nothing to scale: the scope has no limits of its own", "give limits instead"},
		"total: {limits: [c:balance], bounded: [{until: 2100-12-04@UTC, limits: [rpm:1/s]}]}":          {"a.yaml:2:", `limits: would hide the balance "c": use scale`},
		"total: {limits: [rpm:1/s], until: 2100-12-04@UTC}":                                            {"a.yaml:2:", "unknown key until", "write bounded: [{until: 2026-12-04T18:00@Europe/Berlin, limits: …}]"},
		"entities: {e: {bounded: [{until: 2100-12-04@UTC, scale: 2}]}}":                                {"a.yaml:2:", "unknown key bounded"},
		"variables: {END: Friday}\ntotal: {limits: [rpm:1/s], bounded: [{until: '${END}', scale: 2}]}": {"a.yaml:3:", `"Friday" is not a time`},
	} {
		wantMistake(t, "namespace: default\n"+text+"\n", text, want)
	}
}

func wantMistake(t *testing.T, text, name string, want []string) {
	t.Helper()
	_, err := manifest.Decode([]strictyaml.Source{{Name: "a.yaml", Text: []byte(text)}}, strictyaml.Options{})
	if err == nil {
		t.Errorf("%s: accepted", name)
		return
	}
	for _, part := range want {
		if !strings.Contains(explain(err), part) {
			t.Errorf("%s: %s\nwant %s", name, explain(err), part)
		}
	}
}

// TestBoundedTexts: CloudFormation passes numbers as text.
func TestBoundedTexts(t *testing.T) {
	t.Parallel()
	const text = `{"namespace": "a", "total": {"limits": {"rpm": "1/s"}, "bounded": [{"until": "2100-12-04T17:00:00Z", "scale": "10"}]}}`
	ms, err := manifest.Decode([]strictyaml.Source{{Name: "a", Text: []byte(text)}}, strictyaml.Options{Texts: true})
	must(t, err)
	if got := string(ms[0].Text()); !strings.HasSuffix(got, `bounded: [{until: "2100-12-04T17:00:00Z", scale: 10}]`+"\n") {
		t.Errorf("read as %s", got)
	}
}

// TestBoundedRepeated: a plan warns of a local time that occurs twice.
func TestBoundedRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := plan(t, limiterOn(t, memory.New(nil)), decodeOne(t, "namespace: default\ntotal: {limits: [rpm:1/s], bounded: ["+
			"{from: 2026-10-24@Europe/Berlin, until: 2026-10-25T02:30@Europe/Berlin, scale: 2}]}\n"))
		if len(p.Warnings) != 1 || !strings.Contains(p.Warnings[0], "(test.yaml:2), the local time 2026-10-25T02:30@Europe/Berlin occurs "+
			"twice, and is the first: write 2026-10-25T01:30:00Z for the second") {
			t.Errorf("warnings %q", p.Warnings)
		}
	})
}

// TestBoundedRollout: while a tighter limit is rolled out, limits that begin and end stay as they were until the end.
func TestBoundedRollout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lim := limiterOn(t, memory.New(nil))
		const text = "namespace: default\nresources: {r: {limits: [rpm:60/min], bounded: [{until: 2100-01-01@UTC, scale: 2}]}}\n"
		apply(t, lim, decodeOne(t, text))
		m := decodeOne(t, strings.NewReplacer("60", "30", "scale: 2", "scale: 3").Replace(text))
		var scales []int64
		show := func(bool) error {
			sl, err := admin.New(lim).Limits.Get(t.Context(), admin.Scope{Resource: "r"})
			must(t, err)
			scales = append(scales, sl.Bounded[0].Scale, int64(sl.Limits[0].Enforce))
			return nil
		}
		_, err := manifest.Rollout(t.Context(), lim, plan(t, lim, m), manifest.RolloutOptions{
			Terms: &manifest.Terms{Stages: []int{50}, Bake: time.Second},
			Gate:  func(context.Context, manifest.Terms) (gates.Gate, error) { return &gate{check: show}, nil },
		})
		must(t, err)
		must(t, show(true))
		if !slices.Equal(scales, []int64{2, 50, 3, 0}) {
			t.Errorf("scales and percentages %v", scales)
		}
		if p := plan(t, lim, m); !p.Empty() {
			t.Error(changes(p))
		}
	})
}
