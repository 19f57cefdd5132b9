package weir

import (
	"unicode"
	"unicode/utf8"
)

// DefaultResource is the name under which an entity's limits for all other resources are stored and shown. No entity,
// resource, limit or namespace can have this name.
const DefaultResource = "_default_"

// maxID is the maximum length of an id in bytes.
const maxID = 256

// checkID accepts printable ids of 1 to 256 bytes that are not reserved.
func checkID(field, id string) error {
	switch id {
	case "":
		return configErr(field, "must not be empty")
	case DefaultResource, "_", "wcu":
		return configErr(field, "%q is reserved", id)
	}
	if len(id) > maxID {
		return configErr(field, "has %d bytes, at most %d are allowed", len(id), maxID)
	}
	if !utf8.ValidString(id) {
		return configErr(field, "%q is not valid UTF-8", id)
	}
	for _, r := range id {
		if unicode.IsControl(r) {
			return configErr(field, "%q holds a control character", id)
		}
	}
	return nil
}
