package deploy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/weirlimits/weir/internal/aws/stack"
	driver "github.com/weirlimits/weir/store/dynamodb"
)

// Request is a deployment to make.
type Request struct {
	// Stack is the stack's name.
	Stack string
	// Values are the parameters to set. All others stay as they are, or get their defaults in a new stack.
	Values stack.Values
	// Tags are the user's own tags of the stack. Nil leaves them as they are.
	Tags map[string]string
	// DryRun computes what would change and leaves nothing behind.
	DryRun bool
	// Replace allows the table or the archive to be replaced or removed.
	Replace bool
}

// Result is what a deployment did, or with DryRun would do.
type Result struct {
	Stack   string            `json:"stack"`
	Region  string            `json:"region"`
	DryRun  bool              `json:"dry_run"`
	Created bool              `json:"created"`
	State   string            `json:"state,omitempty"` // of the stack, "" with DryRun
	Changes []Change          `json:"changes"`
	Outputs map[string]string `json:"outputs,omitempty"`
}

// Deploy creates a stack or updates it as requested, and completes its table so that a store can be opened on it. If a
// weir table of the stack's name exists without the stack, Deploy adopts it.
//
// Deploy refuses to replace the table or the archive unless Replace is set. If CloudFormation fails, the error is an
// [*Error] with the first resource that failed and why. A stack that was being created is then gone; one that was
// being changed is as it was before. Values that AWS would refuse are a [*stack.ValueError].
func (d *Deployer) Deploy(ctx context.Context, req Request) (res Result, err error) {
	name := req.Stack
	res = Result{Stack: name, Region: d.cfg.Region, DryRun: req.DryRun, Changes: []Change{}}
	t, err := stack.Load(stack.Weir)
	if err != nil {
		return res, err
	}
	// Values are checked before any call, and combinations with those of the stack.
	if err := cmp.Or(t.CheckEach(stack.Values{"Stack": name}), t.CheckEach(req.Values)); err != nil {
		return res, err
	}
	old, fresh, err := d.startable(ctx, name)
	if err != nil {
		return res, trouble("deploy", name, err)
	}
	res.Created = old.Template == nil
	p, err := newPlan(&d.cfg, t, req, &old)
	if err != nil {
		return res, err
	}
	cs, err := d.prepare(ctx, p, fresh, req.DryRun)
	executed := false
	defer func() {
		if !executed {
			err = errors.Join(err, trouble("clean up after", name, d.formation.forget(ctx, cs)))
		}
	}()
	if err != nil && !errors.Is(err, errNothing) {
		return res, trouble("deploy", name, err)
	}
	res.Changes = append(res.Changes, cs.changes...)
	if d.cfg.Planned != nil {
		d.cfg.Planned(cs.changes)
	}
	if lost := slices.IndexFunc(cs.changes, Change.loses); lost >= 0 && !req.Replace {
		return res, refusal(name, p.asked(req.Values), cs.changes[lost])
	}
	if req.DryRun {
		return res, nil
	}
	if err == nil {
		if executed, err = d.execute(ctx, name, cs); err != nil {
			return res, err
		}
	}
	return res, d.finish(ctx, name, &res)
}

// startable returns the stack as it is, without a template if it must be created, and whether nothing of it exists yet;
// or why it cannot be deployed to.
func (d *Deployer) startable(ctx context.Context, name string) (old Stack, fresh bool, err error) {
	st, err := d.formation.find(ctx, name)
	switch {
	case err != nil:
		return old, false, err
	case st == nil, st.StackStatus == types.StackStatusReviewInProgress: // somebody's review, or an interrupted one
		return old, st == nil, d.adoptable(ctx, name)
	case tagOf(st, stack.TagStack) == "":
		return old, false, notOurs("deploy", name)
	}
	state := string(st.StackStatus)
	refuse := func(text, hint string) (Stack, bool, error) {
		all, _, err := d.formation.events(ctx, aws.ToString(st.StackId), "")
		if err != nil {
			return old, false, err
		}
		if e := firstFailure(all); e != nil {
			text += "; the first failure was " + e.Resource + ": " + e.Reason
		}
		return old, false, &Error{
			Op: "deploy", Stack: name, Err: fmt.Errorf("the stack is in %s: %s", state, text), Hint: hint,
		}
	}
	switch st.StackStatus {
	case types.StackStatusRollbackComplete, types.StackStatusRollbackFailed, types.StackStatusCreateFailed:
		return refuse("its creation failed, and CloudFormation can only delete such a stack",
			"run weir aws destroy "+name+", then deploy again")
	case types.StackStatusDeleteFailed:
		return refuse("its deletion failed", "run weir aws destroy "+name+" again once the cause is fixed")
	case types.StackStatusUpdateRollbackFailed, types.StackStatusUpdateFailed:
		return refuse("a change failed, and so did its rollback",
			"fix the cause, then run aws cloudformation continue-update-rollback --stack-name "+name)
	default:
	}
	if !resting(state) {
		return old, false, busy("deploy", name, state)
	}
	old, err = d.read(ctx, st)
	return old, false, err
}

