package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// verdict is the result of a go test run.
type verdict struct {
	passed  bool
	unbuilt bool   // something did not compile
	ran     int    // tests and subtests started
	failed  bool   // a package failed after it was built
	by      string // the first test that failed
	tail    string // the end of the output
}

// crash is reported if a package fails without a failing test.
const crash = "crash or leak"

// killed returns nil if the tests detected a mutant, and otherwise why that is not certain.
func (v verdict) killed() error {
	switch {
	case v.passed:
		return errors.New("survived")
	case v.unbuilt:
		return fmt.Errorf("does not compile\n%s", v.tail)
	case v.ran == 0 || !v.failed:
		return fmt.Errorf("failed before any test ran\n%s", v.tail)
	default:
		return nil
	}
}

// sound returns nil if tests ran and passed, as they must on the unmodified tree.
func (v verdict) sound() error {
	switch {
	case !v.passed:
		return fmt.Errorf("fails without the mutant\n%s", v.tail)
	case v.ran == 0:
		return errors.New("names no test")
	default:
		return nil
	}
}

// goTest runs tests on the tree in a directory. Paths are trimmed so that all copies of the tree share the build
// cache; vet is off, because the tests must find the mutant.
func goTest(ctx context.Context, dir string, args []string) (verdict, error) {
	cmd := exec.CommandContext(
		ctx, "go", append([]string{"test", "-json", "-count=1", "-trimpath", "-vet=off", "-timeout=2m"}, args...)...,
	)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // lets it stop the tests that it started
	cmd.WaitDelay = 5 * time.Second
	var events, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &events, &complaint
	err := cmd.Run()
	if ctx.Err() != nil {
		return verdict{}, context.Cause(ctx)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return verdict{}, err
	}
	v, readErr := judge(&events)
	v.passed = err == nil
	v.tail = strings.TrimRight(v.tail+complaint.String(), "\n")
	return v, readErr
}

// judge reads the events of go test -json.
func judge(r io.Reader) (verdict, error) {
	var (
		v       = verdict{by: crash}
		printed []string
	)
	for dec := json.NewDecoder(r); ; {
		var e struct{ Action, Test, Output, FailedBuild string }
		if err := dec.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return v, fmt.Errorf("go test -json: %w", err)
		}
		switch {
		case e.Action == "run":
			v.ran++
		case e.Action == "build-fail", e.FailedBuild != "":
			v.unbuilt = true
		case e.Action == "fail" && e.Test == "":
			v.failed = true
		case e.Action == "fail" && v.by == crash:
			v.by = e.Test
		case e.Action == "output", e.Action == "build-output":
			printed = append(printed, "\t"+e.Output)
		}
	}
	v.tail = strings.Join(printed[max(0, len(printed)-20):], "")
	return v, nil
}
