package manifest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest/gates"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
)

// Terms are how a rollout proceeds. They are stored with it, so that any process can continue it.
type Terms struct {
	// Stages are the percentages of entities to which the tightening changes apply in turn: ascending, from 1 to 99.
	// At the end they apply to all, and the rest of the plan is applied.
	Stages []int `json:"stages"`
	// Bake is how long each stage is watched before the next begins, in nanoseconds in JSON.
	Bake time.Duration `json:"bake"`
	// AbortOn, GateURL and Servers are for those who make the gate.
	AbortOn string   `json:"abort_on,omitempty"`
	GateURL string   `json:"gate,omitempty"`
	Servers []string `json:"servers,omitempty"`
}

// RolloutOptions define how to apply a plan in stages.
type RolloutOptions struct {
	ApplyOptions
	// Terms are those of a new rollout, or from now on those of one that goes on; nil for those that it has.
	Terms *Terms
	// Step, if not nil, is what to make of the rollout now.
	Step *Step
	// Gate returns what decides whether to begin a stage, and whether to continue.
	Gate func(context.Context, Terms) (gates.Gate, error)
	// Staging is called when a stage begins, with the number of records in it.
	Staging func(t Terms, percent, records int)
}

// Step is a part of a rollout by itself, for a caller that watches the stages and has no access to the store.
type Step struct {
	Percent int    `json:"percent"`         // the stage, which stays in force; 100 ends the rollout
	Begun   bool   `json:"begun,omitempty"` // the rollout must have been begun
	Abort   string `json:"abort,omitempty"` // if not "", why to restore everything as it was instead
	Terms   Terms  `json:"terms"`
}

// StoppedError reports that a rollout was stopped, and whether everything was restored.
type StoppedError struct {
	Percent int   // the stage
	Err     error // why
	Restore error // nil: everything is as it was
}

// Error returns the reason, and what to do.
func (e *StoppedError) Error() string {
	if e.Restore != nil {
		return fmt.Sprintf("stopped at %d%%: %s; not all changes were rolled back: %s; apply what is to be in force",
			e.Percent, e.Err, e.Restore)
	}
	return fmt.Sprintf("stopped at %d%%: %s; the limits are as they were before", e.Percent, e.Err)
}

// Unwrap returns both errors.
func (e *StoppedError) Unwrap() []error { return []error{e.Err, e.Restore} }

// UnfinishedError reports that a rollout of the manifest was begun and neither finished nor rolled back.
type UnfinishedError struct {
	Manifest string
	Ongoing
}

// Error returns what to do.
func (e *UnfinishedError) Error() string {
	if e.Same {
		return fmt.Sprintf("a rollout of manifest %s is unfinished, at %d%%: continue it on the store or its "+
			"function, with weir limits apply, by other terms with --stage, or at once with --stage 100%%",
			strictyaml.Quote(e.Manifest), e.Percent)
	}
	return fmt.Sprintf("a rollout of another version of manifest %s is unfinished, at %d%%: continue it, or apply any "+
		"version without stages", strictyaml.Quote(e.Manifest), e.Percent)
}

// Is reports whether target is [weir.ErrConflict].
func (e *UnfinishedError) Is(target error) bool { return target == weir.ErrConflict }

// Ongoing is a rollout that was begun and neither finished nor rolled back.
type Ongoing struct {
	Hash    string `json:"hash"` // of the manifest being rolled out
	Same    bool   `json:"same"` // it is that of the plan
	Percent int    `json:"percent"`
	Terms   Terms  `json:"terms"`
}

// rolling is the state of a rollout, stored with the manifest.
type rolling struct {
	Ongoing

	Records []stage `json:"records"`
}

// ongoing reads the state of a rollout of a manifest with that hash or of another one; nil if there is none.
func ongoing(state json.RawMessage, manifest, hash string) (*rolling, error) {
	if state == nil {
		return nil, nil //nolint:nilnil // nothing is unfinished
	}
	r := new(rolling)
	if err := json.Unmarshal(state, r); err != nil {
		return nil, fmt.Errorf("continue the rollout of manifest %s: %w", strictyaml.Quote(manifest), err)
	}
	r.Same = r.Hash == hash
	return r, nil
}

// rollout is a rollout in progress.
type rollout struct {
	lim   *weir.Limiter
	lock  *admin.ManifestLock
	plan  *Plan
	opts  RolloutOptions
	state rolling
	gate  gates.Gate
	todo  []*Change
	begun bool // a stage is in force and being watched
}

