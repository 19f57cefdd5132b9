package auth_test

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/serve/auth"
)

// file is a token file with a token for each of its entries, by name.
type file struct {
	path   string
	tokens map[string]string
	log    bytes.Buffer
}

func newFile(t *testing.T) *file {
	t.Helper()
	return &file{path: filepath.Join(t.TempDir(), "tokens.yaml"), tokens: make(map[string]string)}
}

func (f *file) add(t *testing.T, name string, role auth.Role, expires time.Time, namespaces ...string) {
	t.Helper()
	token, e, err := auth.NewEntry(name, []auth.Role{role}, namespaces, expires)
	if err == nil {
		err = auth.Add(f.path, e)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.tokens[name] = token
}

func (f *file) write(t *testing.T, text string, mode fs.FileMode) {
	t.Helper()
	if err := os.WriteFile(f.path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(f.path, mode); err != nil {
		t.Fatal(err)
	}
}

func (f *file) open() (*auth.Book, error) {
	return auth.Open(f.path, slog.New(slog.NewTextHandler(&f.log, nil)))
}

func (f *file) must(t *testing.T) *auth.Book {
	t.Helper()
	b, err := f.open()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestMay(t *testing.T) {
	t.Parallel()
	f := newFile(t)
	f.add(t, "spender", auth.Acquire, time.Time{})
	f.add(t, "reader", auth.Read, time.Time{}, "blue", "green")
	f.add(t, "admin", auth.Admin, time.Time{}, "blue")
	f.add(t, "root", auth.Admin, time.Time{}, "*")
	b := f.must(t)
	for _, tt := range []struct {
		name, namespace string
		may             []auth.Role
		everywhere      bool
	}{
		{"spender", "default", []auth.Role{auth.Acquire}, false},
		{"spender", "blue", nil, false},
		{"spender", "*", nil, false},
		{"spender", "", nil, false},
		{"reader", "green", []auth.Role{auth.Read}, false},
		{"reader", "default", nil, false},
		{"admin", "blue", auth.Roles(), false},
		{"admin", "green", nil, false},
		{"root", "whatever", auth.Roles(), true},
		{"root", "*", auth.Roles(), true},
	} {
		p, ok := b.Authenticate(f.tokens[tt.name])
		if !ok || p.Name != tt.name || p.Audit("http") != "token:"+tt.name {
			t.Fatalf("%s: got %v, %v", tt.name, p, ok)
		}
		var may []auth.Role
		for _, role := range auth.Roles() {
			if p.May(role, tt.namespace) {
				may = append(may, role)
			}
			if p.Everywhere(role) != tt.everywhere {
				t.Errorf("%s: everywhere %s: %v", tt.name, role, !tt.everywhere)
			}
		}
		if len(may) != len(tt.may) || len(may) > 0 && may[0] != tt.may[0] {
			t.Errorf("%s in %q: may %v, want %v", tt.name, tt.namespace, may, tt.may)
		}
	}
}

func TestNamespace(t *testing.T) {
	t.Parallel()
	f := newFile(t)
	f.add(t, "one", auth.Read, time.Time{}, "blue")
	f.add(t, "two", auth.Read, time.Time{}, "blue", "green")
	f.add(t, "all", auth.Read, time.Time{}, "*")
	b := f.must(t)
	for name, want := range map[string]string{"one": "blue", "two": "own", "all": "own"} {
		p, _ := b.Authenticate(f.tokens[name])
		if got := p.Namespace("own"); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

func TestNobody(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]*auth.Principal{"nil": nil, "zero": {}} {
		if p.May(auth.Read, "default") || p.Has(auth.Acquire) || p.Everywhere(auth.Admin) || p.Audit("http") != "http" || p.Namespace("x") != "x" {
			t.Errorf("%s: may do something", name)
		}
	}
	var none *auth.Book
	p, ok := none.Authenticate("")
	if !ok || p != auth.Anybody() || !p.Everywhere(auth.Admin) || p.Audit("http") != "http" {
		t.Errorf("without a book: got %v, %v", p, ok)
	}
}

func TestAuthenticate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFile(t)
		f.add(t, "ci", auth.Read, time.Now().Add(time.Minute))
		b := f.must(t)
		token := f.tokens["ci"]
		for _, wrong := range []string{"", "x", token[:len(token)-1], token + "x", strings.ToUpper(token), " " + token, strings.Repeat("x", 1<<20)} {
			if p, ok := b.Authenticate(wrong); ok || p != nil {
				t.Errorf("%.60q is taken", wrong)
			}
		}
		if _, ok := b.Authenticate(token); !ok {
			t.Error("the token is not taken")
		}
		time.Sleep(time.Minute)
		if _, ok := b.Authenticate(token); ok {
			t.Error("an expired token is taken")
		}
	})
}

func TestChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFile(t)
		f.write(t, "[]\n", 0o640)
		f.add(t, "a", auth.Read, time.Time{})
		f.add(t, "b", auth.Admin, time.Now().Add(time.Hour), "*")
		made, err := os.ReadFile(f.path)
		if err != nil {
			t.Fatal(err)
		}
		f.write(t, strings.Replace(string(made), "- name: b", "# for the nightly build\n- name: b", 1), 0o640)
		b := f.must(t)
		if err := auth.Revoke(f.path, "a"); err != nil {
			t.Fatal(err)
		}
		if err := auth.Revoke(f.path, "a"); !errors.Is(err, auth.ErrNoToken) {
			t.Errorf("twice: got %v", err)
		}
		f.add(t, "c", auth.Acquire, time.Time{})
		time.Sleep(time.Second)
		for name, want := range map[string]bool{"a": false, "b": true, "c": true} {
			if _, ok := b.Authenticate(f.tokens[name]); ok != want {
				t.Errorf("%s: got %v, want %v", name, ok, want)
			}
		}
		list, err := auth.List(f.path)
		if err != nil || len(list) != 2 || list[0].Name != "b" || list[1].Expires != (time.Time{}) || list[1].Namespaces[0] != "default" {
			t.Errorf("got %v, %v", list, err)
		}
		text, err := os.ReadFile(f.path)
		if info, _ := os.Stat(f.path); err != nil || info.Mode().Perm() != 0o640 || !bytes.Contains(text, []byte("# for the nightly")) {
			t.Errorf("the file became %v %s", info.Mode(), text)
		}
		for _, token := range f.tokens {
			if bytes.Contains(text, []byte(token)) {
				t.Error("the file holds a token")
			}
		}
		if entries, _ := os.ReadDir(filepath.Dir(f.path)); len(entries) != 1 {
			t.Errorf("left behind: %v", entries)
		}
		if _, e, err := auth.NewEntry("b", []auth.Role{auth.Read}, nil, time.Time{}); err != nil || auth.Add(f.path, e) == nil {
			t.Error("a name is given twice")
		}
	})
}

