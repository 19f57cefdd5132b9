package main

import (
	"bytes"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/httpapi"
	"github.com/weirlimits/weir/store/memory"
)

// White-box: the demo is a command. With hourly limits instead of limits per minute, no tokens refill while it runs.
func TestDemo(t *testing.T) {
	t.Parallel()
	lim, err := weir.New(weir.Config{Store: memory.New(nil)})
	if err != nil {
		t.Fatal(err)
	}
	defer lim.Close()
	ctx := t.Context()
	for _, err := range []error{
		admin.New(lim).Limits.Set(ctx, admin.Scope{Resource: "gpt-4"}, weir.PerHour("rpm", 10), weir.PerHour("tpm", 5000)),
		admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "team-red"}),
		admin.New(lim).Limits.Set(ctx, admin.Scope{Entity: "team-red"}, weir.PerHour("rpm", 12), weir.PerHour("tpm", 20000)),
		admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "key-alice", Parent: "team-red", Cascade: true}),
		admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "key-bob", Parent: "team-red", Cascade: true}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	srv, err := httpapi.New(httpapi.Config{Config: decide.Config{Limiter: lim}})
	if err != nil {
		t.Fatal(err)
	}
	hs := httptest.NewServer(srv.Handler())
	defer hs.Close()
	var out bytes.Buffer
	d := &demo{base: hs.URL, out: &out, client: hs.Client()}
	if err := d.run(ctx); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range []string{
		"admitted     10\n  refused      15\n",
		"admitted     2\n  refused      3\n",
		"rpm of team-red on gpt-4 has 0 of 12 available",
		"adjusted     tpm +300\n",
		"committed\n",
		"rolled back  rpm 1, tpm 400\n  after        key-alice rpm 1 of 10",
		"sent twice   409, ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &out)
		}
	}
}
