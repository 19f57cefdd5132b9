package function

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"
)

// response is the response to a CloudFormation event.
type response struct {
	Status             string
	Reason             string `json:",omitempty"`
	PhysicalResourceID string `json:"PhysicalResourceId"`
	StackID            string `json:"StackId"`
	RequestID          string `json:"RequestId"`
	LogicalResourceID  string `json:"LogicalResourceId"`

	Data map[string]string `json:",omitempty"`
}

const failedStatus = "FAILED"

func (ev *resourceEvent) answer(status, id string) *response {
	return &response{
		Status: status, PhysicalResourceID: id, StackID: ev.StackID, RequestID: ev.RequestID,
		LogicalResourceID: ev.LogicalResourceID,
	}
}

func (ev *resourceEvent) succeeded(id string, data map[string]string) *response {
	r := ev.answer("SUCCESS", id)
	r.Data = data
	return r
}

func (ev *resourceEvent) failed(id string, reasons []Problem) *response {
	r := ev.answer(failedStatus, id)
	texts := make([]string, len(reasons))
	for i := range reasons {
		texts[i] = reasons[i].String()
	}
	r.Reason = strings.Join(texts, "; ")
	return r
}

// maxResponse is the maximum size of a response in bytes that CloudFormation accepts.
const maxResponse = 4096

// fit encodes a response. A reason that is too long is cut, and names the place of the rest.
func (whole response) fit() ([]byte, error) {
	r := whole
	encode := func() ([]byte, error) {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		err := enc.Encode(&r)
		return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
	}
	text, err := encode()
	if len(text) > maxResponse && len(r.Reason) == 0 {
		r.Data = nil // its names are too long
		text, err = encode()
	}
	for n := min(len(r.Reason), maxResponse); err == nil && len(text) > maxResponse &&
		n > 0; n -= max(16, len(text)-maxResponse) {
		r.Reason = strings.ToValidUTF8(
			whole.Reason[:n], "",
		) + " … the full text is in the function's log, stream " + lambdacontext.LogStreamName
		text, err = encode()
	}
	return text, err
}

const (
	respondTries   = 5
	respondTimeout = 5 * time.Second
)

var respondClient = &http.Client{Timeout: respondTimeout}

// domains are the domains of AWS, by partition.
var domains = []string{
	"amazonaws.com", "amazonaws.com.cn", "amazonaws.eu", "c2s.ic.gov", "sc2s.sgov.gov", "cloud.adc-e.uk",
	"csp.hci.ic.gov",
}

// errElsewhere reports that nothing is sent to an address.
var errElsewhere = errors.New("responses go only to CloudFormation's bucket of this region, over https")

// answerable returns an error if nothing may be sent to an address. Anyone who may invoke the function can name any
// address, including one that only the function's network can reach, or a bucket of their own.
func (p *Provisioner) answerable(u *url.URL) error {
	host := strings.ToLower(u.Hostname())
	switch {
	case p.Anywhere:
		return nil
	case u.Scheme != "https":
		return fmt.Errorf("the response URL has the scheme %q, not https: %w", u.Scheme, errElsewhere)
	case u.User != nil, u.Port() != "" && u.Port() != "443":
		return fmt.Errorf("the response URL has a user or a port: %w", errElsewhere)
	case !p.receives(host):
		return fmt.Errorf("the response URL has the host %q: %w", host, errElsewhere)
	}
	return nil
}

// receives reports whether a host is the bucket in which CloudFormation receives responses in the function's region.
// Its name has the region without hyphens; a custom resource and its function are always in the same region.
func (p *Provisioner) receives(host string) bool {
	at, ok := strings.CutPrefix(
		host, "cloudformation-custom-resource-response-"+strings.ReplaceAll(p.Region, "-", "")+".s3",
	)
	return ok && p.Region != "" && (at == ".amazonaws.com" || slices.ContainsFunc(domains, func(d string) bool {
		return at == "."+p.Region+"."+d || at == "-"+p.Region+"."+d
	}))
}

// address checks the address that an event names. The address is secret, so the error does not contain it.
func (p *Provisioner) address(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		err = fmt.Errorf("the response URL cannot be parsed: %w", errElsewhere)
	} else {
		err = p.answerable(u)
	}
	if err != nil {
		return fmt.Errorf("respond to CloudFormation: %w", err)
	}
	return nil
}

// respond sends the response to the event's address, with retries. The address is secret: anyone who has it can
// respond.
func (p *Provisioner) respond(ctx context.Context, address string, r *response) error {
	text, err := r.fit()
	if err != nil {
		return fmt.Errorf("respond to CloudFormation: %w", err)
	}
	client := *respondClient
	if p.Client != nil {
		client = *p.Client
	}
	client.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		if len(via) >= respondTries {
			return http.ErrUseLastResponse
		}
		return p.answerable(req.URL)
	}
	for try, wait := 1, 100*time.Millisecond; ; try, wait = try+1, 2*wait {
		retry, err := put(ctx, &client, address, text)
		if err == nil {
			return nil
		}
		err = fmt.Errorf(
			"respond to CloudFormation with %s: %s", r.Status,
			strings.ReplaceAll(err.Error(), address, "the response URL"),
		)
		if !retry || try == respondTries {
			return err
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return err
		case <-t.C:
		}
	}
}

func put(ctx context.Context, client *http.Client, address string, text []byte) (retry bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, address, bytes.NewReader(text))
	if err != nil {
		return false, err
	}
	resp, err := client.Do(req)
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err // drops the address, or that of a redirect
		}
		return !errors.Is(err, errElsewhere), err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16)) // so that the connection can be reused
	if resp.StatusCode != http.StatusOK {
		return resp.StatusCode >= 500 ||
			resp.StatusCode == http.StatusTooManyRequests, fmt.Errorf("status %s", resp.Status)
	}
	return false, nil
}
