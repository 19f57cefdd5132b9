package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/grpclimit"
	"github.com/weirlimits/weir/weirtest"
)

func estimate(context.Context, *grpclimit.Call) (weir.Tokens, error) {
	return weir.Tokens{"rpm": 1, "tpm": 500}, nil
}

func TestUnaryCost(t *testing.T) {
	t.Parallel()
	fails := status.Error(codes.DataLoss, "lost")
	for name, tt := range map[string]struct {
		handle func(context.Context) error
		set    func(*grpclimit.Config)
		want   int64
		code   codes.Code
	}{
		"estimate": {func(context.Context) error { return nil }, nil, 500, codes.OK},
		"set":      {func(ctx context.Context) error { return grpclimit.SetCost(ctx, weir.Tokens{"tpm": 730}) }, nil, 730, codes.OK},
		"lease": {func(ctx context.Context) error {
			_, err := grpclimit.Lease(ctx).Adjust(ctx, weir.Tokens{"tpm": -30})
			return err
		}, nil, 470, codes.OK},
		"fails":  {func(context.Context) error { return fails }, nil, 500, codes.DataLoss},
		"panics": {func(context.Context) error { panic("no") }, nil, 0, codes.DataLoss},
		"fails, rolled back": {func(context.Context) error { return fails }, func(c *grpclimit.Config) {
			c.RollbackOn = func(_ context.Context, _ *grpclimit.Call, res *grpclimit.Result) bool {
				return status.Code(res.Err) == codes.DataLoss
			}
		}, 0, codes.DataLoss},
		"after": {func(context.Context) error { return nil }, func(c *grpclimit.Config) {
			c.After = func(_ context.Context, call *grpclimit.Call, res *grpclimit.Result) weir.Tokens {
				in, out := call.Request.(*wrapperspb.StringValue).GetValue(), res.Response.(*wrapperspb.StringValue).GetValue()
				return weir.Tokens{"tpm": int64(len(in) + len(out))}
			}
		}, 10, codes.OK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := weirtest.New(t, weir.PerMinute("rpm", 10), weir.PerMinute("tpm", 10_000))
			e := &echo{say: func(ctx context.Context, in *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
				return in, tt.handle(ctx)
			}}
			conn, log := setup(t, l, e, func(c *grpclimit.Config) {
				c.Tokens = estimate
				if tt.set != nil {
					tt.set(c)
				}
			})
			wantCode(t, say(as(t, "alice"), conn), tt.code)
			wantSpent(t, l, sayMethod, "tpm", tt.want)
			if s := log.String(); s != "" {
				t.Errorf("logged %q", s)
			}
		})
	}
}

// repeat sends each message back.
func repeat(ss grpc.ServerStream) error {
	for {
		in := new(wrapperspb.StringValue)
		if err := ss.RecvMsg(in); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := ss.SendMsg(in); err != nil {
			return err
		}
	}
}

// chat sends messages one after another, each after the answer to the previous one. It returns the number of answers, and
// the call's header, or its trailer if the call failed.
func chat(t *testing.T, conn *grpc.ClientConn, key string, messages ...string) (answered int, md metadata.MD, err error) {
	t.Helper()
	ss, err := conn.NewStream(as(t, key), &chatDesc, chatMethod)
	if err != nil {
		return 0, nil, err
	}
	for _, m := range messages {
		if err := ss.SendMsg(wrapperspb.String(m)); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if err := ss.RecvMsg(new(wrapperspb.StringValue)); err != nil {
			return answered, ss.Trailer(), err
		}
		answered++
	}
	if err := ss.CloseSend(); err != nil {
		t.Fatal(err)
	}
	err = ss.RecvMsg(new(wrapperspb.StringValue))
	if md, _ = ss.Header(); errors.Is(err, io.EOF) {
		return answered, md, nil
	}
	return answered, ss.Trailer(), err
}

func TestStream(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t, weir.PerMinute("rpm", 1), weir.PerMinute("tpm", 1000))
	var result grpclimit.Result
	conn, _ := setup(t, l, &echo{chat: func(ss grpc.ServerStream) error {
		if err := grpclimit.SetCost(ss.Context(), weir.Tokens{"tpm": 30}); err != nil {
			t.Error(err)
		}
		return repeat(ss)
	}}, func(c *grpclimit.Config) {
		c.Tokens = estimate
		c.After = func(_ context.Context, call *grpclimit.Call, res *grpclimit.Result) weir.Tokens {
			if call.Method != chatMethod || call.Request != nil {
				t.Errorf("got %+v", call)
			}
			result = *res
			return nil
		}
	})
	n, md, err := chat(t, conn, "alice", "a", "b", "c")
	if n != 3 || err != nil {
		t.Errorf("%d were answered, %v", n, err)
	}
	wantMeta(t, md, "ratelimit", `"rpm";r=0;t=60, "tpm";r=500;t=30`)
	if result.Received != 3 || result.Sent != 3 || result.Panicked || result.Err != nil || result.Duration <= 0 {
		t.Errorf("got %+v", result)
	}
	wantSpent(t, l, chatMethod, "tpm", 30)

	_, md, err = chat(t, conn, "alice", "a")
	wantCode(t, err, codes.ResourceExhausted)
	if len(md.Get("retry-after")) != 1 {
		t.Errorf("got trailer %v", md)
	}
	l.Advance(time.Minute)
	if _, _, err = chat(t, conn, "alice"); err != nil {
		t.Error(err)
	}
}

