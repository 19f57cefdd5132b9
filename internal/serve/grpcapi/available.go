package grpcapi

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/weirlimits/weir"
	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/watch"
)

// Available returns what an entity can spend, without spending it.
func (s *limiter) Available(ctx context.Context, in *weirv1.AvailableRequest) (*weirv1.AvailableResponse, error) {
	if err := understood(in); err != nil {
		return nil, s.fail(ctx, err)
	}
	lim, err := s.in(ctx, reading(in))
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	if err := s.decide.Turn(ctx, decide.CallerOf(ctx), lim); err != nil {
		return nil, s.fail(ctx, err)
	}
	av, err := lim.Available(ctx, in.GetEntity(), in.GetResource())
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return &weirv1.AvailableResponse{At: timestamppb.New(av.At), Limits: statusesOf(av.Statuses)}, nil
}

// Watch streams what an entity can spend until the client leaves or the server shuts down.
func (s *limiter) Watch(in *weirv1.WatchRequest, out grpc.ServerStreamingServer[weirv1.WatchResponse]) error {
	ctx := out.Context()
	if err := understood(in); err != nil {
		return s.fail(ctx, err)
	}
	lim, err := s.in(ctx, reading(in))
	if err != nil {
		return s.fail(ctx, err)
	}
	key := watch.Key{Namespace: lim.Namespace(), Entity: in.GetEntity(), Resource: in.GetResource()}
	err = s.cfg.Watch.Watch(ctx, decide.CallerOf(ctx).Name, key, func(av weir.Availability) error {
		return out.Send(&weirv1.WatchResponse{At: timestamppb.New(av.At), Limits: statusesOf(av.Statuses)})
	})
	return s.fail(ctx, err)
}

// reader is a request that reads what an entity can spend on a resource.
type reader interface {
	GetNamespace() string
	GetEntity() string
	GetResource() string
}

// reading returns what such a request needs.
func reading(in reader) auth.Access {
	return auth.Access{
		Role: auth.Read, Namespace: in.GetNamespace(), Entity: in.GetEntity(), Resource: in.GetResource(),
	}
}

// understood refuses a message that has fields unknown to this server.
func understood(in proto.Message) error {
	if len(in.ProtoReflect().GetUnknown()) > 0 {
		return badField("request", "has a field that this server does not know")
	}
	return nil
}
