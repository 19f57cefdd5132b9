package cli_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/weirlimits/weir/internal/cli"
	"github.com/weirlimits/weir/internal/testkit/porttest"
)

var update = flag.Bool("update", false, "rewrite the golden files in the scripts")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"weir": func() {
			os.Exit(cli.Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
		},
	})
}

// params are the parameters of all scripts: each runs the command as a user would, in its own directory.
func params() testscript.Params {
	return testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		Condition:           on("disk"),
		Setup: func(env *testscript.Env) error {
			port, err := porttest.Reserve()
			env.Setenv("ADDRESS", "127.0.0.1:"+port)
			env.Setenv("PORT", port)
			env.Setenv("TURN", "\u202e") // turns the direction of writing
			env.Setenv("THIN", "\u200b") // has no width
			rpcs, err3 := porttest.Reserve()
			env.Setenv("GRPC_ADDRESS", "127.0.0.1:"+rpcs)
			env.Setenv("WEIR_SERVE_GRPC", "off")         // scripts run in parallel, and its address is fixed
			env.Setenv("WEIR_SERVE_DECIDE_WITHIN", "1s") // allows for a busy disk and the race detector
			log, err2 := filepath.Abs("../lab/replay/testdata/access.log")
			env.Setenv("ACCESS_LOG", log)
			env.Setenv("GORACE", "atexit_sleep_ms=0") // otherwise each of hundreds of commands takes a second to exit
			return errors.Join(err, err2, err3)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": exits, "as": as, "request": request, "request-as": requestAs, "eventually": eventually, "grpc-acquire": grpcAcquire, "envoy-ask": envoyAsk, "same": same, "cmp-times": cmpTimes, "cmp-explain": cmpExplain, "cmp-history": cmpHistory, "until-locked": untilLocked,
		},
	}
}

func TestScripts(t *testing.T) {
	t.Parallel()
	p := params()
	if testing.Short() {
		p.Dir, p.Files = "", briefly(t)
	}
	testscript.Run(t, p)
}

// briefly returns the scripts in which several goroutines or processes work at once.
func briefly(t *testing.T) (files []string) {
	t.Helper()
	for _, pattern := range []string{"serve*", "slots", "load", "rollout", "torture", "wait"} {
		found, err := filepath.Glob(filepath.Join("testdata", "script", pattern+".txtar"))
		if err != nil || len(found) == 0 {
			t.Fatalf("no script %s: %v", pattern, err)
		}
		files = append(files, found...)
	}
	return files
}

// on returns the condition for scripts that run on several stores.
func on(store string) func(string) (bool, error) {
	return func(cond string) (bool, error) { return cond == store, nil }
}

var inFolder = regexp.MustCompile(`(?m)^(weir: weir.yaml of the current folder sets|time=\S+ level=INFO) .*\n`)

// exits runs a program that must exit with a code: exits CODE PROGRAM [ARG…].
func exits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
	// One line, whatever happens: no usage, no traceback. Others show that a file of the folder counts, or are of a log.
	if text := inFolder.ReplaceAllString(ts.ReadFile("stderr"), ""); got != 0 && strings.Count(text, "\n") > 1 {
		ts.Fatalf("more than one line of errors")
	}
}

// as gives commands the token in a file: as FILE.
func as(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv("WEIR_TOKEN", strings.TrimSpace(ts.ReadFile(args[0])))
}

// request sends an HTTP request to a server that may still be starting: request STATUS METHOD URL [BODY [FILE]], with the
// token in a file. The answer is written to the file "answer".
func request(ts *testscript.TestScript, _ bool, args []string) {
	if got, text := ask(ts, args[1:]); got != args[0] {
		ts.Fatalf("status %s: %s", got, text)
	}
}

// requestAs is request with a Host: request-as STATUS HOST METHOD URL [BODY [FILE]].
func requestAs(ts *testscript.TestScript, _ bool, args []string) {
	if got, text := askAs(ts, args[1], args[2:]); got != args[0] {
		ts.Fatalf("status %s: %s", got, text)
	}
}

