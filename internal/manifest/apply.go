package manifest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest/gates"
)

// ApplyOptions define how to apply a plan.
type ApplyOptions struct {
	// Adopt allows taking over records that no manifest manages.
	Adopt bool
	// Keep skips deletions. The records stay managed, so a later plan shows the deletions again.
	Keep bool
	// Rate is the maximum number of records written per second. 0 means no limit.
	Rate int
	// Wait is how long to wait for another process that is applying the same manifest.
	Wait time.Duration
	// Waiting is called once with the lock that is waited for.
	Waiting func(*admin.LockedError)
	// Rollback is the earlier revision whose manifest is applied; 0 for none.
	Rollback int
	// Summary is stored with the revision. The default is the revision rolled back to, or the counts.
	Summary string
	// Progress is called with the number of changes done.
	Progress func(done, total int)
}

// Result is what was applied.
type Result struct {
	Namespace        string    `json:"namespace"`
	Manifest         string    `json:"manifest"`
	CreatedNamespace bool      `json:"created_namespace,omitempty"`
	Created          int       `json:"created"`
	Updated          int       `json:"updated"`
	Deleted          int       `json:"deleted"`
	Adopted          int       `json:"adopted"`
	Moved            int       `json:"moved,omitempty"`
	Released         int       `json:"released,omitempty"`
	Kept             int       `json:"kept,omitempty"` // not deleted, as requested
	Unchanged        int       `json:"unchanged"`
	Failed           []Failure `json:"failed,omitempty"`
	Revision         int       `json:"revision,omitempty"` // the one in force; 0 if none was ever fully applied
}

// Failure is a change that was not made, or for which the store did not answer.
type Failure struct {
	Target string `json:"target"`
	Action Action `json:"action"`
	Error  string `json:"error"`
	err    error
}

// FailedError reports that some changes were not made; the manifest is not recorded as applied. Applying again
// continues.
type FailedError struct {
	Failed, Total int
	first         Failure
}

// Error counts the failures and describes the first.
func (e *FailedError) Error() string {
	return fmt.Sprintf(
		"%d of %d changes failed, the others were made; first failure: %s %s: %s; apply again to continue",
		e.Failed, e.Total, e.first.Action, e.first.Target, e.first.Error)
}

// Unwrap returns why the first change failed.
func (e *FailedError) Unwrap() error { return e.first.err }

const (
	lockTTL  = 6 * gates.Every
	batch    = 40 // changes in one store operation, each with its audit event
	parallel = 4
)

// Apply makes the live records match the plan's manifest. A record that changed since the plan was made fails; the
// others are applied. A plan without changes writes nothing.
//
// If it stops half-way, the changes made so far stay; planning and applying again does the rest. It ends a rollout of
// another version of the manifest; while one of this version is unfinished, the error is an [*UnfinishedError].
func Apply(ctx context.Context, lim *weir.Limiter, p *Plan, opts ApplyOptions) (Result, error) {
	lim = lim.In(p.Namespace)
	res, todo, err := p.todo(opts)
	if err != nil {
		return res, err
	}
	if p.CreateNamespace {
		_, err := admin.New(lim).Namespaces.Create(ctx, p.Namespace)
		if err != nil && !errors.Is(err, weir.ErrExists) {
			return res, err
		}
		res.CreatedNamespace = err == nil
	}
	same := p.Last.Hash == p.Hash || p.Last.Revision == 0 && len(p.manifest.Records) == 0
	if len(todo) == 0 && p.Rollout == nil && same {
		return res, nil
	}
	lock, err := takeLock(ctx, lim, p, opts)
	if err != nil {
		return res, err
	}
	left, err := ongoing(lock.Rollout(), p.Manifest, p.Hash)
	if err == nil && left != nil && left.Same {
		err = &UnfinishedError{p.Manifest, left.Ongoing}
	}
	if err != nil {
		return res, errors.Join(err, lock.Release(ctx))
	}
	return p.applyWith(ctx, lim, lock, res, todo, opts)
}

