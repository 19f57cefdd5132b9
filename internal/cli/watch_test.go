package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/cli"
)

// lines is a pipe to a command: what it writes, line by line.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	for line := range strings.Lines(string(b)) {
		l <- strings.TrimSuffix(line, "\n")
	}
	return len(b), nil
}

func (l lines) next(t *testing.T) string {
	t.Helper()
	timer := time.NewTimer(time.Minute) // real time: waits for a server
	defer timer.Stop()
	select {
	case line := <-l:
		return line
	case <-timer.C:
		t.Fatal("nothing is written")
		return ""
	}
}

func golden(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("admin/testdata/watch/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), "\n", "")
}

// events serves one event for each connection, then ends it.
func events(t *testing.T, answer func(n int64, w http.ResponseWriter, r *http.Request) string) string {
	t.Helper()
	var n atomic.Int64
	hs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if data := answer(n.Add(1), w, r); data != "" {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = fmt.Fprintf(w, ": alive\n\nevent: some\ndata: %s\n\n", data)
		}
	}))
	t.Cleanup(hs.Close)
	return hs.URL
}

func TestWatchPipe(t *testing.T) {
	t.Setenv("WEIR_TOKEN", "secret")
	data := golden(t, "overview.json")
	url := events(t, func(n int64, w http.ResponseWriter, r *http.Request) string {
		if r.URL.Path != "/v1/overview" || r.URL.Query().Get("namespace") != "team" || r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("asked for %s with %v", r.URL, r.Header)
		}
		if n == 2 {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"detail":"the server is shutting down"}`)
			return ""
		}
		return data
	})
	ctx, cancel := context.WithCancel(t.Context())
	out, errs, ended := make(lines), make(lines), make(chan int)
	go func() {
		ended <- cli.Main(ctx, []string{"watch", "--server", url, "--namespace", "team"}, strings.NewReader(""), out, errs)
	}()
	if got := out.next(t); !strings.HasPrefix(got, "AT\tALLOWED/S\tREFUSED/S") {
		t.Errorf("header %q", got)
	}
	const row = "2026-03-01T12:00:05.000Z\t812.3\t45.6\t1.2\t0.0\t5.3\t0.412\t2.100\t1.02\t0.3"
	if got := out.next(t); got != row {
		t.Errorf("row %q", got)
	}
	if got := errs.next(t); !strings.Contains(got, "no connection: the server answers 503, the server is shutting down") || !strings.Contains(got, "retrying in ") {
		t.Errorf("trouble %q", got)
	}
	if got := errs.next(t); got != "weir: reconnected" {
		t.Errorf("then %q", got)
	}
	if got := out.next(t); got != row {
		t.Errorf("row %q, without a second header", got)
	}
	cancel()
	for {
		select {
		case code := <-ended:
			if code != 0 {
				t.Errorf("exit code %d", code)
			}
			return
		case <-out:
		}
	}
}

func TestWatchOnce(t *testing.T) {
	t.Parallel()
	state, hostile := golden(t, "state.json"), strings.Replace(golden(t, "state.json"), "org-1", "org\u009b2J", 1)
	for name, tt := range map[string]struct {
		args     []string
		data     string
		status   int
		code     int
		out, err string
	}{
		"limits": {
			args: []string{"key-alice", "gpt-4"}, data: state,
			out: "AT\tENTITY\tLIMIT\tAVAILABLE\tBURST\tFULL IN\tFROM\n" +
				"2026-03-01T12:00:05.000Z\tkey-alice\ttpm:50K/min:75K\t120\t75000\t1m30s\tresource\n" +
				"2026-03-01T12:00:05.000Z\torg-1\ttpm:60K/min (shadow)\t-500\t60000\t1m1s\tentity\n",
		},
		"json":         {args: []string{"key-alice", "gpt-4", "-o", "json"}, data: state, out: state + "\n"},
		"hostile":      {args: []string{"a", "b"}, data: hostile, out: "*\torg\\u009b2J\t*"},
		"hostile json": {args: []string{"a", "b", "-o", "json"}, data: hostile, out: `*"entity":"org\u009b2J"*`},
		"no limits":    {args: []string{"a", "b"}, data: `{"detail":"no limits apply"}`, status: 422, code: 4, err: "weir: the server answers 422, no limits apply\n"},
		"no token":     {data: `{"detail":"who are you?"}`, status: 401, code: 1, err: "weir: the server answers 401, who are you?: set WEIR_TOKEN\n"},
		"another":      {data: `<html>`, status: 404, code: 4, err: "weir: the server answers 404, Not Found: is it a weir server of this version?\n"},
		"no JSON":      {data: `{]`, code: 1, err: "weir: the server's answer cannot be read: *"},
		"yaml":         {args: []string{"-o", "yaml"}, code: 2, err: "*not yaml*"},
		"no resource":  {args: []string{"key-alice"}, code: 2, err: "weir: RESOURCE is missing*"},
		"no URL":       {args: []string{"--server", "localhost"}, code: 2, err: "*is not a URL*"},
		"nobody there": {args: []string{"--server", "http://127.0.0.1:1"}, code: 5, err: "weir: no answer from 127.0.0.1:1: *"},
		"no event":     {data: " ", code: 5, err: "weir: the server closed the connection without an event\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := events(t, func(_ int64, w http.ResponseWriter, _ *http.Request) string {
				if tt.status != 0 {
					w.WriteHeader(tt.status)
					_, _ = io.WriteString(w, tt.data)
					return ""
				}
				return strings.TrimSpace(tt.data)
			})
			var out, errs bytes.Buffer
			args := append([]string{"watch", "--once", "--server", url}, tt.args...)
			if code := cli.Main(t.Context(), args, strings.NewReader(""), &out, &errs); code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			for what, texts := range map[string][2]string{"output": {out.String(), tt.out}, "error": {errs.String(), tt.err}} {
				if !like(texts[0], texts[1]) {
					t.Errorf("%s %q, want %q", what, texts[0], texts[1])
				}
			}
		})
	}
}

// like compares a text with one in which * matches anything.
func like(text, pattern string) bool {
	parts := strings.Split(pattern, "*")
	if !strings.HasPrefix(text, parts[0]) || !strings.HasSuffix(text, parts[len(parts)-1]) || len(parts) == 1 && text != pattern {
		return false
	}
	for _, p := range parts {
		at := strings.Index(text, p)
		if at < 0 {
			return false
		}
		text = text[at+len(p):]
	}
	return true
}