// adoptable rejects a table of the stack's name that is not weir's.
func (d *Deployer) adoptable(ctx context.Context, table string) error {
	_, err := d.cfg.Tables.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &table})
	switch {
	case code(err) == noTable:
		return nil
	case err != nil:
		return err
	}
	sc, err := driver.ReadSchema(ctx, d.cfg.Tables, table)
	// ValidationException: the table has other keys
	if err == nil && sc.Version > 0 || err != nil && code(err) != "ValidationException" {
		return err
	}
	return &Error{
		Op: "deploy", Stack: table, Err: fmt.Errorf("table %s exists and is not weir's", table),
		Hint: "name another stack",
	}
}

// prepare uploads the functions' package and creates the change set. A dry run uploads nothing.
func (d *Deployer) prepare(ctx context.Context, p *plan, fresh, dry bool) (cs changeSet, err error) {
	switch {
	case !p.functions(): // the parameters must have values
		p.set("CodeBucket", cmp.Or(p.full["CodeBucket"], "none"))
		p.set("CodeKey", cmp.Or(p.full["CodeKey"], "none"))
	case p.full["CodeKey"] == "" || strings.HasPrefix(p.full["CodeKey"], codePrefix) || p.full["CodeKey"] == "none":
		if err := d.code(ctx, p, dry); err != nil {
			return cs, err
		}
	}
	in := &cloudformation.CreateChangeSetInput{
		StackName: &p.name, ChangeSetType: types.ChangeSetTypeUpdate,
		Capabilities: []types.Capability{types.CapabilityCapabilityNamedIam},
		Description:  aws.String("weir " + d.cfg.Version), Parameters: p.parameters(),
		TemplateBody: aws.String(string(p.template.CloudFormation(nil))),
		// Adopt a table that outlived its stack.
		ImportExistingResources: aws.Bool(true),
	}
	if p.old.Template == nil {
		in.ChangeSetType, in.OnStackFailure = types.ChangeSetTypeCreate, types.OnStackFailureDelete
	}
	for _, k := range slices.Sorted(maps.Keys(p.tags)) {
		in.Tags = append(in.Tags, types.Tag{Key: aws.String(k), Value: aws.String(p.tags[k])})
	}
	return d.formation.reckon(ctx, in, fresh)
}

// code makes the functions' package and uploads it, unless the run is dry.
func (d *Deployer) code(ctx context.Context, p *plan, dry bool) error {
	bucket := p.full["CodeBucket"]
	if strings.HasPrefix(bucket, bucketPrefix) || bucket == "none" {
		bucket = ""
	}
	pl, err := placeOf(ctx, &d.cfg.Clients, bucket)
	if err != nil {
		return err
	}
	zip, hash, err := d.cfg.Zip(ctx)
	if err != nil {
		return fmt.Errorf("make the functions' package: %w", err)
	}
	p.set("CodeBucket", pl.bucket)
	p.set("CodeKey", codePrefix+hash+".zip")
	if dry {
		return nil
	}
	if err := pl.ensure(ctx); err != nil {
		return err
	}
	return pl.upload(ctx, p.full["CodeKey"], zip)
}

// execute executes a change set, and reports progress until it is done. started is whether it began.
func (d *Deployer) execute(ctx context.Context, name string, cs changeSet) (started bool, err error) {
	state, all, err := d.formation.run(ctx, "deploy", name, cs.stack, func() error {
		_, err := d.cfg.Stacks.ExecuteChangeSet(ctx, &cloudformation.ExecuteChangeSetInput{
			ChangeSetName: &cs.id, StackName: &cs.stack,
		})
		started = err == nil
		return err
	})
	if err != nil {
		return started, err
	}
	switch types.StackStatus(state) {
	case types.StackStatusCreateComplete, types.StackStatusUpdateComplete, types.StackStatusImportComplete:
		return true, nil
	case types.StackStatusUpdateRollbackComplete:
		return true, failure("deploy", name, state, all, "the stack is as it was before")
	case types.StackStatusDeleteComplete, "":
		return true, failure("deploy", name, "DELETE_COMPLETE", all, "what had been created is deleted again")
	default:
	}
	return true, failure("deploy", name, state, all, "see weir aws status "+name)
}