// Rollout is [Apply] in stages. If the gate fails or ctx ends, Rollout restores what it changed. If the process dies
// before that, the stage stays as it is, and the next rollout of the same manifest continues from there.
//
// Errors: [*StoppedError], [*UnfinishedError], and those of Apply.
func Rollout(ctx context.Context, lim *weir.Limiter, p *Plan, opts RolloutOptions) (Result, error) {
	lim = lim.In(p.Namespace)
	res, todo, err := p.todo(opts.ApplyOptions)
	if err != nil {
		return res, err
	}
	if p.CreateNamespace { // no request can be refused yet
		return Apply(ctx, lim, p, opts.ApplyOptions)
	}
	lock, err := takeLock(ctx, lim, p, opts.ApplyOptions)
	if err != nil {
		return res, err
	}
	r := &rollout{lim: lim, lock: lock, plan: p, opts: opts, todo: todo}
	if err := r.begin(ctx); err != nil {
		return res, errors.Join(err, unlock(ctx, r.lock))
	}
	if err := r.run(ctx); err == errStaged { //nolint:errorlint // it is never wrapped
		return res, unlock(ctx, r.lock)
	} else if err != nil {
		stopped := &StoppedError{Percent: r.state.Percent, Err: err, Restore: r.restore(ctx)}
		_ = unlock(ctx, r.lock) // the earlier error is the one to report
		return res, stopped
	}
	last, err := Make(ctx, lim, p.manifest, PlanOptions{})
	if err != nil {
		return res, errors.Join(err, unlock(ctx, r.lock))
	}
	res, todo, err = last.todo(opts.ApplyOptions)
	if err != nil || len(todo) == 0 && last.Last.Hash == last.Hash && last.Rollout == nil { // nothing to record
		return res, errors.Join(err, unlock(ctx, r.lock))
	}
	return last.applyWith(ctx, lim, lock, res, todo, opts.ApplyOptions)
}

// begin determines what to roll out, the rest of an interrupted rollout or what the plan tightens, and by which terms.
func (r *rollout) begin(ctx context.Context) error {
	p := r.plan
	left, err := ongoing(r.lock.Rollout(), p.Manifest, p.Hash)
	switch {
	case err != nil:
		return err
	case left == nil && r.opts.Step != nil && r.opts.Step.Begun:
		return fmt.Errorf("the rollout of manifest %q was ended by others: %w", p.Manifest, weir.ErrConflict)
	case left != nil && (!left.Same || left.Terms.Bake == 0 && r.opts.Terms == nil): // without: of an earlier weir
		return &UnfinishedError{p.Manifest, left.Ongoing}
	case left != nil:
		if r.state = *left; r.state.match(p.Changes) == 0 { // all are as declared: it was interrupted at its end
			r.state.Records = nil
		}
	default:
		r.state = rolling{Ongoing{Hash: p.Hash}, stagesOf(p.Changes, p.before)}
	}
	if r.opts.Terms != nil {
		r.state.Terms = *r.opts.Terms
	}
	if r.opts.Step != nil {
		r.state.Terms = r.opts.Step.Terms
	} else if r.gate, err = r.opts.Gate(ctx, r.state.Terms); err != nil {
		return err
	}
	if len(r.state.Records) == 0 {
		return nil
	}
	if err := p.list(ctx, r.lock, r.todo, false); err != nil {
		return err
	}
	return r.keep(ctx, r.state.Percent)
}

// match finds the records of the rollout among the changes of a plan, and returns how many are left.
func (r *rolling) match(changes []Change) (left int) {
	of := make(map[admin.Scope]*stage, len(r.Records))
	for i := range r.Records {
		of[r.Records[i].Scope] = &r.Records[i]
	}
	for i := range changes {
		c := &changes[i]
		if s := of[c.key.Scope]; s != nil && !c.key.Own && c.after != nil {
			s.change, s.current = c, c.before
			c.Staged = r.Percent > 0 && c.before.Version != s.Before.Version
			left++
		}
	}
	return left
}

// keep stores the stage of the rollout, before anything is changed for it.
func (r *rollout) keep(ctx context.Context, percent int) error {
	r.state.Percent = percent
	state, err := json.Marshal(&r.state)
	if err != nil {
		return err
	}
	return r.lock.SetRollout(ctx, state)
}

// errStaged ends a step that leaves a stage in force.
var errStaged = errors.New("staged")

