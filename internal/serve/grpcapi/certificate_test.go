package grpcapi_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	weirv1 "github.com/weirlimits/weir/api/weir/v1"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/grpcapi"
	"github.com/weirlimits/weir/internal/serve/httpapi"
	"github.com/weirlimits/weir/store/memory"
)

// clientCertificate returns a certificate for a name, signed by itself.
func clientCertificate(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// listen serves on a port of this machine until the test ends, and returns the address.
func listen(t *testing.T, serve func(context.Context, net.Listener) error) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, ln) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

// TestCertificate checks over gRPC and HTTP that a client without a token has the rights of its certificate's name.
func TestCertificate(t *testing.T) {
	t.Parallel()
	_, entry, err := auth.NewEntry(auth.Entry{Name: "edge", Certificate: "envoy.prod", Roles: []auth.Role{auth.Read}})
	if err != nil {
		t.Fatal(err)
	}
	like := httptest.NewTLSServer(nil)
	defer like.Close()
	lim, err := weir.New(weir.Config{Store: memory.New(nil)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lim.Close() })
	if err := admin.New(lim).Limits.Set(t.Context(), admin.Scope{}, weir.PerMinute("rpm", 10)); err != nil {
		t.Fatal(err)
	}
	cfg := decide.Config{Limiter: lim, Book: openBook(t, entry), TLS: &tls.Config{
		Certificates: like.TLS.Certificates, MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAnyClientCert,
	}}
	calls, err := grpcapi.New(grpcapi.Config{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	requests, err := httpapi.New(httpapi.Config{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	grpcAddress, httpAddress := listen(t, calls.Serve), listen(t, requests.Serve)
	roots := x509.NewCertPool()
	roots.AddCert(like.Certificate())
	for name, want := range map[string]codes.Code{"envoy.prod": codes.OK, "other.prod": codes.Unauthenticated} {
		client := &tls.Config{
			RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS12,
			Certificates: []tls.Certificate{clientCertificate(t, name)},
		}
		conn, err := grpc.NewClient(grpcAddress, grpc.WithTransportCredentials(credentials.NewTLS(client)))
		if err != nil {
			t.Fatal(err)
		}
		_, err = weirv1.NewLimiterClient(conn).Available(t.Context(), &weirv1.AvailableRequest{Entity: "alice", Resource: "gpt-4"})
		conn.Close()
		if status.Code(err) != want {
			t.Errorf("%s over gRPC: got %v", name, err)
		}
		h := &http.Client{Transport: &http.Transport{TLSClientConfig: client, DisableKeepAlives: true}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+httpAddress+"/v1/available?entity=alice&resource=gpt-4", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := h.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if (resp.StatusCode == http.StatusOK) != (want == codes.OK) {
			t.Errorf("%s over HTTP: got %d", name, resp.StatusCode)
		}
	}
}

// TestTLS checks that the server uses the given TLS configuration.
func TestTLS(t *testing.T) {
	t.Parallel()
	like := httptest.NewTLSServer(nil)
	defer like.Close()
	lim, err := weir.New(weir.Config{Store: memory.New(nil)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lim.Close() })
	s, err := grpcapi.New(grpcapi.Config{Config: decide.Config{Limiter: lim, TLS: &tls.Config{Certificates: like.TLS.Certificates, MinVersion: tls.VersionTLS12}}})
	if err != nil {
		t.Fatal(err)
	}
	address := listen(t, s.Serve)
	roots := x509.NewCertPool()
	roots.AddCert(like.Certificate())
	for creds, want := range map[credentials.TransportCredentials]codes.Code{
		credentials.NewClientTLSFromCert(roots, "example.com"): codes.OK,
		insecure.NewCredentials():                              codes.Unavailable,
	} {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(creds))
		if err != nil {
			t.Fatal(err)
		}
		_, err = healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
		conn.Close()
		if status.Code(err) != want {
			t.Errorf("%s: %v", creds.Info().SecurityProtocol, err)
		}
	}
}
