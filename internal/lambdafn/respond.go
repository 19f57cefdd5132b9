package lambdafn

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
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

// respond puts the answer where the event says, again if it must. The address is a secret: whoever has it can answer.
func (p *Provisioner) respond(ctx context.Context, url string, r *response) error {
	text, err := r.fit()
	if err != nil {
		return fmt.Errorf("answer CloudFormation: %w", err)
	}
	client := p.Client
	if client == nil {
		client = respondClient
	}
	for try, wait := 1, 100*time.Millisecond; ; try, wait = try+1, 2*wait {
		retry, err := put(ctx, client, url, text)
		if err == nil {
			return nil
		}
		err = fmt.Errorf("answer CloudFormation with %s: %s", r.Status, strings.ReplaceAll(err.Error(), url, "its address"))
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

func put(ctx context.Context, client *http.Client, url string, text []byte) (retry bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, bytes.NewReader(text))
	if err != nil {
		return false, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return true, err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16)) // so that the connection is good for another try
	if resp.StatusCode != http.StatusOK {
		return resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests, fmt.Errorf("status %s", resp.Status)
	}
	return false, nil
}
