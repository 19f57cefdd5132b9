//go:build !weir_embed

package lambdapkg

// embedded is nil: this weir builds the package when it needs it.
var embedded []byte
