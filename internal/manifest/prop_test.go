package manifest_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/store/memory"
)

// documents generates a manifest as several documents, one for each part.
func documents(t *rapid.T, label string) []string {
	limit := func(key string) string {
		text := fmt.Sprintf("{capacity: %d", rapid.IntRange(1, 5).Draw(t, label+key))
		if rapid.Bool().Draw(t, label+"burst") {
			text += fmt.Sprintf(", burst: %d", rapid.IntRange(1, 5).Draw(t, label+"b"))
		}
		text += rapid.SampledFrom([]string{"", "", ", enforce: on", ", enforce: shadow", ", enforce: 25%", ", enforce: 5%, former: 9/min:11", ", enforce: 5%, former: 7/month@UTC"}).Draw(t, label+"e")
		return text + rapid.SampledFrom([]string{"}", ", refill_period: 90}", ", refill_period: 2h}", ", refill_period: 3ms}"}).Draw(t, label+"p")
	}
	limits := func(key string) string {
		var ls []string
		list := rapid.Bool().Draw(t, label+key+"list")
		for _, name := range []string{"rpm", "tpm"} {
			if !rapid.Bool().Draw(t, label+key+name) && (name == "rpm" || len(ls) > 0) {
				continue
			}
			text := rapid.SampledFrom([]string{"", "", "5/min", "4/2h:9", "3/month@Europe/Berlin", "2/week+sun@Asia/Kolkata"}).Draw(t, label+key+"text")
			switch {
			case list && text != "":
				text = name + ":" + text
			case list:
				text = strings.Replace(limit(key+name), "{", "{name: "+name+", ", 1)
			case text != "":
				text = name + ": " + text
			default:
				text = name + ": " + limit(key+name)
			}
			ls = append(ls, text)
		}
		all := "{" + strings.Join(ls, ", ") + "}"
		if list {
			all = "[" + strings.Join(ls, ", ") + "]"
		}
		u := rapid.SampledFrom([]string{
			"", "", "on_unavailable: deny", "on_unavailable: local", "bounded: [{until: 2100-01-01@Asia/Kolkata, scale: 2}]",
			"bounded: [{until: 2001-01-01@UTC, scale: 7}, {from: 2100-01-01T00:00:00Z, limits: " + all + "}]", "alone", "ended", "later",
		}).Draw(t, label+key+"u")
		switch u {
		case "":
			return "{limits: " + all + "}"
		case "ended":
			return "{bounded: [{until: 2001-01-01@UTC, limits: " + all + "}]}"
		case "later":
			return "{bounded: [{from: 2100-01-01@UTC, limits: " + all + "}]}"
		case "alone":
			return "{on_unavailable: allow}"
		}
		return "{" + u + ", limits: " + all + "}"
	}
	docs := []string{""}
	if rapid.Bool().Draw(t, label+"system") {
		docs = append(docs, "system: "+limits("system"))
		if near := rapid.SampledFrom([]string{"", "[]", "[80, 95]"}).Draw(t, label+"near"); near != "" {
			docs[1] = strings.Replace(docs[1], "{", "{near_limit: "+near+", ", 1)
		}
	}
	for _, r := range []string{"r1", "r/2"} {
		if rapid.Bool().Draw(t, label+r) {
			docs = append(docs, "resources: {"+r+": "+limits(r)+"}")
		}
	}
	if rapid.Bool().Draw(t, label+"groups") {
		docs = append(docs, "total: "+limits("total"), "groups: {g: "+limits("group")+"}", "resources: {r3: {group: g}}",
			"plans: {p2: {groups: {g: "+limits("plan's group")+"}, total: "+limits("plan's total")+"}}",
			"entities: {e5: {groups: {g: "+limits("own group")+"}, total: "+limits("own total")+", resources: {r3: "+
				limits("own")+"}}}")
	}
	planned := rapid.Bool().Draw(t, label+"plan")
	if planned {
		docs = append(docs, "plans: {pro: {"+rapid.SampledFrom([]string{"", "default: " + limits("plan") + ", "}).Draw(t, label+"default")+
			rapid.SampledFrom([]string{"", "resources: {r1: " + limits("plan r1") + "}"}).Draw(t, label+"on r1")+"}}")
	}
	ids := []string{"e1", "e2", "e3", "e4"}
	for i, e := range ids {
		if rapid.Bool().Draw(t, label+e) {
			for _, r := range []string{"r1", "_default_"} {
				if rapid.Bool().Draw(t, label+e+r) {
					docs = append(docs, "entities: {"+e+"x: {resources: {"+r+": "+limits(e+r)+"}}}")
					break
				}
			}
			own := "name: " + rapid.SampledFrom([]string{"A", "B b", "on", "${"}).Draw(t, label+e+"name")
			if i > 0 && slices.ContainsFunc(docs, func(d string) bool { return strings.HasPrefix(d, "entities: {"+ids[i-1]+": ") }) && rapid.Bool().Draw(t, label+e+"parent") {
				own += ", cascade: true, parent: " + ids[i-1]
			}
			if planned && rapid.Bool().Draw(t, label+e+"plan") {
				own += ", plan: pro"
			}
			docs = append(docs, "entities: {"+e+": {"+strings.Replace(own, "${", `"$${x} ${"`, 1)+"}}")
		}
	}
	for i := range docs {
		docs[i] = "namespace: ns\n" + docs[i]
	}
	return docs
}

