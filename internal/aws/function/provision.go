package function

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/claims"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
)

// Provisioner plans and applies manifests on one table.
type Provisioner struct {
	// Open opens a limiter on the table; it is closed when the invocation ends.
	Open  func(context.Context) (*weir.Limiter, error)
	Table string // its name, which is part of the identity of CloudFormation resources
	Log   *slog.Logger
	// Client sends responses to CloudFormation. The default has a timeout of 5 s.
	Client *http.Client
	// Region is the function's. Responses go, over https, only to the bucket in which CloudFormation receives those of
	// this region; an event that names another address is an error, and nothing is done for it.
	Region string
	// Anywhere lets responses go to any address that an event names, for tests.
	Anywhere bool
}

// Request is a request to plan or apply a manifest, or to read what is kept of manifests.
type Request struct {
	Action string `json:"action"` // plan, apply or read
	// Read is the name of the operation that reads, as of a server, and Query its request, in a namespace; "" is the
	// default one.
	Read      string          `json:"read,omitempty"`
	Query     json.RawMessage `json:"query,omitempty"`
	Namespace string          `json:"namespace,omitempty"`
	// Manifest is the manifest's YAML as JSON. Saved, given instead, applies a plan as it was made: it comes from an
	// answer with Detail, or from weir limits plan --out.
	Manifest json.RawMessage `json:"manifest,omitempty"`
	Saved    json.RawMessage `json:"saved,omitempty"`
	By       string          `json:"by,omitempty"`       // the caller, for the audit
	Adopt    bool            `json:"adopt,omitempty"`    // take over records that no manifest manages
	Keep     bool            `json:"keep,omitempty"`     // keep what would be deleted
	Rollback int             `json:"rollback,omitempty"` // the earlier revision that is applied
	Rate     int             `json:"rate,omitempty"`     // maximum records per second; 0: as fast as the table allows
	Exact    bool            `json:"exact,omitempty"`    // count all live buckets that a change affects
	Detail   bool            `json:"detail,omitempty"`   // answer with Saved
	// Step makes a part of a rollout instead of applying the whole plan.
	Step *manifest.Step `json:"step,omitempty"`
}

// The values of an answer's Status.
const (
	Planned = "planned"
	Found   = "found"
	Applied = "applied"
	Staged  = "staged" // a stage of a rollout is in force
	Failed  = "failed" // see Errors; a failed apply keeps the changes it made, and applying again does the rest
)

// Answer is the response to a request.
type Answer struct {
	Status       string   `json:"status"`
	Changes      []Change `json:"changes"` // the changes of the plan
	ManifestHash string   `json:"manifest_hash,omitempty"`
	// ChangesLeftOut is the number of changes left out of Changes for lack of room.
	ChangesLeftOut int              `json:"changes_left_out,omitempty"`
	Errors         []Problem        `json:"errors,omitempty"`
	Saved          json.RawMessage  `json:"saved,omitempty"`
	Result         *manifest.Result `json:"result,omitempty"` // of an apply
	Staged         int              `json:"staged,omitempty"` // how many records are staged
	Value          json.RawMessage  `json:"value,omitempty"`  // of a read

	claims.Sent // the records that other manifests manage
}

// Handle handles an invocation: a [Request], or a CloudFormation event. It returns an error only for an event whose
// response could not be delivered to CloudFormation.
func (p *Provisioner) Handle(ctx context.Context, event json.RawMessage) (any, error) {
	var kind struct{ RequestType string }
	if err := json.Unmarshal(event, &kind); err == nil && kind.RequestType != "" {
		return nil, p.resource(ctx, event)
	}
	ctx, cancel := inTime(ctx)
	defer cancel()
	a, err := p.request(ctx, event)
	if err != nil {
		a.Status, a.Errors = Failed, problems(err, a.Result)
		if claimed, ok := errors.AsType[*manifest.ClaimedError](err); ok {
			a.Sent = claimed.Sent()
		}
	}
	p.Log.LogAttrs(
		ctx, slog.LevelInfo, "request handled", slog.String("status", a.Status),
		slog.String("manifest", a.ManifestHash),
		slog.Int("changes", len(a.Changes)), slog.Any("errors", a.Errors))
	return a.fit(), nil
}

