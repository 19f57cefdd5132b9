package cli_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
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
)

var update = flag.Bool("update", false, "rewrite the golden files in the scripts")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"weir": func() {
			os.Exit(cli.Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
		},
	})
}

// Each script runs the command as a user does, in a folder of its own.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		Condition:           on("disk"),
		Setup: func(env *testscript.Env) error {
			port, err := freePort()
			env.Setenv("ADDRESS", "127.0.0.1:"+port)
			log, err2 := filepath.Abs("../replay/testdata/access.log")
			env.Setenv("ACCESS_LOG", log)
			env.Setenv("GORACE", "atexit_sleep_ms=0") // else each of hundreds of commands takes a second to end
			return errors.Join(err, err2)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": exits, "request": request, "same": same, "cmp-times": cmpTimes, "cmp-history": cmpHistory, "until-locked": untilLocked,
		},
	})
}

// on returns the condition of scripts that run on several stores.
func on(store string) func(string) (bool, error) {
	return func(cond string) (bool, error) { return cond == store, nil }
}

// exits runs a program that ends with a code: exits CODE PROGRAM [ARG…].
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
	// One line, whatever happens: no usage, no traceback.
	if text := ts.ReadFile("stderr"); got != 0 && strings.Count(text, "\n") > 1 {
		ts.Fatalf("more than one line of errors")
	}
}

// request sends an HTTP request, to a server that may still be starting: request STATUS METHOD URL [BODY]. The answer
// is in the file "answer".
func request(ts *testscript.TestScript, _ bool, args []string) {
	body := ""
	if len(args) > 3 {
		body = args[3]
	}
	deadline := time.Now().Add(20 * time.Second)
	for {
		req, err := http.NewRequestWithContext(context.Background(), args[1], args[2], strings.NewReader(body))
		ts.Check(err)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			if time.Now().After(deadline) {
				ts.Fatalf("%v", err)
			}
			time.Sleep(20 * time.Millisecond) // real time: another process opens its port
			continue
		}
		text, err := io.ReadAll(resp.Body)
		ts.Check(errors.Join(err, resp.Body.Close()))
		ts.Check(os.WriteFile(ts.MkAbs("answer"), text, 0o600))
		if fmt.Sprint(resp.StatusCode) != args[0] {
			ts.Fatalf("status %s: %s", resp.Status, text)
		}
		return
	}
}

// same compares two files, or with ! demands that they differ.
func same(ts *testscript.TestScript, neg bool, args []string) {
	if equal := bytes.Equal([]byte(ts.ReadFile(args[0])), []byte(ts.ReadFile(args[1]))); equal == neg {
		ts.Fatalf("%s and %s: same is %v", args[0], args[1], equal)
	}
}

var times = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`)

// cmpTimes compares the output with a file in which TIME stands for any time.
func cmpTimes(ts *testscript.TestScript, _ bool, args []string) {
	got := times.ReplaceAllString(ts.ReadFile("stdout"), "TIME")
	if want := ts.ReadFile(args[0]); got != want {
		ts.Fatalf("output is\n%swant\n%s", got, want)
	}
}

// cmpHistory is cmpTimes in which USER stands for who it was.
func cmpHistory(ts *testscript.TestScript, _ bool, args []string) {
	got := times.ReplaceAllString(ts.ReadFile("stdout"), "TIME")
	got = regexp.MustCompile(`\tTIME\t[^\t]*`).ReplaceAllString(got, "\tTIME\tUSER")
	if want := ts.ReadFile(args[0]); got != want {
		ts.Fatalf("output is\n%swant\n%s", got, want)
	}
}

// untilLocked waits until a process in the background has the store open.
func untilLocked(ts *testscript.TestScript, _ bool, _ []string) {
	deadline := time.Now().Add(20 * time.Second)
	for ts.Exec("weir", "bucket", "list") == nil {
		if time.Now().After(deadline) {
			ts.Fatalf("nobody opens the store")
		}
		time.Sleep(20 * time.Millisecond) // real time: another process opens a file
	}
}

func freePort() (string, error) {
	ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(ln.Addr().String())
	return port, errors.Join(err, ln.Close())
}
