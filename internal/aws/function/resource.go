package function

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest"
)

// resourceEvent is an event from CloudFormation about a resource of type [ResourceType].
type resourceEvent struct {
	RequestType        string // Create, Update or Delete
	RequestID          string `json:"RequestId"`
	ResponseURL        string
	StackID            string `json:"StackId"`
	LogicalResourceID  string `json:"LogicalResourceId"`
	PhysicalResourceID string `json:"PhysicalResourceId"`
	ResourceProperties json.RawMessage
}

// identity identifies a resource. Its text is the physical ID: if it changes, CloudFormation creates a new resource
// and deletes the old one.
type identity struct{ table, namespace, manifest string }

const identityPrefix = "weir/"

// maxIdentity is the maximum length of a physical ID in bytes that CloudFormation accepts.
const maxIdentity = 1024

var (
	escaper   = strings.NewReplacer("%", "%25", "/", "%2F")
	unescaper = strings.NewReplacer("%2F", "/", "%25", "%")
)

func (id identity) String() string {
	return identityPrefix + escaper.Replace(id.table) + "/" + escaper.Replace(id.namespace) + "/" +
		escaper.Replace(id.manifest)
}

func parseIdentity(text string) (id identity, ok bool) {
	rest, ok := strings.CutPrefix(text, identityPrefix)
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 3 {
		return id, false
	}
	return identity{unescaper.Replace(parts[0]), unescaper.Replace(parts[1]), unescaper.Replace(parts[2])}, true
}

// nothing returns the physical ID of a resource for which nothing was created. Its Delete does nothing.
func (ev *resourceEvent) nothing() string { return "weir-nothing/" + ev.RequestID }

// owner names the resource in the audit trail, and so in the manifest's revisions.
func (ev *resourceEvent) owner() string {
	name := ownerPrefix + ev.StackID + "#" + ev.LogicalResourceID
	if len(name) > maxOwner {
		sum := sha256.Sum256([]byte(name))
		name = strings.ToValidUTF8(name[:maxOwner-17], "") + "~" + hex.EncodeToString(sum[:8])
	}
	return name
}

const (
	ownerPrefix = "cloudformation:"
	maxOwner    = 256
)

// summary is stored with a revision, so that a redelivered event is recognized.
func (ev *resourceEvent) summary() string {
	return fmt.Sprintf("CloudFormation: %s of %s, request %s", ev.RequestType, ev.LogicalResourceID, ev.RequestID)
}

// resource executes an event and responds to it in any case: in time, and even after a panic. If no response could be
// delivered, it does nothing.
func (p *Provisioner) resource(ctx context.Context, event []byte) error {
	var ev resourceEvent
	if err := json.Unmarshal(event, &ev); err != nil {
		return fmt.Errorf("read the CloudFormation event: %w", err)
	}
	if err := p.address(ev.ResponseURL); err != nil {
		return err
	}
	work, cancel := inTime(ctx)
	defer cancel()
	done := make(chan *response, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				p.Log.LogAttrs(
					ctx, slog.LevelError, "panic", slog.Any("panic", r), slog.String("stack", string(debug.Stack())),
				)
				done <- ev.failed(ev.current(), []Problem{{Message: fmt.Sprintf("panic: %v", r)}})
			}
		}()
		done <- p.lifecycle(work, &ev)
	}()
	var resp *response
	select {
	case resp = <-done:
	case <-work.Done():
		t := time.NewTimer(grace(ctx))
		defer t.Stop()
		select { // the worker's answer is better, if it ends soon
		case resp = <-done:
		case <-t.C:
			resp = ev.failed(ev.current(), problems(work.Err(), nil))
		}
	}
	level := slog.LevelInfo
	if resp.Status == failedStatus {
		level = slog.LevelError
	}
	p.Log.LogAttrs(
		ctx, level, "resource request handled", slog.String("request", ev.RequestID),
		slog.String("type", ev.RequestType),
		slog.String("stack", ev.StackID), slog.String(
			"id", resp.PhysicalResourceID,
		), slog.String("status", resp.Status), slog.String("reason", resp.Reason))
	return p.respond(ctx, ev.ResponseURL, resp)
}

// grace is half of the invocation's remaining time.
func grace(ctx context.Context) time.Duration {
	end, _ := ctx.Deadline()
	return time.Until(end) / 2
}

// current returns the physical ID of a resource that has one.
func (ev *resourceEvent) current() string {
	if ev.RequestType == "Create" || ev.PhysicalResourceID == "" {
		return ev.nothing()
	}
	return ev.PhysicalResourceID
}

func (p *Provisioner) lifecycle(ctx context.Context, ev *resourceEvent) *response {
	ctx = admin.WithPrincipal(ctx, ev.owner())
	switch ev.RequestType {
	case "Create", "Update":
		return p.set(ctx, ev)
	case "Delete":
		return p.remove(ctx, ev)
	}
	return ev.failed(ev.current(), []Problem{
		{Message: fmt.Sprintf("request type must be Create, Update or Delete: %q", ev.RequestType)},
	})
}

// properties are the resource's properties besides its manifest. CloudFormation passes values as text.
type properties struct{ Adopt any }

func (pr *properties) adopt() (bool, error) {
	if pr.Adopt == nil {
		return false, nil
	}
	b, err := strconv.ParseBool(fmt.Sprint(pr.Adopt))
	if err != nil {
		return false, fmt.Errorf("property Adopt: %v is neither true nor false", pr.Adopt)
	}
	return b, nil
}

