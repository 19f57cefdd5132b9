package replay_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/lab/replay"
)

// TestSlots compares what slots refuse in a log with a count of all requests that are under way.
func TestSlots(t *testing.T) {
	t.Parallel()
	const lines, n = 2000, 5
	r := rand.New(rand.NewPCG(1, 2))
	var log strings.Builder
	type request struct{ at, took int64 }
	var held []request
	refused, peak, at := 0, 0, int64(1_700_000_000_000)
	var all []request
	for range lines {
		at += r.Int64N(400)
		q := request{at, r.Int64N(3000)}
		all = append(all, q)
		fmt.Fprintf(&log, `{"ts":%q,"user":"a","ms":%d}`+"\n", time.UnixMilli(at).UTC().Format(time.RFC3339Nano), q.took)
		now := 0
		for _, h := range held {
			if h.at+h.took > at {
				now++
			}
		}
		if now < n {
			held = append(held, q)
		} else {
			refused++
		}
	}
	for i, q := range all {
		now := 1
		for _, o := range all[:i] {
			if o.at+o.took > q.at {
				now++
			}
		}
		peak = max(peak, now)
	}
	limit := weir.Limit{Name: "parallel", Slots: n, Heal: 30 * time.Second}
	rpm := weir.PerSecond("rps", weir.MaxTokens/1e12)
	for name, how := range map[string]replay.Held{
		"of the log": {Field: "ms", Unit: time.Millisecond}, "assumed": {Assumed: time.Nanosecond},
	} {
		l, err := replay.Read(t.Context(), strings.NewReader(log.String()), replay.ReadConfig{Entity: "user", Held: how})
		if err != nil {
			t.Fatal(err)
		}
		got, err := replay.Run(t.Context(), l, replay.Config{Limits: []weir.Limit{limit, rpm}})
		if err != nil {
			t.Fatal(err)
		}
		if want := map[bool]int{true: refused}[how.Field != ""]; got.Refused != want || got.RefusedBy[0].Refused != want {
			t.Errorf("%s: %d refused, %+v, want %d", name, got.Refused, got.RefusedBy, want)
		}
		for _, need := range got.Needed[:2] {
			if need.Limit == nil || need.Limit.Slots > int64(peak) || need.Admitted*1000 < lines*int(need.Percent*10) {
				t.Errorf("%s: needs %+v, the peak is %d", name, need, peak)
			}
		}
		var bad *weir.ConfigError
		_, err = replay.Run(t.Context(), l, replay.Config{Limits: []weir.Limit{limit}, Tokens: map[string]string{"parallel": "ms"}})
		if !errors.As(err, &bad) || bad.Field != "tokens" {
			t.Errorf("%s: tokens of slots: %v", name, err)
		}
	}
	if refused == 0 || peak <= n {
		t.Errorf("%d refused, peak %d: the log shows nothing", refused, peak)
	}
}

// TestHeld: how long slots are held, as text.
func TestHeld(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]replay.Held{
		"2s": {Assumed: 2 * time.Second}, "request.took:ms": {Field: "request.took", Unit: time.Millisecond},
		"a:b:s": {Field: "a:b", Unit: time.Second},
	} {
		var h replay.Held
		if err := h.UnmarshalText([]byte(text)); err != nil || h != want {
			t.Errorf("%s: %+v, %v", text, h, err)
		}
	}
	for _, text := range []string{"", "0s", "-2s", "took", ":ms", "took:h"} {
		var h replay.Held
		if err := h.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is read as %+v", text, h)
		}
	}
	l := `{"ts":"2026-01-01T00:00:00Z","user":"a","took":%s}` + "\n"
	for _, c := range []struct {
		took string
		bad  int
	}{{"0.25", 0}, {"-1", 1}, {`"x"`, 1}, {"5000000", 1}, {`"NaN"`, 1}} {
		log, err := replay.Read(t.Context(), strings.NewReader(fmt.Sprintf(l+l, "1", c.took)), replay.ReadConfig{
			Entity: "user", Held: replay.Held{Field: "took", Unit: time.Second},
		})
		if err != nil {
			t.Fatal(err)
		}
		r, err := replay.Run(t.Context(), log, replay.Config{Limits: []weir.Limit{{Name: "parallel", Slots: 1}}})
		if err != nil || r.Malformed != c.bad || r.Refused != 1-c.bad {
			t.Errorf("%s: %d malformed, %d refused, %v", c.took, r.Malformed, r.Refused, err)
		}
	}
}
