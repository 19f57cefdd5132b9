package manifest_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"pgregory.net/rapid"

	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
)

func resolved(t *testing.T) *jsonschema.Resolved {
	t.Helper()
	var s jsonschema.Schema
	must(t, json.Unmarshal(manifest.Schema, &s))
	r, err := s.Resolve(nil)
	must(t, err)
	return r
}

// TestSchemaAgrees asserts that the decoder accepts a document if and only if the schema does.
func TestSchemaAgrees(t *testing.T) {
	t.Parallel()
	schema := resolved(t)
	good, bad := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		doc := document().Draw(rt, "document")
		text, err := json.Marshal(doc)
		if err != nil {
			rt.Fatal(err)
		}
		_, decoded := manifest.Decode([]strictyaml.Source{{Name: "x.json", Text: text}}, strictyaml.Options{})
		validated := schema.Validate(doc)
		if (decoded == nil) != (validated == nil) {
			rt.Fatalf("%s\ndecoder: %v\nschema: %v", text, decoded, validated)
		}
		if decoded == nil {
			good++
		} else {
			bad++
		}
	})
	if !testing.Short() && (good < 5 || bad < 10) {
		t.Errorf("%d good documents, %d bad ones: the generator is lopsided", good, bad)
	}
}

// The schema and the decoder have the same keys. The decoder's are those that a message lists as allowed.
func TestSchemaKeys(t *testing.T) {
	t.Parallel()
	var s struct {
		Properties map[string]struct{ Properties map[string]any }
		Defs       map[string]struct{ Properties map[string]any } `json:"$defs"`
	}
	must(t, json.Unmarshal(manifest.Schema, &s))
	for where, keys := range map[string]map[string]any{
		"": nil, "system": s.Properties["system"].Properties, "entities.e": s.Defs["entity"].Properties,
		"plans.p":     s.Defs["plan"].Properties,
		"resources.r": s.Defs["resource"].Properties, "groups.g": s.Defs["scope"].Properties, "system.limits.l": s.Defs["limit"].Properties,
	} {
		if where == "system.limits.l" {
			keys = maps.Clone(keys)
			delete(keys, "name") // only in a list
		}
		doc := map[string]any{"namespace": "a"}
		at := doc
		if where == "" {
			keys = make(map[string]any)
			for k := range s.Properties {
				keys[k] = nil
			}
		} else {
			for part := range strings.SplitSeq(where, ".") {
				next := make(map[string]any)
				at[part] = next
				at = next
			}
		}
		at["?"] = 1.0
		text, err := json.Marshal(doc)
		must(t, err)
		_, err = manifest.Decode([]strictyaml.Source{{Name: "x", Text: text}}, strictyaml.Options{})
		_, allowed, _ := strings.Cut(explain(err), "= allowed: ")
		allowed, _, _ = strings.Cut(allowed, "\n")
		if got := strings.Split(allowed, ", "); len(got) != len(keys) {
			t.Errorf("%s: decoder %q, schema %v", where, got, keys)
		} else {
			for _, k := range got {
				if _, ok := keys[k]; !ok {
					t.Errorf("%s: the schema has no %s", where, k)
				}
			}
		}
	}
}

// document generates a document that is often good, and often wrong in one place.
func document() *rapid.Generator[map[string]any] {
	return rapid.Custom(func(t *rapid.T) map[string]any {
		doc := map[string]any{"namespace": value(t, id())}
		if rapid.IntRange(0, 5).Draw(t, "several namespaces") == 3 {
			doc["namespaces"] = value(t, list(id()))
			if !rare(t, "both") {
				delete(doc, "namespace")
			}
		}
		some(t, doc, "manifest", rapid.Just[any]("mine"))
		if rapid.IntRange(0, 5).Draw(t, "ownership") == 3 {
			some(t, doc, "moved", object(func(t *rapid.T, m map[string]any) { m["from"] = value(t, list(id())) }))
			some(t, doc, "removed", mostly("keep", "keep", "delete", true))
		}
		some(t, doc, "system", object(func(t *rapid.T, m map[string]any) {
			m["limits"] = value(t, limits())
			some(t, m, "on_unavailable", unavailable())
			some(t, m, "near_limit", percentages())
		}))
		some(t, doc, "plans", named(id(), object(func(t *rapid.T, m map[string]any) {
			some(t, m, "default", scope())
			some(t, m, "resources", named(id(), scope()))
			some(t, m, "groups", named(id(), scope()))
			some(t, m, "total", scope())
		})))
		some(t, doc, "total", scope())
		some(t, doc, "groups", named(id(), scope()))
		some(t, doc, "resources", named(id(), rapid.OneOf(scope(), object(func(t *rapid.T, m map[string]any) {
			m["group"] = value(t, mostly("openai", "_group_g", "", "_total_"))
		}))))
		some(t, doc, "entities", named(id(), object(func(t *rapid.T, m map[string]any) {
			some(t, m, "name", mostly("A name", "", "tab\tbed"))
			some(t, m, "parent", mostly("above", "below", "", "_"))
			some(t, m, "plan", mostly("pro", "", "_"))
			some(t, m, "cascade", mostly(true, false, "true"))
			some(t, m, "metadata", named(mostly("plan", "city", ""), mostly("x", "", 5.0)))
			some(t, m, "resources", named(rapid.OneOf(id(), rapid.Just[any]("_default_")), scope()))
		})))
		some(t, doc, "variables", named(mostly("A", "a_1", "1a", "a-b"), rapid.SampledFrom([]any{"x", 5.0, true, map[string]any{}})))
		return doc
	})
}

