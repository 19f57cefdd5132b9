package torture

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"

	"github.com/weirlimits/weir/store"
)

// message is what a process reports: a call, or that it has carried out an order.
type message struct {
	Record *Record `json:"record,omitempty"`
	Done   *done   `json:"done,omitempty"`
}

type done struct {
	Failed float64 `json:"failed"` // writes of the store without an answer, so far
	Err    string  `json:"err,omitempty"`
}

// hand is the master's handle on a worker.
type hand interface {
	// do makes the worker carry out an order. killed means that it is dead, and what it did may be unknown.
	do(ctx context.Context, o order, tell func(*Record) error) (failed float64, killed bool, err error)
	// kill kills the worker, if possible.
	kill() bool
	close() error
}

// local is a worker in this process.
type local struct{ *worker }

func (l local) do(ctx context.Context, o order, tell func(*Record) error) (float64, bool, error) {
	w := l.worker
	w.tell = tell
	err := w.do(ctx, o)
	return w.failedWrites(), false, err
}

func (local) kill() bool     { return false }
func (l local) close() error { return l.worker.close() }

// remote is a worker in its own process.
type remote struct {
	cmd *exec.Cmd
	in  *json.Encoder
	end io.Closer
	out *json.Decoder
}

// start starts a process.
func start(cmd *exec.Cmd, s setup) (*remote, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r := &remote{cmd: cmd, in: json.NewEncoder(in), end: in, out: json.NewDecoder(bufio.NewReaderSize(out, 1<<16))}
	if err := r.in.Encode(s); err != nil {
		return nil, errors.Join(err, r.close())
	}
	var m message // reports that the store is open
	if err := r.out.Decode(&m); err != nil {
		return nil, errors.Join(fmt.Errorf("process %d did not start: %w", s.Process, err), r.close())
	}
	if m.Done != nil && m.Done.Err != "" {
		return nil, errors.Join(fmt.Errorf("process %d: %s", s.Process, m.Done.Err), r.close())
	}
	return r, nil
}

func (r *remote) do(ctx context.Context, o order, tell func(*Record) error) (float64, bool, error) {
	if err := r.in.Encode(o); err != nil {
		return 0, true, ctx.Err()
	}
	stop := context.AfterFunc(ctx, func() { r.kill() })
	defer stop()
	for {
		var m message
		switch err := r.out.Decode(&m); {
		case err != nil: // usually in the middle of a line
			return 0, true, ctx.Err()
		case m.Record != nil:
			if err := tell(m.Record); err != nil {
				return 0, false, err
			}
		case m.Done != nil && m.Done.Err != "":
			return m.Done.Failed, false, errors.New(m.Done.Err)
		case m.Done != nil:
			return m.Done.Failed, false, nil
		}
	}
}

func (r *remote) kill() bool { return r.cmd.Process.Kill() == nil }

func (r *remote) close() error {
	_ = r.end.Close() // makes it exit
	t := time.AfterFunc(2*patience, func() { _ = r.cmd.Process.Kill() })
	defer t.Stop()
	_ = r.cmd.Wait()
	return nil
}

// Work is the main loop of a process started by [Run]: it reads orders and reports the results.
func Work(ctx context.Context, in io.Reader, out io.Writer, open Opener) error {
	dec := json.NewDecoder(in)
	var (
		mu sync.Mutex
		b  = bufio.NewWriter(out)
	)
	say := func(m message) error {
		mu.Lock()
		defer mu.Unlock()
		if err := json.NewEncoder(b).Encode(m); err != nil {
			return err
		}
		return b.Flush() // at once: a call made but not reported would be unknown to the master, not in doubt
	}
	var s setup
	if err := dec.Decode(&s); err != nil {
		return fmt.Errorf("read the setup: %w", err)
	}
	w, err := s.open(open, func(r *Record) error { return say(message{Record: r}) })
	if err != nil {
		return say(message{Done: &done{Err: err.Error()}})
	}
	if err := say(message{Done: &done{}}); err != nil {
		return err
	}
	for {
		var o order
		if err := dec.Decode(&o); err != nil {
			return w.close()
		}
		d := &done{}
		if err := w.do(ctx, o); err != nil {
			d.Err = err.Error()
		}
		d.Failed = w.failedWrites()
		if err := say(message{Done: d}); err != nil {
			return err
		}
	}
}

// open creates a worker with its own store.
func (s setup) open(open Opener, tell func(*Record) error) (*worker, error) {
	var now func() time.Time
	if s.Skew != 0 {
		now = ahead(s.Skew)
	}
	st, err := open(now, false)
	if err != nil {
		return nil, err
	}
	if !s.Frugal {
		return newWorker(s, tell, st)
	}
	frugal, err := open(now, true)
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	return newWorker(s, tell, st, frugal)
}

// failedWrites returns how many writes of a store had no answer, if the store counts them: what they debited may be
// debited twice.
func failedWrites(s store.Store) float64 {
	measured, ok := s.(store.Measured)
	if !ok {
		return 0
	}
	for _, m := range measured.Measures() {
		if m.Name == "writes_failed" {
			return m.Value
		}
	}
	return 0
}
