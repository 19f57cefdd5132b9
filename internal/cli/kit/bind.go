package kit

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/api/secret"
)

// binding connects a command to a request: arguments and flags to its members.
type binding struct {
	args    []argument
	flags   []*value
	secrets []*value
}

// argument is a word in a command's Use.
type argument struct {
	field api.Field
	q     any
	name  string
	// joined is for an argument in the same brackets as the one before it: either both are given, or none.
	optional, joined, many bool
}

func typeOf(q any) reflect.Type { return reflect.TypeOf(q).Elem() }

func valueOf(p any) any { return reflect.ValueOf(p).Elem().Interface() }

// bind gives a command the arguments that its Use names, and a flag for each other member of the request and of the
// structs in With, in this order. The default of a flag is in its tag, or else what the member already holds.
func bind(cmd *cobra.Command, q any, s *Spec) *binding {
	b := &binding{}
	cmd.Args = b.checkArgs
	cmd.Flags().SortFlags = false
	fields := slices.Clone(api.FieldsOf(typeOf(q)))
	inside := false
	for _, word := range strings.Fields(cmd.Use)[1:] {
		a := argument{q: q, name: strings.Trim(word, "[]."), joined: inside, many: strings.Contains(word, "...")}
		a.optional = inside || word[0] == '['
		inside = a.optional && !strings.HasSuffix(word, "]")
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
	b.addFlags(cmd, q, fields, s.Omit)
	for i, more := range s.With {
		n := len(b.flags)
		b.addFlags(cmd, more, api.FieldsOf(typeOf(more)), s.Omit)
		if i < len(s.Titles) {
			title(cmd, b.flags[n:], s.Titles[i])
		}
	}
	return b
}

func (b *binding) addFlags(cmd *cobra.Command, q any, fields []api.Field, omit []string) {
	for _, f := range fields {
		if f.Flag == "-" || f.Arg != "" || slices.Contains(omit, f.Name) {
			continue
		}
		name, letter, _ := strings.Cut(f.Flag, ",")
		name = cmp.Or(name, strings.ReplaceAll(f.Name, "_", "-"))
		v := &value{field: f, q: q}
		if f.Default != "" {
			_ = f.Set(q, f.Default)
			v.texts = []string{f.Default}
		} else if !f.IsZero(q) {
			v.texts = []string{fmt.Sprint(valueOf(f.Ptr(q)))}
		}
		var as pflag.Value = v
		if f.Many(q) {
			as = many{v}
		}
		v.flag = cmd.Flags().VarPF(as, name, letter, strings.NewReplacer("{", "`", "}", "`").Replace(f.Doc))
		if v.Type() == "bool" {
			v.flag.NoOptDefVal = "true"
		}
		if s := v.secret(); s != nil { // the flag itself is for the environment and configuration files
			v.flag.Hidden = true
			cmd.Flags().Var(fileOf{s}, name+fileSuffix, v.flag.Usage)
			b.secrets = append(b.secrets, v)
		}
		if f.Required {
			_ = cmd.MarkFlagRequired(name) // fails only for unknown flags
		}
		b.flags = append(b.flags, v)
	}
}

// checkArgs checks how many arguments there are. Its errors name the one that is missing or too many.
func (b *binding) checkArgs(cmd *cobra.Command, args []string) error {
	for i, a := range b.args {
		if i >= len(args) && (!a.optional || a.joined && i == len(args)) {
			return fmt.Errorf("%s is missing: %s", a.name, cmd.UseLine())
		}
		if a.many {
			return nil
		}
	}
	if len(args) <= len(b.args) {
		return nil
	}
	extra := args[len(b.args)]
	for _, v := range b.flags {
		if like, known := lettered[v.flag.Name]; known && v.flag.Shorthand != "" && like.MatchString(extra) {
			words := append([]string{cmd.CommandPath()}, args[:len(b.args)]...)
			for _, text := range args[len(b.args):] {
				words = append(words, "-"+v.flag.Shorthand, text)
			}
			return fmt.Errorf("%ss go with -%s: %s", v.flag.Name, v.flag.Shorthand, strings.Join(words, " "))
		}
	}
	return fmt.Errorf("%q is one argument too many: %s", extra, cmd.UseLine())
}

// lettered are the flags whose values people give without them, each with what its values look like.
var lettered = map[string]*regexp.Regexp{
	"limit": regexp.MustCompile(`^[^:=]+[:=][0-9]`),
	"file":  regexp.MustCompile(`^-$|/|\.(ya?ml|json)$`),
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
			if err := a.field.Set(a.q, text); err != nil {
				return about(a.name, &a.field, err)
			}
		}
	}
	for _, v := range b.secrets {
		if err := v.secret().Load(); err != nil {
			return Usagef("--%s: %w", v.flag.Name+fileSuffix, err)
		}
	}
	for _, v := range b.flags {
		for _, text := range v.late {
			if err := v.field.Set(v.q, text); err != nil {
				return about("--"+v.flag.Name, &v.field, err)
			}
		}
	}
	return nil
}

