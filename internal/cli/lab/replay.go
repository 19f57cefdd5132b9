package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/term"
	"github.com/weirlimits/weir/internal/lab/replay"
)

// replayFlags are the flags of replay. Those that are nil have their default.
type replayFlags struct {
	Log      string            `json:"log" arg:"LOG"`
	Limits   []weir.Limit      `json:"limits" flag:"limit,l"`
	Entity   *string           `json:"entity"`
	Resource *string           `json:"resource"`
	Tokens   map[string]string `json:"tokens"`
	Format   *replay.Format    `json:"format"`
	Time     *string           `json:"time"`
	Held     *replay.Held      `json:"held"`
	Top      int               `json:"top" range:"1.." default:"10"`
	usedFlags
}

// ReplayCmd returns the command weir replay.
func ReplayCmd(a *kit.Run) *cobra.Command {
	return kit.Func(a, kit.Spec{
		Use: "replay [LOG]", Short: "Try limits on an access log or on recorded usage",
		Long: `Runs an access log through a limiter in virtual time and reports what the limits would
have done: how many requests they would have admitted and refused, which entities they
would have refused, and which limits would admit 99 % and 99.9 % of the requests.

LOG is in Apache's or nginx's combined format, or JSON with one object per line; plain or
gzipped; - reads standard input. Lines are sorted by timestamp. Each line requests 1 token
of each limit, or the number in a field if --tokens names one. Of a limit of slots, it takes one,
for as long as --held has it.

FIELD is client (the remote address), user, host, method, path, protocol, status, bytes,
referer or agent; or any key of a JSON log, such as request.headers.tenant.

With --from-usage, LOG is the CSV or JSON output of weir usage list; without LOG, usage is
read from the store. Usage records how much was spent in an hour and in its busiest
minute, but not when each request arrived, so refusals are reported as a lower and an upper
bound. --tokens NAME=RECORDED checks a limit against a recorded limit of another name.`,
		Example: `  weir replay access.log.gz --limit rpm:10/min --entity client
  weir replay app.jsonl -l rpm:60/min -l bytes:5M/min --tokens bytes=size --entity user
  weir replay app.jsonl -l parallel:20slots --entity user --held duration_ms:ms
  weir replay --from-usage --limit tpm:40K/min --target-refusals 1%`,
	}, func(ctx context.Context, q *replayFlags) error {
		if err := q.check(); err != nil {
			return err
		}
		if q.On {
			return replayUsage(ctx, a, q)
		}
		return runReplay(ctx, a, q)
	})
}

// check refuses flags that cannot be used together, and limits and tokens that do not fit together.
func (q *replayFlags) check() error {
	if err := q.checkUsed(); err != nil {
		return err
	}
	if len(q.Limits) == 0 {
		return kit.Usagef("no limit is given: add -l name:amount/period, such as -l rpm:100/min")
	}
	if err := (&admin.ScopedLimits{Scope: admin.Scope{Resource: "any"}, Limits: q.Limits}).Validate(); err != nil {
		return err
	}
	for _, l := range q.Limits {
		if l.Slots > 0 && q.Held == nil && !q.On {
			return kit.Usagef("%s is a limit of slots: add --held 2s or --held FIELD:ms, for how long they are held", l)
		}
	}
	for limit, field := range q.Tokens {
		if field == "" {
			return kit.Usagef("--tokens %q is not LIMIT=FIELD, such as tpm=bytes", limit+"=")
		}
		if !slices.ContainsFunc(q.Limits, func(l weir.Limit) bool { return l.Name == limit }) {
			return kit.Usagef("--tokens %q: there is no limit %q", limit+"="+field, limit)
		}
	}
	return nil
}

func runReplay(ctx context.Context, a *kit.Run, q *replayFlags) error {
	src, size, err := openLog(ctx, a, q.Log)
	if err != nil {
		return err
	}
	defer src.Close()
	progress := term.NewProgress(a.Err)
	read := replay.ReadConfig{Format: replay.Auto, Entity: "client", Progress: func(n int64) {
		share := -1.0
		if size > 0 {
			share = float64(n) / float64(size)
		}
		progress.Update("reading", share)
	}}
	kit.Override(&read, q)
	read.Count = slices.Compact(slices.Sorted(maps.Values(q.Tokens)))
	log, err := replay.Read(ctx, src, read)
	if err != nil {
		progress.Done()
		return fmt.Errorf("replay %s: %w", q.Log, err)
	}
	report, err := replay.Run(ctx, log, replay.Config{
		Limits: q.Limits, Tokens: q.Tokens, Top: q.Top,
		Progress: func(share float64) { progress.Update("deciding", share) },
	})
	progress.Done()
	if err != nil {
		return fmt.Errorf("replay %s: %w", q.Log, err)
	}
	return a.Print(report, func() { Show(a, report.Document(read.Entity)) })
}

// openLog opens a log and returns its size, or 0 if the size is unknown.
func openLog(ctx context.Context, a *kit.Run, name string) (io.ReadCloser, int64, error) {
	if name == "-" {
		return io.NopCloser(&interruptible{ended: ctx.Done(), src: a.In}), 0, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = kit.Usagef("%s is a folder: name a log in it", name)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// interruptible reads until an interrupt, even if no input arrives: a read from a terminal or pipe cannot be cancelled.
type interruptible struct {
	ended <-chan struct{}
	src   io.Reader
	read  chan int
	err   error
	buf   []byte
}

func (r *interruptible) Read(p []byte) (int, error) {
	if r.read == nil {
		r.read, r.buf = make(chan int, 1), make([]byte, 256<<10)
	}
	go func() {
		var n int
		n, r.err = r.src.Read(r.buf[:min(len(p), len(r.buf))])
		r.read <- n
	}()
	select {
	case <-r.ended:
		return 0, context.Canceled
	case n := <-r.read:
		return copy(p, r.buf[:n]), r.err
	}
}
