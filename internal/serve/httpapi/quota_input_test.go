package httpapi_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
	"github.com/weirlimits/weir/internal/serve/httpapi"
)

// TestQuotaInput: what quotas, balances, groups and plans cannot be is refused everywhere: in a manifest with the line and
// what to write instead, over HTTP and by the library with the field.
func TestQuotaInput(t *testing.T) {
	t.Parallel()
	f := setup(t, httpapi.Config{})
	a := admin.New(f.lim)
	set := func(l weir.Limit) func() error {
		return func() error { return a.Limits.Set(t.Context(), admin.Scope{Resource: "gpt-4"}, l) }
	}
	text := func(limit string) func() error {
		return func() error {
			l, err := weir.ParseLimit(limit)
			return errors.Join(err, set(l)())
		}
	}
	quota, err := weir.ParseLimit("usd:5/day@UTC")
	if err != nil {
		t.Fatal(err)
	}
	const put, acquire = "PUT /v1/limits?resource=gpt-4", "POST /v1/acquire"
	one := func(limit string) string { return `{"limits":["rpm:1/min",` + limit + `]}` }
	for _, c := range []struct {
		name           string
		manifest       string // after "namespace: default\nresources:\n"
		line, remedy   string
		to, body       string
		field          string
		library        func() error
		libraryOnField string
	}{
		{
			"unknown zone", "  gpt-4: {limits: [usd:5000/month@Europe/Berln]}", ":3:", "did you mean Europe/Berlin?",
			put, one(`"usd:5000/month@Europe/Berln"`), "limits[1]", text("usd:5000/month@Europe/Berln"), `limit "usd:5000/month@Europe/Berln"`,
		},
		{
			"no such zone", "  gpt-4:\n    limits:\n      usd: {capacity: 5, refill_period: month@Mars}", ":5:", "write a name such as UTC or Europe/Berlin",
			put, one(`{"name":"usd","amount":5,"period":"month@Mars"}`), "limits[1]", text("usd:5/month@Mars"), `limit "usd:5/month@Mars"`,
		},
		{
			"no zone", "  gpt-4: {limits: {usd: 5000/month}}", ":3:", "write month@UTC for one of the calendar, or 30d for 30 days",
			acquire, `{"entity":"a","resource":"gpt-4","limits":["usd:5000/month"]}`, "limits[0]", text("usd:5000/month"), `limit "usd:5000/month"`,
		},
		{
			"anchor of a month", "  gpt-4: {limits: {usd: 5000/month+32@UTC}}", ":3:", "write 1 to 31",
			put, one(`"usd:5000/month+32@UTC"`), "limits[1]", text("usd:5000/month+32@UTC"), `limit "usd:5000/month+32@UTC"`,
		},
		{
			"anchor of a week", "  gpt-4: {limits: {usd: 5000/week+someday@UTC}}", ":3:", "write mon, tue, wed, thu, fri, sat or sun",
			put, one(`"usd:5000/week+someday@UTC"`), "limits[1]", text("usd:5000/week+someday@UTC"), `limit "usd:5000/week+someday@UTC"`,
		},
		{
			"anchor of a day", "  gpt-4: {limits: {usd: 5000/day+3@UTC}}", ":3:", "only a month (month+15) and a week (week+sun) do",
			put, one(`"usd:5000/day+3@UTC"`), "limits[1]", text("usd:5000/day+3@UTC"), `limit "usd:5000/day+3@UTC"`,
		},
		{
			"burst of a quota", "  gpt-4: {limits: {usd: {capacity: 5, burst: 9, refill_period: day@UTC}}}", ":3:", "burst",
			put, one(`{"name":"usd","amount":5,"burst":9,"period":"day@UTC"}`), "limits[1].burst",
			set(quota.WithBurst(9)), "limit usd: burst",
		},
		{
			"balance with an amount", "  gpt-4: {limits: {credits: {capacity: 5, refill_period: balance}}}", ":3:", "must be left out",
			put, one(`{"name":"credits","amount":5,"period":"balance"}`), "limits[1].amount",
			set(weir.Limit{Name: "credits", Balance: true, Amount: 5}), "limit credits: amount",
		},
		{
			"balance with a period", "  gpt-4: {limits: [credits:balance/month@UTC]}", ":3:", "write rpm:60/min, usd:5000/month@Europe/Berlin",
			put, one(`"credits:balance/month@UTC"`), "limits[1]", set(weir.Limit{Name: "credits", Balance: true, Period: 1e9}), "limit credits: period",
		},
		{
			"no slots", "  gpt-4: {limits: {parallel: 0slots}}", ":3:", "20slots",
			put, one(`"parallel:0slots"`), "limits[1]", text("parallel:0slots"), "limit parallel: slots",
		},
		{
			"a heal time that is too short", "  gpt-4: {limits: [parallel:20slots/15s]}", ":3:", "from 16 seconds to 1 hour: 15s",
			put, one(`{"name":"parallel","slots":20,"heal":"15s"}`), "limits[1].heal", set(weir.Limit{Name: "parallel", Slots: 20, Heal: 15e9}), "limit parallel: heal",
		},
		{
			"slots with a period", "  gpt-4:\n    limits:\n      parallel: {slots: 20, refill_period: 60}", ":5:", "set a rate beside it as a limit of another name",
			put, one(`{"name":"parallel","slots":20,"period":"min"}`), "limits[1].period", set(weir.Limit{Name: "parallel", Slots: 20, Period: 60e9}), "limit parallel: period",
		},
		{
			"slots that a request brings", "  gpt-4: {limits: {parallel: 20slots/min:5}}", ":3:", "has a burst, which slots and balances do not have",
			acquire, `{"entity":"a","resource":"gpt-4","limits":[{"name":"parallel","slots":20}]}`, "limit parallel",
			func() error {
				_, err := f.lim.Acquire(t.Context(), weir.Request{Entity: "a", Resource: "gpt-4", Limits: []weir.Limit{{Name: "parallel", Slots: 20}}})
				return err
			}, "limit parallel",
		},
		{
			"group in a group", "  gpt-4: {limits: {rpm: 5/min}}\ngroups: {all: {group: other, limits: {rpm: 5/min}}}", ":4:", "only a resource belongs to a group",
			"PUT /v1/limits?resource=_group_all", `{"group":"other"}`, "group",
			func() error { return a.Limits.SetGroup(t.Context(), weir.GroupResource("all"), "other") }, "group",
		},
		{
			"group by its reserved name", "  gpt-4: {group: _group_all}", ":3:", "write limits on a group under groups",
			put, `{"group":"_group_all"}`, "group", func() error { return a.Limits.SetGroup(t.Context(), "gpt-4", "_group_all") }, "group",
		},
		{
			"group of an entity's resource", "  o3: {limits: {rpm: 5/min}}\nentities: {e: {resources: {o3: {limits: {rpm: 5/min}, group: all}}}}", ":4:", "only a resource belongs to a group",
			"PUT /v1/limits?resource=o3&entity=e", `{"group":"all"}`, "group", nil, "",
		},
		{
			"plan that does not exist", "  gpt-4: {limits: {rpm: 5/min}}\nentities:\n  bob: {plan: gold}", ":5)", "declare it under plans",
			"POST /v1/entities", `{"id":"bob","plan":"gold"}`, "plan",
			func() error { return a.Entities.Create(t.Context(), admin.Entity{ID: "bob", Plan: "gold"}) }, "plan",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			src := strictyaml.Source{Name: "m.yaml", Text: []byte("namespace: default\nresources:\n" + c.manifest)}
			ms, err := manifest.Decode([]strictyaml.Source{src}, strictyaml.Options{})
			var mistakes strictyaml.Errors
			var text string
			if errors.As(err, &mistakes) {
				text = mistakes[0].String()
			} else {
				_, err = manifest.Make(t.Context(), f.lim, ms[0], manifest.PlanOptions{})
				text = fmt.Sprint(err)
			}
			if !strings.Contains(text, "m.yaml"+c.line) || !strings.Contains(text, c.remedy) {
				t.Errorf("manifest: %s", text)
			}
			method, target, _ := strings.Cut(c.to, " ")
			if got := f.do(t, method, target, c.body); got.Code != 400 || got.JSON["field"] != c.field {
				t.Errorf("HTTP: %d %s", got.Code, got.Body)
			}
			var bad *weir.ConfigError
			if c.library == nil {
				return
			}
			if err := c.library(); !errors.As(err, &bad) || bad.Field != c.libraryOnField {
				t.Errorf("library: %q %v", bad, err)
			}
		})
	}
}

// TestInstants checks that a time that cannot be read is refused with what to write.
func TestInstants(t *testing.T) {
	t.Parallel()
	f := setup(t, httpapi.Config{})
	for until, want := range map[string]string{
		`"friday"`:            `until: "friday" is not a time: write 2026-12-04T18:00@Europe/Berlin or 2026-12-04T17:00:00Z`,
		`"2030-11-27@Berlin"`: `did you mean Europe/Berlin?`,
		`5`:                   `until: must be a string`,
		`{"at":"friday"}`:     `until: must be a string`,
	} {
		got := f.do(t, "PUT", "/v1/limits?resource=gpt-4", `{"limits":["rpm:1/min"],"until":`+until+`}`)
		if detail, _ := got.JSON["detail"].(string); got.Code != 400 || !strings.Contains(detail, want) {
			t.Errorf("until %s: %d %s, want %s", until, got.Code, got.Body, want)
		}
	}
}