// rare is rarely true. Generators favour small numbers, so it needs a large one.
func rare(t *rapid.T, label string) bool { return rapid.IntRange(0, 60).Draw(t, label) == 57 }

func some(t *rapid.T, m map[string]any, key string, g *rapid.Generator[any]) {
	switch {
	case rare(t, key+"?"):
		m[key+"s"] = value(t, g)
	case rapid.Bool().Draw(t, key+"!"):
		m[key] = value(t, g)
	}
}

// value returns what a generator draws, or rarely something of another type.
func value(t *rapid.T, g *rapid.Generator[any]) any {
	if rare(t, "wrong") {
		return rapid.SampledFrom([]any{nil, true, 7.0, 1.5, -3.0, "text", "", []any{}, map[string]any{}, map[string]any{"x": 1.0}}).Draw(t, "other")
	}
	return g.Draw(t, "value")
}

// mostly draws one of the first two values, and rarely another.
func mostly(a, b any, seldom ...any) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		if rare(t, "seldom") {
			return rapid.SampledFrom(seldom).Draw(t, "value")
		}
		return rapid.SampledFrom([]any{a, b}).Draw(t, "value")
	})
}

func object(fill func(*rapid.T, map[string]any)) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		m := make(map[string]any)
		fill(t, m)
		return m
	})
}

func list(g *rapid.Generator[any]) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		all := []any{}
		for !rare(t, "none") && len(all) < rapid.IntRange(1, 3).Draw(t, "items") {
			all = append(all, value(t, g))
		}
		return all
	})
}

func named(name, g *rapid.Generator[any]) *rapid.Generator[any] {
	return object(func(t *rapid.T, m map[string]any) {
		for range rapid.IntRange(0, 3).Draw(t, "members") {
			m[name.Draw(t, "name").(string)] = value(t, g)
		}
	})
}

func id() *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		if rare(t, "bad id") {
			return rapid.SampledFrom([]any{"", "_", "wcu", "_default_", "a\nb", "\x7f", strings.Repeat("x", 257)}).Draw(t, "id")
		}
		return rapid.SampledFrom([]any{"gpt-4", "openai/gpt-4o", "ü b", "42", "true", "null", "#", "a:b", "%", "${", "😀"}).Draw(t, "id")
	})
}

func scope() *rapid.Generator[any] {
	return object(func(t *rapid.T, m map[string]any) {
		if !rare(t, "no limits") {
			m["limits"] = value(t, limits())
		}
		some(t, m, "on_unavailable", unavailable())
		some(t, m, "bounded", bounded(m["limits"] != nil))
	})
}

// bounded generates limits that begin and end one after the other, because the schema cannot express that others are wrong,
// nor that there must be something to scale.
func bounded(scaled bool) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		list := []any{}
		for i := range rapid.IntRange(0, 3).Draw(t, "sets") + 1 {
			set := map[string]any{
				"from":  value(t, moment(2030+2*i)),
				"until": value(t, moment(2031+2*i)),
			}
			switch {
			case i == 0 && rapid.Bool().Draw(t, "no from"):
				delete(set, "from")
			case rare(t, "neither"):
				delete(set, "from")
				delete(set, "until")
			}
			if own := rapid.Bool().Draw(t, "own"); own || !scaled || rare(t, "both") {
				set["limits"] = value(t, limits())
				scaled = scaled && (!own || rare(t, "own and scale"))
			}
			if scaled {
				set["scale"] = value(t, mostly(1.0, 2.0, 0.0, 1001.0, "2K"))
			}
			list = append(list, set)
		}
		if rare(t, "no sets") {
			list = []any{}
		}
		return list
	})
}

func moment(year int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		form := "-01-05T18:00@Europe/Berlin"
		if rare(t, "bad time") {
			form = rapid.SampledFrom([]string{"", "-01-05", "-01-05T18:00", "-01-05T18:00Z", "-01-05T18:00:00.5Z", "-01-05@Ber lin"}).Draw(t, "form")
		} else if rapid.Bool().Draw(t, "form") {
			form = rapid.SampledFrom([]string{"-01-05@UTC", "-01-05T18:00:00Z", "-01-05T18:00:30+05:30", "-01-05T18:00:30@Asia/Kolkata"}).Draw(t, "form")
		}
		return fmt.Sprint(year, form)
	})
}

