package kit

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/cli/term"
)

// View prints values: several as a table, one as lines of names and values.
type View[T any] func(r *Run, all []T, list bool)

// Column is a column of a table, or a line. Of returns its value, by default the member with the column's name in JSON:
// "" is printed as -, true as yes, and numbers are aligned to the right. A map takes a line for each key. A nil value
// leaves out the line.
type Column[T any] struct {
	Name string
	Of   func(*T) any
	Long bool // not in tables
	Cut  bool // is cut if the terminal is too narrow
	Rare bool // is not in tables in which no row has a value
}

// member returns how to read the member of a struct that has this name in JSON, with underscores for spaces. A nil
// pointer is no value.
func member[T any](name string) func(*T) any {
	fields := api.FieldsOf(reflect.TypeFor[T]())
	name = strings.ReplaceAll(name, " ", "_")
	at := slices.IndexFunc(fields, func(f api.Field) bool { return f.Name == name })
	if at < 0 {
		panic(name + " is no member of " + reflect.TypeFor[T]().String())
	}
	return func(v *T) any {
		of := reflect.ValueOf(fields[at].Ptr(v)).Elem()
		switch {
		case of.Kind() != reflect.Pointer:
			return of.Interface()
		case of.IsNil():
			return nil
		}
		return of.Elem().Interface()
	}
}

// Columns makes a view.
func Columns[T any](columns []Column[T]) View[T] {
	for i := range columns {
		if c := &columns[i]; c.Of == nil {
			c.Of = member[T](c.Name)
		}
	}
	return func(r *Run, all []T, list bool) {
		if list {
			table(r, columns, all)
			return
		}
		var pairs []string
		for i := range all {
			for _, c := range columns {
				switch v := c.Of(&all[i]).(type) {
				case nil:
				case map[string]string:
					for _, key := range slices.Sorted(maps.Keys(v)) {
						pairs = append(pairs, c.Name, key+"="+v[key])
					}
				default:
					pairs = append(pairs, c.Name, textOf(r.Out, v))
				}
			}
		}
		r.Out.Pairs(pairs...)
	}
}

func table[T any](r *Run, columns []Column[T], all []T) {
	columns = slices.DeleteFunc(slices.Clone(columns), func(c Column[T]) bool {
		valued := func(v T) bool { return c.Of(&v) != nil && c.Of(&v) != "" }
		return c.Long || c.Rare && !slices.ContainsFunc(all, valued)
	})
	t := &term.Table{}
	for i, c := range columns {
		t.Header = append(t.Header, strings.ToUpper(c.Name))
		if c.Cut {
			t.Cut = append(t.Cut, i)
		}
		if len(all) > 0 {
			switch c.Of(&all[0]).(type) {
			case int, int64, uint64, time.Duration, Number:
				t.Right = append(t.Right, i)
			}
		}
	}
	for i := range all {
		row := make([]string, len(columns))
		for n, c := range columns {
			row[n] = textOf(r.Out, c.Of(&all[i]))
		}
		t.Row(row...)
	}
	r.Out.Table(t)
}

// Rows makes a view that prints rows of each value as one table.
func Rows[T, U any](of func(*T) []U, view View[U]) View[T] {
	return func(r *Run, all []T, _ bool) {
		var rows []U
		for i := range all {
			rows = append(rows, of(&all[i])...)
		}
		view(r, rows, true)
	}
}

// Number is text that is aligned like a number.
type Number string

// textOf formats a value for people.
func textOf(s *term.Screen, v any) string {
	switch v := v.(type) {
	case nil:
		return "-"
	case bool:
		return yesNo(v)
	case int:
		return s.Count(int64(v))
	case int64:
		return s.Count(v)
	case uint64:
		return strconv.FormatUint(v, 10)
	case time.Time:
		return OrDash(Instant(v))
	case time.Duration:
		return Span(v)
	case json.RawMessage:
		if string(v) == "null" {
			return "-"
		}
		return OrDash(string(v))
	case []string:
		return OrDash(strings.Join(v, ", "))
	}
	return OrDash(fmt.Sprint(v))
}
