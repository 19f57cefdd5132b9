package grpcapi

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/weirlimits/weir"
	weirv1 "github.com/weirlimits/weir/api/weir/v1"
)

// statusBuffer holds a status and what it usually points to.
type statusBuffer struct {
	status weirv1.LimitStatus
	full   durationpb.Duration
}

// admittedBuffer holds a response and what it points to.
type admittedBuffer struct {
	response weirv1.AcquireResponse
	expires  timestamppb.Timestamp
}

// buffers allocates memory for the responses to the remaining requests, several at a time, so that many responses share
// one allocation. It is for use by one goroutine.
type buffers struct {
	left     int
	admitted []admittedBuffer
	pointers []*weirv1.LimitStatus
	statuses []statusBuffer
}

// atOnce is the number of responses for which memory is allocated at once. They may have a different number of
// statuses.
const atOnce = 16

func (b *buffers) nextAdmitted() *admittedBuffer {
	if len(b.admitted) == 0 {
		b.admitted = make([]admittedBuffer, max(1, min(b.left, atOnce)))
	}
	a := &b.admitted[0]
	b.admitted = b.admitted[1:]
	return a
}

func (b *buffers) nextStatuses(n int) ([]*weirv1.LimitStatus, []statusBuffer) {
	if len(b.statuses) < n {
		all := n * max(1, min(b.left, atOnce))
		b.pointers, b.statuses = make([]*weirv1.LimitStatus, all), make([]statusBuffer, all)
	}
	pointers, statuses := b.pointers[:n:n], b.statuses[:n]
	b.pointers, b.statuses = b.pointers[n:], b.statuses[n:]
	return pointers, statuses
}

// Responses share these values. They must not be changed.
var (
	second = durationpb.New(time.Second)
	minute = durationpb.New(time.Minute)
	hour   = durationpb.New(time.Hour)
	day    = durationpb.New(24 * time.Hour)
)

func periodOf(d time.Duration) *durationpb.Duration {
	switch d {
	case time.Second:
		return second
	case time.Minute:
		return minute
	case time.Hour:
		return hour
	case 24 * time.Hour:
		return day
	}
	return durationpb.New(d)
}

func statusesOf(ss []weir.LimitStatus) []*weirv1.LimitStatus { return (&buffers{}).statusesOf(ss) }

func (b *buffers) statusesOf(ss []weir.LimitStatus) []*weirv1.LimitStatus {
	if len(ss) == 0 {
		return nil
	}
	out, statuses := b.nextStatuses(len(ss))
	for i := range ss {
		s, r := &ss[i], &statuses[i]
		st := &r.status
		out[i] = st
		st.Entity, st.Resource, st.Limit, st.Source = s.Entity, s.Resource, s.Limit, sourceOf(s.Source)
		st.Requested, st.Available, st.Amount, st.Burst = s.Requested, s.Available, s.Amount, s.Burst
		r.full.Seconds, r.full.Nanos = int64(s.Full/time.Second), int32(s.Full%time.Second)
		st.Period, st.FullIn = periodOf(s.Period), &r.full
		st.Refused, st.Shadow, st.WouldRefuse = s.Refused, s.Shadow, s.WouldRefuse
		if s.Refused {
			st.RetryAfter = durationpb.New(s.RetryAfter)
		}
	}
	return out
}

func sourceOf(s weir.Source) weirv1.Source {
	switch s {
	case weir.SourceRequest:
		return weirv1.Source_SOURCE_REQUEST
	case weir.SourceEntity:
		return weirv1.Source_SOURCE_ENTITY
	case weir.SourceEntityDefault:
		return weirv1.Source_SOURCE_ENTITY_DEFAULT
	case weir.SourceResource:
		return weirv1.Source_SOURCE_RESOURCE
	case weir.SourceSystem:
		return weirv1.Source_SOURCE_SYSTEM
	}
	return weirv1.Source_SOURCE_UNSPECIFIED
}
