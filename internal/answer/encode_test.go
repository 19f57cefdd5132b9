package answer_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/answer"
)

func TestAppendSeconds(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0", 1: "0.001", time.Millisecond: "0.001", time.Second: "1", 1500 * time.Millisecond: "1.5",
		time.Second + 1: "1.001", 59*time.Second + 999*time.Millisecond + 1: "60", math.MaxInt64: "9223372036.855",
	} {
		if got := string(answer.AppendSeconds(nil, d)); got != want {
			t.Errorf("%d: got %s, want %s", d, got, want)
		}
	}
}

func TestAppendString(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "plain", `q"uo\te`, "\x00\x1f\x7f\n", "ключ\u2028", "😀", "a\xffb\xc3", "\xed\xa0\x80"} {
		var got string
		if err := json.Unmarshal(answer.AppendString(nil, s), &got); err != nil || got != strings.ToValidUTF8(s, "\uFFFD") && got != string([]rune(s)) {
			t.Errorf("%q: got %q, %v", s, got, err)
		}
	}
}

func TestProblem(t *testing.T) {
	t.Parallel()
	p := answer.Problem{
		Kind: answer.Exceeded, Detail: `say "when"`, Field: "tokens", RetryAfter: 1500 * time.Millisecond, Refused: true, Entity: "a",
		Statuses: []weir.LimitStatus{
			{Entity: "a", Resource: "r", Limit: "rpm", Refused: true, RetryAfter: 1},
			{Entity: "a", Resource: "r", Limit: "tpm"},
			{Entity: "org", Resource: "r", Limit: "rpm", Refused: true, RetryAfter: 2},
		},
		More: []byte(`{"errors":[1]}`),
	}
	var got struct {
		Type, Title, Detail, Field string
		Status                     int
		RetryAfter                 float64  `json:"retry_after"`
		Violated                   []string `json:"violated-policies"`
		Limits                     []struct{ Entity, Limit string }
		Errors                     []int
	}
	line := p.Append(nil)
	if err := json.Unmarshal(line, &got); err != nil || line[len(line)-1] != '\n' {
		t.Fatalf("%v: %s", err, line)
	}
	if got.Type != answer.Exceeded.URI || got.Title != answer.Exceeded.Title || got.Status != 429 || got.Detail != p.Detail ||
		got.Field != "tokens" || got.RetryAfter != 1.5 || len(got.Errors) != 1 {
		t.Errorf("got %s", line)
	}
	if strings.Join(got.Violated, " ") != "rpm@org rpm" { // longest first
		t.Errorf("violated %q", got.Violated)
	}
	if len(got.Limits) != 3 || got.Limits[2].Entity != "org" {
		t.Errorf("limits %+v", got.Limits)
	}
	bare := answer.Problem{Kind: answer.Internal, Detail: "x"}
	for _, member := range []string{"field", "retry_after", "violated-policies", "limits", "errors"} {
		if strings.Contains(string(bare.Append(nil)), `"`+member+`"`) {
			t.Errorf("%s without any", member)
		}
	}
}
