package limits

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/user"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/smithy-go"
	"go.yaml.in/yaml/v4"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/aws/function"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/drift"
	"github.com/weirlimits/weir/internal/manifest/gates"
)

// lambdaFlags define whether a stack's function does the work, for users without access to the table.
type lambdaFlags struct {
	Stack  string `json:"via_lambda"`
	Region string `json:"region"`
}

// provisioner is the function that applies manifests.
type provisioner struct {
	client    *lambda.Client
	arn       string
	namespace string // of Call; "" is the function's own
}

// Call implements [api.Caller] for operations that read manifests.
func (p *provisioner) Call(ctx context.Context, o *api.Op, req any) (any, error) {
	q, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	a, err := p.ask(ctx, function.Request{Action: "read", Read: o.Name, Query: q, Namespace: p.namespace})
	if err != nil {
		return nil, err
	}
	resp := o.NewResponse()
	if err := json.Unmarshal(a.Value, resp); err != nil {
		return nil, fmt.Errorf("the answer of function %s is not that of this weir: %w", p.arn, err)
	}
	return reflect.ValueOf(resp).Elem().Interface(), nil
}

// provisioner finds the function in the outputs of its stack.
func (f *lambdaFlags) provisioner(ctx context.Context) (*provisioner, error) {
	var with []func(*awsconfig.LoadOptions) error
	if f.Region != "" {
		with = append(with, awsconfig.WithRegion(f.Region))
	}
	cfg, err := awsconfig.LoadDefaultConfig(ctx, with...)
	if err != nil {
		return nil, err
	}
	found, err := cloudformation.NewFromConfig(cfg).DescribeStacks(
		ctx, &cloudformation.DescribeStacksInput{StackName: &f.Stack},
	)
	var failed smithy.APIError
	switch {
	case errors.As(err, &failed) && failed.ErrorCode() == "ValidationError" &&
		strings.Contains(failed.ErrorMessage(), "does not exist"),
		err == nil && len(found.Stacks) == 0:
		return nil, fmt.Errorf("stack %q in region %q: %w", f.Stack, cfg.Region, weir.ErrNotFound)
	case err != nil:
		return nil, fmt.Errorf("find stack %q: %w", f.Stack, err)
	}
	for _, o := range found.Stacks[0].Outputs {
		if aws.ToString(o.OutputKey) == "ProvisionerArn" ||
			strings.HasSuffix(aws.ToString(o.ExportName), "-LimitsProvisionerArn") {
			// No retries: if only the answer was lost, a second apply would find its plan outdated.
			once := func(o *lambda.Options) { o.Retryer = aws.NopRetryer{} }
			return &provisioner{client: lambda.NewFromConfig(cfg, once), arn: aws.ToString(o.OutputValue)}, nil
		}
	}
	return nil, fmt.Errorf(
		"stack %q has no output ProvisionerArn: it is not a weir stack, or has no function that applies limits: %w",
		f.Stack, weir.ErrNotFound,
	)
}

// maxPayload is the largest request that Lambda accepts.
const maxPayload = 6 << 20

func (p *provisioner) ask(ctx context.Context, r function.Request) (a function.Answer, err error) {
	if u, err := user.Current(); err == nil {
		r.By = u.Username
	}
	payload, err := json.Marshal(r)
	if err != nil {
		return a, err
	}
	if len(payload) > maxPayload {
		return a, fmt.Errorf(
			"the manifest is larger than the %d MiB that Lambda accepts: split it, or apply it without --via-lambda",
			maxPayload>>20,
		)
	}
	out, err := p.client.Invoke(ctx, &lambda.InvokeInput{FunctionName: &p.arn, Payload: payload})
	switch {
	case err != nil:
		return a, fmt.Errorf("invoke %s: %w", p.arn, err)
	case out.FunctionError != nil:
		var what struct {
			Message string `json:"errorMessage"`
		}
		_ = json.Unmarshal(out.Payload, &what) // without a message if it fails
		return a, fmt.Errorf(
			"function %s ended before it answered (%s): changes made so far stay; see its log and try again", p.arn,
			what.Message,
		)
	}
	if err := json.Unmarshal(out.Payload, &a); err != nil || a.Status == "" {
		return a, fmt.Errorf("the answer of function %s is not that of weir", p.arn)
	}
	if a.Status != function.Failed {
		return a, nil
	}
	texts := make([]string, len(a.Errors))
	for i := range a.Errors {
		texts[i] = a.Errors[i].String()
	}
	if err := a.Received(strings.Join(texts, "; ")); err != nil {
		return a, err
	}
	if a.Result != nil && len(a.Result.Failed) > 0 {
		return a, fmt.Errorf(
			"%s failed, the others were made; %s; apply again to continue", kit.Plural(len(a.Result.Failed), "change"),
			texts[0],
		)
	}
	return a, manifest.ProblemsError(texts)
}

