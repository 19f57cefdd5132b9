package main

import (
	"context"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimits/weir"
	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/bench/internal/harness"
	"github.com/weirlimits/weir/bench/internal/inprocess"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/grpcapi"
	"github.com/weirlimits/weir/store/memory"
)

// conns is the number of connections that the gRPC callers share.
const conns = 4

// batch is the number of requests in a batch.
const batch = 100

func grpcRows() []row {
	contenders := func(of string, call rpcCall) []contender {
		return []contender{
			{name: "weir", setup: func(e *harness.Env) (harness.Work, error) { return rpcWork(e, call, false) }},
			{name: of, setup: func(e *harness.Env) (harness.Work, error) { return rpcWork(e, call, true) }},
		}
	}
	return []row{
		{
			name: fmt.Sprintf("gRPC: Acquire, 2 limits, %d callers on %d connections", callers, conns), unit: perSecond,
			workers:    callers,
			contenders: contenders("bare server, same answer", callAcquire), target: target{ratio: 0.8},
		},
		{
			name: fmt.Sprintf("gRPC: AcquireBatch of %d, brief, 16 callers: requests", batch), unit: perSecond,
			workers:    16,
			contenders: contenders("bare server, same answers", callBatch), target: target{value: 300_000},
		},
	}
}

// rpcCall makes one call, and returns the number of requests in it.
type rpcCall func(context.Context, weirv1.LimiterClient) (int, error)

var acquireRequest = &weirv1.AcquireRequest{
	Entity: "key-alice", Resource: "gpt-4", Tokens: map[string]int64{"rpm": 1, "tpm": 500},
}

var batchRequest = func() *weirv1.AcquireBatchRequest {
	in := &weirv1.AcquireBatchRequest{Brief: true}
	for range batch {
		in.Requests = append(in.Requests, acquireRequest)
	}
	return in
}()

var errRefused = errors.New("refused")

func callAcquire(ctx context.Context, c weirv1.LimiterClient) (int, error) {
	out, err := c.Acquire(ctx, acquireRequest)
	if err == nil && !out.GetAllowed() {
		err = errRefused
	}
	return 1, err
}

func callBatch(ctx context.Context, c weirv1.LimiterClient) (int, error) {
	out, err := c.AcquireBatch(ctx, batchRequest)
	if err == nil && (len(out.GetResults()) != batch || !out.GetResults()[batch-1].GetDecision().GetAllowed()) {
		err = errRefused
	}
	return batch, err
}

// rpcWork has each worker call weir, or a server that returns weir's answer immediately, to measure the cost of gRPC
// itself.
func rpcWork(e *harness.Env, call rpcCall, floor bool) (harness.Work, error) {
	addr, err := serveRPC(e)
	if err != nil {
		return nil, err
	}
	clients, err := dialRPC(e, addr)
	if err != nil {
		return nil, err
	}
	if floor {
		if addr, err = serveRPCFloor(e, clients[0]); err != nil {
			return nil, err
		}
		if clients, err = dialRPC(e, addr); err != nil {
			return nil, err
		}
	}
	return func(worker, n int) (int, error) {
		c := clients[worker%conns]
		for done := 0; ; {
			of, err := call(e.Ctx, c)
			if done += of; err != nil || done >= n {
				return done, err
			}
		}
	}, nil
}

func dialRPC(e *harness.Env, addr string) (clients [conns]weirv1.LimiterClient, err error) {
	for i := range clients {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return clients, err
		}
		e.Defer(conn.Close)
		clients[i] = weirv1.NewLimiterClient(conn)
	}
	return clients, nil
}

func serveRPC(e *harness.Env) (addr string, err error) {
	lim, err := inprocess.Limiter(e, memory.New(nil), weir.Config{},
		weir.PerSecond("rpm", 1_000_000).WithBurst(weir.MaxTokens),
		weir.PerSecond("tpm", 1_000_000).WithBurst(weir.MaxTokens))
	if err != nil {
		return "", err
	}
	s, err := grpcapi.New(grpcapi.Config{Config: decide.Config{Limiter: lim}})
	if err != nil {
		return "", err
	}
	ln, err := listenRPC(e)
	if err != nil {
		return "", err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(e.Ctx))
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, ln) }()
	e.Defer(func() error {
		stop()
		return <-served
	})
	return ln.Addr().String(), nil
}

// rpcFloor is a server that answers immediately.
type rpcFloor struct {
	weirv1.UnimplementedLimiterServer
	one  *weirv1.AcquireResponse
	many *weirv1.AcquireBatchResponse
}

// Acquire returns the prepared answer.
func (f *rpcFloor) Acquire(context.Context, *weirv1.AcquireRequest) (*weirv1.AcquireResponse, error) {
	return f.one, nil
}

// AcquireBatch returns the prepared answer.
func (f *rpcFloor) AcquireBatch(context.Context, *weirv1.AcquireBatchRequest) (*weirv1.AcquireBatchResponse, error) {
	return f.many, nil
}

func serveRPCFloor(e *harness.Env, of weirv1.LimiterClient) (addr string, err error) {
	f := &rpcFloor{}
	if f.one, err = of.Acquire(e.Ctx, acquireRequest); err != nil {
		return "", err
	}
	if f.many, err = of.AcquireBatch(e.Ctx, batchRequest); err != nil {
		return "", err
	}
	ln, err := listenRPC(e)
	if err != nil {
		return "", err
	}
	s := grpc.NewServer(grpc.NumStreamWorkers(8))
	weirv1.RegisterLimiterServer(s, f)
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	e.Defer(func() error {
		s.GracefulStop()
		return <-served
	})
	return ln.Addr().String(), nil
}

func listenRPC(e *harness.Env) (net.Listener, error) {
	return new(net.ListenConfig).Listen(e.Ctx, "tcp", "127.0.0.1:0")
}
