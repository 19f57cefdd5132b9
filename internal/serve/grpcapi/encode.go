package grpcapi

import (
	"math"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/weirlimits/weir"
	weirv1 "github.com/weirlimits/weir/api/weir/v1"
)

// response is a response and what it points to.
type response struct {
	weirv1.AcquireResponse
	expires timestamppb.Timestamp
}

// limitStatus is a status and what it usually points to.
type limitStatus struct {
	weirv1.LimitStatus
	full, ends durationpb.Duration
}

// Responses share these values. They must not be changed.
var (
	second = durationpb.New(time.Second)
	minute = durationpb.New(time.Minute)
	hour   = durationpb.New(time.Hour)
	day    = durationpb.New(24 * time.Hour)

	admitted = &weirv1.AcquireResponse{Allowed: true} // in brief
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

// waitOf returns the time until a retry helps; nil for none and for the longest, of a balance.
func waitOf(d time.Duration) *durationpb.Duration {
	if d == 0 || d == math.MaxInt64 {
		return nil
	}
	return durationpb.New(d)
}

func statusesOf(ss []weir.LimitStatus) []*weirv1.LimitStatus {
	if len(ss) == 0 {
		return nil
	}
	out, statuses := make([]*weirv1.LimitStatus, len(ss)), make([]limitStatus, len(ss))
	for i := range ss {
		s, st := &ss[i], &statuses[i]
		out[i] = &st.LimitStatus
		st.Entity, st.Resource, st.Limit, st.Source = s.Entity, s.Resource, s.Limit, sourceOf(s.Source)
		st.Requested, st.Available, st.Amount, st.Burst = s.Requested, s.Available, s.Amount, s.Burst
		st.full.Seconds, st.full.Nanos = int64(s.Full/time.Second), int32(s.Full%time.Second)
		st.FullIn = &st.full
		switch {
		case s.Period > 0:
			st.Period = periodOf(s.Period)
		case s.Heal > 0:
			st.Heal = durationpb.New(s.Heal)
		case s.Ends > 0:
			st.Window = s.Window.String()
		}
		if s.Ends > 0 {
			st.ends.Seconds, st.ends.Nanos = int64(s.Ends/time.Second), int32(s.Ends%time.Second)
			st.EndsIn = &st.ends
		}
		st.Refused, st.Shadow, st.WouldRefuse = s.Refused, s.Shadow, s.WouldRefuse
		if s.Refused {
			st.RetryAfter, st.Estimated = waitOf(s.RetryAfter), s.Estimated
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
	case weir.SourcePlan:
		return weirv1.Source_SOURCE_PLAN
	case weir.SourcePlanDefault:
		return weirv1.Source_SOURCE_PLAN_DEFAULT
	case weir.SourceResource:
		return weirv1.Source_SOURCE_RESOURCE
	case weir.SourceSystem:
		return weirv1.Source_SOURCE_SYSTEM
	}
	return weirv1.Source_SOURCE_UNSPECIFIED
}
