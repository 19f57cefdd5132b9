package kit

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v4"

	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
)

const configName = "weir.yaml"

// given is where the values of flags come from.
type given struct {
	configFile string
	file       string           // the configuration file that is read
	places     map[string]place // of the flags that are set
	tls        clientTLS
	selected   []string // the arguments and flags that select what the command shows
}

// configure sets the flags that are not on the command line from their variables, or else from the configuration file.
// Such flags count as given, so they also satisfy required flags.
func configure(a *Run, cmd *cobra.Command) error {
	if v, ok := a.LookupEnv("WEIR_CONFIG"); ok && !cmd.Flags().Changed("config") {
		a.configFile = v
	}
	conf, err := loadConfig(a.configFile, cmd.Root())
	if err != nil {
		return err
	}
	a.file = conf.file
	path := CommandPath(cmd)
	var bad error
	places := make(map[string]place)
	a.places = places
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			places[f.Name] = onCommandLine
			if bad == nil {
				bad = visible(path, cmd, f)
			}
		}
		if f.Changed || f.Name == "help" || f.Name == "version" || f.Name == "config" || bad != nil {
			return
		}
		where := of(cmd, f, path)
		name := Variable(where, f.Name)
		if v, ok := a.LookupEnv(name); ok {
			places[f.Name] = inEnvironment
			if err := setFlag(cmd, f, split(f, v)); err != nil {
				bad = fmt.Errorf("%s: %w", name, err)
			}
			return
		}
		if node := conf.find(append(slices.Clone(where), f.Name)); node != nil && node.Kind != yaml.MappingNode {
			places[f.Name] = conf.place
			err := cmp.Or(conf.mayHold(f, texts(node)), conf.mayName(f, texts(node)))
			if err == nil {
				err = setFlag(cmd, f, texts(node))
			}
			if err != nil {
				bad = fmt.Errorf("%s:%d: %s: %w", conf.file, node.Line, f.Name, err)
			}
		}
	})
	if bad != nil {
		return bad
	}
	a.announce()
	return cmp.Or(a.chooseSecrets(cmd), a.choose(places["store"], places["server"]))
}

// of returns the path of the command that a flag belongs to: of the root, if all commands have it.
func of(cmd *cobra.Command, f *pflag.Flag, path []string) []string {
	if cmd.Root().PersistentFlags().Lookup(f.Name) != nil { // also if the command has its own of that name
		return nil
	}
	return path
}

// IsSecret reports whether a flag is a secret: it may be set in the environment or in a file, not on the command line.
func IsSecret(f *pflag.Flag) bool { return secretOf(f) != nil }

func secretOf(f *pflag.Flag) *value {
	if v, ok := f.Value.(*value); ok && v.secret() != nil {
		return v
	}
	return nil
}

func valuesOf(f *pflag.Flag) []string {
	if all, ok := f.Value.(pflag.SliceValue); ok {
		return all.GetSlice()
	}
	if a, ok := f.Value.(*address); ok {
		return []string{string(*a.to)}
	}
	return []string{f.Value.String()}
}

// visible returns an error if a flag on the command line holds a secret.
func visible(path []string, cmd *cobra.Command, f *pflag.Flag) error {
	name := Variable(of(cmd, f, path), f.Name)
	switch {
	case IsSecret(f):
		return fmt.Errorf("--%[1]s: every user of this machine can see the command line: give --%[1]s%[2]s FILE, "+
			"or set %[3]s", f.Name, fileSuffix, name)
	case slices.ContainsFunc(valuesOf(f), secret.HasPassword):
		redis := ""
		if f.Name == "store" {
			redis = ", or for Redis WEIR_REDIS_PASSWORD or WEIR_REDIS_PASSWORD_FILE"
		}
		return fmt.Errorf("--%s has a password, and every user of this machine can see the command line: set %s "+
			"instead%s", f.Name, name, redis)
	}
	return nil
}

// announce reports which flags a file in the current folder sets, because it may be another's.
func (a *Run) announce() {
	var names []string
	for name, where := range a.places {
		if where == inFolder {
			names = append(names, "--"+name)
		}
	}
	if slices.Sort(names); len(names) > 0 {
		a.Err.Println("weir: " + configName + " of the current folder sets " + strings.Join(names, ", "))
	}
}

