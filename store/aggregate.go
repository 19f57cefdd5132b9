package store

import (
	"strconv"
	"strings"
)

// An aggregate is a resource that requests are charged to together with the one that they name: a group of resources,
// or the total. No request names one. Sums of usage over several resources leave aggregates out, because they would
// count each request again.
const (
	// Total is the resource of an entity's limits on all resources together.
	Total = "_total_"
	// GroupPrefix comes before a group's name in the resource of its limits.
	GroupPrefix = "_group_"
)

// Aggregate reports whether a resource is a group or the total.
func Aggregate(resource string) bool {
	return resource == Total || strings.HasPrefix(resource, GroupPrefix)
}

// ResourceText names a resource for people: gpt-4o, group openai, the total.
func ResourceText(resource string) string {
	if resource == Total {
		return "the total"
	}
	if group, ok := strings.CutPrefix(resource, GroupPrefix); ok {
		return "group " + group
	}
	return resource
}

// ResourceQuoted is ResourceText with the name in quotation marks: resource "gpt-4o", group "openai", the total.
func ResourceQuoted(resource string) string {
	if resource == Total {
		return ResourceText(resource)
	}
	if group, ok := strings.CutPrefix(resource, GroupPrefix); ok {
		return "group " + strconv.Quote(group)
	}
	return "resource " + strconv.Quote(resource)
}
