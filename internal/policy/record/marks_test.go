package record_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// TestLimitsForms: a record with a group or a mark is one that a weir which does not know them cannot read, and all
// others are as before.
func TestLimitsForms(t *testing.T) {
	t.Parallel()
	limits := []record.Limit{{Name: "rpm", Amount: 10, Period: time.Minute, Burst: 10}}
	const text = `[{"name":"rpm","amount":10,"period":"min","burst":10}]`
	for _, c := range []struct {
		name, json string
		lr         record.Limits
		older      bool // an older weir reads it
	}{
		{"limits", `{"limits":` + text + `}`, record.Limits{Limits: limits}, true},
		{"setting", `{"on_unavailable":"deny"}`, record.Limits{OnUnavailable: "deny"}, true},
		{"group", `{"limits":{"list":` + text + `},"group":"openai"}`, record.Limits{Limits: limits, Group: "openai"}, false},
		{"group alone", `{"limits":{},"group":"openai"}`, record.Limits{Group: "openai"}, false},
		{"mark", `{"limits":{},"totals":true}`, record.Limits{Totals: true}, false},
		{"mark of plans", `{"limits":{},"plans":true}`, record.Limits{Plans: true}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := string(record.Encode(c.lr)); got != c.json {
				t.Errorf("encoded as %s, want %s", got, c.json)
			}
			var got record.Limits
			if err := json.Unmarshal([]byte(c.json), &got); err != nil || !reflect.DeepEqual(got, c.lr) {
				t.Errorf("got %+v, %v", got, err)
			}
			var old struct {
				Limits        []record.Limit `json:"limits,omitempty"`
				OnUnavailable string         `json:"on_unavailable,omitempty"`
			}
			if err := json.Unmarshal([]byte(c.json), &old); (err == nil) != c.older {
				t.Errorf("an older weir reads it with %v", err)
			}
		})
	}
}

func TestKeepMarks(t *testing.T) {
	t.Parallel()
	system, total := record.SystemKey("n"), record.Scope{Entity: "team", Resource: store.Total}.Key("n")
	plan := record.Scope{Plan: "pro"}.Key("n")
	limits := record.Limits{Limits: []record.Limit{{Name: "rpm", Amount: 10, Period: time.Minute, Burst: 10}}}
	marked, first := record.Limits{Totals: true}, record.Limits{Totals: true, Marked: 1}
	stored := func(lr *record.Limits) store.Record {
		if lr == nil {
			return store.Record{Key: system}
		}
		return record.Put(system, 3, lr).Record
	}
	for _, c := range []struct {
		name   string
		now    *record.Limits // the system's record
		writes []store.Write
		want   *record.Limits // as written; nil if it is not
		remove bool
	}{
		{"first total", nil, []store.Write{record.Put(total, 0, limits)}, &first, false},
		{"first plan", nil, []store.Write{record.Put(plan, 0, limits)}, &record.Limits{Plans: true, Marked: 1}, false},
		{
			"first plan of a namespace with totals", &first,
			[]store.Write{record.Put(plan, 0, limits)},
			&record.Limits{Totals: true, Plans: true, Marked: 2}, false,
		},
		{"system created, only marked since", &marked, []store.Write{record.Put(system, 0, limits)}, &record.Limits{Limits: limits.Limits, Totals: true}, false},
		{
			"system read before two marks", &record.Limits{Limits: limits.Limits, Plans: true, Marked: 2},
			[]store.Write{record.Put(system, 1, limits)},
			&record.Limits{Limits: limits.Limits, Plans: true}, false,
		},
		{"another plan", &record.Limits{Plans: true}, []store.Write{record.Put(plan, 0, limits)}, nil, false},
		{"another total", &marked, []store.Write{record.Put(total, 0, limits)}, nil, false},
		{
			"first total of a namespace with limits", &limits,
			[]store.Write{record.Put(total, 0, limits)},
			&record.Limits{Limits: limits.Limits, Totals: true, Marked: 1}, false,
		},
		{"a total removed", nil, []store.Write{record.Remove(store.Record{Key: total, Version: 1})}, nil, false},
		{
			"system changed", &marked,
			[]store.Write{record.Put(system, 3, limits)},
			&record.Limits{Limits: limits.Limits, Totals: true}, false,
		},
		{"system removed", &marked, []store.Write{record.Remove(store.Record{Key: system, Version: 3})}, &marked, false},
		{"system without totals", &limits, []store.Write{record.Remove(store.Record{Key: system, Version: 3})}, nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if !record.ConcernsMarks(c.writes) && c.want != nil {
				t.Fatal("is not seen")
			}
			writes, err := record.KeepMarks(c.writes, stored(c.now))
			if err != nil {
				t.Fatal(err)
			}
			var got *record.Limits
			removed := false
			for _, w := range writes {
				if w.Record.Key != system {
					continue
				}
				if removed = w.Delete; removed {
					continue
				}
				got = &record.Limits{}
				if err := record.Decode(w.Record, got); err != nil || w.Record.Version != stored(c.now).Version {
					t.Fatalf("%+v, %v", w, err)
				}
			}
			if !reflect.DeepEqual(got, c.want) || removed != c.remove {
				t.Errorf("got %+v, removed %t", got, removed)
			}
		})
	}
}
