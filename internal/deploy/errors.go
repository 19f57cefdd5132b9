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

// NotFoundError says that there is no stack of weir's of a name.
type NotFoundError struct {
	Name, Region string
	Near         []string // of weir's stacks there: those that may have been meant, else all
	Meant        bool     // Near are like Name
}

// Error names what there is instead.
func (e *NotFoundError) Error() string {
	text := fmt.Sprintf("stack %s: not found in %s", e.Name, e.Region)
	switch {
	case e.Meant:
		return text + ": did you mean " + strings.Join(e.Near, " or ") + "?"
	case len(e.Near) > 0:
		return text + ": there is " + strings.Join(e.Near, ", ")
	}
	return text + ", nor any other of weir's: weir list --region looks elsewhere, weir deploy makes one"
}

// Error is why a stack cannot be brought to where it is to be.
type Error struct {
	Op       string // "deploy", "destroy", …
	Stack    string
	Resource string // the first that failed, as Table (AWS::DynamoDB::Table), or ""
	Err      error
	Hint     string // what to do, or ""
}

// Error is one line.
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

// trouble is an error of AWS in brief, with what was being done.
func trouble(op, stack string, err error) error {
	var known *Error
	var none *NotFoundError
	if err == nil || errors.As(err, &known) || errors.As(err, &none) {
		return err
	}
	return &Error{Op: op, Stack: stack, Err: brief(err)}
}

// brief leaves out of an error's text what the SDK wraps around it, but for which call it was.
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
		return &briefError{op.ServiceID + " " + op.OperationName + ": " + strings.TrimSuffix(api.ErrorCode()+": "+reasonText(api.ErrorMessage()), ": "), err}
	case errors.As(err, &resp) && resp.HTTPStatusCode() > 0:
		return &briefError{fmt.Sprintf("%s %s: what was answered is not as AWS answers: status %d", op.ServiceID, op.OperationName, resp.HTTPStatusCode()), err}
	case errors.As(err, &call): // nothing was answered
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

// reasonText is what AWS says, without the ids of requests and what its services tell each other.
func reasonText(text string) string {
	if m := handlerText.FindStringSubmatch(text); m != nil {
		text = m[1]
	}
	return strings.TrimSpace(spaces.ReplaceAllString(requestTails.ReplaceAllString(text, ""), " "))
}

// noStack reports whether CloudFormation says that there is no such stack, or could be none of that name.
func noStack(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && api.ErrorCode() == "ValidationError" &&
		(strings.Contains(api.ErrorMessage(), "does not exist") || strings.Contains(api.ErrorMessage(), "at 'stackName' failed to satisfy constraint"))
}

// unchanged reports whether CloudFormation says that there is nothing to change.
func unchanged(text string) bool {
	return strings.Contains(text, "didn't contain changes") || strings.Contains(text, "No updates are to be performed")
}