// todo returns the changes to make.
func (p *Plan) todo(opts ApplyOptions) (res Result, todo []*Change, err error) {
	res = Result{Namespace: p.Namespace, Manifest: p.Manifest, Unchanged: p.Unchanged, Revision: p.Last.Revision}
	for i := range p.Changes {
		switch c := &p.Changes[i]; {
		case c.Action == Adopt && !opts.Adopt:
			return res, nil, p.unadopted()
		case c.Action == Delete && opts.Keep:
			res.Kept++
		case c.Refused != "":
			return res, nil, ProblemsError{c.Target + ": " + c.Refused}
		default:
			todo = append(todo, c)
		}
	}
	return res, todo, nil
}

// applyWith makes the changes, records the revision and releases the lock.
func (p *Plan) applyWith(
	ctx context.Context, lim *weir.Limiter, lock *admin.ManifestLock, res Result, todo []*Change, opts ApplyOptions,
) (Result, error) {
	a := &applier{lim: lim, lock: lock, opts: opts, res: &res, total: len(todo)}
	err := p.list(ctx, lock, todo, false)
	if err == nil {
		err = a.run(ctx, todo)
	}
	if err == nil && len(res.Failed) > 0 {
		err = &FailedError{len(res.Failed), len(todo), res.Failed[0]}
	}
	if err != nil {
		_ = unlock(ctx, lock) // the earlier error is the one to report
		return res, err
	}
	if err := p.list(ctx, lock, todo, true); err != nil {
		return res, errors.Join(err, lock.Release(ctx))
	}
	rev := admin.Revision{Hash: p.Hash, Summary: cmp.Or(opts.Summary, res.summary(opts.Rollback))}
	rev, err = lock.Record(ctx, rev, p.manifest.Source())
	if err == nil {
		res.Revision = rev.Revision
	}
	return res, err
}

// unlock releases the lock even if ctx is done, but does not wait forever.
func unlock(ctx context.Context, lock *admin.ManifestLock) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return lock.Release(ctx)
}

// list lists what the manifest manages: before the changes with what they add, and once they are done without what they
// removed.
func (p *Plan) list(ctx context.Context, lock *admin.ManifestLock, todo []*Change, done bool) error {
	managed, err := lock.Managed(ctx)
	if err != nil {
		return err
	}
	all := make(map[Key]bool)
	for _, id := range managed {
		all[Key(id)] = true
	}
	for _, k := range p.managed {
		all[k] = true
	}
	for _, c := range todo {
		if all[c.key] = true; done && (c.after == nil || c.Action == Release) {
			delete(all, c.key)
		}
	}
	ids := make([]admin.RecordID, 0, len(all))
	for _, k := range keysOf(all) {
		ids = append(ids, admin.RecordID(k))
	}
	return lock.SetManaged(ctx, ids)
}

// unadopted returns the error that adopting records needs consent.
func (p *Plan) unadopted() error {
	n := p.Count(Adopt)
	for i := range p.Changes {
		if c := &p.Changes[i]; c.Action == Adopt {
			return &weir.ConfigError{Field: "adopt", Reason: fmt.Sprintf(
				"%d of the declared records already exist and no manifest manages them, such as %s: adopt them, or "+
					"remove them from the manifest", n, c.key)}
		}
	}
	return nil
}

func (r *Result) summary(rollback int) string {
	if rollback > 0 {
		return fmt.Sprintf("rollback to revision %d", rollback)
	}
	parts := []string{fmt.Sprintf("%d created, %d updated, %d deleted", r.Created, r.Updated, r.Deleted)}
	for _, more := range []struct {
		n    int
		what string
	}{{r.Adopted, "adopted"}, {r.Moved, "moved"}, {r.Released, "released"}, {r.Kept, "kept"}} {
		if more.n > 0 {
			parts = append(parts, fmt.Sprint(more.n, " ", more.what))
		}
	}
	return strings.Join(parts, ", ")
}

// ErrNotBegun matches the error of an apply that another one got ahead of, before this one changed anything.
var ErrNotBegun = errors.New("nothing was changed")

