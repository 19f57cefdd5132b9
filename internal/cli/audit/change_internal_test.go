package audit

import (
	"encoding/json"
	"testing"

	"github.com/weirlimits/weir/internal/api"
)

func TestChange(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, subject, before, after, want string }{
		{
			"limits", "resource:gpt-4",
			`{"resource":"gpt-4","source":"resource","limits":[{"name":"rpm","amount":60,"period":"min","burst":60},` +
				`{"name":"rpd","amount":9,"period":"day","burst":9}]}`,
			`{"resource":"gpt-4","source":"resource","limits":[{"name":"rpm","amount":120,"period":"min","burst":120},` +
				`{"name":"tpm","amount":50000,"period":"min","burst":75000,"enforce":"shadow"}]}`,
			"-rpd 9/day, rpm 60/min → 120/min, +tpm 50K/min:75K, +tpm.enforce shadow",
		},
		{
			"how a limit is enforced", "system",
			`{"limits":[{"name":"rpm","amount":60,"period":"min","burst":60}]}`,
			`{"limits":[{"name":"rpm","amount":60,"period":"min","burst":60,"enforce":"shadow"}]}`,
			"+rpm.enforce shadow",
		},
		{
			"a new entity", "entity:a", `null`,
			`{"id":"a","plan":"pro","cascade":false,"metadata":{"team":"x"},"created":"2026-11-29T00:16:47Z"}`,
			"+metadata.team x, +plan pro",
		},
		{"a name", "entity:a", `{"id":"a","name":"Alice"}`, `{"id":"a","name":"Bob"}`, "name Alice → Bob"},
		{"a group that the subject contains", "resource:gpt-4", `{}`, `{"resource":"gpt-4","group":"g"}`, "+group g"},
		{
			"limits for a time", "entity:a",
			`{"entity":"a","bounded":[{"until":"2030-01-01T00:00:00Z",` +
				`"limits":[{"name":"x","slots":5,"heal":"10m"}]}]}`, `null`,
			"-bounded[0].until 2030-01-01T00:00:00Z, -bounded[0].x 5slots/10min",
		},
		{
			"a bucket", "bucket:a#gpt-4",
			`{"limits":[{"limit":{"name":"rpm","amount":9,"period":"min","burst":9},"available":2,"debited":7}]}`, ``,
			"-rpm available 2",
		},
		{"limits of a later version", "system", ``, `{"limits":[{"name":7}]}`, `+limits {"name":7}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := &api.Event{Subject: tt.subject, Before: json.RawMessage(tt.before), After: json.RawMessage(tt.after)}
			if got := change(e); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
