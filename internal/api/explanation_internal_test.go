package api

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store/memory"
)

func TestExplainJSON(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	lim, err := weir.New(weir.Config{Store: memory.New(&memory.Config{Now: func() time.Time { return noon }})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lim.Close() })
	ad := admin.New(lim)
	if err := ad.Entities.Create(t.Context(), admin.Entity{ID: "alice"}); err != nil {
		t.Fatal(err)
	}
	if err := ad.Limits.Set(t.Context(), admin.Scope{}, weir.PerMinute("tpm", 5000).WithBurst(7500)); err != nil {
		t.Fatal(err)
	}
	req := weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"tpm": 7000}}
	if _, err := lim.Acquire(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	req.Tokens = weir.Tokens{"tpm": 600}
	x, err := lim.Explain(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(explanationOf(&x))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"namespace":"default","entity":"alice","resource":"api","tokens":{"tpm":600},"at":"2026-03-01T12:00:00Z",` +
		`"outcome":"refused","detail":"limit exceeded: tpm of alice on api has 500 of 7500 available, 600 requested; retry in 1.2s","retry_after":1.2,` +
		`"binding":{"entity":"alice","limit":"tpm"},"on_unavailable":{"value":"deny","from":"config"},"cached":60,` +
		`"chain":[{"entity":"alice","exists":true,"cascade":false,"levels":[{"source":"entity","set":false,"applies":false},` +
		`{"source":"entity-default","set":false,"applies":false},{"source":"resource","set":false,"applies":false},{"source":"system","set":true,"applies":true}],` +
		`"limits":[{"limit":"tpm","source":"system","text":"tpm:5000/min:7500","amount":5000,"period":"min","burst":7500,"enforce":"on","shadow":false,` +
		`"requested":600,"available":500,"used":0.9333,"full_in":84,"refused":true,"retry_after":1.2,"binds":true}]}],"manifests":[]}`
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