// chooseSecrets leaves, of a secret and its file, the one that overrides the other.
func (a *Run) chooseSecrets(cmd *cobra.Command) (bad error) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		v := secretOf(f)
		if v == nil {
			return
		}
		switch direct, file := a.places[f.Name], a.places[f.Name+fileSuffix]; {
		case direct == file && direct != unset:
			bad = fmt.Errorf("--%[1]s%[2]s and %[3]s exclude each other: set only one of them", f.Name, fileSuffix,
				Variable(CommandPath(cmd), f.Name))
		case direct > file:
			v.secret().File = ""
		default:
			v.late = nil
			delete(a.places, f.Name) // MaySend: weir.yaml does not hold what is in another file
		}
	})
	return bad
}

// place is where a flag is set. Later ones override earlier ones.
type place int

const (
	unset    place = iota
	inFolder       // in the current folder's file, which may be another's
	inFile
	inEnvironment
	onCommandLine
)

// choose leaves either the store or the server, and refuses what only one of them has.
func (a *Run) choose(store, server place) error {
	if store == server && server != unset && a.Server != "" {
		override := ""
		if server != onCommandLine {
			override = ", or override both with --store or --server"
		}
		return fmt.Errorf("%s and %s exclude each other: set only one of them%s", a.setBy("store"), a.setBy("server"),
			override)
	}
	if store > server {
		a.Server = ""
	}
	if a.Server != "" && a.places["keep-audit"] == onCommandLine {
		return Usagef("--keep-audit is for a store: a server keeps events for as long as its own --keep-audit states")
	}
	return nil
}

// setBy names what sets a flag that all commands have, as the user wrote it.
func (a *Run) setBy(flag string) string {
	switch a.places[flag] {
	case inEnvironment:
		return Variable(nil, flag)
	case inFile, inFolder:
		return flag + " in " + a.file
	default:
		return "--" + flag
	}
}

// MaySend returns an error if a secret would be sent to servers that weir.yaml of the current folder names: whoever
// wrote that file would receive the secret. The secret is a flag, which may be sent if the same file holds it, or else
// what the error calls it. The servers are flags.
func (a *Run) MaySend(what string, servers ...string) error {
	for _, server := range servers {
		if a.places[server] == inFolder && a.places[what] != inFolder {
			return Usagef("%[1]s is set in %[2]s of the current folder, and %[3]s from elsewhere is not sent to a "+
				"server that such a file names: give --%[1]s or its variable, or trust the file with --config %[2]s",
				server, configName, what)
		}
	}
	return nil
}

// StoreAt returns the address of a store that a flag holds, or an error as MaySend does, if credentials would be sent
// there.
func (a *Run) StoreAt(flag string, at secret.Address) (secret.Address, error) {
	if what := stores.Sends(at, a.LookupEnv); what != "" {
		return at, a.MaySend(what, flag)
	}
	return at, nil
}

// CommandPath returns the names of a command below weir.
func CommandPath(cmd *cobra.Command) []string { return strings.Fields(cmd.CommandPath())[1:] }

