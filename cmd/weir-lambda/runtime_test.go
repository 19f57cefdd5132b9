package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The test binary is the function when it is started as Lambda starts one.
func TestMain(m *testing.M) {
	if os.Getenv("AWS_LAMBDA_RUNTIME_API") != "" {
		if os.Getenv("WEIR_TEST_ANYWHERE") != "" { // the test's own CloudFormation
			modes["provision"] = func(e env, ctx context.Context, log *slog.Logger) (any, error) {
				e.anywhere = true
				return e.provision(ctx, log)
			}
		}
		main()
		return
	}
	os.Exit(m.Run())
}

// process is a process of the function, with Lambda's side of it.
type process struct {
	t       *testing.T
	next    chan []byte
	answers chan answer
	pid     int
}

type answer struct {
	kind string // response or error
	body []byte
}

// start starts the function with an environment, and stops it when the test ends.
func start(t *testing.T, environment ...string) *process {
	t.Helper()
	f := &process{t: t, next: make(chan []byte), answers: make(chan answer, 1)}
	api := http.NewServeMux()
	n := 0
	api.HandleFunc("GET /2018-06-01/runtime/invocation/next", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case event := <-f.next:
			n++
			w.Header().Set("Lambda-Runtime-Aws-Request-Id", "invocation-"+strconv.Itoa(n))
			w.Header().Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(time.Now().Add(time.Minute).UnixMilli(), 10))
			w.Header().Set("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:us-east-1:123456789012:function:weir")
			_, _ = w.Write(event)
		}
	})
	take := func(kind string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			w.WriteHeader(http.StatusAccepted)
			f.answers <- answer{kind, body}
		}
	}
	api.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/response", take("response"))
	api.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/error", take("error"))
	srv := httptest.NewServer(api)
	t.Cleanup(srv.Close)

	self, err := os.Executable()
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = slices.Concat(environment, []string{
		"AWS_LAMBDA_RUNTIME_API=" + strings.TrimPrefix(srv.URL, "http://"), "AWS_REGION=us-east-1",
		"AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "GORACE=atexit_sleep_ms=0",
	})
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	must(t, cmd.Start())
	f.pid = cmd.Process.Pid
	t.Cleanup(func() {
		cancel()
		srv.CloseClientConnections()
		_ = cmd.Wait() // it was killed
		if t.Failed() {
			t.Logf("the function's log:\n%s", log.String())
		}
	})
	return f
}

// invoke sends an event and decodes the answer.
func invoke[T any](f *process, event any) (out T) {
	f.t.Helper()
	text, ok := event.([]byte)
	if !ok {
		var err error
		text, err = json.Marshal(event)
		must(f.t, err)
	}
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute) // real time: this starts another process
	defer cancel()
	select {
	case f.next <- text:
	case <-ctx.Done():
		f.t.Fatal("the function asks for no event")
	}
	select {
	case a := <-f.answers:
		if a.kind != "response" {
			f.t.Fatalf("%s: %s", a.kind, a.body)
		}
		must(f.t, json.Unmarshal(a.body, &out))
	case <-ctx.Done():
		f.t.Fatal("the function does not answer")
	}
	return out
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A function with an invalid environment reports it and exits.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	must(t, err)
	for _, c := range []struct{ set, want string }{
		{"WEIR_LAMBDA=refill WEIR_TABLE=t", `WEIR_LAMBDA="refill": it must be one of`},
		{"WEIR_TABLE=t", `WEIR_LAMBDA="": it must be one of`},
		{"WEIR_LAMBDA=provision", "WEIR_TABLE is not set"},
		{"WEIR_LAMBDA=provision WEIR_TABLE=t WEIR_AUDIT_RETENTION=90", `WEIR_AUDIT_RETENTION="90" is neither`},
		{"WEIR_LAMBDA=aggregate WEIR_TABLE=t WEIR_USAGE_RETENTION_DAILY=0d", `WEIR_USAGE_RETENTION_DAILY="0d" is neither`},
		{"WEIR_LAMBDA=aggregate WEIR_TABLE=t WEIR_USAGE_WINDOWS=weekly", `WEIR_USAGE_WINDOWS: "weekly" is not hourly, daily or monthly`},
		{"WEIR_LAMBDA=config WEIR_TABLE=t", "WEIR_TOPIC is not set"},
	} {
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env = append(strings.Fields(c.set), "AWS_LAMBDA_RUNTIME_API=127.0.0.1:1", "GORACE=atexit_sleep_ms=0")
		text, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(text), c.want) {
			t.Errorf("%s: %v, %s", c.set, err, fmt.Sprint(string(text)))
		}
	}
}