// inTime returns a context that ends early enough to respond before the invocation is cut off.
func inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, end.Add(-min(answerTime, time.Until(end)/4)))
}

// answerTime is the time reserved for the response.
const answerTime = 8 * time.Second

func (p *Provisioner) request(ctx context.Context, event []byte) (Answer, error) {
	a := Answer{Changes: []Change{}}
	var r Request
	dec := json.NewDecoder(bytes.NewReader(event))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		return a, fmt.Errorf("the payload is not a request such as {action, manifest}: %w", err)
	}
	switch {
	case r.Action == "read":
		return a, p.with(ctx, func(lim *weir.Limiter) (err error) {
			a.Status = Found
			a.Value, err = r.read(ctx, lim)
			return err
		})
	case r.Action != "plan" && r.Action != "apply":
		return a, fmt.Errorf("action %q is neither plan, apply nor read", r.Action)
	case (r.Manifest == nil) == (r.Saved == nil):
		return a, errors.New("give either manifest or saved")
	}
	var ms []*manifest.Manifest
	if r.Saved == nil {
		var err error
		if ms, err = manifest.Decode(
			[]strictyaml.Source{{Name: "manifest", Text: r.Manifest}}, strictyaml.Options{},
		); err != nil {
			return a, err
		}
		if len(ms) != 1 {
			return a, fmt.Errorf("the manifest has %d namespaces: give one at a time", len(ms))
		}
	}
	ctx = admin.WithPrincipal(ctx, "lambda:"+cmp.Or(r.By, "unknown"))
	return a, p.with(ctx, func(lim *weir.Limiter) error { return r.run(ctx, lim, ms, &a) })
}

// with opens the table, runs f and closes it.
func (p *Provisioner) with(ctx context.Context, f func(*weir.Limiter) error) error {
	lim, err := p.Open(ctx)
	if err != nil {
		return err
	}
	return errors.Join(f(lim), lim.Close())
}

// UsageSince is the Read of what was decided in a namespace, in windows; its query has From.
const UsageSince = "usageSince"

// SinceQuery is the query of [UsageSince].
func SinceQuery(from time.Time) admin.UsageQuery {
	return admin.UsageQuery{By: admin.ByNamespace, Window: admin.Hourly, From: from, Max: 1000}
}

// read runs an operation that reads. Its request and its answer are those of the server's.
func (r *Request) read(ctx context.Context, lim *weir.Limiter) (json.RawMessage, error) {
	var q struct {
		Manifest, Name, After string
		Max, Revision         int
		From                  time.Time
	}
	if err := json.Unmarshal(r.Query, &q); err != nil {
		return nil, fmt.Errorf("query of %s: %w", r.Read, err)
	}
	if r.Namespace != "" {
		lim = lim.In(r.Namespace)
	}
	var found any
	var err error
	switch r.Read {
	case "exportManifest":
		var m *manifest.Manifest
		var left int
		if m, left, err = manifest.Export(ctx, lim, cmp.Or(q.Manifest, manifest.DefaultName)); err == nil {
			found = map[string]any{"text": string(m.Text()), "left_out": left}
		}
	case "listManifests", "manifestHistory":
		var page admin.Page[admin.Revision]
		page, err = admin.New(lim).Manifests.Revisions(ctx, admin.RevisionQuery{
			Manifest: q.Name, After: q.After, Max: q.Max,
		})
		found = map[string]any{"items": page.Items, "next": page.Next}
	case "showRevision":
		var rev admin.Revision
		var text []byte
		rev, text, err = admin.New(lim).Manifests.Revision(ctx, q.Name, q.Revision)
		found = struct {
			admin.Revision

			Text string `json:"text"`
		}{rev, string(text)}
	case UsageSince:
		var page admin.Page[admin.Usage]
		page, err = admin.New(lim).Usage.Windows(ctx, SinceQuery(q.From))
		found = page.Items
	default:
		err = fmt.Errorf("read %q is not an operation that reads manifests", r.Read)
	}
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(found)
	if len(text) > maxAnswer {
		return nil, errors.New("it is too large for a Lambda answer: read it without --via-lambda")
	}
	return text, err
}

