package lambdafn

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

// response is the answer to an event of CloudFormation.
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
	return &response{Status: status, PhysicalResourceID: id, StackID: ev.StackID, RequestID: ev.RequestID, LogicalResourceID: ev.LogicalResourceID}
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

// maxResponse is how many bytes CloudFormation takes.
const maxResponse = 4096

// fit encodes a response. A reason that is too long is cut, and says where the whole of it is.
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
		r.Data = nil // of names that are long
		text, err = encode()
	}
	for n := min(len(r.Reason), maxResponse); err == nil && len(text) > maxResponse && n > 0; n -= max(16, len(text)-maxResponse) {
		r.Reason = strings.ToValidUTF8(whole.Reason[:n], "") + " … all of it is in the log of the function, stream " + lambdacontext.LogStreamName
		text, err = encode()
	}
	return text, err
}

const (
	respondTries   = 5
	respondTimeout = 5 * time.Second
)

var respondClient = &http.Client{Timeout: respondTimeout}

// domains are those of AWS, by partition: CloudFormation takes answers in buckets under them.
var domains = []string{
	"amazonaws.com", "amazonaws.com.cn", "amazonaws.eu", "c2s.ic.gov", "sc2s.sgov.gov", "cloud.adc-e.uk", "csp.hci.ic.gov",
}

// errElsewhere says that nothing is sent to an address.
var errElsewhere = errors.New("answers go only to https addresses of AWS")

// answerable reports why nothing is sent to an address. Whoever may invoke the function may name any, also one that only
// the function's network reaches.
func (p *Provisioner) answerable(u *url.URL) error {
	host := strings.ToLower(u.Hostname())
	switch {
	case p.Anywhere:
		return nil
	case u.Scheme != "https":
		return fmt.Errorf("the address that it is to go to is %q, not https: %w", u.Scheme, errElsewhere)
	case u.User != nil, u.Port() != "" && u.Port() != "443":
		return fmt.Errorf("the address that it is to go to has a user or a port: %w", errElsewhere)
	case !slices.ContainsFunc(domains, func(d string) bool { return strings.HasSuffix(host, "."+d) }):
		return fmt.Errorf("the address that it is to go to is at %q: %w", host, errElsewhere)
	}
	return nil
}

// address reads the address that an event names. It is a secret, which the error does not tell.
func (p *Provisioner) address(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		err = fmt.Errorf("the address that it is to go to cannot be read: %w", errElsewhere)
	} else {
		err = p.answerable(u)
	}
	if err != nil {
		return fmt.Errorf("answer CloudFormation: %w", err)
	}
	return nil
}

// respond puts the answer where the event says, again if it must. The address is a secret: whoever has it can answer.
func (p *Provisioner) respond(ctx context.Context, address string, r *response) error {
	text, err := r.fit()
	if err != nil {
		return fmt.Errorf("answer CloudFormation: %w", err)
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
		err = fmt.Errorf("answer CloudFormation with %s: %s", r.Status, strings.ReplaceAll(err.Error(), address, "its address"))
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
			err = failed.Err // without the address, or the one to which it was sent on
		}
		return !errors.Is(err, errElsewhere), err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16)) // so that the connection is good for another try
	if resp.StatusCode != http.StatusOK {
		return resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests, fmt.Errorf("status %s", resp.Status)
	}
	return false, nil
}
