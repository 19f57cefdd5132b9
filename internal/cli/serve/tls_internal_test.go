package serve

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/serve/reload"
)

// authority signs certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	text []byte // PEM
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.cert, a.key, a.text = a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "root"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

// sign signs a template; a new authority signs itself.
func (a *authority) sign(t *testing.T, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// issue returns a certificate for the given use, in PEM, and its key.
func (a *authority) issue(t *testing.T, name string, use x509.ExtKeyUsage) (cert, key []byte) {
	t.Helper()
	_, k, cert := a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, ExtKeyUsage: []x509.ExtKeyUsage{use},
	})
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func (a *authority) pair(t *testing.T, name string, use x509.ExtKeyUsage) tls.Certificate {
	t.Helper()
	cert, key := a.issue(t, name, use)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// tlsFixture holds the files of a server.
type tlsFixture struct {
	TLSFlags
	server, clients *authority
	log             bytes.Buffer
}

func newTLS(t *testing.T) *tlsFixture {
	t.Helper()
	dir := t.TempDir()
	f := &tlsFixture{
		TLSFlags: TLSFlags{
			Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), ClientCA: filepath.Join(dir, "ca.pem"),
		},
		server: newAuthority(t), clients: newAuthority(t),
	}
	f.renew(t, "one")
	writeFile(t, f.ClientCA, f.clients.text)
	return f
}

func (f *tlsFixture) renew(t *testing.T, name string) {
	t.Helper()
	cert, key := f.server.issue(t, name, x509.ExtKeyUsageServerAuth)
	writeFile(t, f.Cert, cert)
	writeFile(t, f.Key, key)
}

func writeFile(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (f *tlsFixture) open(t *testing.T) *tls.Config {
	t.Helper()
	cfg, err := f.config(slog.New(slog.NewTextHandler(&f.log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// connect performs the handshake and returns the client's connection state, or the error of either side.
func (f *tlsFixture) connect(t *testing.T, cfg, client *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	ended := make(chan error, 1)
	go func() {
		s, err := ln.Accept()
		if err != nil {
			ended <- err
			return
		}
		_, err = s.Write([]byte("x")) // performs the handshake
		ended <- err
		_ = s.Close()
	}()
	client = client.Clone()
	client.RootCAs = f.server.pool()
	d := tls.Dialer{Config: client}
	c, err := d.DialContext(t.Context(), "tcp", ln.Addr().String())
	if err != nil {
		<-ended
		return tls.ConnectionState{}, err
	}
	defer c.Close()
	_, err = io.ReadFull(c, make([]byte, 1)) // Read may return the end with it
	if served := <-ended; served != nil {
		err = served
	}
	return c.(*tls.Conn).ConnectionState(), err
}

func TestTLSRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newTLS(t)
		f.ClientCA = ""
		cfg := f.open(t)
		reach := func(name string) error {
			_, err := f.connect(t, cfg, &tls.Config{ServerName: name})
			return err
		}
		if err := reach("one"); err != nil {
			t.Fatal(err)
		}
		f.renew(t, "two")
		time.Sleep(reload.Every)
		if err := reach("two"); err != nil {
			t.Errorf("after it was renewed: %v", err)
		}
		writeFile(t, f.Key, []byte("nonsense"))
		time.Sleep(reload.Every)
		if err := reach("two"); err != nil || !strings.Contains(f.log.String(), "stay") {
			t.Errorf("after it was spoilt: %v, logged %s", err, f.log.String())
		}
		if _, err := f.connect(t, cfg, &tls.Config{ServerName: "two", MaxVersion: tls.VersionTLS11}); err == nil { //nolint:gosec // it must be refused
			t.Error("TLS 1.1 is taken")
		}
	})
}

// TestTLSSuites checks that TLS 1.2 is only spoken with suites that authenticate what they encrypt.
func TestTLSSuites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newTLS(t)
		f.ClientCA = ""
		cfg := f.open(t)
		for _, suite := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
			if slices.Contains(suite.SupportedVersions, tls.VersionTLS13) || strings.Contains(suite.Name, "_RSA_WITH") {
				continue // the server's certificate has an ECDSA key
			}
			_, err := f.connect(t, cfg, &tls.Config{ServerName: "one", MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{suite.ID}}) //nolint:gosec // weak ones must be refused
			good := strings.Contains(suite.Name, "_GCM_") || strings.Contains(suite.Name, "_POLY1305_")
			if (err == nil) != good {
				t.Errorf("%s: got %v", suite.Name, err)
			}
		}
	})
}

func TestClientCertificates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newTLS(t)
		cfg := f.open(t)
		for name, tt := range map[string]struct {
			certs []tls.Certificate
			ok    bool
		}{
			"good":               {[]tls.Certificate{f.clients.pair(t, "c", x509.ExtKeyUsageClientAuth)}, true},
			"none":               {nil, false},
			"of another root":    {[]tls.Certificate{f.server.pair(t, "c", x509.ExtKeyUsageClientAuth)}, false},
			"for something else": {[]tls.Certificate{f.clients.pair(t, "c", x509.ExtKeyUsageServerAuth)}, false},
		} {
			if _, err := f.connect(t, cfg, &tls.Config{ServerName: "one", Certificates: tt.certs}); (err == nil) != tt.ok {
				t.Errorf("%s: got %v", name, err)
			}
		}
	})
}

// TestClientRootsChanged: certificates of a removed root are refused, and so are sessions from before the removal.
func TestClientRootsChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newTLS(t)
		cfg := f.open(t)
		client := &tls.Config{
			ServerName: "one", Certificates: []tls.Certificate{f.clients.pair(t, "c", x509.ExtKeyUsageClientAuth)},
			ClientSessionCache: tls.NewLRUClientSessionCache(1),
		}
		if _, err := f.connect(t, cfg, client); err != nil {
			t.Fatal(err)
		}
		if c, err := f.connect(t, cfg, client); err != nil || !c.DidResume {
			t.Fatalf("resumed %v: %v", c.DidResume, err)
		}
		writeFile(t, f.ClientCA, newAuthority(t).text)
		time.Sleep(reload.Every)
		if c, err := f.connect(t, cfg, client); err == nil {
			t.Errorf("resumed %v under a root that is gone", c.DidResume)
		}
	})
}

func TestTLSErrors(t *testing.T) {
	t.Parallel()
	f := newTLS(t)
	writeFile(t, f.ClientCA, []byte("nonsense"))
	if _, err := f.config(slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), f.ClientCA) {
		t.Errorf("roots: got %v", err)
	}
	other := newTLS(t)
	f.Cert = other.Cert
	if _, err := f.config(slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "match each other") {
		t.Errorf("pair: got %v", err)
	}
	none := new(TLSFlags)
	if cfg, err := none.config(nil); cfg != nil || err != nil {
		t.Errorf("none: got %v, %v", cfg, err)
	}
}
