package deploy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	ddbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/aws/cloud"
	driver "github.com/weirlimits/weir/store/dynamodb"
)

// Request is a deployment to make.
type Request struct {
	Params cloud.Params
	// DryRun computes what would change and leaves nothing behind.
	DryRun bool
	// Replace allows the table or the archive to be replaced or removed.
	Replace bool
}

// Result is what a deployment did, or with DryRun would do.
type Result struct {
	Stack   string
	Region  string
	State   string // of the stack, "" with DryRun
	Created bool
	Changes []Change
	Outputs map[string]string
}

// Deploy creates a stack or updates it to the requested parameters, and completes its table so that a store can be
// opened on it. If a weir table of the stack's name exists without the stack, Deploy adopts it.
//
// Deploy refuses to replace the table or the archive unless Replace is set. If CloudFormation fails, the error is an
// [*Error] with the first resource that failed and why. A stack that was being created is then gone; one that was
// being changed is as it was before.
func (d *Deployer) Deploy(ctx context.Context, req Request) (res Result, err error) {
	p := req.Params
	res = Result{Stack: p.Stack, Region: d.cfg.Region}
	if p.Version = d.cfg.Version; p.CodeKey == "" && p.CodeBucket != "" {
		p.CodeKey = codePrefix // a placeholder: Check requires both or neither
	}
	if err := p.Check(); err != nil {
		return res, err
	}
	var fresh bool
	res.Created, fresh, err = d.startable(ctx, p.Stack)
	if err != nil {
		return res, trouble("deploy", p.Stack, err)
	}
	cs, err := d.prepare(ctx, p, res.Created, fresh, req.DryRun)
	executed := false
	defer func() {
		if !executed {
			err = errors.Join(err, trouble("clean up after", p.Stack, d.forget(ctx, cs)))
		}
	}()
	if err != nil && !errors.Is(err, errNothing) {
		return res, trouble("deploy", p.Stack, err)
	}
	res.Changes = cs.changes
	if d.cfg.Planned != nil {
		d.cfg.Planned(cs.changes)
	}
	if lost := slices.IndexFunc(cs.changes, Change.loses); lost >= 0 && !req.Replace {
		return res, refusal(p.Stack, cs.changes[lost])
	}
	if req.DryRun {
		return res, nil
	}
	if err == nil {
		executed = true
		if err := d.execute(ctx, p.Stack, cs); err != nil {
			return res, err
		}
	}
	return res, d.finish(ctx, p.Stack, &res)
}

func refusal(stack string, c Change) error {
	verb := map[string]string{"replace": "be replaced by an empty one", "may replace": "perhaps be replaced by an empty one", "remove": "leave the stack"}[c.Action]
	because := ""
	if len(c.What) > 0 {
		because = ", because of " + strings.Join(c.What, ", ")
	}
	return &Error{
		Op: "deploy", Stack: stack, Resource: c.Resource + " (" + c.Type + ")", Err: fmt.Errorf("would %s%s", verb, because),
		Hint: "keep the settings that cause this as they are, or add --replace",
	}
}

// startable returns whether the stack must be created and whether nothing of it exists yet, or why it cannot be
// deployed to.
func (d *Deployer) startable(ctx context.Context, name string) (create, fresh bool, err error) {
	st, err := d.find(ctx, name)
	switch {
	case err != nil:
		return false, false, err
	case st == nil, st.StackStatus == types.StackStatusReviewInProgress: // somebody's review, or an interrupted one
		return true, st == nil, d.adoptable(ctx, name)
	case tagOf(st, cloud.TagStack) == "":
		return false, false, &Error{Op: "deploy", Stack: name, Err: errNotOurs, Hint: "name another stack"}
	}
	state := string(st.StackStatus)
	refuse := func(text, hint string) error {
		all, _, err := d.events(ctx, aws.ToString(st.StackId), "")
		if err != nil {
			return err
		}
		if e := firstFailure(all); e != nil {
			text += "; the first failure was " + e.Resource + ": " + e.Reason
		}
		return &Error{Op: "deploy", Stack: name, Err: fmt.Errorf("the stack is in %s: %s", state, text), Hint: hint}
	}
	switch st.StackStatus {
	case types.StackStatusRollbackComplete, types.StackStatusRollbackFailed, types.StackStatusCreateFailed:
		return false, false, refuse("its creation failed, and CloudFormation can only delete such a stack", "run weir destroy "+name+", then deploy again")
	case types.StackStatusDeleteFailed:
		return false, false, refuse("its deletion failed", "run weir destroy "+name+" again once the cause is fixed")
	case types.StackStatusUpdateRollbackFailed, types.StackStatusUpdateFailed:
		return false, false, refuse("a change failed, and so did its rollback", "fix the cause, then run aws cloudformation continue-update-rollback --stack-name "+name)
	default:
	}
	if !resting(state) {
		return false, false, &Error{Op: "deploy", Stack: name, Err: fmt.Errorf("the stack is in %s: somebody else is changing it", state), Hint: "wait until weir status " + name + " says that it is done"}
	}
	return false, false, nil
}