// finish records the schema version in the table, and reads the stack's outputs.
func (d *Deployer) finish(ctx context.Context, name string, res *Result) error {
	st, err := d.formation.find(ctx, name)
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

// Table creates only the table of a deployment, without CloudFormation, or completes a table of weir's. A stack of
// that name deployed later adopts it. A dry run only inspects.
func (d *Deployer) Table(ctx context.Context, req Request) (driver.Report, error) {
	t, err := stack.Load(stack.Weir)
	if err != nil {
		return driver.Report{}, err
	}
	p, err := newPlan(&d.cfg, t, req, &Stack{})
	if err != nil {
		return driver.Report{}, err
	}
	if req.DryRun {
		return driver.Check(ctx, d.cfg.Tables, req.Stack)
	}
	days, err := strconv.Atoi(p.full["PitrDays"])
	if err != nil {
		return driver.Report{}, err
	}
	return driver.Create(ctx, d.cfg.Tables, req.Stack, driver.CreateConfig{
		Tags: p.tags, Stream: true, PITR: days > 0, PITRDays: days,
		DeletionProtection: p.full["DeletionProtection"] == "true", KMSKey: p.full["KmsKey"],
	})
}

// SchemaVersion is the version of the table layout that this weir writes.
const SchemaVersion = driver.SchemaVersion

// Migrated is the result of migrating a table's layout.
type Migrated = driver.Migrated

// Migrate migrates only the table's layout to this weir's version, as [Deployer.Upgrade] does. progress may be nil.
func (d *Deployer) Migrate(ctx context.Context, table string, dry bool, progress func(Migrated)) (Migrated, error) {
	return driver.Migrate(ctx, d.cfg.Tables, table, driver.MigrateConfig{DryRun: dry, Progress: progress})
}

// UpgradeRequest is a stack to upgrade to this weir's version.
type UpgradeRequest struct {
	Stack  string
	DryRun bool
	// Replace is as in [Request].
	Replace bool
	// Progress, if not nil, receives the progress of the table's migration.
	Progress func(Migrated)
}

// Upgraded is what an upgrade did, or with DryRun would do.
type Upgraded struct {
	Result
	From     string // the version of the weir that deployed the stack last
	Migrated Migrated
}

// Upgrade upgrades a stack to this weir's version: first its template and functions, which read both layouts, then
// the table's layout. It refuses a stack that a later weir deployed, or whose table requires later clients. If an
// upgrade is interrupted, calling Upgrade again continues it.
func (d *Deployer) Upgrade(ctx context.Context, req UpgradeRequest) (up Upgraded, err error) {
	st, err := d.Stack(ctx, req.Stack)
	if err != nil {
		return up, err
	}
	up.From = st.Version
	if later(st.Version, d.cfg.Version) {
		return up, &Error{
			Op: "upgrade", Stack: st.Name,
			Err: fmt.Errorf("weir %s deployed it, and this is %s", st.Version, d.cfg.Version), Hint: "upgrade weir",
		}
	}
	if st.State != "REVIEW_IN_PROGRESS" {
		sc, err := driver.ReadSchema(ctx, d.cfg.Tables, st.Name)
		if err != nil {
			return up, trouble("upgrade", st.Name, err)
		}
		if sc.Client > driver.SchemaVersion {
			err := fmt.Errorf(
				"the table requires clients that know schema version %d; this weir knows %d", sc.Client,
				driver.SchemaVersion,
			)
			return up, &Error{Op: "upgrade", Stack: st.Name, Err: err, Hint: "upgrade weir"}
		}
	}
	if up.Result, err = d.Deploy(ctx, Request{Stack: st.Name, DryRun: req.DryRun, Replace: req.Replace}); err != nil {
		return up, err
	}
	up.Migrated, err = d.Migrate(ctx, st.Name, req.DryRun, req.Progress)
	return up, trouble("upgrade", st.Name, err)
}
