package main

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/weirlimits/weir/bench/internal/harness"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
)

// zae is a Python process that runs zae-limiter, on the same engine as weir.
type zae struct {
	in  io.WriteCloser
	out *bufio.Reader
	cmd *exec.Cmd
}

func startZae(e *harness.Env) (*zae, error) {
	if e.Peers.Python == "" {
		return nil, fmt.Errorf("zae-limiter: %w: make bench-peers installs it", harness.ErrAbsent)
	}
	url, err := dynamotest.Endpoint()
	if err != nil {
		return nil, err
	}
	z := &zae{cmd: exec.CommandContext(e.Ctx, e.Peers.Python, e.Peers.Script, url, "zae-"+rand.Text())}
	z.cmd.Stderr = os.Stderr
	if z.in, err = z.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := z.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	z.out = bufio.NewReader(out)
	if err := z.cmd.Start(); err != nil {
		return nil, err
	}
	e.Defer(func() error { return errors.Join(z.in.Close(), z.cmd.Wait()) })
	return z, z.answer(&struct{ Ready bool }{})
}

// ask sends a command and reads the answer.
func (z *zae) ask(answer any, do string, args map[string]any) error {
	args["do"] = do
	line, err := json.Marshal(args)
	if err != nil {
		return err
	}
	if _, err := z.in.Write(append(line, '\n')); err != nil {
		return err
	}
	return z.answer(answer)
}

func (z *zae) answer(to any) error {
	line, err := z.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("zae-limiter's process ended: %w", err)
	}
	var trouble struct{ Broken string }
	if err := json.Unmarshal(line, &trouble); err == nil && trouble.Broken != "" {
		return errors.New("zae-limiter: " + trouble.Broken)
	}
	return json.Unmarshal(line, to)
}

func zaeShape(s shape, api string) func(*harness.Env) (harness.Drive, error) {
	return func(e *harness.Env) (harness.Drive, error) {
		z, err := startZae(e)
		if err != nil {
			return nil, err
		}
		return func(round int, length time.Duration) (harness.Sample, error) {
			var a struct {
				Ops, Failed, Calls     int
				Seconds, CPU, P50, P99 float64
			}
			err := z.ask(&a, "shape", map[string]any{
				"shape": s, "seconds": length.Seconds(), "api": api, "run": fmt.Sprintf("r%d", round),
			})
			n := float64(max(a.Ops, 1))
			return harness.Sample{
				Rate: float64(a.Ops) / a.Seconds, P50: a.P50 * 1e6, P99: a.P99 * 1e6,
				CPU: a.CPU * 1e9 / n, Calls: float64(a.Calls) / n, Ops: a.Ops, Failed: a.Failed,
			}, err
		}, nil
	}
}
