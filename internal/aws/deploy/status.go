package deploy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	lambdatypes "github.com/aws/aws-sdk-go-v2/service/lambda/types"

	driver "github.com/weirlimits/weir/store/dynamodb"
)

// Status describes a stack. Anything that could not be read is a problem, not an error.
type Status struct {
	Stack     Stack
	Schema    driver.Schema
	Drift     []string // of the template: see [Stack.Drift]
	Table     *TableStatus
	Functions []FunctionStatus
	Problems  []string // what needs attention, one line each
}

// TableStatus describes a table. Figures are of the last hour; -1: unknown.
type TableStatus struct {
	Name            string  `json:"name"`
	State           string  `json:"state"`
	Items           int64   `json:"items"` // as DynamoDB counts them and their bytes, about every six hours
	Bytes           int64   `json:"bytes"`
	Read            float64 `json:"read_units_last_hour"`
	Write           float64 `json:"write_units_last_hour"`
	ReadsThrottled  float64 `json:"reads_throttled_last_hour"`
	WritesThrottled float64 `json:"writes_throttled_last_hour"`
}

// FunctionStatus describes a function. Figures are of the last hour; -1: unknown.
type FunctionStatus struct {
	Resource, Name  string
	State           string // Active, …
	Update          string // of its code and configuration: Successful, …
	Source          string // state of its event source: Enabled, …; "" if it reads no stream
	LastResult      string // of its event source
	Invocations     float64
	Errors          float64
	Throttles       float64
	Behind          time.Duration // maximum lag behind the stream; negative: unknown
	LongestDuration time.Duration
}

// Status inspects a stack of weir's and its resources. It writes nothing. The error is a [*NotFoundError] if there is
// none.
func (d *Deployer) Status(ctx context.Context, name string) (*Status, error) {
	st, err := d.Stack(ctx, name)
	if err != nil {
		return nil, err
	}
	s := &Status{Stack: st}
	s.stateProblem()
	if st.State == "REVIEW_IN_PROGRESS" {
		return s, nil
	}
	if s.Drift, err = st.Drift(); err != nil {
		s.problem("template", err)
	}
	all, err := d.cfg.Stacks.DescribeStackResources(ctx, &cloudformation.DescribeStackResourcesInput{StackName: &st.ID})
	if err != nil {
		return s, trouble("inspect", name, err)
	}
	s.list(all.StackResources)
	d.inspect(ctx, s)
	if err := s.measure(ctx, d.cfg.Metrics); err != nil {
		s.problem("metrics", err)
	}
	s.judge()
	slices.Sort(s.Problems)
	return s, nil
}

// list fills in the names of the table and the functions, without their state.
func (s *Status) list(resources []types.StackResource) {
	for i := range resources {
		r := &resources[i]
		if r.ResourceStatus == types.ResourceStatusDeleteComplete {
			continue
		}
		id, name := aws.ToString(r.LogicalResourceId), aws.ToString(r.PhysicalResourceId)
		switch aws.ToString(r.ResourceType) {
		case typeTable:
			s.Table = &TableStatus{
				Name: name, Items: -1, Bytes: -1, Read: -1, Write: -1, ReadsThrottled: -1, WritesThrottled: -1,
			}
		case typeLambda:
			s.Functions = append(s.Functions, FunctionStatus{
				Resource: id, Name: name, Invocations: -1, Errors: -1, Throttles: -1, Behind: -1, LongestDuration: -1,
			})
		}
	}
	slices.SortFunc(s.Functions, func(a, b FunctionStatus) int { return strings.Compare(a.Resource, b.Resource) })
}

// inspect reads the state of the table and the functions, all at the same time.
func (d *Deployer) inspect(ctx context.Context, s *Status) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	look := func(what string, f func() error) {
		wg.Go(func() {
			if err := f(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				s.problem(what, err)
			}
		})
	}
	if t := s.Table; t != nil {
		look("table "+t.Name, func() error { return d.lookAtTable(ctx, t) })
		look("table "+t.Name, func() (err error) {
			s.Schema, err = driver.ReadSchema(ctx, d.cfg.Tables, t.Name)
			return err
		})
	}
	for i := range s.Functions {
		f := &s.Functions[i]
		look("function "+f.Name, func() error { return d.lookAtFunction(ctx, f) })
	}
	wg.Wait()
}

func (s *Status) problem(what string, err error) {
	s.Problems = append(s.Problems, what+": "+brief(err).Error())
}

