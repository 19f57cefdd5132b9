package grpcapi

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlimits/weir"
	weirv1 "github.com/weirlimits/weir/api/weir/v1"
)

// room holds a status and what it usually points to.
type room struct {
	status weirv1.LimitStatus
	full   durationpb.Duration
}

// hall allocates room for the responses to the remaining requests, several at a time, so that many responses share one
// allocation. It is for use by one goroutine.
type hall struct {
	left      int
	admitteds []admitted
	statuses  []*weirv1.LimitStatus
	rooms     []room
}

// atOnce is the number of responses for which room is allocated at once. They may have a different number of statuses.
const atOnce = 16

func (h *hall) admitted() *admitted {
	if len(h.admitteds) == 0 {
		h.admitteds = make([]admitted, max(1, min(h.left, atOnce)))
	}
	a := &h.admitteds[0]
	h.admitteds = h.admitteds[1:]
	return a
}

// room returns room for n statuses.
func (h *hall) room(n int) ([]*weirv1.LimitStatus, []room) {
	if len(h.rooms) < n {
		all := n * max(1, min(h.left, atOnce))
		h.statuses, h.rooms = make([]*weirv1.LimitStatus, all), make([]room, all)
	}
	out, rooms := h.statuses[:n:n], h.rooms[:n]
	h.statuses, h.rooms = h.statuses[n:], h.rooms[n:]
	return out, rooms
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

func statusesOf(ss []weir.LimitStatus) []*weirv1.LimitStatus { return (&hall{}).statusesOf(ss) }

func (h *hall) statusesOf(ss []weir.LimitStatus) []*weirv1.LimitStatus {
	if len(ss) == 0 {
		return nil
	}
	out, rooms := h.room(len(ss))
	for i := range ss {
		s, r := &ss[i], &rooms[i]
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