// about returns an error about a member of a request as one about the flag or argument of that name.
func about(name string, f *api.Field, err error) error {
	var bad *weir.ConfigError
	if errors.As(err, &bad) && (bad.Field == f.Name || strings.HasPrefix(bad.Field, f.Name+".")) {
		return Usagef("%s %s", name, bad.Reason)
	}
	return Usage(err)
}

// selection returns the arguments and flags with a value, except those that only shape a list.
func (b *binding) selection(args []string) (all []string) {
	for i, text := range args {
		all = append(all, b.args[min(i, len(b.args)-1)].name+" "+text)
	}
	for _, v := range b.flags {
		switch text := v.String(); {
		case text == "" || text == "false" || slices.Contains([]string{"after", "by", "csv", "max"}, v.field.Name):
		case v.Type() == "bool":
			all = append(all, "--"+v.flag.Name)
		default:
			all = append(all, "--"+v.flag.Name+" "+text)
		}
	}
	return all
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
	late  []string // parsed when all flags are known: only switches, numbers and durations are parsed at once
}

// Set implements pflag.Value.
func (v *value) Set(text string) error {
	if !v.field.Many(v.q) {
		v.texts, v.late = nil, nil
	}
	v.texts = append(v.texts, text)
	if v.Type() == "string" {
		v.late = append(v.late, text)
		return nil
	}
	if v.Type() == "bool" { // as pflag reads them: 1, t, True …
		if b, err := strconv.ParseBool(text); err == nil {
			text = strconv.FormatBool(b)
		}
	}
	if err := v.field.Set(v.q, text); err != nil {
		return about("--"+v.flag.Name, &v.field, err)
	}
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
	case reflect.Bool, reflect.Int, reflect.Int64, reflect.Uint64, reflect.Float64:
		return t.Kind().String()
	default:
		return "string"
	}
}

// Override sets each field of to for which the field of the same name in from, a pointer, is not nil: in from, nil is
// a flag that is not given.
func Override(to, from any) {
	target, given := reflect.ValueOf(to).Elem(), reflect.ValueOf(from).Elem()
	for _, f := range reflect.VisibleFields(given.Type()) {
		if v := given.FieldByIndex(f.Index); f.IsExported() && v.Kind() == reflect.Pointer && !v.IsNil() {
			if field := target.FieldByName(f.Name); field.IsValid() {
				field.Set(v.Elem().Convert(field.Type()))
			}
		}
	}
}

// secret returns the secret that the flag holds, or nil.
func (v *value) secret() *secret.Text {
	s, _ := v.field.Ptr(v.q).(*secret.Text)
	return s
}

// fileSuffix ends the name of the flag with the file of a secret.
const fileSuffix = "-file"

// fileOf is the file of a secret as a flag.
type fileOf struct{ to *secret.Text }

// Set implements pflag.Value.
func (f fileOf) Set(path string) error {
	f.to.File = path
	return nil
}

// String implements pflag.Value.
func (f fileOf) String() string {
	if f.to == nil {
		return ""
	}
	return f.to.File
}

// Type implements pflag.Value.
func (f fileOf) Type() string { return "string" }

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
