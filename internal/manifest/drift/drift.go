// Package drift finds out why live records are not as a manifest declares them, who made them so, and when.
package drift

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/delta"
	"github.com/weirlimits/weir/internal/manifest/live"
	"github.com/weirlimits/weir/internal/policy/record"
)

// Why is why a live record is not as declared.
type Why string

// The reasons for drift.
const (
	Edited     Why = "edited"     // changed by hand
	Removed    Why = "removed"    // removed by hand
	Staged     Why = "staged"     // the unfinished rollout applies it to a share of the entities
	Unapplied  Why = "unapplied"  // the manifest changed since it was applied, or was never applied
	Unmanaged  Why = "unmanaged"  // live, but no manifest manages it
	Undeclared Why = "undeclared" // managed by the manifest, but no longer declared
)

// Hand reports whether somebody changed the record by hand: it can be taken into the manifest, or reverted.
func (w Why) Hand() bool { return w == Edited || w == Removed || w == Unmanaged }

// of returns why the record of a change in a plan is not as declared, and the event that made it so, as far as they can
// be known: last is the last event about the record, or nil.
func of(p *manifest.Plan, c *manifest.Change, last *admin.AuditEvent) (Why, *admin.AuditEvent) {
	removed := last != nil && strings.HasSuffix(last.Action, ".delete")
	switch {
	case c.Action == manifest.Adopt:
		return Unmanaged, last
	case c.Action == manifest.Delete, c.Action == manifest.Release:
		return Undeclared, nil
	case c.Outside:
		return Edited, last
	case c.Staged:
		return Staged, nil
	case c.Action == manifest.Create && removed && p.Last.Revision > 0 && last.At.After(p.Last.At):
		return Removed, last
	case c.Action == manifest.Create && p.Last.Hash == p.Hash:
		return Removed, nil // the event has expired
	}
	return Unapplied, nil
}

// Report lists how the live records differ from a manifest.
type Report struct {
	Namespace string   `json:"namespace"`
	Manifest  string   `json:"manifest"`
	Missing   bool     `json:"missing,omitempty"` // the namespace does not exist
	Unchanged int      `json:"unchanged"`         // records that are as declared
	Drift     []Record `json:"drift"`             // one per change of the plan
	// Rollout is the unfinished rollout of the manifest, in this version or another one; nil if there is none.
	Rollout *manifest.Ongoing `json:"rollout,omitempty"`
	// Unmanaged has the live records that no manifest manages or declares.
	Unmanaged []live.Unmanaged `json:"unmanaged"`
}

// Record is a record that is not as declared. By and At are who made it so by hand, and when, as far as the audit log
// has it.
type Record struct {
	Target string          `json:"target"`
	Action manifest.Action `json:"action"` // what applying does
	Own    bool            `json:"own,omitempty"`
	admin.Scope
	Why    Why           `json:"why"`
	By     string        `json:"by,omitempty"`
	At     time.Time     `json:"at,omitzero"`
	Fields []delta.Field `json:"fields,omitempty"` // old is live, new is declared
}

// Reports returns the drift reports of plans of whole namespaces, with who made it from the audit log of a limiter's
// namespaces; nil for none, and only for the first 100 records of a plan that may have been changed by hand.
func Reports(ctx context.Context, lim *weir.Limiter, plans []*manifest.Plan) ([]Report, error) {
	all := []Report{}
	for _, p := range plans {
		d := Report{
			Namespace: p.Namespace, Manifest: p.Manifest, Missing: p.CreateNamespace, Unchanged: p.Unchanged,
			Drift: []Record{}, Rollout: p.Rollout, Unmanaged: append([]live.Unmanaged{}, p.Unmanaged...),
		}
		looked := 0
		for i := range p.Changes {
			c := &p.Changes[i]
			var last *admin.AuditEvent
			if lim != nil && !p.CreateNamespace && c.Action != manifest.Delete && looked < maxLooked {
				looked++
				var err error
				if last, err = lastOf(ctx, lim.In(p.Namespace), c); err != nil {
					return nil, err
				}
			}
			why, ev := of(p, c, last)
			r := Record{Target: c.Target, Action: c.Action, Own: c.Own, Scope: c.Scope, Why: why, Fields: c.Fields}
			if ev != nil {
				r.By, r.At = ev.Principal, ev.At
			}
			d.Drift = append(d.Drift, r)
		}
		all = append(all, d)
	}
	return all, nil
}

// maxLooked is for how many records the audit log is read.
const maxLooked = 100

// lastOf returns the last of the latest events about the record of a change, or nil.
func lastOf(ctx context.Context, lim *weir.Limiter, c *manifest.Change) (*admin.AuditEvent, error) {
	page, err := admin.New(lim).Audit.List(ctx, admin.AuditQuery{Subject: record.Scope(c.Scope).Subject()})
	if err != nil {
		return nil, err
	}
	for i := range page.Items {
		e := &page.Items[i]
		if strings.HasPrefix(e.Action, "entity.") != c.Own {
			continue
		}
		value := e.After
		if len(value) == 0 {
			value = e.Before
		}
		var sc admin.Scope
		if c.Own || json.Unmarshal(value, &sc) == nil && sc == c.Scope {
			return e, nil
		}
	}
	return nil, nil //nolint:nilnil // it has expired
}