// adoptable rejects a table of the stack's name that is not weir's.
func (d *Deployer) adoptable(ctx context.Context, table string) error {
	_, err := d.cfg.Tables.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &table})
	var none *ddbtypes.ResourceNotFoundException
	if err != nil {
		if errors.As(err, &none) {
			return nil
		}
		return err
	}
	sc, err := driver.ReadSchema(ctx, d.cfg.Tables, table)
	if err == nil && sc.Version > 0 || err != nil && code(err) != "ValidationException" { // ValidationException: the table has other keys
		return err
	}
	return &Error{Op: "deploy", Stack: table, Err: fmt.Errorf("table %s exists and is not weir's", table), Hint: "name another stack"}
}

// prepare uploads what the template needs and creates the change set. A dry run leaves no uploads behind.
func (d *Deployer) prepare(ctx context.Context, p cloud.Params, create, fresh, dry bool) (cs changeSet, err error) {
	var pl place
	if hasCode(&p) && !foreign(&p) {
		if pl, err = d.place(ctx, p.CodeBucket); err != nil {
			return cs, err
		}
		zip, hash, err := d.cfg.Zip(ctx)
		if err != nil {
			return cs, fmt.Errorf("make the functions' package: %w", err)
		}
		p.CodeBucket, p.CodeKey = pl.bucket, codePrefix+hash+".zip"
		if !dry {
			if err := d.ensure(ctx, pl); err != nil {
				return cs, err
			}
			if _, err := d.upload(ctx, pl, p.CodeKey, zip); err != nil {
				return cs, err
			}
		}
	}
	body, err := template(p)
	if err != nil {
		return cs, err
	}
	in := &cloudformation.CreateChangeSetInput{
		StackName: &p.Stack, ChangeSetType: types.ChangeSetTypeUpdate, Capabilities: []types.Capability{types.CapabilityCapabilityNamedIam},
		Description: aws.String("weir " + d.cfg.Version), Parameters: parameters(&p),
		// Adopt a table that outlived its stack.
		ImportExistingResources: aws.Bool(true),
	}
	if create {
		in.ChangeSetType, in.OnStackFailure = types.ChangeSetTypeCreate, types.OnStackFailureDelete
	}
	tags := p.AllTags()
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		in.Tags = append(in.Tags, types.Tag{Key: aws.String(k), Value: aws.String(tags[k])})
	}
	if len(body) <= cloud.MaxInline {
		in.TemplateBody = aws.String(string(body))
		return d.reckon(ctx, in, fresh)
	}
	key := templatePrefix + hashOf(body) + ".json"
	pl, version, err := d.uploadTemplate(ctx, pl, p.CodeBucket, key, body, dry)
	if err != nil {
		return cs, err
	}
	if dry && version != "" {
		defer func() { err = errors.Join(err, d.erase(ctx, pl, key, version)) }()
	}
	in.TemplateURL = aws.String(d.url(pl, key))
	return d.reckon(ctx, in, fresh)
}

// parameters returns the template's parameters. All are passed, because an omitted one would revert to its default.
func parameters(p *cloud.Params) []types.Parameter {
	if !hasCode(p) {
		return nil
	}
	return []types.Parameter{
		{ParameterKey: aws.String("CodeBucket"), ParameterValue: &p.CodeBucket},
		{ParameterKey: aws.String("CodeKey"), ParameterValue: &p.CodeKey},
	}
}

// execute executes a change set, and reports progress until it is done.
func (d *Deployer) execute(ctx context.Context, name string, cs changeSet) error {
	_, last, err := d.events(ctx, cs.stack, "")
	if err != nil {
		return trouble("deploy", name, errors.Join(err, d.forget(ctx, cs)))
	}
	if _, err := d.cfg.Stacks.ExecuteChangeSet(ctx, &cloudformation.ExecuteChangeSetInput{ChangeSetName: &cs.id, StackName: &cs.stack}); err != nil {
		return trouble("deploy", name, errors.Join(err, d.forget(ctx, cs)))
	}
	state, all, err := d.follow(ctx, cs.stack, last)
	if err != nil {
		err := trouble("deploy", name, err)
		return fmt.Errorf("%w; CloudFormation continues: weir status %s shows its progress", err, name)
	}
	switch types.StackStatus(state) {
	case types.StackStatusCreateComplete, types.StackStatusUpdateComplete, types.StackStatusImportComplete:
		return nil
	case types.StackStatusUpdateRollbackComplete:
		return failure("deploy", name, state, all, "the stack is as it was before")
	case types.StackStatusDeleteComplete, "":
		return failure("deploy", name, "DELETE_COMPLETE", all, "what had been created is deleted again")
	default:
	}
	return failure("deploy", name, state, all, "see weir status "+name)
}

// finish records the schema version in the table, and reads the stack's outputs.
func (d *Deployer) finish(ctx context.Context, name string, res *Result) error {
	st, err := d.find(ctx, name)
	if err == nil && st == nil {
		err = errors.New("the stack disappeared during the deployment")
	}
	if err != nil {
		return trouble("deploy", name, err)
	}
	got := stackOf(st)
	res.State, res.Outputs = got.State, got.Outputs
	if _, err := driver.Create(ctx, d.cfg.Tables, name, driver.CreateConfig{}); err != nil {
		return trouble("deploy", name, err)
	}
	return nil
}
