//go:build weir_embed

package pack

import _ "embed"

//go:embed weir-lambda.zip
var embedded []byte
