package serve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"

	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/serve/reload"
)

// TLSFlags configure TLS for servers.
type TLSFlags struct {
	Cert     string `json:"tls_cert"`
	Key      string `json:"tls_key"`
	ClientCA string `json:"tls_client_ca"`

	opened *tls.Config // nil: no TLS
}

// Open returns the TLS configuration of the flags, or nil for no TLS.
func (f *TLSFlags) Open(log *slog.Logger) (*tls.Config, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	return f.config(log)
}

func (f *TLSFlags) check() error {
	switch {
	case (f.Cert == "") != (f.Key == ""):
		return kit.Usage(errors.New("--tls-cert and --tls-key must be used together"))
	case f.ClientCA != "" && f.Cert == "":
		return kit.Usage(errors.New("--tls-client-ca needs --tls-cert and --tls-key"))
	}
	return nil
}

func (f *TLSFlags) open(_ context.Context, s *serving) (err error) {
	f.opened, err = f.config(s.log)
	return err
}

// config returns the TLS configuration, or nil for no TLS. Changed files take effect within a second. If they become
// invalid, the last valid ones stay in use and the log reports that.
//
// The callers set the application protocols. The minimum is TLS 1.2 because that is the highest version that Envoy uses
// as a client by default.
func (f *TLSFlags) config(log *slog.Logger) (*tls.Config, error) {
	if f.Cert == "" {
		return nil, nil //nolint:nilnil // nil is no TLS
	}
	failed := func(err error) {
		log.Error("TLS files cannot be used: the last valid ones stay in use", slog.Any("error", err))
	}
	pair, err := reload.Open(f.pair, failed, f.Cert, f.Key)
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		CipherSuites:   suites, // of TLS 1.2
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair.Get(), nil },
	}
	if f.ClientCA == "" {
		return cfg, nil
	}
	roots, err := reload.Open(f.roots, failed, f.ClientCA)
	if err != nil {
		return nil, err
	}
	// ClientCAs cannot change at run time; these roots can. VerifyConnection also checks resumed sessions.
	cfg.ClientAuth = tls.RequireAnyClientCert
	cfg.VerifyConnection = func(c tls.ConnectionState) error { return verifyClient(c, roots.Get()) }
	return cfg, nil
}

// suites have forward secrecy and authenticated encryption, as all of TLS 1.3 do.
var suites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

func (f *TLSFlags) pair() (*tls.Certificate, error) {
	pair, err := secret.KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert and --tls-key: %w", err)
	}
	return pair, nil
}

func (f *TLSFlags) roots() (*x509.CertPool, error) {
	roots, err := secret.Roots(f.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("--tls-client-ca: %w", err)
	}
	return roots, nil
}

func verifyClient(c tls.ConnectionState, roots *x509.CertPool) error {
	if len(c.PeerCertificates) == 0 {
		return errors.New("the client has no certificate")
	}
	between := x509.NewCertPool()
	for _, cert := range c.PeerCertificates[1:] {
		between.AddCert(cert)
	}
	_, err := c.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err
}
