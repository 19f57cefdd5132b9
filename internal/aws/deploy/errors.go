package deploy

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
)

// NotFoundError reports that there is no weir stack of that name.
type NotFoundError struct {
	Name, Region string
	Near         []string // weir's stacks in the region: those with similar names, otherwise all
	Meant        bool     // Near have similar names
}

// Error names the existing stacks.
func (e *NotFoundError) Error() string {
	text := fmt.Sprintf("stack %s: not found in %s", e.Name, e.Region)
	switch {
	case e.Meant:
		return text + ": did you mean " + strings.Join(e.Near, " or ") + "?"
	case len(e.Near) > 0:
		return text + ": there is " + strings.Join(e.Near, ", ")
	}
	return text + ", nor is any other stack of weir's: weir aws list --region looks elsewhere, " +
		"weir aws deploy creates one"
}

// Error reports why a stack could not be brought to the requested state.
type Error struct {
	Op       string // "deploy", "destroy", …
	Stack    string
	Resource string // the first that failed, as Table (AWS::DynamoDB::Table), or ""
	Err      error
	Hint     string // what to do, or ""
}

// Error formats the error on one line.
func (e *Error) Error() string {
	text := e.Op + " " + e.Stack + ": "
	if e.Resource != "" {
		text += e.Resource + ": "
	}
	if text += e.Err.Error(); e.Hint != "" {
		text += ": " + e.Hint
	}
	return text
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// noTable is DynamoDB's code for a table that does not exist.
const noTable = "ResourceNotFoundException"

var errNotOurs = errors.New("the stack was not deployed by weir")

func notOurs(op, stack string) error {
	return &Error{Op: op, Stack: stack, Err: errNotOurs, Hint: "name another stack"}
}

// busy is the error for a stack on which an operation is under way.
func busy(op, stack, state string) error {
	return &Error{
		Op: op, Stack: stack, Err: fmt.Errorf("the stack is in %s: somebody else is changing it", state),
		Hint: "wait until weir aws status " + stack + " says that it is done",
	}
}

// trouble shortens an error from AWS and adds what was being done.
func trouble(op, stack string, err error) error {
	var known *Error
	var none *NotFoundError
	if err == nil || errors.As(err, &known) || errors.As(err, &none) {
		return err
	}
	return &Error{Op: op, Stack: stack, Err: brief(err)}
}

// brief drops what the SDK wraps around an error, except for the name of the call.
func brief(err error) error {
	var (
		api  smithy.APIError
		op   *smithy.OperationError
		resp *awshttp.ResponseError
		call *net.OpError
	)
	switch {
	case !errors.As(err, &op):
		return err
	case errors.As(err, &api):
		return &briefError{
			op.ServiceID + " " + op.OperationName + ": " + strings.TrimSuffix(
				api.ErrorCode()+": "+reasonText(api.ErrorMessage()), ": ",
			),
			err,
		}
	case errors.As(err, &resp) && resp.HTTPStatusCode() > 0:
		return &briefError{
			fmt.Sprintf(
				"%s %s: the response is not one of AWS: status %d", op.ServiceID, op.OperationName,
				resp.HTTPStatusCode(),
			),
			err,
		}
	case errors.As(err, &call): // there was no response
		return &briefError{op.ServiceID + " " + op.OperationName + ": " + call.Error(), err}
	}
	return err
}

type briefError struct {
	text string
	err  error
}

func (e *briefError) Error() string { return e.text }

func (e *briefError) Unwrap() error { return e.err }

var (
	handlerText  = regexp.MustCompile(`(?s)^Resource handler returned message: "(.*)"`)
	requestTails = regexp.MustCompile(`\s*\((Service|RequestToken|Request ID|SDK Attempt Count)[^()]*\)`)
	spaces       = regexp.MustCompile(`\s+`)
)

// reasonText returns AWS's message without request IDs and internal details.
func reasonText(text string) string {
	if m := handlerText.FindStringSubmatch(text); m != nil {
		text = m[1]
	}
	return strings.TrimSpace(spaces.ReplaceAllString(requestTails.ReplaceAllString(text, ""), " "))
}

// noStack reports whether CloudFormation found that the stack does not exist, or that its name is invalid.
func noStack(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && api.ErrorCode() == "ValidationError" &&
		(strings.Contains(api.ErrorMessage(), "does not exist") || strings.Contains(
			api.ErrorMessage(), "at 'stackName' failed to satisfy constraint",
		))
}

// unchanged reports whether CloudFormation found nothing to change.
func unchanged(text string) bool {
	return strings.Contains(text, "didn't contain changes") || strings.Contains(text, "No updates are to be performed")
}