// takeLock waits for another process that is applying the manifest. Its changes make this plan outdated. The errors
// match [ErrNotBegun].
func takeLock(ctx context.Context, lim *weir.Limiter, p *Plan, opts ApplyOptions) (_ *admin.ManifestLock, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w; %w", err, ErrNotBegun)
		}
	}()
	until := time.Now().Add(opts.Wait)
	for told := false; ; told = true {
		lock, err := admin.New(lim).Manifests.Lock(ctx, p.Manifest, lockTTL)
		var held *admin.LockedError
		switch {
		case errors.As(err, &held) && time.Now().Before(until):
			if opts.Waiting != nil && !told {
				opts.Waiting(held)
			}
			if err := gates.Sleep(ctx, min(time.Second, time.Until(held.Until)+10*time.Millisecond)); err != nil {
				return nil, err
			}
			continue
		case err != nil:
			return nil, err
		case lock.Last().Revision != p.Last.Revision:
			err := fmt.Errorf("manifest %q was applied by %s after the plan was made: plan again: %w", p.Manifest,
				lock.Last().By, weir.ErrConflict)
			return nil, errors.Join(err, lock.Release(ctx))
		}
		if err := p.givable(ctx, lim); err != nil {
			return nil, errors.Join(err, lock.Release(ctx))
		}
		return lock, nil
	}
}

// applier makes changes in steps, some at a time.
type applier struct {
	lim   *weir.Limiter
	lock  *admin.ManifestLock
	opts  ApplyOptions
	total int

	mu   sync.Mutex
	res  *Result
	done int
}

// run makes the changes phase by phase. Changes of one phase do not depend on each other.
func (a *applier) run(ctx context.Context, todo []*Change) error {
	a.progress(0)
	began, extended, given := time.Now(), time.Now(), 0
	// Waiting until the next step may start takes less than a third of the time that the lock lasts.
	size := min(batch, cmp.Or(min(a.opts.Rate, batch), batch)*int(lockTTL/time.Second)/3)
	// ready waits until the rate allows more changes to start, and keeps the lock.
	ready := func() error {
		due := began
		if a.opts.Rate > 0 {
			due = began.Add(time.Duration(given) * time.Second / time.Duration(a.opts.Rate))
		}
		if err := gates.Sleep(ctx, time.Until(due)); err != nil || time.Since(extended) <= lockTTL/3 {
			return err
		}
		extended = time.Now()
		return a.lock.Extend(ctx)
	}
	for len(todo) > 0 {
		n := 1
		for n < len(todo) && todo[n].phase == todo[0].phase {
			n++
		}
		var err error
		var running errgroup.Group
		running.SetLimit(parallel)
		for step := range slices.Chunk(todo[:n], size) {
			if err = ready(); err != nil {
				break
			}
			given += len(step)
			running.Go(func() error {
				a.step(ctx, step)
				return nil
			})
		}
		if _ = running.Wait(); err != nil { // steps record their own failures
			return err
		}
		todo = todo[n:]
	}
	return ctx.Err()
}

// declared returns the change as the store makes it.
func (c *Change) declared(manifest string) admin.DeclaredChange {
	change := admin.DeclaredChange{Before: c.before}
	switch {
	case c.Action == Release:
		change.After = *c.after
	case c.after != nil:
		change.After = marked(*c.after, manifest)
	}
	return change
}

func (a *applier) step(ctx context.Context, step []*Change) {
	changes := make([]admin.DeclaredChange, len(step))
	for i, c := range step {
		changes[i] = c.declared(a.lock.Last().Manifest)
	}
	errs := admin.New(a.lim).Manifests.Declare(ctx, changes)
	a.mu.Lock()
	for i, err := range errs {
		switch c := step[i]; {
		case err != nil:
			a.res.Failed = append(a.res.Failed, Failure{c.key.String(), c.Action, err.Error(), err})
		case c.Action == Create:
			a.res.Created++
		case c.Action == Update:
			a.res.Updated++
		case c.Action == Delete:
			a.res.Deleted++
		case c.Action == Move:
			a.res.Moved++
		case c.Action == Release:
			a.res.Released++
		default:
			a.res.Adopted++
		}
	}
	a.mu.Unlock()
	a.progress(len(step))
}

func (a *applier) progress(n int) {
	if a.opts.Progress == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.done += n
	a.opts.Progress(a.done, a.total)
}
