package leaseid_test

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/serve/leaseid"
)

func sign(key []byte, namespace string, h weir.LeaseToken) string {
	return string(leaseid.New(key).Append(nil, &leaseid.Lease{Namespace: namespace, Held: h}))
}

func parse(key []byte, id string) (string, weir.LeaseToken, bool) {
	return opened(leaseid.New(key).Parse(id))
}

func opened(l *leaseid.Lease, ok bool) (string, weir.LeaseToken, bool) {
	if !ok {
		return "", weir.LeaseToken{}, false
	}
	return l.Namespace, l.Held, true
}

// FuzzLeaseID feeds ids and payloads to the parser: no unsigned id may pass, and none may crash it.
func FuzzLeaseID(f *testing.F) {
	held := weir.LeaseToken{
		ID: "id", Seq: 3, Expires: time.UnixMilli(1_800_000_000_123).UTC(), Namespace: "n-1", Entity: "alice", Resource: "gpt-4",
		Charges: []weir.TokenCharge{
			{Entity: "alice", Limit: weir.PerMinute("rpm", 10), Tokens: 1},
			{Entity: "org", Limit: weir.PerDay("tpm", 1000).WithBurst(5), Override: true, Tokens: 1 << 50},
		},
	}
	key := []byte("0123456789abcdef")
	id := sign(key, "blue", held)
	namespace, got, ok := parse(key, id)
	if !ok || namespace != "blue" || !reflect.DeepEqual(got, held) {
		f.Fatalf("got %q %+v, %t", namespace, got, ok)
	}
	local := held
	local.Local = true
	if _, got, ok := parse(key, sign(key, "blue", local)); !ok || !reflect.DeepEqual(got, local) {
		f.Fatalf("got %+v, %t", got, ok)
	}
	strict := held
	strict.Since = time.Unix(1_800_000_000, 123_456_789).UTC()
	strict.Charges = append([]weir.TokenCharge{{
		Entity: "alice", Limit: weir.Limit{Name: "tpm", Amount: 5, Period: time.Second, Burst: 5, Strict: true, MaxDebt: 7}, Tokens: 2, Epoch: 9, Over: 3,
	}}, held.Charges...)
	if _, got, ok := parse(key, sign(key, "blue", strict)); !ok || !reflect.DeepEqual(got, strict) {
		f.Fatalf("got %+v, %t", got, ok)
	}
	grid := held
	grid.Charges = append(grid.Charges, weir.TokenCharge{
		Entity: "org", Resource: weir.TotalResource, Limit: weir.PerMinute("rpm", 10), Tokens: 1,
	}, weir.TokenCharge{Entity: "alice", Limit: weir.PerMinute("rpm", 10), Tokens: 1})
	if _, got, ok := parse(key, sign(key, "blue", grid)); !ok || !reflect.DeepEqual(got, grid) {
		f.Fatalf("got %+v, %t", got, ok)
	}
	f.Add(sign(key, "blue", grid), []byte{2, 0, 0})
	f.Add(id, []byte{1, 0, 0})
	f.Add(id[:9]+"\r\n"+id[9:], []byte{})
	f.Add("AAAA", bytes.Repeat([]byte{0xff}, 64))
	f.Fuzz(func(t *testing.T, text string, payload []byte) {
		if _, _, ok := parse(key, text); ok && text != id && text != sign(key, "blue", grid) {
			t.Fatalf("%q passes", text)
		}
		// A signed payload that parses survives a round trip.
		if ns, h, ok := opened(leaseid.ParsePayload(payload)); ok {
			again, h2, ok := parse(key, sign(key, ns, h))
			if !ok || again != ns || !reflect.DeepEqual(h, h2) {
				t.Fatalf("got %+v, want %+v", h2, h)
			}
		}
	})
}
