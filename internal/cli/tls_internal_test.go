package cli

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/testkit/porttest"
)

// pair writes a certificate for both uses and its key to the files NAME.pem and NAME-key.pem of a folder. Without a
// parent, it signs itself.
func pair(t *testing.T, dir, name string, parent *x509.Certificate, by *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if parent == nil {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage, c.ExtKeyUsage = true, true, x509.KeyUsageCertSign, nil
		parent, by = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, b := range map[string]*pem.Block{
		name + ".pem": {Type: "CERTIFICATE", Bytes: der}, name + "-key.pem": {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return c, key
}

// Commands work through a server that requires client certificates, from its own authority, and with neither the
// certificate nor the authority they do not.
func TestClientCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, key := pair(t, dir, "ca", nil, nil)
	pair(t, dir, "server", ca, key)
	pair(t, dir, "ops", ca, key)
	file := func(name string) string { return filepath.Join(dir, name) }
	run := func(ctx context.Context, env []string, args ...string) (int, string) {
		var out bytes.Buffer
		a := kit.New(strings.NewReader(""), &out, &out, env)
		r := root(a)
		r.SetArgs(args)
		r.SetOut(&out)
		r.SetErr(&out)
		return a.Execute(ctx, r), out.String()
	}
	var ports [2]string
	for i := range ports {
		var err error
		if ports[i], err = porttest.Reserve(); err != nil {
			t.Fatal(err)
		}
	}
	serving, stop := context.WithCancel(t.Context())
	ended := make(chan string, 1)
	go func() {
		_, out := run(serving, nil, "serve", "--store", "memory:", "--http", "127.0.0.1:"+ports[0], "--grpc", "127.0.0.1:"+ports[1],
			"--tls-cert", file("server.pem"), "--tls-key", file("server-key.pem"), "--tls-client-ca", file("ca.pem"))
		ended <- out
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	server := []string{
		"WEIR_SERVER=https://127.0.0.1:" + ports[0], "WEIR_CLIENT_CERT=" + file("ops.pem"), "WEIR_CLIENT_KEY=" + file("ops-key.pem"),
		"WEIR_SERVER_CA=" + file("ca.pem"),
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) { // real time: a server is starting
		code, out := run(t.Context(), server, "system", "set", "-l", "rpm:6000/min")
		if code == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d: %s", code, out)
		}
	}
	for _, args := range []string{
		"acquire alice api rpm=1", "watch --once -o json",
		"load run simple --for 10ms --warm-up 0s --http https://127.0.0.1:" + ports[0],
		"load run simple --for 10ms --warm-up 0s --http https://127.0.0.1:" + ports[0] + " --tls --grpc 127.0.0.1:" + ports[1],
	} {
		if code, out := run(t.Context(), server, strings.Fields(args)...); code != 0 {
			t.Errorf("%s: %d %s", args, code, out)
		}
	}
	for missing, want := range map[string]struct {
		code int
		text string
	}{
		"WEIR_CLIENT_CERT": {2, "must be used together"}, "WEIR_SERVER_CA": {5, "x509"}, "WEIR_CLIENT_": {5, "certificate"},
	} {
		var env []string
		for _, e := range server {
			if !strings.HasPrefix(e, missing) {
				env = append(env, e)
			}
		}
		for _, args := range []string{"acquire alice api rpm=1", "watch --once"} {
			if code, out := run(t.Context(), env, strings.Fields(args)...); code != want.code || !strings.Contains(out, want.text) {
				t.Errorf("without %s: %s: %d %s", missing, args, code, out)
			}
		}
	}
}
