package table

import (
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go/middleware"
)

// Skew is how far the server's clock is ahead of ours. The server's time is in whole seconds, so only a difference
// that is certainly more than a second is corrected.
type Skew struct{ by atomic.Int64 }

// Offset returns what to add to our clock: 0 for differences up to a second.
func (s *Skew) Offset() time.Duration { return time.Duration(s.by.Load()) }

// Answered takes a call's answer into account.
func (s *Skew) Answered(meta middleware.Metadata, sent time.Time) {
	if date, ok := awsmiddleware.GetServerTime(meta); ok {
		s.saw(date, sent, time.Now())
	}
}

// Failed takes a call's error into account.
func (s *Skew) Failed(err error, sent time.Time) {
	var resp *awshttp.ResponseError
	if !errors.As(err, &resp) || resp.Response == nil || resp.Response.Response == nil {
		return
	}
	if date, err := http.ParseTime(resp.Response.Header.Get("Date")); err == nil {
		s.saw(date, sent, time.Now())
	}
}

// saw takes the Date of an answer into account. When the server wrote it, its own clock was between date and a second
// later, and ours between sent and received.
func (s *Skew) saw(date, sent, received time.Time) {
	low, high := date.Sub(received), date.Add(time.Second).Sub(sent)
	was := s.Offset()
	if was >= low-time.Second && was <= high+time.Second {
		return
	}
	by := (low + high) / 2
	if by > -time.Second && by < time.Second {
		by = 0
	}
	s.by.CompareAndSwap(int64(was), int64(by))
}