// eventually repeats a request until the status is as expected.
func eventually(ts *testscript.TestScript, _ bool, args []string) {
	deadline := time.Now().Add(time.Minute)
	for {
		got, text := ask(ts, args[1:])
		switch {
		case got == args[0]:
			return
		case time.Now().After(deadline):
			ts.Fatalf("status %s: %s", got, text)
		}
		time.Sleep(50 * time.Millisecond) // real time: another process looks at a file
	}
}

// ask returns the status and body of the answer to METHOD URL [BODY [FILE]].
func ask(ts *testscript.TestScript, args []string) (status string, text []byte) {
	return askAs(ts, "", args)
}

func askAs(ts *testscript.TestScript, host string, args []string) (status string, text []byte) {
	body, token := "", ""
	if len(args) > 2 {
		body = args[2]
	}
	if len(args) > 3 {
		token = strings.TrimSpace(ts.ReadFile(args[3]))
	}
	deadline := time.Now().Add(time.Minute)
	for {
		req, err := http.NewRequestWithContext(context.Background(), args[0], args[1], strings.NewReader(body))
		ts.Check(err)
		req.Host = host
		req.Header.Set("Content-Type", "application/json")
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			if time.Now().After(deadline) {
				ts.Fatalf("%v", err)
			}
			time.Sleep(20 * time.Millisecond) // real time: another process opens its port
			continue
		}
		text, err = io.ReadAll(resp.Body)
		ts.Check(errors.Join(err, resp.Body.Close()))
		ts.Check(os.WriteFile(ts.MkAbs("answer"), text, 0o600))
		return strconv.Itoa(resp.StatusCode), text
	}
}

// same compares two files, or with ! requires that they differ.
func same(ts *testscript.TestScript, neg bool, args []string) {
	if equal := bytes.Equal([]byte(ts.ReadFile(args[0])), []byte(ts.ReadFile(args[1]))); equal == neg {
		ts.Fatalf("%s and %s: same is %v", args[0], args[1], equal)
	}
}

var times = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`)

// cmpTimes compares the output with a file in which TIME matches any time.
func cmpTimes(ts *testscript.TestScript, _ bool, args []string) {
	got := times.ReplaceAllString(ts.ReadFile("stdout"), "TIME")
	if want := ts.ReadFile(args[0]); got != want {
		ts.Fatalf("output is\n%swant\n%s", got, want)
	}
}

// cmpExplain compares an explanation with a file in which TIME, DAY, N and USER match values that vary.
func cmpExplain(ts *testscript.TestScript, _ bool, args []string) {
	got := ts.ReadFile("stdout")
	for _, r := range []struct{ pattern, with string }{
		{`(in) [0-9hms.]+\b`, "$1 TIME"},
		{` of \d{4}-\d\d-\d\d by [^,\n]*`, " of DAY by USER"},
		{`, \d+ left`, ", N left"},
		{`used  \d{4,} of (\d{5})`, "used  N of $1"},
		{`leave \d{5} after`, "leave N after"},
	} {
		got = regexp.MustCompile(r.pattern).ReplaceAllString(got, r.with)
	}
	if want := ts.ReadFile(args[0]); got != want {
		ts.Fatalf("output is\n%swant\n%s", got, want)
	}
}

// cmpHistory is cmpTimes in which USER also matches the user name.
func cmpHistory(ts *testscript.TestScript, _ bool, args []string) {
	got := times.ReplaceAllString(ts.ReadFile("stdout"), "TIME")
	got = regexp.MustCompile(`\tTIME\t[^\t]*`).ReplaceAllString(got, "\tTIME\tUSER")
	if want := ts.ReadFile(args[0]); got != want {
		ts.Fatalf("output is\n%swant\n%s", got, want)
	}
}

// untilLocked waits until a process in the background has opened the store.
func untilLocked(ts *testscript.TestScript, _ bool, _ []string) {
	deadline := time.Now().Add(time.Minute)
	for ts.Exec("weir", "bucket", "list") == nil {
		if time.Now().After(deadline) {
			ts.Fatalf("nobody opens the store")
		}
		time.Sleep(20 * time.Millisecond) // real time: another process opens a file
	}
}
