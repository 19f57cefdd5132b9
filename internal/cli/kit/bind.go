package kit

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimits/weir/internal/api"
)

// binding connects a command to a request: arguments and flags to its members.
type binding struct {
	q     any
	args  []argument
	flags []*value
}

// argument is a word in a command's Use.
type argument struct {
	field          api.Field
	name           string
	optional, many bool
}

func typeOf(q any) reflect.Type { return reflect.TypeOf(q).Elem() }

func valueOf(p any) any { return reflect.ValueOf(p).Elem().Interface() }

// bind gives a command the arguments that its Use names, and a flag for each other member of the request.
func bind(cmd *cobra.Command, q any, omit []string) *binding {
	b := &binding{q: q}
	fields := slices.Clone(api.FieldsOf(typeOf(q)))
	for _, word := range strings.Fields(cmd.Use)[1:] {
		a := argument{name: strings.Trim(word, "[].")}
		a.optional, a.many = word[0] == '[', strings.Contains(word, "...")
		i := slices.IndexFunc(fields, func(f api.Field) bool {
			return strings.EqualFold(f.Name, a.name) || f.Arg == a.name
		})
		if i < 0 {
			panic(cmd.Use + ": no member of the request is " + a.name)
		}
		a.field = fields[i]
		b.args = append(b.args, a)
		fields = slices.Delete(fields, i, i+1)
	}
	cmd.Args = b.checkArgs
	for _, f := range fields {
		if f.Flag == "-" || f.In == "header" || f.Arg != "" || slices.Contains(omit, f.Name) {
			continue
		}
		name, letter, _ := strings.Cut(f.Flag, ",")
		if name == "" {
			name = strings.ReplaceAll(f.Name, "_", "-")
		}
		v := &value{field: f, q: q}
		if f.Default != "" {
			_ = f.Set(q, f.Default)
			v.texts = []string{f.Default}
		}
		doc := strings.NewReplacer("{", "`", "}", "`").Replace(f.Doc)
		var as pflag.Value = v
		if f.Many(q) {
			as = many{v}
		}
		flag := cmd.Flags().VarPF(as, name, letter, doc)
		if v.Type() == "bool" {
			flag.NoOptDefVal = "true"
		}
		v.flag = flag
		if f.Required {
			_ = cmd.MarkFlagRequired(name) // fails only for unknown flags
		}
		b.flags = append(b.flags, v)
	}
	return b
}

// checkArgs checks how many arguments there are. Its errors name the one that is missing or too many.
func (b *binding) checkArgs(cmd *cobra.Command, args []string) error {
	for i, a := range b.args {
		if i >= len(args) && !a.optional {
			return fmt.Errorf("%s is missing: %s", a.name, cmd.UseLine())
		}
		if a.many {
			return nil
		}
	}
	if len(args) > len(b.args) {
		return fmt.Errorf("%q is one argument too many: %s", args[len(b.args)], cmd.UseLine())
	}
	return nil
}

// finish sets the arguments, and the flags whose texts are only parsed now.
func (b *binding) finish(args []string) error {
	for i := range b.args {
		a := &b.args[i]
		given := args[min(i, len(args)):min(i+1, len(args))]
		if a.many {
			given = args[min(i, len(args)):]
		}
		for _, text := range given {
			if err := a.field.Set(b.q, text); err != nil {
				return Usage(err)
			}
		}
	}
	for _, v := range b.flags {
		for _, text := range v.late {
			if err := v.field.Set(b.q, text); err != nil {
				return Usage(err)
			}
		}
	}
	return nil
}

// given reports whether any flag is set.
func (b *binding) given() bool {
	return slices.ContainsFunc(b.flags, func(v *value) bool { return v.flag.Changed })
}

// value is a member of a request as a flag.
type value struct {
	field api.Field
	q     any
	flag  *pflag.Flag
	texts []string
	late  []string // parsed when all flags are known, so that errors are not about flags
}

// Set implements pflag.Value.
func (v *value) Set(text string) error {
	if !v.field.Many(v.q) {
		v.texts, v.late = nil, nil
	}
	v.texts = append(v.texts, text)
	if t := v.Type(); t != "string" {
		return v.field.Set(v.q, text)
	}
	v.late = append(v.late, text)
	return nil
}

// String implements pflag.Value.
func (v *value) String() string { return strings.Join(v.texts, ",") }

// Type implements pflag.Value.
func (v *value) Type() string {
	if v.q == nil {
		return ""
	}
	t := reflect.TypeOf(v.field.Ptr(v.q)).Elem()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[time.Duration]() {
		return "duration"
	}
	switch t.Kind() {
	case reflect.Bool, reflect.Int:
		return t.Kind().String()
	default:
		return "string"
	}
}

// many is a value that may be given several times.
type many struct{ *value }

// Append implements pflag.SliceValue.
func (m many) Append(text string) error { return m.Set(text) }

// Replace implements pflag.SliceValue.
func (m many) Replace(texts []string) error {
	m.value.texts, m.value.late = nil, nil
	for _, text := range texts {
		if err := m.Set(text); err != nil {
			return err
		}
	}
	return nil
}

// GetSlice implements pflag.SliceValue.
func (m many) GetSlice() []string { return m.texts }
