package load

import (
	"context"
	"crypto/tls"
	"errors"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlimits/weir"
	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/internal/lab/traffic"
)

// GRPC calls weir serve over gRPC. Close it when done.
type GRPC struct {
	namespace, token string
	conns            []*grpc.ClientConn
	clients          []weirv1.LimiterClient
	next             atomic.Uint64
}

// grpcConns is the number of connections used: one is limited by what one goroutine reads and writes.
const grpcConns = 4

// DialGRPC creates a target for HOST:PORT. It connects at the first call, without TLS if secure is nil. The
// token may be "".
func DialGRPC(addr, namespace, token string, secure *tls.Config, more ...grpc.DialOption) (*GRPC, error) {
	creds := insecure.NewCredentials()
	if secure != nil {
		creds = credentials.NewTLS(secure)
	}
	t := &GRPC{namespace: namespace, token: token}
	for range grpcConns {
		conn, err := grpc.NewClient(addr, append([]grpc.DialOption{grpc.WithTransportCredentials(creds)}, more...)...)
		if err != nil {
			return nil, errors.Join(err, t.Close())
		}
		t.conns = append(t.conns, conn)
		t.clients = append(t.clients, weirv1.NewLimiterClient(conn))
	}
	return t, nil
}

// Close closes the connections.
func (t *GRPC) Close() (err error) {
	for _, c := range t.conns {
		err = errors.Join(err, c.Close())
	}
	return err
}

func (t *GRPC) begin(ctx context.Context) (weirv1.LimiterClient, context.Context, context.CancelFunc) {
	if t.token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+t.token)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	return t.clients[t.next.Add(1)%grpcConns], ctx, cancel
}

// Acquire implements [Target].
func (t *GRPC) Acquire(ctx context.Context, c *traffic.Call) (Held, error) {
	client, ctx, cancel := t.begin(ctx)
	defer cancel()
	in := &weirv1.AcquireRequest{Entity: c.Entity, Resource: c.Resource, Tokens: c.Tokens, Namespace: t.namespace}
	if c.Wait > 0 {
		in.Wait = durationpb.New(c.Wait)
	}
	out, err := client.Acquire(ctx, in)
	switch {
	case err != nil:
		return nil, plain(err)
	case !out.GetAllowed():
		return nil, nil //nolint:nilnil // a refusal is not an error
	}
	return &grpcLease{t, c.Entity, out.GetLease(), out.GetLimits()}, nil
}

// Available implements [Target].
func (t *GRPC) Available(ctx context.Context, c *traffic.Call) error {
	client, ctx, cancel := t.begin(ctx)
	defer cancel()
	_, err := client.Available(ctx, &weirv1.AvailableRequest{
		Entity: c.Entity, Resource: c.Resource, Namespace: t.namespace,
	})
	return plain(err)
}

type grpcLease struct {
	t      *GRPC
	entity string
	id     string
	limits []*weirv1.LimitStatus
}

// Adjust implements [Held].
func (l *grpcLease) Adjust(ctx context.Context, tokens weir.Tokens) ([]weir.Balance, error) {
	client, ctx, cancel := l.t.begin(ctx)
	defer cancel()
	out, err := client.Adjust(ctx, &weirv1.AdjustRequest{Lease: l.id, Tokens: tokens})
	if err == nil {
		l.id = out.GetLease()
	}
	return nil, plain(err)
}

// Slots implements [Held].
func (l *grpcLease) Slots() Slots {
	for _, s := range l.limits {
		if s.GetHeal() != nil && s.GetEntity() == l.entity {
			return Slots{s.GetRequested(), s.GetBurst()}
		}
	}
	return Slots{}
}

// Commit implements [Held].
func (l *grpcLease) Commit(ctx context.Context) error {
	client, ctx, cancel := l.t.begin(ctx)
	defer cancel()
	_, err := client.Commit(ctx, &weirv1.CommitRequest{Lease: l.id})
	return plain(err)
}

// plain strips the wording that all gRPC errors share.
func plain(err error) error {
	if st, ok := status.FromError(err); ok && err != nil {
		return errors.New(st.Code().String() + ": " + st.Message())
	}
	return err
}
