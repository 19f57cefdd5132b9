package limits

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/testkit/redirecttest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

type counts interface{ store.Usage }

// noRequests is a store that keeps usage, but not the number of admitted requests, like a table booked by an older weir.
type noRequests struct {
	store.Store
	counts
}

func (s noRequests) Usage(ctx context.Context, q store.UsageQuery) (store.UsagePage, error) {
	page, err := s.counts.Usage(ctx, q)
	for i := range page.Records {
		for j := range page.Records[i].Counts {
			page.Records[i].Counts[j].Requests = 0
		}
	}
	return page, err
}

// If the store counts only refusals, a gate does not take them for all requests: it reports that it cannot decide.
func TestGateNeedsRequests(t *testing.T) {
	t.Parallel()
	for name, counted := range map[string]bool{"counted": true, "not counted": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := memory.New(nil)
			var st store.Store = m
			if !counted {
				st = noRequests{m, m}
			}
			lim, err := weir.New(weir.Config{Store: st})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = lim.Close() })
			if err := admin.New(lim).Limits.Set(t.Context(), admin.Scope{Resource: "api"}, weir.PerHour("rph", 9)); err != nil {
				t.Fatal(err)
			}
			g := &refusals{threshold: 0.5, read: usageOf(windowsOf(lim, time.Now())), tell: func(string) {}}
			if err := g.Begin(t.Context(), 5); err != nil {
				t.Fatal(err)
			}
			for range 10 { // one is refused
				if _, err := lim.Allow(t.Context(), "alice", "api"); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := g.Check(t.Context(), true); counted != (err == nil) || !counted && !errors.Is(err, errNotCounted) {
				t.Errorf("the gate says %v", err)
			}
		})
	}
}

// Without requests, a stage neither passes nor fails. The figures are printed when it passes, too.
func TestGateWaits(t *testing.T) {
	t.Parallel()
	var told []string
	counted := tallied{50, 5} // before the stage
	g := &refusals{
		threshold: 0.5, tell: func(text string) { told = append(told, text) },
		read: func(context.Context) ([]tallied, error) { return []tallied{counted}, nil },
	}
	if err := g.Begin(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if passed, err := g.Check(t.Context(), true); passed || err != nil {
			t.Errorf("without requests: %v, %v", passed, err)
		}
	}
	counted = tallied{54, 6}
	if passed, err := g.Check(t.Context(), true); !passed || err != nil {
		t.Errorf("after four requests: %v, %v", passed, err)
	}
	if want := []string{
		"waiting: no request was decided in this stage", "1 of 4 requests were refused: refusal_rate 0.25 <= 0.5",
	}; !slices.Equal(told, want) {
		t.Errorf("printed %q", told)
	}
	counted = tallied{60, 12}
	if _, err := g.Check(t.Context(), true); err == nil || !strings.Contains(err.Error(), "7 of 10 requests were refused: refusal_rate 0.7 > 0.5") {
		t.Error(err)
	}
}

// A gate adds up what the named servers have decided in the namespace. A server that answers anything but an overview
// fails the read, which names it.
func TestOverviews(t *testing.T) {
	t.Parallel()
	server := func(status int, body string) string {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/overview" || r.FormValue("namespace") != "alpha" || r.Header.Get("Authorization") != "Bearer secret" {
				status = http.StatusTeapot
			}
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(srv.Close)
		return srv.URL
	}
	one, two := server(200, `{"totals": {"allowed": 8, "refused": 2}}`), server(200, `{"totals": {"allowed": 5, "refused": 0}}`)
	got, err := overviewsOf(secret.Client(0, nil), []string{one, two + "/"}, "secret", "alpha")(t.Context())
	if want := []tallied{{10, 2}, {5, 0}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	for bad, part := range map[string]string{
		server(503, ""): "503", server(200, "{}"): "not an overview", server(200, "<html>"): "invalid character",
	} {
		if _, err := overviewsOf(secret.Client(0, nil), []string{one, bad}, "secret", "alpha")(t.Context()); err == nil || !strings.Contains(err.Error(), part) || !strings.HasPrefix(err.Error(), bad) {
			t.Errorf("%v, want %s", err, part)
		}
	}
}

// A redirect is not followed: the token is for the server that was named.
func TestDecidingServerRedirects(t *testing.T) {
	t.Parallel()
	read := overviewsOf(secret.Client(0, nil), []string{redirecttest.Start(t)}, "secret", "default")
	if _, err := read(t.Context()); err == nil || !strings.Contains(err.Error(), "307") {
		t.Error(err)
	}
}
