package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/replay"
	"github.com/weirlimits/weir/internal/term"
)

// replayFlags are the flags of replay.
type replayFlags struct {
	limits []string
	tokens []string
	format string
	read   replay.ReadConfig
	run    replay.Config
	used   usedFlags
}

func (a *app) replayCmd() *cobra.Command {
	var flags replayFlags
	cmd := &cobra.Command{
		Use:   "replay LOG",
		Short: "Try limits on an access log, or on recorded usage",
		Long: `Runs an access log through a limiter in virtual time and reports what these limits would
have done: what was admitted and refused, whom it would have hit, and what the limits
would have to be for 99 % and 99.9 % of the requests to pass.

LOG is in Apache's or nginx's combined format, or JSON with one object a line; plain or
gzip; - reads standard input. It is sorted by its time stamps. Each line asks for 1 of
each limit, or for the number in a field where --tokens says so.

FIELD is client (the remote address), user, host, method, path, protocol, status, bytes,
referer or agent; or any key of a JSON log, such as request.headers.tenant.

With --from-usage, LOG is what weir usage list has written in CSV or JSON, or is left out:
then the store is asked. Usage says how much was spent in an hour and in its busiest
minute, not when each request came: what would have been refused is told as at least so
much and at most so much. --tokens NAME=RECORDED holds a limit against a recorded one of
another name.`,
		Example: `  weir replay access.log.gz --limit rpm:10/min --entity client
  weir replay app.jsonl -l rpm:60/min -l bytes:5M/min --tokens bytes=size --entity user
  weir replay --from-usage --limit tpm:40K/min --target-refusals 1%`,
		Args: func(cmd *cobra.Command, names []string) error {
			if flags.used.on && len(names) == 0 {
				return nil
			}
			return args("LOG")(cmd, names)
		},
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := flags.used.check(cmd, names); err != nil {
				return err
			}
			if flags.used.on {
				return a.replayUsage(cmd, names, flags)
			}
			return a.replay(cmd.Context(), names[0], flags)
		},
	}
	f := cmd.Flags()
	limitFlag(cmd, &flags.limits, "to try")
	f.StringVar(&flags.read.Entity, "entity", "client", "`FIELD` that names who asks")
	f.StringVar(&flags.read.Resource, "resource", "", "`FIELD` that names what is asked for; not set: one resource")
	f.StringArrayVar(&flags.tokens, "tokens", nil, "`LIMIT=FIELD`: debit the limit the number in this field; can be repeated")
	f.StringVar(&flags.format, "format", "auto", "`FORMAT` of the log: auto, combined or json")
	f.StringVar(&flags.read.Time, "time", "", "`FIELD` of the time in a JSON log; not set: time, ts, timestamp or @timestamp")
	f.IntVar(&flags.run.Top, "top", 10, "report `N` of the most refused")
	flags.used.add(cmd)
	return cmd
}

func (f *replayFlags) parse() (err error) {
	if f.run.Limits, err = someLimits(f.limits); err != nil {
		return err
	}
	if f.run.Top < 1 {
		return usageError{fmt.Errorf("--top %d must be at least 1", f.run.Top)}
	}
	f.read.Format = replay.Format(f.format)
	f.run.Tokens = make(map[string]string)
	for _, text := range f.tokens {
		limit, field, ok := strings.Cut(text, "=")
		if !ok || limit == "" || field == "" {
			return usageError{fmt.Errorf("--tokens %q is not LIMIT=FIELD, as in tpm=bytes", text)}
		}
		if !slices.ContainsFunc(f.run.Limits, func(l weir.Limit) bool { return l.Name == limit }) {
			return usageError{fmt.Errorf("--tokens %q: no limit is called %q", text, limit)}
		}
		f.run.Tokens[limit] = field
		if !slices.Contains(f.read.Count, field) {
			f.read.Count = append(f.read.Count, field)
		}
	}
	return nil
}

func (a *app) replay(ctx context.Context, name string, flags replayFlags) error {
	if err := flags.parse(); err != nil {
		return err
	}
	src, size, err := a.openLog(ctx, name)
	if err != nil {
		return err
	}
	defer src.Close()
	progress := term.NewProgress(a.err)
	flags.read.Progress = func(n int64) {
		share := -1.0
		if size > 0 {
			share = float64(n) / float64(size)
		}
		progress.Update("reading", share)
	}
	flags.run.Progress = func(share float64) { progress.Update("deciding", share) }
	log, err := replay.Read(ctx, src, flags.read)
	if err != nil {
		progress.Done()
		return fmt.Errorf("replay %s: %w", name, err)
	}
	report, err := replay.Run(ctx, log, flags.run)
	progress.Done()
	if err != nil {
		return fmt.Errorf("replay %s: %w", name, err)
	}
	return a.print(report, func() { a.printReport(report, flags.read.Entity) })
}

