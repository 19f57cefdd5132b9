package auth_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/ratelog"
)

// Every refusal is counted by its reason. A flood for one reason, from one or a thousand addresses, hides no line of
// another reason, and none of another address while fewer than ten are refused.
func TestRefusals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		counts := make(map[auth.Reason]int)
		r := &auth.Refusals{
			Log: slog.New(slog.NewTextHandler(&out, nil)), Counted: func(reason auth.Reason) { counts[reason]++ },
		}
		for i := range 20 { // a client opens a connection for each
			r.Add(t.Context(), auth.NoToken, fmt.Sprintf("192.0.2.1:%d", 1000+i), nil)
		}
		r.Add(t.Context(), auth.NoToken, "192.0.2.2:1", nil)
		for i := range 5 {
			r.Add(t.Context(), auth.NoNamespace, fmt.Sprintf("[2001:db8::1]:%d", i), nil, slog.String("route", "GET /"))
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 3 {
			t.Fatalf("%d lines:\n%s", len(lines), out.String())
		}
		for i, want := range [][]string{
			{"reason=token", "from=192.0.2.1:1000", "left_out=0"},
			{"reason=token", "from=192.0.2.2:1", "left_out=19"},
			{"reason=namespace", "from=[2001:db8::1]:0", "left_out=0", `route="GET /"`},
		} {
			for _, part := range want {
				if !strings.Contains(lines[i], part) {
					t.Errorf("line %q lacks %s", lines[i], part)
				}
			}
		}
		if counts[auth.NoToken] != 21 || counts[auth.NoNamespace] != 5 {
			t.Errorf("counted %v", counts)
		}

		out.Reset()
		time.Sleep(time.Second)
		for i := range 1000 {
			r.Add(t.Context(), auth.NoToken, fmt.Sprintf("198.51.%d.%d:1", i/250, i%250), nil)
		}
		r.Add(t.Context(), auth.NoRole, "198.51.0.1:1", nil)
		if n := strings.Count(out.String(), "\n"); n != ratelog.MaxLines+1 || !strings.Contains(out.String(), "reason=role") {
			t.Errorf("%d lines after a flood from many addresses:\n%s", n, out.String())
		}
	})
}