// step makes the step. Without records to stage, it leaves everything as it is.
func (r *rollout) step(ctx context.Context, s *Step) error {
	switch {
	case s.Abort != "":
		return errors.New(s.Abort) //nolint:err113 // for people
	case s.Percent == 100:
		return nil
	case len(r.state.Records) == 0:
		return errStaged
	}
	if err := r.put(ctx, s.Percent); err != nil {
		return err
	}
	return errStaged
}

func (r *rollout) run(ctx context.Context) error {
	if r.opts.Step != nil {
		return r.step(ctx, r.opts.Step)
	}
	from := r.state.Percent
	// It was interrupted at another stage.
	if from > 0 && len(r.state.Records) > 0 && !slices.Contains(r.state.Terms.Stages, from) {
		r.begun = true
		if err := r.gate.Begin(ctx, from); err != nil {
			return err
		}
	}
	for _, percent := range r.state.Terms.Stages {
		if percent < from || len(r.state.Records) == 0 {
			continue
		}
		if percent > from { // otherwise it is already in force
			if err := r.wait(ctx, percent); err != nil {
				return err
			}
		}
		if err := r.put(ctx, percent); err != nil {
			return err
		}
		if err := r.bake(ctx); err != nil {
			return err
		}
	}
	if r.plan.Empty() {
		return nil
	}
	return r.wait(ctx, 100)
}

// put applies the tightening changes to that percentage of entities.
func (r *rollout) put(ctx context.Context, percent int) error {
	if err := r.keep(ctx, percent); err != nil {
		return err
	}
	if r.opts.Staging != nil {
		r.opts.Staging(r.state.Terms, percent, len(r.state.Records))
	}
	return r.make(ctx, func(s *stage) admin.Declared {
		if s.change == nil {
			return s.current
		}
		return s.at(percent, r.plan.Manifest)
	})
}

// pause sleeps and extends the lock.
func (r *rollout) pause(ctx context.Context, d time.Duration) error {
	if err := gates.Sleep(ctx, d); err != nil {
		return err
	}
	return r.lock.Extend(ctx)
}

// bake watches the stage that is in force.
func (r *rollout) bake(ctx context.Context) error {
	r.begun = true
	return gates.Bake(ctx, r.gate, r.state.Percent, r.state.Terms.Bake, r.pause)
}

func (r *rollout) wait(ctx context.Context, percent int) error {
	return gates.Await(ctx, r.gate, percent, r.begun, r.pause)
}

// make writes all records as given by to.
func (r *rollout) make(ctx context.Context, to func(*stage) admin.Declared) error {
	for some := range slices.Chunk(r.state.Records, batch) {
		changes := make([]admin.DeclaredChange, 0, len(some))
		var of []*stage
		for i := range some {
			s := &some[i]
			after := to(s)
			if after.Limits == nil && s.current.Limits == nil {
				continue
			}
			changes = append(changes, admin.DeclaredChange{Before: s.current, After: after})
			of = append(of, s)
		}
		for i, err := range admin.New(r.lim).Manifests.Declare(ctx, changes) {
			if err != nil {
				return fmt.Errorf("%s: %w", Key{Scope: of[i].Scope}, err)
			}
			of[i].current = changes[i].After
			if changes[i].After.Limits != nil {
				of[i].current.Version = changes[i].Before.Version + 1
			}
		}
	}
	return nil
}

// restoreWithin is how long restoring may take, even after an interruption.
const restoreWithin = 30 * time.Second

// restore restores everything as it was, and ends the rollout.
func (r *rollout) restore(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreWithin)
	defer cancel()
	if err := r.lock.Extend(ctx); err != nil { // others may have applied the manifest since it was lost
		return err
	}
	ours, others := []stage(nil), error(nil)
	for i := range r.state.Records { // a lost response, or an earlier process, may have changed them
		s := &r.state.Records[i]
		got, err := admin.New(r.lim).Manifests.Lookup(ctx, admin.RecordID{Scope: s.Scope})
		if err != nil {
			return err
		}
		now := got[0]
		switch by := now.Managed(); {
		case now.Version == s.Before.Version: // unchanged
		case by != nil && by.Manifest == r.plan.Manifest && by.Hash == hash(&now):
			s.current = now
			ours = append(ours, *s)
		default:
			others = errors.Join(others, fmt.Errorf("%s was changed by another process in the meantime: %w",
				Key{Scope: s.Scope}, weir.ErrConflict))
		}
	}
	r.state.Records = ours
	if err := r.make(ctx, func(s *stage) admin.Declared { return s.Before }); err != nil {
		return err
	}
	return errors.Join(others, r.lock.SetRollout(ctx, nil))
}
