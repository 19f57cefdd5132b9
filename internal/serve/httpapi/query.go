package httpapi

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimits/weir"
)

// query holds the parameters of an admin request and the limiter of its namespace.
type query struct {
	url.Values
	lim *weir.Limiter
	max int
}

// parameters reads the parameters of a URL. Only names, max and namespace are allowed, each at most once, so that a
// misspelt parameter cannot widen the scope of a request.
func parameters(r *http.Request, names ...string) (query, error) {
	var q query
	var err error
	if q.Values, err = url.ParseQuery(r.URL.RawQuery); err != nil {
		return q, badField("query", "cannot be read: percent-encode it")
	}
	for name, values := range q.Values {
		switch {
		case name != "namespace" && !slices.Contains(names, name):
			return q, badField(within("body", []byte(name)), "is unknown; known are %s", strings.Join(append(names,
				"namespace"), ", "))
		case len(values) > 1:
			return q, badField(name, "is a duplicate")
		case values[0] == "":
			return q, badField(name, "must not be empty: leave it out")
		}
	}
	if text := q.Get("max"); text != "" {
		if q.max, err = strconv.Atoi(text); err != nil || q.max < 1 || q.max > 1000 {
			return q, badField("max", "must be between 1 and 1000")
		}
	}
	return q, nil
}

// done answers 204, or returns err if it is not nil.
func done(w http.ResponseWriter, err error) error {
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}
