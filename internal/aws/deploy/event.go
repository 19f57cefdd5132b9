package deploy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	smithytime "github.com/aws/smithy-go/time"
)

// Event is something that happened to a resource, or to the stack itself.
type Event struct {
	At       time.Time
	Resource string // the name in the template
	Type     string
	State    string // CREATE_IN_PROGRESS, UPDATE_COMPLETE, DELETE_FAILED, …
	Reason   string
}

// Whole reports whether the event is about the stack itself.
func (e Event) Whole() bool { return e.Type == typeStack }

// Ended reports whether the operation on the resource has ended.
func (e Event) Ended() bool { return !strings.HasSuffix(e.State, "_IN_PROGRESS") }

// Failed reports whether the resource failed, rather than being cancelled because of another.
func (e Event) Failed() bool {
	return strings.HasSuffix(e.State, "_FAILED") && !cascade(e.Reason)
}

// cascade reports whether a failure only follows from another.
func cascade(reason string) bool {
	return strings.HasPrefix(reason, "Resource creation cancelled") ||
		strings.HasPrefix(reason, "Resource update cancelled") ||
		strings.HasPrefix(reason, "The following resource(s) failed") || reason == ""
}

func eventOf(e *types.StackEvent) Event {
	return Event{
		At: aws.ToTime(e.Timestamp), Resource: aws.ToString(e.LogicalResourceId), Type: aws.ToString(e.ResourceType),
		State: string(e.ResourceStatus), Reason: reasonText(aws.ToString(e.ResourceStatusReason)),
	}
}

// formation calls CloudFormation, and follows the operations that it runs.
type formation struct {
	Stacks
	tell func(Event) // nil: nobody receives events
	poll time.Duration
}

// find returns a stack, whether weir's or not, or nil.
func (f *formation) find(ctx context.Context, name string) (*types.Stack, error) {
	out, err := f.DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: &name})
	if noStack(err) || err == nil && len(out.Stacks) == 0 {
		return nil, nil //nolint:nilnil // there is none
	}
	if err != nil {
		return nil, err
	}
	return &out.Stacks[0], nil
}

// events returns the events of a stack after a given one, in order, and the ID of the last. If after is "", it
// returns all.
func (f *formation) events(ctx context.Context, stackID, after string) (all []Event, last string, err error) {
	last = after
	pages := cloudformation.NewDescribeStackEventsPaginator(
		f, &cloudformation.DescribeStackEventsInput{StackName: &stackID},
	)
	for first := true; pages.HasMorePages(); first = false {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, after, err
		}
		if first && len(page.StackEvents) > 0 {
			last = aws.ToString(page.StackEvents[0].EventId)
		}
		end := slices.IndexFunc(page.StackEvents, func(e types.StackEvent) bool {
			return after != "" && aws.ToString(e.EventId) == after
		})
		if end < 0 {
			end = len(page.StackEvents)
		}
		for i := range page.StackEvents[:end] {
			all = append(all, eventOf(&page.StackEvents[i]))
		}
		if end < len(page.StackEvents) {
			break
		}
	}
	slices.Reverse(all)
	return all, last, nil
}

// firstFailure returns the failure from which the others follow, or that of the stack itself.
func firstFailure(all []Event) *Event {
	for _, whole := range []bool{false, true} {
		if i := slices.IndexFunc(all, func(e Event) bool { return e.Whole() == whole && e.Failed() }); i >= 0 {
			return &all[i]
		}
	}
	return nil
}

// followTries is how many polls in a row may fail. The operation on the stack continues meanwhile.
const followTries = 5

// run starts an operation on a stack, and follows it as follow does.
func (f *formation) run(
	ctx context.Context, op, name, stackID string, start func() error,
) (state string, all []Event, err error) {
	_, last, err := f.events(ctx, stackID, "")
	if err == nil {
		err = start()
	}
	if err != nil {
		return "", nil, trouble(op, name, err)
	}
	if state, all, err = f.follow(ctx, stackID, last); err != nil {
		err = fmt.Errorf(
			"%w; CloudFormation continues: weir aws status %s shows its progress", trouble(op, name, err), name,
		)
	}
	return state, all, err
}

// follow reports the events of a stack after a given one until the stack is at rest, and returns its final state, ""
// if it is gone.
func (f *formation) follow(ctx context.Context, stackID, after string) (state string, all []Event, err error) {
	whole := "" // the stack's state according to its events, which change only once the operation has started
	for failed := 0; ; {
		news, err := f.look(ctx, stackID, &state, &after)
		if failed++; err != nil && (failed == followTries || ctx.Err() != nil) {
			return state, all, err
		} else if err == nil {
			failed = 0
		}
		all = append(all, news...)
		for _, e := range news {
			if e.Whole() {
				whole = e.State
			}
			if f.tell != nil {
				f.tell(e)
			}
		}
		if err == nil && (state == "" || state == "DELETE_COMPLETE" || resting(state) && whole == state) {
			return state, all, nil
		}
		if err := smithytime.SleepWithContext(ctx, f.poll); err != nil {
			return state, all, err
		}
	}
}

// look returns the new events of a stack. It reads the state first, so that no event before it is missed.
func (f *formation) look(ctx context.Context, stackID string, state, after *string) ([]Event, error) {
	st, err := f.find(ctx, stackID)
	if err != nil {
		return nil, err
	}
	if *state = ""; st != nil {
		*state = string(st.StackStatus)
	}
	news, last, err := f.events(ctx, stackID, *after)
	if noStack(err) {
		return nil, nil
	}
	*after = last
	return news, err
}

func resting(state string) bool { return !strings.HasSuffix(state, "_IN_PROGRESS") }

// failure returns the error of a stack that came to rest in another state than intended.
func failure(op, name, state string, all []Event, hint string) error {
	err := &Error{Op: op, Stack: name, Err: errors.New("the stack is now " + state), Hint: hint}
	if e := firstFailure(all); e != nil {
		err.Err = errors.New(e.Reason)
		if !e.Whole() {
			err.Resource = e.Resource + " (" + e.Type + ")"
		}
	}
	return err
}