func (r *Request) run(ctx context.Context, lim *weir.Limiter, ms []*manifest.Manifest, a *Answer) error {
	var plan *manifest.Plan
	var err error
	if r.Saved != nil {
		plans, err := manifest.Load(r.Saved, "saved", func(m *manifest.Manifest) (*manifest.Plan, error) {
			return manifest.Make(ctx, lim, m, manifest.PlanOptions{})
		})
		if err == nil && len(plans) != 1 {
			err = fmt.Errorf("saved holds %d plans: give one at a time", len(plans))
		}
		if err != nil {
			return err
		}
		plan = plans[0]
	} else if plan, err = manifest.Make(ctx, lim, ms[0], manifest.PlanOptions{Exact: r.Exact}); err != nil {
		return err
	}
	a.Status, a.ManifestHash, a.Changes = Planned, plan.Hash, changesOf(plan)
	if r.Detail {
		if a.Saved, err = manifest.Save([]*manifest.Plan{plan}); err != nil {
			return err
		}
	}
	if r.Action == "plan" {
		return nil
	}
	opts := manifest.ApplyOptions{Adopt: r.Adopt, Keep: r.Keep, Rate: r.Rate, Rollback: r.Rollback, Wait: lockWait}
	var res manifest.Result
	if a.Status = Applied; r.Step == nil {
		res, err = manifest.Apply(ctx, lim, plan, opts)
	} else {
		if r.Step.Percent < 100 {
			a.Status = Staged
		}
		res, err = manifest.Rollout(ctx, lim, plan, manifest.RolloutOptions{
			ApplyOptions: opts, Step: r.Step,
			Staging: func(_ manifest.Terms, _, records int) { a.Staged = records },
		})
	}
	a.Result = &res
	return err
}

// lockWait is how long an invocation waits for another that is applying the same manifest.
const lockWait = 20 * time.Second

// Problem is an error in a manifest, or a change that was not made.
type Problem struct {
	Message string          `json:"message"`
	Path    string          `json:"path,omitempty"` // in the manifest
	Line    int             `json:"line,omitempty"`
	Column  int             `json:"column,omitempty"`
	Hint    string          `json:"hint,omitempty"`
	Action  manifest.Action `json:"action,omitempty"` // of a change
	Target  string          `json:"target,omitempty"`
}

// String formats a problem on one line.
func (p Problem) String() string {
	text := p.Message
	switch {
	case p.Target != "":
		text = string(p.Action) + " " + p.Target + ": " + text
	case p.Path != "":
		text = p.Path + ": " + text
	}
	if p.Hint != "" {
		text += " (" + p.Hint + ")"
	}
	return text
}

// problems returns all problems that an error contains.
func problems(err error, res *manifest.Result) (all []Problem) {
	var mistakes strictyaml.Errors
	var wrong manifest.ProblemsError
	var failed *manifest.FailedError
	switch {
	case errors.As(err, &mistakes):
		for _, d := range mistakes {
			all = append(all, Problem{Message: d.Message, Path: d.Path, Line: d.Line, Column: d.Column, Hint: d.Hint})
		}
	case errors.As(err, &wrong):
		for _, text := range wrong {
			all = append(all, Problem{Message: text})
		}
	case errors.As(err, &failed) && res != nil:
		for _, f := range res.Failed {
			all = append(all, Problem{Message: f.Error, Action: f.Action, Target: f.Target})
		}
	case errors.Is(err, context.DeadlineExceeded):
		all = append(all, Problem{
			Message: "the function ran out of time: changes already made stay; apply again to continue, or raise its " +
				"timeout (" + err.Error() + ")",
		})
	default:
		all = append(all, Problem{Message: err.Error()})
	}
	return all
}