// openLog returns a log and its size, 0 if that is not known.
func (a *app) openLog(ctx context.Context, name string) (io.ReadCloser, int64, error) {
	if name == "-" {
		return io.NopCloser(&interruptible{ended: ctx.Done(), src: a.in}), 0, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = usageError{fmt.Errorf("%s is a folder: name a log in it", name)}
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// interruptible reads until an interrupt, also where nothing comes: a read from a terminal or pipe cannot be called off.
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

func (a *app) printReport(r *replay.Report, entity string) {
	count := func(n int) string { return a.out.Count(int64(n)) }
	pairs := []string{
		"limits", join(r.Limits, " "),
		"from", second(r.From),
		"to", second(r.To),
		"requests", count(r.Requests),
		"admitted", fmt.Sprintf("%s (%.2f %%)", count(r.Admitted), r.AdmittedPercent),
		"refused", fmt.Sprintf("%s (%.2f %%)", count(r.Refused), 100-r.AdmittedPercent),
	}
	if len(r.Limits) > 1 {
		for _, by := range r.RefusedBy {
			pairs = append(pairs, "  by "+by.Limit, count(by.Refused))
		}
	}
	if r.TooLarge > 0 {
		pairs = append(pairs, "  too large", count(r.TooLarge)+" (more than a burst: never to pass)")
	}
	pairs = append(pairs, "entities", fmt.Sprintf("%s by %s, of which %s were refused", count(r.Entities), entity, count(r.RefusedEntities)))
	if r.OutOfOrder > 0 {
		pairs = append(pairs, "out of order", count(r.OutOfOrder)+" lines, sorted by time")
	}
	if r.Malformed > 0 {
		pairs = append(pairs, "malformed", fmt.Sprintf("%s of %s lines, not counted above", count(r.Malformed), count(r.Lines)))
	}
	a.out.Pairs(pairs...)
	for _, bad := range r.MalformedFirst {
		a.out.Println("  line", bad.Line, term.Clean(bad.Reason))
	}
	if r.Refused > 0 {
		a.printRefused(r)
	}
	a.printNeeded(r)
}

func (a *app) printRefused(r *replay.Report) {
	t := &term.Table{Header: []string{"MOST REFUSED", "REQUESTS", "REFUSED"}, Right: []int{1, 2}}
	for _, e := range r.MostRefused {
		t.Row(e.Entity, a.out.Count(int64(e.Requests)), a.out.Count(int64(e.Refused)))
	}
	a.out.Println()
	a.out.Table(t)

	a.out.Println()
	if a.out.Terminal {
		values := make([]float64, len(r.Intervals))
		for i, in := range r.Intervals {
			values[i] = float64(in.Refused)
		}
		a.out.Println(a.out.Bold("REFUSED IN EACH " + strings.ToUpper(interval(r.IntervalSeconds))))
		a.out.Chart(values, second(r.Intervals[0].Start), second(r.To))
		return
	}
	t = &term.Table{Header: []string{"FROM, FOR " + strings.ToUpper(interval(r.IntervalSeconds)), "REQUESTS", "REFUSED"}, Right: []int{1, 2}}
	for _, in := range r.Intervals {
		t.Row(second(in.Start), a.out.Count(int64(in.Requests)), a.out.Count(int64(in.Refused)))
	}
	a.out.Table(t)
}

// printNeeded says what each limit would have to be, on its own.
func (a *app) printNeeded(r *replay.Report) {
	t := &term.Table{Header: []string{"TO ADMIT", "SET", "ADMITTED"}, Right: []int{0, 2}}
	for _, n := range r.Needed {
		set := "no limit of " + n.Name + " is large enough"
		if n.Limit != nil {
			set = n.Limit.String()
		}
		t.Row(fmt.Sprintf("%g %%", n.Percent), set, a.out.Count(int64(n.Admitted)))
	}
	a.out.Println()
	a.out.Table(t)
	if a.out.Terminal {
		note := "The smallest amount that admits so many, its burst scaled alike."
		if len(r.Limits) > 1 {
			note = "The smallest amount that admits so many if this were the only limit, its burst scaled alike."
		}
		a.out.Println(a.out.Faint(note))
	}
}

func join(limits []weir.Limit, sep string) string {
	texts := make([]string, len(limits))
	for i, l := range limits {
		texts[i] = l.String()
	}
	return strings.Join(texts, sep)
}

// second writes a time of a log, which seldom has more than seconds.
func second(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// interval names a stretch of time: "5 minutes", "hour".
func interval(sec int64) string {
	d := time.Duration(sec) * time.Second
	for _, u := range []struct {
		length time.Duration
		name   string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}} {
		if n := d / u.length; n > 0 && d%u.length == 0 {
			if n == 1 {
				return u.name
			}
			return fmt.Sprintf("%d %ss", n, u.name)
		}
	}
	return d.String()
}
