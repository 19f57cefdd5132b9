package secret

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// KeyPair reads a certificate, which its intermediates may follow, and its key from PEM files. It refuses the key's
// file as [Check] does.
func KeyPair(cert, key string) (*tls.Certificate, error) {
	text, err := os.ReadFile(cert)
	if err != nil {
		return nil, err
	}
	private, err := ReadFile(key)
	if err != nil {
		return nil, err
	}
	c, err := tls.X509KeyPair(text, private)
	if err != nil {
		return nil, fmt.Errorf("read certificate %s and key %s: %w: both must be PEM and match each other", cert,
			key, err)
	}
	return &c, nil
}

// Roots reads the certificates of a PEM file.
func Roots(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s contains no PEM certificate", file)
	}
	return pool, nil
}
