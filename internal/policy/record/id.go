package record

import (
	"cmp"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weirlimits/weir/store"
)

// DefaultResource is the name under which an entity's limits for all other resources are stored and shown. No entity,
// resource, limit or namespace can have this name.
const DefaultResource = "_default_"

// MaxID is the maximum length of an id in bytes.
const MaxID = store.MaxID

// CheckID accepts printable ids of 1 to 256 bytes that are not reserved.
func CheckID(field, id string) error {
	switch id {
	case "":
		return Invalid(field, "must not be empty")
	case DefaultResource, "_", "wcu":
		return Invalid(field, "%q is reserved", id)
	}
	if store.Aggregate(id) {
		return Invalid(field, "%q is reserved: requests name a single resource, and are charged to its group and the "+
			"total, too", id)
	}
	return checkText(field, id)
}

// CheckIDs returns a [*FieldError] if no request can have these ids. Resolve checks them when it makes a policy.
func CheckIDs(entity, resource string) error {
	return cmp.Or(CheckID("entity", entity), CheckID("resource", resource))
}

// CheckResource is CheckID for a resource that limits and buckets have: it accepts the total and groups, too.
func CheckResource(field, id string) error {
	if id == store.Total {
		return nil
	}
	name, group := strings.CutPrefix(id, store.GroupPrefix)
	if err := CheckID(field, name); err != nil || !group {
		return err
	}
	return checkText(field, id)
}

// Aggregates returns what a resource of a group, if it has one, is charged to besides itself, in order.
func Aggregates(group string, totals bool) (resources []string) {
	if group != "" {
		resources = append(resources, store.GroupPrefix+group)
	}
	if totals {
		resources = append(resources, store.Total)
	}
	return resources
}

// CheckGroup is CheckID for the name of a group.
func CheckGroup(field, name string) error {
	if err := CheckID(field, name); err != nil {
		return err
	}
	return checkText(field, store.GroupPrefix+name)
}

func checkText(field, id string) error {
	if len(id) > MaxID {
		return Invalid(field, "has %d bytes, at most %d are allowed", len(id), MaxID)
	}
	return CheckText(field, id)
}

// CheckText accepts valid UTF-8 without control characters.
func CheckText(field, text string) error {
	if !utf8.ValidString(text) {
		return Invalid(field, "%q is not valid UTF-8", text)
	}
	for _, r := range text {
		if unicode.IsControl(r) {
			return Invalid(field, "%q holds a control character", text)
		}
	}
	return nil
}

// FieldError is a caller's mistake: the field, and what is wrong with it.
type FieldError struct{ Field, Reason string }

// Error returns "field: reason".
func (e *FieldError) Error() string { return e.Field + ": " + e.Reason }

// Invalid returns a [*FieldError].
func Invalid(field, format string, args ...any) *FieldError {
	return &FieldError{Field: field, Reason: fmt.Sprintf(format, args...)}
}