// plan has the function plan a manifest.
func (p *provisioner) plan(
	ctx context.Context, m *manifest.Manifest, opts manifest.PlanOptions,
) (*manifest.Plan, error) {
	text, err := asJSON(m.Text())
	if err != nil {
		return nil, err
	}
	a, err := p.ask(ctx, function.Request{Action: "plan", Manifest: text, Exact: opts.Exact, Detail: true})
	switch {
	case err != nil:
		return nil, located{err, m, "manifest"}
	case a.Saved == nil:
		return nil, fmt.Errorf(
			"the plan for namespace %s is too large for a Lambda answer: split the manifest, or plan without "+
				"--via-lambda", m.Namespace,
		)
	}
	var saved manifest.Saved
	if err := json.Unmarshal(a.Saved, &saved); err != nil || len(saved.Plans) != 1 || saved.Plans[0].Plan == nil {
		return nil, errors.New("the answer of the function is not a plan of this weir")
	}
	made, err := saved.Plans[0].Plan.Of(m, "manifest")
	if err != nil {
		return nil, err
	}
	made.State = saved.Plans[0].State
	return made, nil
}

// diff has the function plan a manifest. The audit log, and what no manifest manages, are not in its answer.
func (p *provisioner) diff(ctx context.Context, m *manifest.Manifest, exact bool) (drift.Report, error) {
	return reported(ctx, p, nil, m, exact)
}

// apply has the function apply a plan.
func (p *provisioner) apply(
	ctx context.Context, plan *manifest.Plan, opts manifest.ApplyOptions,
) (manifest.Result, error) {
	res, _, err := p.change(ctx, plan, opts, nil)
	return res, err
}

// change has the function apply a plan, or make a step of its rollout, and returns how many records are staged.
func (p *provisioner) change(
	ctx context.Context, plan *manifest.Plan, opts manifest.ApplyOptions, step *manifest.Step,
) (res manifest.Result, staged int, err error) {
	r := function.Request{
		Action: "apply", Adopt: opts.Adopt, Keep: opts.Keep, Rate: opts.Rate, Rollback: opts.Rollback, Step: step,
	}
	if step != nil && step.Begun { // the first step has changed what the plan was made from
		r.Manifest, err = asJSON([]byte(plan.Text()))
	} else {
		r.Saved, err = json.Marshal(manifest.Saved{
			Format: manifest.SavedFormat, Plans: []manifest.SavedPlan{{Text: plan.Text(), State: plan.State}},
		})
	}
	if err != nil {
		return res, 0, err
	}
	got, err := p.ask(ctx, r)
	if got.Result != nil {
		res = *got.Result
	}
	return res, got.Staged, err
}

// asJSON returns a manifest as JSON.
func asJSON(text []byte) ([]byte, error) {
	var declared any
	if err := yaml.Unmarshal(text, &declared); err != nil {
		return nil, err
	}
	return json.Marshal(declared)
}

// usage returns what the store has counted in a namespace since the hour of began.
func (p *provisioner) usage(namespace string, began time.Time) windows {
	return func(ctx context.Context) (items []admin.Usage, err error) {
		q, err := json.Marshal(map[string]time.Time{"from": began})
		if err != nil {
			return nil, err
		}
		r := function.Request{Action: "read", Read: function.UsageSince, Query: q, Namespace: namespace}
		a, err := p.ask(ctx, r)
		if err == nil {
			err = json.Unmarshal(a.Value, &items)
		}
		return items, err
	}
}

// rollout applies a plan in stages: this process watches them, and has the function make each. If it ends before the
// rollout does, the stage stays as it is, and the next apply goes on from there.
func (p *provisioner) rollout(
	ctx context.Context, a *kit.Run, plan *manifest.Plan, opts manifest.ApplyOptions, f *stageFlags,
) (res manifest.Result, err error) {
	step := manifest.Step{}
	if r := plan.Rollout; r != nil && r.Same {
		step.Terms, step.Begun, step.Percent = r.Terms, true, r.Percent
	}
	if t := f.terms(); t != nil {
		step.Terms = *t
	}
	g, err := gate(ctx, a, step.Terms, p.usage(plan.Namespace, time.Now()), plan)
	if err != nil {
		return res, err
	}
	from, watched := step.Percent, false
	for _, percent := range append(slices.Clone(step.Terms.Stages), 100) {
		if percent < from {
			continue
		}
		if percent > from {
			err = gates.Await(ctx, g, percent, watched, gates.Sleep)
		}
		staged := 0
		if step.Percent = percent; err == nil {
			if res, staged, err = p.change(ctx, plan, opts, &step); err != nil && step.Begun {
				err = fmt.Errorf("%w; weir limits plan shows whether a stage is in force", err)
			}
			if err != nil || percent == 100 {
				return res, err
			}
		}
		if step.Begun = step.Begun || staged > 0; err == nil && staged > 0 {
			staging(a, plan, step.Terms, percent, staged)
			watched = true
			err = gates.Bake(ctx, g, percent, step.Terms.Bake, gates.Sleep)
		}
		if err != nil {
			return res, p.abort(ctx, plan, opts, step, err)
		}
	}
	return res, nil
}

// abort has the function restore everything as it was, if a stage is in force, and returns why.
func (p *provisioner) abort(
	ctx context.Context, plan *manifest.Plan, opts manifest.ApplyOptions, step manifest.Step, why error,
) error {
	if !step.Begun {
		return fmt.Errorf("%w; %w", why, manifest.ErrNotBegun)
	}
	if ctx.Err() != nil {
		why = errInterrupted
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	step.Abort = why.Error()
	_, _, err := p.change(ctx, plan, opts, &step)
	return err // it has the reason
}