func TestBadFile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFile(t)
		f.add(t, "ci", auth.Read, time.Time{})
		b := f.must(t)
		f.write(t, "- name: ci\n  hash: none\n", 0o600)
		for range 3 {
			time.Sleep(time.Second)
			if _, ok := b.Authenticate(f.tokens["ci"]); !ok {
				t.Fatal("a bad file takes the tokens away")
			}
		}
		if text := f.log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "tokens.yaml:1") {
			t.Errorf("logged %s", text)
		}
		f.write(t, "[]", 0o600)
		time.Sleep(time.Second)
		if _, ok := b.Authenticate(f.tokens["ci"]); ok {
			t.Error("a token that is out of the file is taken")
		}
	})
}

func TestOpenErrors(t *testing.T) {
	t.Parallel()
	hash := "sha256:" + strings.Repeat("0", 64)
	for text, want := range map[string]string{
		"":                               "is empty",
		"# nothing\n":                    "is empty",
		"name: ci":                       "write a list",
		"- nam: ci":                      "nam",
		"- name: [":                      "token file",
		"- {hash: x}":                    `:1: name`,
		"- {name: a b}":                  "letters",
		"- {name: token, roles: [read]}": "weir token create",
		"- {name: a, roles: [read], hash: " + hash + "0}":                                                "64 hex",
		"- {name: a, roles: [read], hash: " + strings.Repeat("0", 64) + "}":                              "sha256:",
		"- {name: a, hash: " + hash + "}":                                                                "roles: must not be empty",
		"- {name: a, hash: " + hash + ", roles: [write]}":                                                `must be acquire, read or admin: "write"`,
		"- {name: a, hash: " + hash + ", roles: [read], namespaces: []}":                                 "namespaces: must not be empty",
		"- {name: a, hash: " + hash + ", roles: [read], namespaces: ['']}":                               "must not be empty",
		"- {name: a, hash: " + hash + ", roles: [read], namespaces: }":                                   "namespaces: is empty",
		"- {name: a, hash: " + hash + ", roles: [read], expires: null}":                                  "expires: is empty",
		"- {name: a, hash: " + hash + ", roles: [read], expires: soon}":                                  "time",
		"- &a {name: a, hash: " + hash + ", roles: [read]}\n- *a":                                        ":2: name: \"a\" is a duplicate",
		"- {name: a, hash: " + hash + ", roles: [read]}\n- {name: b, hash: " + hash + ", roles: [read]}": ":2: hash:",
	} {
		f := newFile(t)
		f.write(t, text, 0o600)
		_, err := f.open()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
	f := newFile(t)
	if _, err := f.open(); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "weir token create") {
		t.Errorf("got %v", err)
	}
}

func TestMode(t *testing.T) {
	t.Parallel()
	for mode, warned := range map[fs.FileMode]bool{0o600: false, 0o640: false, 0o400: false, 0o644: true, 0o660: true} {
		f := newFile(t)
		f.add(t, "ci", auth.Read, time.Time{})
		if err := os.Chmod(f.path, mode); err != nil {
			t.Fatal(err)
		}
		f.must(t)
		if got := strings.Contains(f.log.String(), "chmod 600"); got != warned {
			t.Errorf("%v: warned %v", mode, got)
		}
	}
}