// Variable returns the name of a flag's environment variable, such as WEIR_STORE or WEIR_SERVE_LEASE_KEY.
func Variable(path []string, flag string) string {
	name := strings.Join(append([]string{"weir"}, append(slices.Clone(path), flag)...), "_")
	return strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// split returns the values in a variable: several, separated by commas or spaces, if the flag is repeatable.
func split(f *pflag.Flag, text string) []string {
	if _, many := f.Value.(pflag.SliceValue); !many {
		return []string{text}
	}
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

func setFlag(cmd *cobra.Command, f *pflag.Flag, values []string) error {
	if _, many := f.Value.(pflag.SliceValue); !many && len(values) != 1 {
		return errors.New("takes exactly one value")
	}
	for _, v := range values {
		if err := cmd.Flags().Set(f.Name, v); err != nil {
			if bad, described := errors.AsType[UsageError](badValue(err)); described && !IsSecret(f) {
				return bad
			}
			return fmt.Errorf("%q is not a valid value for the flag", secret.Address(v))
		}
	}
	return nil
}

// config is a configuration file. The zero value is an empty file.
type config struct {
	file  string
	place place
	root  *yaml.Node
}

// loadConfig reads the file given by --config, else ./weir.yaml, else weir.yaml in the user's configuration folder. A
// key that is not a flag is an error, reported with its line.
func loadConfig(given string, root *cobra.Command) (config, error) {
	files := []string{given}
	if given == "" {
		files = []string{configName}
		if dir, err := os.UserConfigDir(); err == nil {
			files = append(files, filepath.Join(dir, "weir", configName))
		}
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) && given == "" {
			continue
		}
		if err != nil {
			return config{}, fmt.Errorf("read configuration: %w", err)
		}
		c := config{file: file, place: inFile}
		if given == "" && file == configName {
			c.place = inFolder
		}
		var doc yaml.Node
		if err := yaml.Unmarshal(text, &doc); err != nil {
			return config{}, fmt.Errorf("%s: %w", file, err)
		}
		if len(doc.Content) > 0 {
			c.root = doc.Content[0]
		}
		return c, c.check(root, c.root)
	}
	return config{}, nil
}

// mayHold returns an error if a flag's values are secret and other users may read the file.
func (c config) mayHold(f *pflag.Flag, values []string) error {
	if !IsSecret(f) && !slices.ContainsFunc(values, secret.HasPassword) {
		return nil
	}
	info, err := os.Stat(c.file)
	if err != nil {
		return err
	}
	return secret.Check(c.file, info)
}

// mayName returns an error if a flag's values are files outside the current folder, and the configuration is that
// folder's: whoever wrote it must not choose which other files are shown or overwritten.
func (c config) mayName(f *pflag.Flag, values []string) error {
	what, _ := pflag.UnquoteUsage(f)
	if c.place != inFolder || IsSecret(f) || what != "FILE" && what != "ARCHIVE" {
		return nil
	}
	for _, name := range values {
		if what == "ARCHIVE" && strings.HasPrefix(name, "s3://") {
			continue
		}
		here, rel, err := strictyaml.Below(name)
		if err != nil {
			return err
		}
		outside := here == nil || strings.HasPrefix(name, "file:")
		if here != nil {
			_, err = here.Stat(rel)
			_ = here.Close()
		}
		if outside || err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%[1]q is not within the current folder, whose %[2]s may name no other files: give "+
				"--%[3]s or its variable, or trust the file with --config %[2]s", name, configName, f.Name)
		}
	}
	return nil
}

// check refuses keys that name neither a subcommand nor one of the command's own flags.
func (c config) check(cmd *cobra.Command, node *yaml.Node) error {
	if node == nil || node.Tag == "!!null" {
		return nil
	}
	if node.Kind != yaml.MappingNode {
		return fmt.Errorf("%s:%d: must be a mapping of flags to values", c.file, node.Line)
	}
	flags := cmd.LocalNonPersistentFlags()
	if !cmd.HasParent() {
		flags = cmd.PersistentFlags()
	}
	seen := make(map[string]bool)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if seen[key.Value] {
			return fmt.Errorf("%s:%d: duplicate key %q", c.file, key.Line, key.Value)
		}
		seen[key.Value] = true
		f := flags.Lookup(key.Value)
		if sub := child(cmd, key.Value); sub != nil && (f == nil || value.Kind != yaml.ScalarNode) {
			if err := c.check(sub, value); err != nil {
				return err
			}
			continue
		}
		if f == nil || f.Name == "help" || f.Name == "config" {
			return fmt.Errorf(
				"%s:%d: %q is not a flag or command of %s", c.file, key.Line, key.Value, cmd.CommandPath(),
			)
		}
		for _, n := range append([]*yaml.Node{value}, value.Content...) {
			if n.Kind != yaml.ScalarNode && (n != value || n.Kind != yaml.SequenceNode) {
				return fmt.Errorf("%s:%d: %s must be a value or a list of values", c.file, n.Line, key.Value)
			}
		}
	}
	return nil
}

func child(cmd *cobra.Command, name string) *cobra.Command {
	for _, sub := range cmd.Commands() {
		if sub.Name() == name {
			return sub
		}
	}
	return nil
}

// find returns the value at a path of keys, or nil.
func (c config) find(path []string) *yaml.Node {
	node := c.root
	for _, name := range path {
		var next *yaml.Node
		for i := 0; node != nil && i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == name {
				next = node.Content[i+1]
			}
		}
		node = next
	}
	return node
}

func texts(node *yaml.Node) []string {
	if node.Kind == yaml.ScalarNode {
		return []string{node.Value}
	}
	var all []string
	for _, n := range node.Content {
		all = append(all, n.Value)
	}
	return all
}
