package weir

import (
	"unicode"
	"unicode/utf8"
)

// DefaultResource is how the limits of an entity that hold for all resources without their own are stored and shown.
// No entity, resource, limit or namespace may be called so.
const DefaultResource = "_default_"

// maxID is how many bytes an id may have.
const maxID = 256

// checkID accepts every printable id of 1 to 256 bytes that is not reserved.
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
