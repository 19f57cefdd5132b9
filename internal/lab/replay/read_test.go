package replay_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/lab/replay"
)

const (
	head = `192.0.2.1 - - [02/Mar/2026:09:00:00 +0000] `
	tail = ` 200 17 "-" "curl/8"`
	good = head + `"GET / HTTP/1.1"` + tail
)

// reason reads a line between two good ones and returns why it is malformed.
func reason(t *testing.T, line string) string {
	t.Helper()
	l := mustRead(t, []byte(good+"\n"+line+"\n"+good+"\n"), replay.ReadConfig{})
	r := mustRun(t, l, replay.Config{Limits: []weir.Limit{weir.PerDay("rpd", 1)}})
	if len(r.MalformedFirst) == 0 {
		return ""
	}
	if at := r.MalformedFirst[0].Line; at != 2 {
		t.Errorf("line %d is malformed, not 2", at)
	}
	return r.MalformedFirst[0].Reason
}

func TestMalformed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, line, want string }{
		{"good", good, ""},
		{"common", head + `"GET / HTTP/1.1" 200 -`, ""},
		{"more after the agent", good + ` "203.0.113.1" 0.012`, ""},
		{"quotes in the agent", head + `"GET / HTTP/1.1" 200 17 "-" "a \"b\" c"`, ""},
		{"no request line", head + `"-" 408 -`, ""},
		{"TLS on the plain port", head + `"\x16\x03\x01" 400 157`, ""},
		{"user with a space", `192.0.2.1 - john smith [02/Mar/2026:09:00:00 +0000] "GET / HTTP/1.1"` + tail, ""},
		{"other zone", `192.0.2.1 - - [02/Mar/2026:09:00:00 -0730] "GET / HTTP/1.1"` + tail, ""},
		{"garbage", "garbage", "has no [time]"},
		{"no end of time", "192.0.2.1 - - [02/Mar/2026", "has no [time]"},
		{"bad month", `192.0.2.1 - - [02/Foo/2026:09:00:00 +0000] "GET / HTTP/1.1"` + tail, `has the time "02/Foo/2026`},
		{"no client", ` - - [02/Mar/2026:09:00:00 +0000] "GET / HTTP/1.1"` + tail, "has no client"},
		{"cut in the request", head + `"GET / HTT`, `has no "request"`},
		{"no status", head + `"GET / HTTP/1.1" "-" "-"`, "has no status"},
		{"bad status", head + `"GET / HTTP/1.1" 20x 17`, "has no status"},
		{"not UTF-8", "\xff\xfe" + good, "its client is not valid UTF-8"},
		{"long client", strings.Repeat("1", 300) + ` - - [02/Mar/2026:09:00:00 +0000] "GET / HTTP/1.1"` + tail, "its client has 300 bytes"},
		{"reserved client", `_ - - [02/Mar/2026:09:00:00 +0000] "GET / HTTP/1.1"` + tail, "its client is _, which is reserved"},
		{"long line", head + strings.Repeat("x", 3<<20), "is longer than"},
		{"bad JSON", `{"time":1,`, "is not JSON: unexpected end"},
		{"JSON without a time", `{"client":"a"}`, `has no field "time"`},
		{"JSON with a null", `{"time":1,"client":null}`, `has no field "client"`},
		{"JSON with an object", `{"time":1,"client":{"ip":"a"}}`, `field "client" is not a text or number`},
		{"JSON with an empty entity", `{"time":1,"client":""}`, "its client is empty"},
		{"JSON with a control character", `{"time":1,"client":"a\u0000"}`, "its client holds a control character"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := reason(t, tt.line)
			if (tt.want == "") != (got == "") || !strings.HasPrefix(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// entityOf reads one line and returns its entity.
func entityOf(t *testing.T, line, field string) string {
	t.Helper()
	log := strings.Repeat(line+"\n", 2)
	r := mustRun(t, mustRead(t, []byte(log), replay.ReadConfig{Entity: field}), replay.Config{Limits: []weir.Limit{weir.PerDay("rpd", 1)}})
	return r.MostRefused[0].Entity
}

func TestFields(t *testing.T) {
	t.Parallel()
	apache := `192.0.2.1 - alice [02/Mar/2026:09:00:00 +0000] "POST /a/b?c=d HTTP/1.1" 404 17 "https://example.com/" "curl/8 (x; y)"`
	object := `{"time":"2026-03-02T09:00:00Z","remote_addr":"192.0.2.1","request":{"method":"GET","headers":{"X-Tenant":"blue"}},"a.b":"dotted","n":17,"ok":true,"q":"a\"\u00e9"}`
	for _, tt := range []struct{ name, line, field, want string }{
		{"client", apache, "client", "192.0.2.1"},
		{"user", apache, "user", "alice"},
		{"method", apache, "method", "POST"},
		{"path", apache, "path", "/a/b"},
		{"protocol", apache, "protocol", "HTTP/1.1"},
		{"status", apache, "status", "404"},
		{"bytes", apache, "bytes", "17"},
		{"referer", apache, "referer", "https://example.com/"},
		{"agent", apache, "agent", "curl/8 (x; y)"},
		{"host", "example.com:443 " + apache, "host", "example.com"},
		{"client behind a host", "example.com:443 " + apache, "client", "192.0.2.1"},
		{"client of IPv6", strings.Replace(apache, "192.0.2.1", "2001:db8::1", 1), "client", "2001:db8::1"},
		{"alias", object, "client", "192.0.2.1"},
		{"nested alias", object, "method", "GET"},
		{"nested", object, "request.headers.X-Tenant", "blue"},
		{"key with a dot", object, "a.b", "dotted"},
		{"number", object, "n", "17"},
		{"truth", object, "ok", "true"},
		{"escapes", object, "q", `a"é`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := entityOf(t, tt.line, tt.field); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func TestStamps(t *testing.T) {
	t.Parallel()
	want := time.Date(2026, time.March, 2, 9, 0, 0, 250_000_000, time.UTC)
	for stamp, exact := range map[string]bool{
		`"2026-03-02T09:00:00.25Z"`:       true,
		`"2026-03-02T10:00:00.25+01:00"`:  true,
		`"2026-03-02T10:00:00.250+0100"`:  true,
		`"2026-03-02T09:00:00.25"`:        true,
		`"2026-03-02 09:00:00.250"`:       true,
		`"2026-03-02 10:00:00.250+01:00"`: true,
		`"02/Mar/2026:09:00:00 +0000"`:    false,
		`1772442000.25`:                   true,
		`"1772442000.250"`:                true,
		`1772442000250`:                   true,
		`1772442000250000`:                true,
		`1772442000250000000`:             true,
		`1772442000`:                      false,
	} {
		t.Run(stamp, func(t *testing.T) {
			t.Parallel()
			want := want
			if !exact {
				want = want.Truncate(time.Second)
			}
			l := mustRead(t, []byte(`{"time":`+stamp+`,"client":"a"}`), replay.ReadConfig{})
			if r := mustRun(t, l, tenAMinute); !r.From.Equal(want) {
				t.Errorf("%s, want %s", r.From, want)
			}
		})
	}
	for _, stamp := range []string{`"yesterday"`, `""`, `"2026-13-02T09:00:00Z"`, `-5`, `true`, `"9999-01-01T00:00:00Z"`, `1e400`, `99999999999999999999`, `1.5x`} {
		t.Run("bad "+stamp, func(t *testing.T) {
			t.Parallel()
			_, err := replay.Read(t.Context(), strings.NewReader(`{"time":`+stamp+`,"client":"a"}`), replay.ReadConfig{})
			if err == nil || !strings.Contains(err.Error(), "line 1") {
				t.Errorf("err = %v", err)
			}
		})
	}
}

func TestReadFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken disk")
	for _, tt := range []struct {
		name string
		src  io.Reader
		cfg  replay.ReadConfig
		want string
	}{
		{"empty", strings.NewReader(""), replay.ReadConfig{}, "the log is empty"},
		{"blank", strings.NewReader("\n \n\n"), replay.ReadConfig{}, "the log is empty"},
		{"nothing readable", strings.NewReader("a\nb\n"), replay.ReadConfig{}, "none of 2 lines could be read; line 1 has no [time]"},
		{"field of another log", strings.NewReader(good), replay.ReadConfig{Entity: "tenant"}, `no field "tenant", only client, user`},
		{"unknown field", strings.NewReader(good), replay.ReadConfig{Format: replay.Combined, Count: []string{"tokens"}}, "a combined log has only client, user"},
		{"unknown format", strings.NewReader(good), replay.ReadConfig{Format: "xml"}, "must be auto, combined or json"},
		{"trouble", io.MultiReader(strings.NewReader(good+"\n"), iotest.ErrReader(broken)), replay.ReadConfig{}, "read line 2: broken disk"},
		{"JSON wanted", strings.NewReader(good), replay.ReadConfig{Format: replay.JSON}, "is not JSON"},
		{"broken gzip", strings.NewReader("\x1f\x8b\xff"), replay.ReadConfig{}, "gzip"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := replay.Read(t.Context(), tt.src, tt.cfg)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("err = %v, want %q in it", err, tt.want)
			}
		})
	}
}

// If a log is still being compressed or was cut off, the part that exists counts.
func TestCutGzip(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for i := range 5000 {
		fmt.Fprintf(z, "192.0.2.%d - - [02/Mar/2026:09:%02d:00 +0000] \"GET /%d HTTP/1.1\" 200 1\n", i%200, i%60, i*i)
	}
	z.Close()
	r := mustRun(t, mustRead(t, b.Bytes()[:b.Len()/2], replay.ReadConfig{}), tenAMinute)
	if r.Requests < 1000 || r.Malformed == 0 || !strings.Contains(r.MalformedFirst[len(r.MalformedFirst)-1].Reason, "cut short") {
		t.Errorf("%d requests; %+v", r.Requests, r.MalformedFirst)
	}
}

func TestFirstBadLinesAreKept(t *testing.T) {
	t.Parallel()
	r := mustRun(t, mustRead(t, []byte(strings.Repeat("bad\n\n", 20)+good), replay.ReadConfig{}), tenAMinute)
	if r.Malformed != 20 || len(r.MalformedFirst) != 5 || r.MalformedFirst[1].Line != 3 {
		t.Errorf("%d malformed, first %+v", r.Malformed, r.MalformedFirst)
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	log := shortLog(t)
	var last int64
	share := -1.0
	l := mustRead(t, log, replay.ReadConfig{Progress: func(n int64) { last = n }})
	cfg := tenAMinute
	cfg.Progress = func(s float64) {
		if s < share || s > 1 {
			t.Errorf("%g after %g", s, share)
		}
		share = s
	}
	mustRun(t, l, cfg)
	if last != int64(len(log)) || share < 0.5 {
		t.Errorf("%d bytes of %d; %g", last, len(log), share)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(`{"time":1,"client":"a","x":{"y":[1,"]"]}}`))
	f.Fuzz(func(t *testing.T, log []byte) {
		l, err := replay.Read(t.Context(), bytes.NewReader(log), replay.ReadConfig{})
		if err != nil {
			return
		}
		r := mustRun(t, l, tenAMinute)
		if r.Admitted+r.Refused != r.Requests || r.Requests+r.Malformed < r.Lines {
			t.Errorf("%+v", r)
		}
	})
}
