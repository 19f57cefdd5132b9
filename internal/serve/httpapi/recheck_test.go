package httpapi_test

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/httpapi"
)

// The streams of a token that was revoked end within 30 s, whenever that is, and those of another token go on.
func TestRecheck(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{time.Second, 20 * time.Second, 28 * time.Second} {
		for _, target := range []string{"/v1/watch?entity=alice&resource=gpt-4", "/v1/usage/stream", "/v1/overview"} {
			t.Run(fmt.Sprint(target, after), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					path := filepath.Join(t.TempDir(), "tokens.yaml")
					tokens := make(map[string]string)
					for _, name := range []string{"revoked", "kept"} {
						token, e, err := auth.NewEntry(auth.Entry{Name: name, Roles: []auth.Role{auth.Read}})
						if err == nil {
							err = auth.Add(path, e)
						}
						if err != nil {
							t.Fatal(err)
						}
						tokens[name] = token
					}
					book, err := auth.Open(path, slog.New(slog.DiscardHandler))
					if err != nil {
						t.Fatal(err)
					}
					f := setup(t, httpapi.Config{Config: decide.Config{Book: book}, Metrics: &fakeMetrics{}})
					revoked := openAs(t.Context(), f.h, target, tokens["revoked"])
					kept := openAs(t.Context(), f.h, target, tokens["kept"])
					if a, b := revoked.next(), kept.next(); len(a) < 3 || len(b) < 3 {
						t.Fatalf("%d %q, %d %q", revoked.status, a, kept.status, b)
					}
					time.Sleep(after)
					if slices.Contains(revoked.next(), "EOF") {
						t.Fatal("it ends by itself")
					}
					if err := auth.Revoke(path, "revoked"); err != nil {
						t.Fatal(err)
					}
					time.Sleep(30*time.Second + time.Millisecond)
					if !slices.Contains(revoked.next(), "EOF") {
						t.Error("it goes on")
					}
					if slices.Contains(kept.next(), "EOF") {
						t.Error("that of another token has ended, too")
					}
				})
			})
		}
	}
}
