package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/cli/kit"
)

// TestKeepAudit: a change's audit event is kept for as long as --keep-audit or its variable states, by default for a year.
func TestKeepAudit(t *testing.T) {
	t.Parallel()
	env := []string{"WEIR_STORE=disk:" + t.TempDir() + "/store"}
	run := func(env []string, args ...string) (code int, out, errs bytes.Buffer) {
		a := kit.New(strings.NewReader(""), &out, &errs, env)
		r := root(a)
		r.SetArgs(args)
		return a.Execute(t.Context(), r), out, errs
	}
	var want []time.Duration
	for i, tt := range []struct {
		flag, variable string
		kept           time.Duration
	}{
		{"", "", 365 * 24 * time.Hour},
		{"720h", "", 720 * time.Hour},
		{"", "720h", 720 * time.Hour},
		{"1h", "720h", time.Hour},
		{"forever", "", 100 * 365 * 24 * time.Hour},
		{"", "", 365 * 24 * time.Hour}, // its expiry is in the event after it
	} {
		args, with := []string{"system", "set", "-l", fmt.Sprintf("rpm:%d/min", i+1)}, env
		if tt.flag != "" {
			args = append(args, "--keep-audit", tt.flag)
		}
		if tt.variable != "" {
			with = append(with[:1:1], "WEIR_KEEP_AUDIT="+tt.variable)
		}
		if code, _, errs := run(with, args...); code != kit.Done {
			t.Fatal(errs.String())
		}
		want = append(want, tt.kept)
	}
	var page admin.Page[admin.AuditEvent]
	_, out, errs := run(env, "audit", "list", "-o", "json")
	if err := json.Unmarshal(out.Bytes(), &page); err != nil || len(page.Items) != len(want) {
		t.Fatal(err, errs.String(), out.String())
	}
	for i, kept := range want[:len(want)-1] { // the last event is the first item
		this, next := page.Items[len(want)-1-i], page.Items[len(want)-2-i]
		if got := next.PreviousExpires.Sub(this.At).Round(time.Second); got != kept {
			t.Errorf("event %d is kept for %s, want %s", i, got, kept)
		}
	}
	for _, text := range []string{"59m", "-1h", "30d", ""} {
		if code, _, errs := run(env, "system", "set", "-l", "rpm:9/min", "--keep-audit", text); code != kit.WrongUsage ||
			!strings.Contains(errs.String(), "must be a duration of at least an hour") {
			t.Errorf("%q: exit code %d, %s", text, code, errs.String())
		}
	}
	if code, _, errs := run(append(env, "WEIR_KEEP_AUDIT=30d"), "system", "set", "-l", "rpm:9/min"); code != kit.WrongUsage ||
		!strings.Contains(errs.String(), "must be a duration of at least an hour") {
		t.Errorf("in the environment: exit code %d, %s", code, errs.String())
	}
	through := []string{"system", "set", "-l", "rpm:9/min", "--server", "http://127.0.0.1:1", "--keep-audit", "2h"}
	if code, _, errs := run(nil, through...); code != kit.WrongUsage ||
		!strings.Contains(errs.String(), "--keep-audit is for a store") {
		t.Errorf("through a server: exit code %d, %s", code, errs.String())
	}
}