// stateProblem adds a problem if the stack's own state is one.
func (s *Status) stateProblem() {
	st := &s.Stack
	var text string
	switch {
	case st.State == "REVIEW_IN_PROGRESS":
		text = fmt.Sprintf("it was never created: weir aws deploy %s creates it, weir aws destroy %[1]s removes it",
			st.Name)
	case !resting(st.State):
		return
	case st.State == "ROLLBACK_COMPLETE":
		text = "its creation failed: run weir aws destroy " + st.Name + ", then deploy again"
	case strings.HasSuffix(st.State, "_FAILED"):
		text = "the last change failed"
	case st.State == "UPDATE_ROLLBACK_COMPLETE":
		text = "the last change failed, and the stack is as it was before"
	default:
		return
	}
	if st.Reason != "" {
		text += " (" + st.Reason + ")"
	}
	s.Problems = append(s.Problems, "stack: "+text)
}

func (d *Deployer) lookAtTable(ctx context.Context, t *TableStatus) error {
	out, err := d.cfg.Tables.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &t.Name})
	if err != nil {
		return err
	}
	t.State = string(out.Table.TableStatus)
	t.Items, t.Bytes = aws.ToInt64(out.Table.ItemCount), aws.ToInt64(out.Table.TableSizeBytes)
	return nil
}

func (d *Deployer) lookAtFunction(ctx context.Context, f *FunctionStatus) error {
	out, err := d.cfg.Functions.GetFunctionConfiguration(ctx, &lambda.GetFunctionConfigurationInput{
		FunctionName: &f.Name,
	})
	if err != nil {
		return err
	}
	f.State, f.Update = string(out.State), string(out.LastUpdateStatus)
	sources, err := d.cfg.Functions.ListEventSourceMappings(ctx, &lambda.ListEventSourceMappingsInput{
		FunctionName: &f.Name,
	})
	if err != nil {
		return err
	}
	for _, m := range sources.EventSourceMappings {
		f.Source, f.LastResult = aws.ToString(m.State), aws.ToString(m.LastProcessingResult)
	}
	return nil
}

// behind is the lag behind the stream above which it is a problem.
const behind = 5 * time.Minute

// judge adds the problems that the figures show.
func (s *Status) judge() {
	add := func(format string, args ...any) { s.Problems = append(s.Problems, fmt.Sprintf(format, args...)) }
	if t := s.Table; t != nil {
		if t.State != "" && t.State != "ACTIVE" && t.State != "UPDATING" {
			add("table %s: is %s", t.Name, t.State)
		}
		if t.ReadsThrottled > 0 || t.WritesThrottled > 0 {
			add(
				"table %s: %.0f reads and %.0f writes were throttled in the last hour", t.Name,
				max(0, t.ReadsThrottled), max(0, t.WritesThrottled),
			)
		}
		switch {
		case s.Schema.Client > driver.SchemaVersion:
			add(
				"table %s: requires clients that know schema version %d, this weir knows %d: upgrade weir", t.Name,
				s.Schema.Client, driver.SchemaVersion,
			)
		case s.Schema.Target != 0:
			add("table %s: its schema is %s: weir aws upgrade %s continues", t.Name, s.Schema, s.Stack.Name)
		}
	}
	for i := range s.Functions {
		f := &s.Functions[i]
		if f.State != "" && f.State != string(lambdatypes.StateActive) && f.State != string(lambdatypes.StateInactive) {
			add("function %s: is %s", f.Name, f.State)
		}
		if f.Update == string(lambdatypes.LastUpdateStatusFailed) {
			add("function %s: its last update failed", f.Name)
		}
		if f.Source != "" && f.Source != "Enabled" && f.Source != "Creating" && f.Source != "Updating" {
			add("function %s: its stream is %s", f.Name, f.Source)
		}
		if strings.HasPrefix(f.LastResult, "PROBLEM") {
			add("function %s: reading its stream: %s", f.Name, f.LastResult)
		}
		if f.Errors > 0 {
			add("function %s: %.0f of %.0f invocations failed in the last hour", f.Name, f.Errors, f.Invocations)
		}
		if f.Throttles > 0 {
			add("function %s: %.0f invocations were throttled in the last hour", f.Name, f.Throttles)
		}
		if f.Behind > behind {
			add("function %s: was up to %s behind its stream in the last hour", f.Name, f.Behind.Round(time.Second))
		}
	}
}
