package decide_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/store/memory"
)

// TestRequestLog checks what the line about a request has, and by what it was refused.
func TestRequestLog(t *testing.T) {
	t.Parallel()
	lim, err := weir.New(weir.Config{Store: memory.New(nil)})
	if err != nil {
		t.Fatal(err)
	}
	defer lim.Close()
	over := &weir.ExceededError{Decision: weir.Decision{Statuses: []weir.LimitStatus{
		{Limit: "rpm", Refused: true},
		{Limit: "rpd"},
		{Limit: "try", Refused: true, Shadow: true},
		{Limit: "tpm", Refused: true},
	}}}
	forbidden := &decide.RefusalError{Answer: decide.ErrForbidden, Reason: auth.NoToken}
	for _, tt := range []struct {
		caller *decide.Caller
		err    error
		want   string
	}{
		{&decide.Caller{Principal: &auth.Principal{Name: "edge"}}, nil, "principal=edge"},
		{&decide.Caller{}, over, "refused_by=rpm,tpm"},
		{&decide.Caller{Err: over}, nil, "refused_by=rpm,tpm"},
		{&decide.Caller{RefusedBy: "unknown entity"}, nil, `refused_by="unknown entity"`},
		{&decide.Caller{}, forbidden, "refused_by=" + string(auth.NoToken)},
		{&decide.Caller{}, decide.ErrOverloaded, "refused_by=overload"},
		{&decide.Caller{}, decide.ErrTooLong, "refused_by=queue"},
		{&decide.Caller{}, errors.New("broken"), "error=broken"},
	} {
		var log bytes.Buffer
		d, err := decide.New(decide.Config{
			Limiter: lim, Log: slog.New(slog.NewTextHandler(&log, nil)), LogRequests: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		d.Request(t.Context(), tt.caller, "[::1]:7", "id-1", time.Now(), tt.err, slog.Int("status", 200))
		line := strings.TrimSpace(log.String())
		if !strings.Contains(line, "status=200 client=[::1]:7 request_id=id-1 duration_ms=") ||
			!strings.HasSuffix(line, tt.want) {
			t.Errorf("got %s, want %s", line, tt.want)
		}
	}
}

func TestRequestID(t *testing.T) {
	t.Parallel()
	for given, kept := range map[string]bool{
		"7f3-a": true, "": false, "a b": false, "a\n": false, "ä": false, strings.Repeat("x", 129): false,
	} {
		if got := decide.RequestID(given); (got == given) != kept || got == "" {
			t.Errorf("%q became %q", given, got)
		}
	}
}