// byHand creates some records that no manifest manages.
func byHand(t *rapid.T, tb testing.TB, lim *weir.Limiter) {
	lim = lim.In("ns")
	if !rapid.Bool().Draw(t, "by hand") {
		return
	}
	ctx := tb.Context()
	_, err := admin.New(lim).Namespaces.Create(ctx, "ns")
	must(tb, err)
	for _, sc := range []admin.Scope{{}, {Resource: "r1"}, {Entity: "e1", Resource: "r1"}, {Entity: "hand"}, {Entity: "hand", Resource: weir.TotalResource}} {
		if rapid.Bool().Draw(t, fmt.Sprint("hand", sc)) {
			l := weir.PerMinute("rpm", 3).WithBurst(int64(rapid.IntRange(1, 5).Draw(t, "burst"))).
				WithEnforce(rapid.SampledFrom([]weir.Enforce{weir.EnforceOn, weir.EnforceShadow, 50}).Draw(t, "enforce"))
			l.MaxDebt, l.Strict = rapid.Int64Range(0, 2).Draw(t, "max debt"), rapid.Bool().Draw(t, "strict")
			must(tb, admin.New(lim).Limits.Set(ctx, sc, weir.PerHour("rph", 7), l))
		}
		must(tb, admin.New(lim).Limits.SetOnUnavailable(ctx, sc, rapid.SampledFrom([]weir.OnUnavailable{"", "", weir.OnUnavailableLocal, weir.OnUnavailableAllow}).Draw(t, fmt.Sprint("unavailable", sc))))
	}
	if rapid.Bool().Draw(t, "hand entity") {
		must(tb, admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "e1", Metadata: map[string]string{"a": "$${b} \u2028 # '"}}))
	}
}

func joined(docs []string) string { return strings.Join(docs, "\n---\n") }

// Applying twice is the same as applying once: the second time plans and writes nothing. The order of documents does not
// matter.
func TestApplyTwice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		st := &faulty{Store: memory.New(nil)}
		lim, err := weir.New(weir.Config{Store: st})
		must(t, err)
		defer lim.Close()
		byHand(rt, t, lim)
		first, second := documents(rt, "first "), documents(rt, "second ")
		apply(t, lim, decodeOne(t, joined(first)))
		m := decodeOne(t, joined(second))
		apply(t, lim, m)
		rand.Shuffle(len(second), func(i, j int) { second[i], second[j] = second[j], second[i] })
		shuffled := decodeOne(t, joined(second))
		if shuffled.Hash() != m.Hash() {
			rt.Fatalf("in another order:\n%s\n%s", m.Text(), shuffled.Text())
		}
		before := st.commits.Load()
		if p := plan(t, lim, shuffled); !p.Empty() {
			rt.Fatalf("planned again: %s", changes(p))
		}
		apply(t, lim, shuffled)
		if n := st.commits.Load() - before; n != 0 {
			rt.Fatalf("%d commits", n)
		}
	})
}

// Planning an export changes nothing, and once it is adopted there is nothing left to plan.
func TestExportThenPlan(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		lim, err := weir.New(weir.Config{Store: memory.New(nil)})
		must(t, err)
		defer lim.Close()
		byHand(rt, t, lim)
		apply(t, lim, decodeOne(t, joined(documents(rt, ""))))
		m, _, err := manifest.Export(t.Context(), lim.In("ns"), manifest.DefaultName)
		must(t, err)
		read := decodeOne(t, string(m.Text()))
		p := planWhole(t, lim, read)
		for _, c := range p.Changes {
			if c.Action != manifest.Adopt || len(c.Fields) > 0 {
				rt.Fatalf("%s\nchanges %+v", m.Text(), c)
			}
		}
		if len(p.Unmanaged) != 0 || p.CreateNamespace {
			rt.Fatalf("left alone: %v", p.Unmanaged)
		}
		apply(t, lim, read)
		if p := plan(t, lim, read); !p.Empty() || len(p.Changes) > 0 {
			rt.Fatal(changes(p))
		}
	})
}

// Wherever an apply stops, the next one leads to the same state as an apply that did not stop.
func TestCrash(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		first, second := decodeOne(t, joined(documents(rt, "first "))), decodeOne(t, joined(documents(rt, "second ")))
		at, made := int64(rapid.IntRange(1, 8).Draw(rt, "crash")), rapid.Bool().Draw(rt, "made")
		var got, want string
		synctest.Test(t, func(t *testing.T) { got, want = crash(t, first, second, at, made) })
		if got != want {
			rt.Fatalf("got\n%s\nwant\n%s", got, want)
		}
	})
}

// crash applies two manifests, the second with a stop and a retry, and returns the final state, and the state without a
// stop.
func crash(t *testing.T, first, second *manifest.Manifest, at int64, made bool) (got, want string) {
	st := &faulty{Store: memory.New(nil)}
	lim, whole := limiterOn(t, st), limiterOn(t, memory.New(nil))
	apply(t, whole, first)
	apply(t, whole, second)
	apply(t, lim, first)
	st.failAt, st.made = st.commits.Load()+at, made
	opts := manifest.ApplyOptions{Adopt: true, Wait: time.Minute} // an abandoned lock expires
	_, _ = manifest.Apply(t.Context(), lim, plan(t, lim, second), opts)
	st.failAt = 0
	parts.Of(lim).Policies.Expire() // as in another process
	_, err := manifest.Apply(t.Context(), lim, plan(t, lim, second), opts)
	must(t, err)
	return state(t, lim.In("ns")), state(t, whole.In("ns"))
}