func TestStreamPanics(t *testing.T) {
	t.Parallel()
	for sent, want := range []int64{0, 500} {
		l := weirtest.New(t, weir.PerMinute("rpm", 10), weir.PerMinute("tpm", 1000))
		conn, _ := setup(t, l, &echo{chat: func(ss grpc.ServerStream) error {
			for range sent {
				if err := ss.SendMsg(wrapperspb.String("x")); err != nil {
					t.Error(err)
				}
			}
			panic("no")
		}}, func(c *grpclimit.Config) { c.Tokens = estimate })
		_, _, err := chat(t, conn, "alice", "a", "b")
		wantCode(t, err, codes.DataLoss)
		wantSpent(t, l, chatMethod, "tpm", want)
	}
}

func TestMessages(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t, weir.PerMinute("rpm", 10), weir.PerMinute("bytes", 10))
	conn, log := setup(t, l, &echo{chat: repeat}, func(c *grpclimit.Config) {
		c.MessageTokens = func(_ context.Context, _ *grpclimit.Call, msg any) (weir.Tokens, error) {
			switch text := msg.(*wrapperspb.StringValue).GetValue(); text {
			case "free":
				return nil, nil
			case "bad":
				return nil, status.Error(codes.InvalidArgument, "bad")
			default:
				return weir.Tokens{"bytes": int64(len(text))}, nil
			}
		}
	})
	n, _, err := chat(t, conn, "alice", "1234", "free", "5678", "free", "free", "901", "x")
	if n != 5 {
		t.Errorf("%d messages were answered", n)
	}
	wantCode(t, err, codes.ResourceExhausted)
	if v := detail[*errdetails.QuotaFailure](t, err).GetViolations(); len(v) != 1 || v[0].GetQuotaMetric() != "bytes" {
		t.Errorf("refused by %v", v)
	}
	wantSpent(t, l, chatMethod, "bytes", 8)
	wantSpent(t, l, chatMethod, "rpm", 1)
	_, _, err = chat(t, conn, "alice", "x", "bad")
	wantCode(t, err, codes.InvalidArgument)
	wantSpent(t, l, chatMethod, "bytes", 9)
	if s := log.String(); s != "" {
		t.Errorf("logged %q", s)
	}
}

// TestMessagesDegraded: a message that passed without the store is reported once, and logged.
func TestMessagesDegraded(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t, weir.PerMinute("rpm", 10), weir.PerMinute("bytes", 10))
	conn, log := setup(t, l, &echo{chat: repeat}, func(c *grpclimit.Config) {
		admits(t, l)
		c.MessageTokens = func(_ context.Context, _ *grpclimit.Call, msg any) (weir.Tokens, error) {
			l.Fail(errors.New("cable cut"))
			if msg.(*wrapperspb.StringValue).GetValue() == "end" {
				return nil, status.Error(codes.Aborted, "end")
			}
			return weir.Tokens{"bytes": 5}, nil
		}
	})
	n, trailer, err := chat(t, conn, "alice", "1", "2", "3", "end")
	if wantCode(t, err, codes.Aborted); n != 3 {
		t.Errorf("%d messages were answered", n)
	}
	wantMeta(t, trailer, "weir-degraded", "store-unavailable")
	if !strings.Contains(log.String(), "admitted a message without the store") {
		t.Errorf("logged %q", log.String())
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	from := func(addr string, md ...string) context.Context {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(md...))
		if addr == "" {
			return ctx
		}
		tcp := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr))
		return peer.NewContext(ctx, &peer.Peer{Addr: tcp})
	}
	proxy := grpclimit.ByPeer(netip.MustParsePrefix("10.0.0.0/8"))
	bearer, header := grpclimit.ByBearer(), grpclimit.ByMetadata("X-Api-Key")
	for name, tt := range map[string]struct {
		key  grpclimit.KeyFunc
		ctx  context.Context //nolint:containedctx // the case's
		want string
		code codes.Code
	}{
		"metadata":         {header, from("", "x-api-key", "a"), grpclimit.KeyID("a"), codes.OK},
		"metadata, none":   {header, from(""), "", codes.Unauthenticated},
		"metadata, no ctx": {header, t.Context(), "", codes.Unauthenticated},
		"metadata, empty":  {header, from("", "x-api-key", ""), "", codes.Unauthenticated},
		"metadata, two":    {header, from("", "x-api-key", "a", "x-api-key", "b"), "", codes.InvalidArgument},
		"bearer":           {bearer, from("", "authorization", "bearer a"), grpclimit.KeyID("a"), codes.OK},
		"bearer, basic":    {bearer, from("", "authorization", "Basic a"), "", codes.Unauthenticated},
		"bearer, none":     {bearer, from(""), "", codes.Unauthenticated},
		"peer":             {proxy, from("192.0.2.1:5", "x-forwarded-for", "8.8.8.8"), "ip-192.0.2.1", codes.OK},
		"peer, proxy":      {proxy, from("10.0.0.1:5", "x-forwarded-for", "8.8.8.8, 2001:db8::1"), "ip-2001:db8::/64", codes.OK},
		"peer, none":       {proxy, from(""), "", codes.Unauthenticated},
		"first":            {grpclimit.First(header, proxy), from("192.0.2.1:5"), "ip-192.0.2.1", codes.OK},
		"first, wrong":     {grpclimit.First(header, proxy), from("192.0.2.1:5", "x-api-key", "a", "x-api-key", "b"), "", codes.InvalidArgument},
		"first of none":    {grpclimit.First(), from(""), "", codes.Unauthenticated},
		"fixed":            {grpclimit.Fixed("all"), from(""), "all", codes.OK},
	} {
		id, err := tt.key(tt.ctx, &grpclimit.Call{Method: sayMethod})
		if id != tt.want || status.Code(err) != tt.code {
			t.Errorf("%s: got %q, %v", name, id, err)
		}
	}
}