func unavailable() *rapid.Generator[any] {
	return rapid.SampledFrom([]any{"deny", "allow", "deny", "allow", "local"})
}

func limits() *rapid.Generator[any] {
	return rapid.OneOf(object(func(t *rapid.T, m map[string]any) {
		for range rapid.IntRange(0, 3).Draw(t, "limits") + 1 {
			m[id().Draw(t, "name").(string)] = value(t, rapid.OneOf(limit(), short("")))
		}
	}), rapid.Custom(func(t *rapid.T) any {
		list := []any{}
		for i := range rapid.IntRange(0, 3).Draw(t, "limits") + 1 {
			name := fmt.Sprint("l", i) // the schema cannot express that a name twice is wrong
			list = append(list, value(t, rapid.OneOf(short(name+":"), rapid.Custom(func(t *rapid.T) any {
				l := limit().Draw(t, "limit").(map[string]any)
				if l["name"] = name; rare(t, "no name") {
					delete(l, "name")
				}
				return l
			}))))
		}
		if rare(t, "empty") {
			list = []any{}
		}
		return list
	}))
}

// short generates limits in their text form, after a prefix.
func short(prefix string) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		if rare(t, "bad text") {
			return prefix + rapid.SampledFrom([]string{
				"", "60", "5000/month", "5000/quarter", "60/", "/min", "0/min", "60/0s", "60/min:", "60/min:0", "1.5K/min", "60/fortnight@UTC",
				"60/month+0x@UTC", "60/week+31@UTC", "60/hour@Europe/Berlin", "balanced", "5000/month@", "5000/month@Europe Berlin",
			}).Draw(t, "text")
		}
		return prefix + rapid.SampledFrom([]string{
			"60/min", "50K/min:75K", "5k/90s", "1M/2weeks", "5000/month@Europe/Berlin", "7/week+sun@UTC", "7/month+31@America/New_York",
			"9/hour@UTC", "1/year@Etc/GMT-14", "3/quarter@UTC", "2/2hr:1",
		}).Draw(t, "text")
	})
}

func limit() *rapid.Generator[any] {
	return object(func(t *rapid.T, m map[string]any) {
		if !rare(t, "no capacity") {
			m["capacity"] = value(t, count())
		}
		some(t, m, "burst", count())
		if m["burst"] == nil { // the schema cannot express that a capacity beside both is wrong unless it is the amount
			some(t, m, "refill_amount", count())
		}
		some(t, m, "refill_period", rapid.Custom(func(t *rapid.T) any {
			if rare(t, "bad period") {
				return rapid.SampledFrom([]any{0.0, "0s", "1y", "h", "1h30m", "-1h", "60", "", "month", "month+1", "year", "month+40@UTC", "hour@Europe/Berlin"}).Draw(t, "period")
			}
			return rapid.SampledFrom([]any{1.0, 60.0, 86400.0, "1h", "30d", "500ms", "010m", "1min", "2w"}).Draw(t, "period")
		}))
		some(t, m, "enforce", rapid.Custom(func(t *rapid.T) any {
			if rare(t, "bad enforce") {
				return rapid.SampledFrom([]any{25.0, "25", "0%", "100%", "05%", "2.5%", "off", "On", ""}).Draw(t, "enforce")
			}
			return rapid.SampledFrom([]any{"on", "shadow", "1%", "25%", "99%"}).Draw(t, "enforce")
		}))
		if m["enforce"] != nil {
			some(t, m, "former", short(""))
		}
	})
}

// percentages generates ascending lists, because the schema cannot express that others are wrong.
func percentages() *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		list, last := []any{}, 0
		for range rapid.IntRange(0, 8).Draw(t, "thresholds") {
			last += rapid.IntRange(1, 12).Draw(t, "step")
			list = append(list, float64(last))
		}
		if rare(t, "bad percentage") {
			list = append(list, rapid.SampledFrom([]any{0.0, 101.0, 99.5, "80", "1K", nil, -1.0}).Draw(t, "percentage"))
		}
		if rare(t, "many") {
			list = []any{1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0}
		}
		return list
	})
}

func count() *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		if rare(t, "bad count") {
			return rapid.SampledFrom([]any{0.0, -1.0, 1.5, "5", "0K", "K", "5k", "5G", "1.5K", "-5K"}).Draw(t, "count")
		}
		return rapid.SampledFrom([]any{1.0, 100.0, 5000.0, "5K", "1M", "010K"}).Draw(t, "count")
	})
}
