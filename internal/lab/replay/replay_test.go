package replay_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/lab/replay"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func mustRead(t testing.TB, log []byte, cfg replay.ReadConfig) *replay.Log {
	t.Helper()
	l, err := replay.Read(t.Context(), bytes.NewReader(log), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustRun(t testing.TB, l *replay.Log, cfg replay.Config) *replay.Report {
	t.Helper()
	r, err := replay.Run(t.Context(), l, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func shortLog(t testing.TB) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "access.log"))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

var tenAMinute = replay.Config{Limits: []weir.Limit{weir.PerMinute("rpm", 10)}}

// The figures were computed independently by another program, in fractions.
func TestKnownAnswers(t *testing.T) {
	t.Parallel()
	r := mustRun(t, mustRead(t, shortLog(t), replay.ReadConfig{}), tenAMinute)
	if r.Lines != 521 || r.Malformed != 3 || r.Requests != 518 {
		t.Errorf("%d lines, %d malformed, %d requests", r.Lines, r.Malformed, r.Requests)
	}
	if r.Admitted != 374 || r.Refused != 144 || r.Entities != 50 || r.RefusedEntities != 6 {
		t.Errorf("%d admitted, %d refused, %d of %d entities", r.Admitted, r.Refused, r.RefusedEntities, r.Entities)
	}
	if first := r.MostRefused[0]; first.Entity != "192.0.2.66" || first.Requests != 120 || first.Refused != 101 {
		t.Errorf("most refused: %+v", first)
	}
	if got := r.Needed[0]; got.Limit.String() != "rpm:58/min" || got.Admitted != 513 {
		t.Errorf("for 99 %%: %s admits %d", got.Limit, got.Admitted)
	}
	if got := r.Needed[1]; got.Limit.String() != "rpm:61/min" || got.Admitted != 518 {
		t.Errorf("for 99.9 %%: %s admits %d", got.Limit, got.Admitted)
	}
}

func TestReportGolden(t *testing.T) {
	t.Parallel()
	r := mustRun(t, mustRead(t, shortLog(t), replay.ReadConfig{}), tenAMinute)
	got, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "report.json")
	if *update {
		if err := os.WriteFile(golden, append(got, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.TrimSpace(string(want)), string(got)); d != "" {
		t.Error(d)
	}
}

// However a log is stored, the answer is the same.
func TestFormsAgree(t *testing.T) {
	t.Parallel()
	plain := shortLog(t)
	want := mustRun(t, mustRead(t, plain, replay.ReadConfig{}), tenAMinute)
	want.OutOfOrder, want.Malformed, want.MalformedFirst, want.Lines = 0, 0, nil, 0

	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	half := bytes.LastIndexByte(plain[:len(plain)/2], '\n') + 1
	z.Write(plain[:half])
	z.Close()
	z.Reset(&zipped) // several in a row, as logrotate and cat leave them
	z.Write(plain[half:])
	z.Close()

	lines := strings.Split(strings.TrimSpace(string(plain)), "\n")
	slices.Sort(lines)
	vhost := make([]string, len(lines))
	for i, l := range lines {
		vhost[i] = "shop.example.com:443 " + l
	}
	for name, log := range map[string][]byte{
		"gzip":     zipped.Bytes(),
		"shuffled": []byte(strings.Join(lines, "\n")),
		"CRLF":     []byte(strings.Join(strings.Split(string(plain), "\n"), "\r\n")),
		"vhost":    []byte(strings.Join(vhost, "\n\n")),
		"JSON":     asJSON(t, lines),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := mustRun(t, mustRead(t, log, replay.ReadConfig{}), tenAMinute)
			got.OutOfOrder, got.Malformed, got.MalformedFirst, got.Lines = 0, 0, nil, 0
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// asJSON rewrites the lines of a combined log that have a time and a status.
func asJSON(t *testing.T, lines []string) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, l := range lines {
		fields := strings.Fields(l)
		if len(fields) < 10 {
			continue
		}
		at, err := time.Parse("[02/Jan/2006:15:04:05 -0700]", fields[3]+" "+fields[4])
		if err != nil {
			continue
		}
		fmt.Fprintf(&b, `{"request": {"remote_ip": %q}, "ts": %q}`+"\n", fields[0], at.Format(time.RFC3339))
	}
	return b.Bytes()
}

// admitted replays requests with different arithmetic: fractions that are refilled.
func admitted(at []int64, entity []int, limit weir.Limit) int {
	type state struct {
		tokens *big.Rat
		last   int64
	}
	states, n := make(map[int]state), 0
	burst := new(big.Rat).SetInt64(limit.Burst)
	for i, e := range entity {
		s, ok := states[e]
		if !ok {
			s = state{new(big.Rat).Set(burst), at[i]}
		}
		s.tokens.Add(s.tokens, big.NewRat(limit.Amount*(at[i]-s.last), int64(limit.Period/time.Second)))
		if s.tokens.Cmp(burst) > 0 {
			s.tokens.Set(burst)
		}
		s.last = at[i]
		if one := big.NewRat(1, 1); s.tokens.Cmp(one) >= 0 {
			s.tokens.Sub(s.tokens, one)
			n++
		}
		states[e] = s
	}
	return n
}

func TestAgreesWithFractions(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var log bytes.Buffer
		var at []int64
		var entity []int
		now := rapid.Int64Range(0, 2_000_000_000).Draw(t, "start") // may be before 2024
		for range rapid.IntRange(1, 60).Draw(t, "lines") {
			now += rapid.Int64Range(0, 4).Draw(t, "step")
			e := rapid.IntRange(1, 3).Draw(t, "entity")
			at, entity = append(at, now), append(entity, e)
			fmt.Fprintf(&log, `{"time":%d,"client":"%d"}`+"\n", now, e)
		}
		// The rate divides into whole millitokens a second, so that both results are exact at whole seconds.
		limit := weir.PerSecond("rps", rapid.Int64Range(1, 4).Draw(t, "amount")).WithBurst(rapid.Int64Range(1, 8).Draw(t, "burst"))
		limit.Period = time.Duration(rapid.SampledFrom([]int{1, 2, 5, 8, 10}).Draw(t, "seconds")) * time.Second
		l, err := replay.Read(context.Background(), &log, replay.ReadConfig{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := replay.Run(context.Background(), l, replay.Config{Limits: []weir.Limit{limit}})
		if err != nil {
			t.Fatal(err)
		}
		if want := admitted(at, entity, limit); r.Admitted != want {
			t.Fatalf("%s admitted %d of %d, want %d", limit, r.Admitted, len(at), want)
		}
		for _, n := range r.Needed {
			// The search decides without the limiter, so the limiter must confirm the limit that it found.
			again, err := replay.Run(context.Background(), l, replay.Config{Limits: []weir.Limit{*n.Limit}})
			if err != nil {
				t.Fatal(err)
			}
			if again.Admitted != n.Admitted || again.AdmittedPercent < n.Percent {
				t.Fatalf("%s was found to admit %d, but admits %d (%g %%)", n.Limit, n.Admitted, again.Admitted, again.AdmittedPercent)
			}
		}
	})
}

// The limit found is the smallest: with one less, too few requests are admitted.
func TestNeededIsSmallest(t *testing.T) {
	t.Parallel()
	l := mustRead(t, shortLog(t), replay.ReadConfig{})
	for _, start := range []int64{1, 10, 58, 1000} {
		limit := weir.PerMinute("rpm", start)
		for i, want := range []int64{58, 61} {
			r := mustRun(t, l, replay.Config{Limits: []weir.Limit{limit}})
			if got := r.Needed[i].Limit.Amount; got != want {
				t.Errorf("from %s: %d for %g %%, want %d", limit, got, r.Needed[i].Percent, want)
			}
		}
	}
}

func TestNeededScalesBurst(t *testing.T) {
	t.Parallel()
	l := mustRead(t, shortLog(t), replay.ReadConfig{})
	r := mustRun(t, l, replay.Config{Limits: []weir.Limit{weir.PerMinute("rpm", 10).WithBurst(30)}})
	for _, n := range r.Needed {
		if n.Limit.Burst != 3*n.Limit.Amount {
			t.Errorf("%s: burst is not 3 times the amount", n.Limit)
		}
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	log := `{"time":1000,"client":"a","size":400}
{"time":1000,"client":"a","size":601}
{"time":1000,"client":"a","size":600}
{"time":1000,"client":"a","size":5000}
{"time":1001,"client":"a","size":0}
{"time":1001,"client":"b","size":"12"}
{"time":1001,"client":"b","size":1.5}
{"time":1001,"client":"b","size":-1}
`
	cfg := replay.ReadConfig{Count: []string{"size"}}
	limits := []weir.Limit{weir.PerDay("bytes", 1000), weir.PerDay("rpd", 4)}
	r := mustRun(t, mustRead(t, []byte(log), cfg), replay.Config{Limits: limits, Tokens: map[string]string{"bytes": "size"}})
	if r.Malformed != 2 || r.Admitted != 4 || r.Refused != 2 || r.TooLarge != 1 {
		t.Errorf("%d malformed, %d admitted, %d refused, %d too large", r.Malformed, r.Admitted, r.Refused, r.TooLarge)
	}
	if d := cmp.Diff([]replay.LimitCount{{Limit: "bytes", Refused: 2}, {Limit: "rpd", Refused: 0}}, r.RefusedBy); d != "" {
		t.Error(d)
	}
	if got := r.Needed[0]; got.Name != "bytes" || got.Limit.Burst < 6601 || got.Admitted != 6 {
		t.Errorf("%+v", got)
	}
}

func TestResource(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	for _, path := range []string{"/a", "/b", "/a?q=1", "/b", "/a"} {
		fmt.Fprintf(&log, "192.0.2.1 - - [02/Mar/2026:09:00:00 +0000] \"GET %s HTTP/1.1\" 200 1\n", path)
	}
	cfg := replay.Config{Limits: []weir.Limit{weir.PerDay("rpd", 2)}}
	if r := mustRun(t, mustRead(t, []byte(log.String()), replay.ReadConfig{}), cfg); r.Admitted != 2 {
		t.Errorf("of one resource %d admitted, want 2", r.Admitted)
	}
	if r := mustRun(t, mustRead(t, []byte(log.String()), replay.ReadConfig{Resource: "path"}), cfg); r.Admitted != 4 {
		t.Errorf("of two resources %d admitted, want 4", r.Admitted)
	}
}

func TestRunRefuses(t *testing.T) {
	t.Parallel()
	l := mustRead(t, []byte(`{"time":1,"client":"a"}`), replay.ReadConfig{})
	rpm := weir.PerMinute("rpm", 1)
	for name, cfg := range map[string]replay.Config{
		"no limits":       {},
		"bad limit":       {Limits: []weir.Limit{weir.PerMinute("rpm", 0)}},
		"same name":       {Limits: []weir.Limit{rpm, rpm}},
		"not counted":     {Limits: []weir.Limit{rpm}, Tokens: map[string]string{"rpm": "size"}},
		"no such limit":   {Limits: []weir.Limit{rpm}, Tokens: map[string]string{"tpm": "size"}},
		"reserved":        {Limits: []weir.Limit{weir.PerMinute("wcu", 1)}},
		"control in name": {Limits: []weir.Limit{weir.PerMinute("r\x00pm", 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := replay.Run(t.Context(), l, cfg)
			if _, ok := errors.AsType[*weir.ConfigError](err); !ok {
				t.Errorf("%v, want a ConfigError", err)
			}
		})
	}
}

func TestCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	log := bytes.Repeat([]byte(`{"time":1,"client":"a"}`+"\n"), 5000)
	if _, err := replay.Read(ctx, bytes.NewReader(log), replay.ReadConfig{}); !errors.Is(err, context.Canceled) {
		t.Errorf("read: %v", err)
	}
	if _, err := replay.Run(ctx, mustRead(t, log, replay.ReadConfig{}), tenAMinute); !errors.Is(err, context.Canceled) {
		t.Errorf("run: %v", err)
	}
}

func BenchmarkReplay(b *testing.B) {
	log := bytes.Repeat(shortLog(b), 20)
	b.SetBytes(int64(len(log)))
	for b.Loop() {
		mustRun(b, mustRead(b, log, replay.ReadConfig{}), tenAMinute)
	}
}
