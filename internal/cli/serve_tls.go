package cli

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/pflag"

	"github.com/weirlimits/weir/internal/reload"
)

// tlsFlags say how connections are secured, those of HTTP and of gRPC alike.
type tlsFlags struct{ cert, key, clientCA string }

func (f *tlsFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.cert, "tls-cert", "", "`FILE` with the certificate and those between it and its root, in PEM; read again when it changes")
	flags.StringVar(&f.key, "tls-key", "", "`FILE` with the certificate's key, in PEM; read again when it changes")
	flags.StringVar(&f.clientCA, "tls-client-ca", "", "`FILE` with the roots of the certificates that clients must have, in PEM; tokens are asked for all the same")
}

func (f *tlsFlags) check() error {
	switch {
	case (f.cert == "") != (f.key == ""):
		return usageError{errors.New("--tls-cert and --tls-key go together")}
	case f.clientCA != "" && f.cert == "":
		return usageError{errors.New("--tls-client-ca needs --tls-cert and --tls-key")}
	}
	return nil
}

// config returns how to secure connections, nil if they are not. A change of the files is in force within a second;
// when they are bad later, what was read stays and the log says so.
//
// It leaves the protocol to who serves. TLS 1.2 is the least because Envoy, as a client, goes no further by default.
func (f *tlsFlags) config(log *slog.Logger) (*tls.Config, error) {
	if f.cert == "" {
		return nil, nil //nolint:nilnil // nil is no TLS
	}
	failed := func(err error) {
		log.Error("TLS files cannot be used: those read before stay", slog.Any("error", err))
	}
	pair, err := reload.Open(f.pair, failed, f.cert, f.key)
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair.Get(), nil },
	}
	if f.clientCA == "" {
		return cfg, nil
	}
	roots, err := reload.Open(f.roots, failed, f.clientCA)
	if err != nil {
		return nil, err
	}
	// crypto/tls verifies against roots that cannot change; here they can, also for a session that is resumed.
	cfg.ClientAuth = tls.RequireAnyClientCert
	cfg.VerifyConnection = func(c tls.ConnectionState) error { return verifyClient(c, roots.Get()) }
	return cfg, nil
}

func (f *tlsFlags) pair() (*tls.Certificate, error) {
	c, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, fmt.Errorf("read certificate %s and key %s: %w: both must be PEM and belong together", f.cert, f.key, err)
	}
	return &c, nil
}

func (f *tlsFlags) roots() (*x509.CertPool, error) {
	text, err := os.ReadFile(f.clientCA)
	if err != nil {
		return nil, fmt.Errorf("read --tls-client-ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("read --tls-client-ca: %s holds no certificate in PEM", f.clientCA)
	}
	return pool, nil
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