// set makes the live records match what the resource declares.
func (p *Provisioner) set(ctx context.Context, ev *resourceEvent) *response {
	id := ev.current()
	var pr properties
	m, err := manifestOf(ev.ResourceProperties)
	if err == nil {
		err = json.Unmarshal(ev.ResourceProperties, &pr)
	}
	adopt, bad := pr.adopt()
	if err = errors.Join(err, bad); err != nil {
		return ev.failed(id, problems(err, nil))
	}
	to := identity{p.Table, m.Namespace, m.Name}
	if len(to.String()) > maxIdentity {
		return ev.failed(id, []Problem{
			{Message: "together, the names of table, namespace and manifest are too long for CloudFormation"},
		})
	}
	var res manifest.Result
	err = p.again(ctx, func(lim *weir.Limiter) error {
		rev, err := known(ctx, lim.In(m.Namespace), ev, m.Name)
		if err != nil {
			return err
		}
		if rev.Revision > 0 {
			id, res = to.String(), manifest.Result{Revision: rev.Revision}
			return nil
		}
		fresh := ev.RequestType == "Create" || ev.PhysicalResourceID != to.String()
		plan, err := manifest.Make(ctx, lim, m, manifest.PlanOptions{})
		if err == nil && !adopt {
			err = ev.mayOwn(plan, fresh)
		}
		if err == nil && !adopt && plan.Count(manifest.Adopt) > 0 {
			err = unadopted(plan)
		}
		if err != nil {
			return err
		}
		id = to.String() // from here on there may be something to delete
		res, err = manifest.Apply(ctx, lim, plan, manifest.ApplyOptions{
			Adopt: adopt, Wait: lockWait, Summary: ev.summary(),
		})
		return err
	})
	if err != nil {
		return ev.failed(id, problems(err, &res))
	}
	return ev.succeeded(id, map[string]string{
		"Namespace": m.Namespace, "Manifest": m.Name, "ManifestHash": m.Hash(), "Revision": strconv.Itoa(res.Revision),
	})
}

// again is [Provisioner.with] that retries after interference by others, above all by the same event delivered twice
// at a time. Each try opens a new limiter, because one remembers that a namespace did not exist.
func (p *Provisioner) again(ctx context.Context, f func(*weir.Limiter) error) error {
	err := p.with(ctx, f)
	for try := 1; try < 4 && (errors.Is(err, weir.ErrConflict) || errors.Is(err, weir.ErrNotFound)) &&
		ctx.Err() == nil; try++ {
		err = p.with(ctx, f)
	}
	return err
}

func unadopted(plan *manifest.Plan) error {
	var ps manifest.ProblemsError
	for i := range plan.Changes {
		if c := &plan.Changes[i]; c.Action == manifest.Adopt {
			ps = append(
				ps,
				c.Target+" exists and no manifest manages it: remove it from the manifest, or set the property "+
					"Adopt: true to adopt such records",
			)
		}
	}
	return ps
}

// mayOwn refuses a manifest that another resource applies, or that was applied before and still has records.
func (ev *resourceEvent) mayOwn(plan *manifest.Plan, fresh bool) error {
	if plan.Last.Revision == 0 || plan.Last.By == ev.owner() ||
		plan.Unchanged+plan.Count(manifest.Update)+plan.Count(manifest.Delete)+plan.Count(manifest.Release) == 0 {
		return nil
	}
	if strings.HasPrefix(plan.Last.By, ownerPrefix) || fresh {
		return fmt.Errorf("manifest %q of namespace %q was applied by %s: give this one its own name (manifest: "+
			"NAME), or set the property Adopt: true to take it over",
			plan.Manifest, plan.Namespace, plan.Last.By)
	}
	return nil
}

// known returns the revision that this event already applied, if any.
func known(ctx context.Context, lim *weir.Limiter, ev *resourceEvent, name string) (admin.Revision, error) {
	page, err := admin.New(lim).Manifests.Revisions(ctx, admin.RevisionQuery{Manifest: name})
	if errors.Is(err, weir.ErrNotFound) {
		return admin.Revision{}, nil
	}
	for _, rev := range page.Items {
		if rev.Summary == ev.summary() && rev.By == ev.owner() {
			return rev, nil
		}
	}
	return admin.Revision{}, err
}

// remove deletes what the resource declared, if the resource still owns it. Deleting what never existed succeeds.
func (p *Provisioner) remove(ctx context.Context, ev *resourceEvent) *response {
	id, ok := parseIdentity(ev.PhysicalResourceID)
	if !ok || id.table != p.Table { // not this function's table
		p.Log.LogAttrs(
			ctx, slog.LevelWarn, "nothing to delete", slog.String("id", ev.PhysicalResourceID),
			slog.String("table", p.Table),
		)
		return ev.succeeded(ev.current(), nil)
	}
	m := &manifest.Manifest{Namespace: id.namespace, Name: id.manifest, Records: map[manifest.Key]*manifest.Record{}}
	declared, err := manifestOf(ev.ResourceProperties)
	if err == nil && declared.Name == m.Name && declared.Namespace == m.Namespace {
		m.Keep = declared.Keep
	}
	var res manifest.Result
	err = p.again(ctx, func(lim *weir.Limiter) error {
		if rev, err := known(ctx, lim.In(m.Namespace), ev, m.Name); err != nil || rev.Revision > 0 {
			return err
		}
		plan, err := manifest.Make(ctx, lim, m, manifest.PlanOptions{})
		if err != nil {
			return err
		}
		others := strings.HasPrefix(plan.Last.By, ownerPrefix) && plan.Last.By != ev.owner()
		if plan.CreateNamespace || others || plan.Last.Revision == 0 && plan.Empty() {
			return nil
		}
		res, err = manifest.Apply(ctx, lim, plan, manifest.ApplyOptions{Wait: lockWait, Summary: ev.summary()})
		return err
	})
	if err != nil {
		return ev.failed(ev.current(), problems(err, &res))
	}
	return ev.succeeded(ev.current(), nil)
}
