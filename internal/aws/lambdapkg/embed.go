//go:build weir_embed

package lambdapkg

import _ "embed"

//go:embed weir-lambda.zip
var embedded []byte
