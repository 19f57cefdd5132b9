package kit

import (
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/weirlimits/weir/internal/api/secret"
)

// clientTLS are the files for calling servers over TLS.
type clientTLS struct{ cert, key, roots string }

func (f *clientTLS) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.cert, "client-cert", "", "PEM `FILE` with the certificate to present to servers")
	flags.StringVar(&f.key, "client-key", "", "PEM `FILE` with the key of --client-cert")
	flags.StringVar(&f.roots, "server-ca", "",
		"PEM `FILE` with the roots of servers' certificates, instead of the system's")
}

// config returns the TLS configuration; nil for the default.
func (f *clientTLS) config() (*tls.Config, error) {
	if *f == (clientTLS{}) {
		return nil, nil //nolint:nilnil // nil is the default
	}
	if (f.cert == "") != (f.key == "") {
		return nil, Usage(errors.New("--client-cert and --client-key must be used together"))
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.cert != "" {
		pair, err := secret.KeyPair(f.cert, f.key)
		if err != nil {
			return nil, fmt.Errorf("--client-cert and --client-key: %w", err)
		}
		conf.Certificates = []tls.Certificate{*pair}
	}
	if f.roots != "" {
		roots, err := secret.Roots(f.roots)
		if err != nil {
			return nil, fmt.Errorf("--server-ca: %w", err)
		}
		conf.RootCAs = roots
	}
	return conf, nil
}
