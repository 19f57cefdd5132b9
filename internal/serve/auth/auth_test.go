package auth_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
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
	token, e, err := auth.NewEntry(auth.Entry{Name: name, Roles: []auth.Role{role}, Namespaces: namespaces, Expires: expires})
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
		p, ok := b.Authenticate(f.tokens[tt.name], nil)
		if !ok || p.Name != tt.name || p.Audit("http") != "token:"+tt.name {
			t.Fatalf("%s: got %v, %v", tt.name, p, ok)
		}
		var may []auth.Role
		for _, role := range auth.Roles() {
			if p.May(auth.Access{Role: role, Namespace: tt.namespace}) {
				may = append(may, role)
			}
			if p.May(auth.Access{Role: role, Namespace: auth.All}) != tt.everywhere {
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
		p, _ := b.Authenticate(f.tokens[name], nil)
		if got := p.Namespace("own"); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

func TestNobody(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]*auth.Principal{"nil": nil, "zero": {}} {
		if p.May(auth.Access{Role: auth.Read, Namespace: "default"}) || p.Has(auth.Acquire) || p.Audit("http") != "http" || p.Namespace("x") != "x" {
			t.Errorf("%s: may do something", name)
		}
	}
	var none *auth.Book
	p, ok := none.Authenticate("", nil)
	if !ok || p != auth.Anybody() || !p.May(auth.Access{Role: auth.Admin, Namespace: auth.All, Permissions: auth.Permissions()}) || p.Audit("http") != "http" {
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
			if p, ok := b.Authenticate(wrong, nil); ok || p != nil {
				t.Errorf("%.60q is taken", wrong)
			}
		}
		if _, ok := b.Authenticate(token, nil); !ok {
			t.Error("the token is not taken")
		}
		time.Sleep(time.Minute)
		if _, ok := b.Authenticate(token, nil); ok {
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
			if _, ok := b.Authenticate(f.tokens[name], nil); ok != want {
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
		if _, e, err := auth.NewEntry(auth.Entry{Name: "b", Roles: []auth.Role{auth.Read}}); err != nil || auth.Add(f.path, e) == nil {
			t.Error("a name is given twice")
		}
	})
}

// TestConcurrentChanges checks that no change undoes another one.
func TestConcurrentChanges(t *testing.T) {
	t.Parallel()
	f := newFile(t)
	const n = 20
	for i := range n {
		f.add(t, fmt.Sprint("old", i), auth.Read, time.Time{})
	}
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if err := auth.Revoke(f.path, fmt.Sprint("old", i)); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			_, e, err := auth.NewEntry(auth.Entry{Name: fmt.Sprint("new", i), Roles: []auth.Role{auth.Read}})
			if err = errors.Join(err, auth.Add(f.path, e)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	list, err := auth.List(f.path)
	for _, e := range list {
		if strings.HasPrefix(e.Name, "old") {
			t.Errorf("%s was revoked", e.Name)
		}
	}
	if err != nil || len(list) != n {
		t.Errorf("%d tokens, error %v", len(list), err)
	}
}

// TestAbandonedChange checks that the lock of a command that has crashed is reported, with the remedy.
func TestAbandonedChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFile(t)
		f.add(t, "a", auth.Read, time.Time{})
		if err := os.WriteFile(f.path+".lock", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := auth.Revoke(f.path, "a"); err == nil || !strings.Contains(err.Error(), "remove "+f.path+".lock") {
			t.Errorf("got %v", err)
		}
		if err := os.Remove(f.path + ".lock"); err != nil {
			t.Fatal(err)
		}
		if err := auth.Revoke(f.path, "a"); err != nil {
			t.Error(err)
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
			if _, ok := b.Authenticate(f.tokens["ci"], nil); !ok {
				t.Fatal("a bad file takes the tokens away")
			}
		}
		if text := f.log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "tokens.yaml:1") {
			t.Errorf("logged %s", text)
		}
		f.write(t, "[]", 0o600)
		time.Sleep(time.Second)
		if _, ok := b.Authenticate(f.tokens["ci"], nil); ok {
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
		"- {name: a, hash: " + hash + ", certificate: x, roles: [read]}":                                 "cannot be combined with hash",
		"- {name: a, certificate: x, roles: [read]}\n- {name: b, certificate: X, roles: [read]}":         `:2: certificate: "b" has the same as "a"`,
		"- {name: a, hash: " + hash + ", roles: [read], permissions: }":                                  "permissions: is empty",
		"- {name: a, hash: " + hash + ", roles: [read], permissions: [admin]}":                           "must be override, adjust, return or envoy",
		"- {name: a, hash: " + hash + ", roles: [read], entities: []}":                                   "entities: must not be empty",
		"- {name: a, hash: " + hash + ", roles: [read], resources: ['']}":                                "resources: must be ids",
		"- {name: a, hash: " + hash + ", roles: [read], entities: ['a*b']}":                              "such as team-a/*",
		"- {name: a, hash: " + hash + ", roles: [read, admin], entities: [a]}":                           "the role admin",
		"- {name: a, hash: " + hash + "}":                                                                "roles: must not be empty",
		"- {name: a, hash: " + hash + ", roles: [write]}":                                                `must be acquire, read, credit or admin: "write"`,
		"- {name: a, hash: " + hash + ", roles: [read], namespaces: []}":                                 "namespaces: must not be empty",
		"- {name: a, hash: " + hash + ", roles: [read], namespaces: ['']}":                               "must not be empty",
		"- {name: a, hash: " + hash + ", roles: [read], namespaces: }":                                   "namespaces: is empty",
		"- {name: a, hash: " + hash + ", roles: [read], expires: null}":                                  "expires: is empty",
		"- {name: a, hash: " + hash + ", roles: [read], expires: soon}":                                  "time",
		"- &a {name: a, hash: " + hash + ", roles: [read]}\n- *a":                                        ":2: name: \"a\" is a duplicate",
		"- {name: a, hash: " + hash + ", roles: [read]}\n- {name: b, hash: " + hash + ", roles: [read]}": `:2: hash: "b" has the same token as "a"`,
		"- {name: a, certificate: '*.prod', roles: [read]}":                                              "without * or spaces",
		"- {name: a, certificate: 'envoy ', roles: [read]}":                                              "without * or spaces",
		"- {name: a, certificate: '', roles: [read]}":                                                    "hash: is missing",
		"- {name: a, expiry: 2027-01-01, roles: [read]}":                                                 "field expiry is unknown",
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

// A file that other users may read or change is refused, by the server and by the commands that manage it.
func TestMode(t *testing.T) {
	t.Parallel()
	for mode, refused := range map[fs.FileMode]bool{0o600: false, 0o640: false, 0o400: false, 0o644: true, 0o660: true} {
		f := newFile(t)
		f.add(t, "ci", auth.Read, time.Time{})
		if err := os.Chmod(f.path, mode); err != nil {
			t.Fatal(err)
		}
		_, opened := f.open()
		_, listed := auth.List(f.path)
		for _, err := range []error{opened, listed} {
			if got := err != nil && strings.Contains(err.Error(), "chmod 600"); got != refused || (err != nil) != refused {
				t.Errorf("%v: got %v", mode, err)
			}
		}
	}
}

func TestBound(t *testing.T) {
	t.Parallel()
	f := newFile(t)
	for name, e := range map[string]auth.Entry{
		"entities":  {Entities: []string{"team-a/*", "alice"}},
		"both":      {Entities: []string{"team-a/*"}, Resources: []string{"gpt-4", "image*"}},
		"all":       {Entities: []string{"*"}},
		"unbound":   {},
		"permitted": {Permissions: []auth.Permission{auth.Override, auth.Envoy}},
	} {
		e.Name, e.Roles, e.Namespaces = name, []auth.Role{auth.Acquire}, []string{"*"}
		token, e, err := auth.NewEntry(e)
		if err == nil {
			err = auth.Add(f.path, e)
		}
		if err != nil {
			t.Fatal(err)
		}
		f.tokens[name] = token
	}
	b := f.must(t)
	for _, tt := range []struct {
		name, entity, resource string
		permissions            []auth.Permission
		want                   bool
	}{
		{"entities", "team-a/x", "", nil, true},
		{"entities", "team-a/", "r", nil, true},
		{"entities", "alice", "", nil, true},
		{"entities", "alice*", "", nil, false}, // all that begin with it
		{"entities", "alice2", "", nil, false},
		{"entities", "team-a", "", nil, false},
		{"entities", "team-*", "", nil, false},
		{"entities", "team-a/x*", "", nil, true},
		{"entities", "*", "", nil, false},
		{"entities", "", "", nil, false},
		{"both", "team-a/x", "gpt-4", nil, true},
		{"both", "team-a/x", "images", nil, true},
		{"both", "team-a/x", "gpt-5", nil, false},
		{"both", "team-a/x", "", nil, false},
		{"both", "", "gpt-4", nil, false},
		{"all", "", "", nil, true},
		{"unbound", "", "", nil, true},
		{"unbound", "x", "", []auth.Permission{auth.Override}, false},
		{"permitted", "x", "", []auth.Permission{auth.Envoy, auth.Override}, true},
		{"permitted", "x", "", []auth.Permission{auth.Envoy, auth.Return}, false},
	} {
		p, _ := b.Authenticate(f.tokens[tt.name], nil)
		access := auth.Access{Role: auth.Acquire, Namespace: "blue", Entity: tt.entity, Resource: tt.resource, Permissions: tt.permissions}
		if got := p.May(access); got != tt.want {
			t.Errorf("%s: %+v: got %v", tt.name, access, got)
		}
		if p.May(access.In(auth.All)) != tt.want {
			t.Errorf("%s: %+v, everywhere: got %v", tt.name, access, !tt.want)
		}
	}
}

// TestEarlier checks what an entry means that an earlier version has made: it states no permissions.
func TestEarlier(t *testing.T) {
	t.Parallel()
	f := newFile(t)
	f.add(t, "new", auth.Acquire, time.Time{})
	made, err := os.ReadFile(f.path)
	if err != nil {
		t.Fatal(err)
	}
	f.write(t, strings.Replace(string(made), "  permissions: []\n", "", 1), 0o600)
	p, ok := f.must(t).Authenticate(f.tokens["new"], nil)
	if got := p.Permissions(); !ok || len(got) != 1 || got[0] != auth.Envoy || !p.Has(auth.Acquire) {
		t.Errorf("got %v, %v", got, ok)
	}
	if !strings.Contains(f.log.String(), "earlier version") || !strings.Contains(f.log.String(), "tokens=new") {
		t.Errorf("logged %s", f.log.String())
	}
	f.log.Reset()
	f.write(t, string(made), 0o600)
	if p, _ := f.must(t).Authenticate(f.tokens["new"], nil); len(p.Permissions()) != 0 || f.log.Len() > 0 {
		t.Errorf("permissions: [] means %v, logged %s", p.Permissions(), f.log.String())
	}
}

// TestCertificate identifies a client by a name in its certificate, unless it sends a token.
func TestCertificate(t *testing.T) {
	t.Parallel()
	f := newFile(t)
	f.add(t, "app", auth.Read, time.Time{})
	for name, id := range map[string]string{"edge": "envoy.prod", "mesh": "spiffe://prod/envoy"} {
		token, e, err := auth.NewEntry(auth.Entry{Name: name, Certificate: id, Roles: []auth.Role{auth.Acquire}})
		if err == nil {
			err = auth.Add(f.path, e)
		}
		if err != nil || token != "" {
			t.Fatal(token, err)
		}
	}
	b := f.must(t)
	mesh, err := url.Parse("spiffe://prod/envoy")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		cert        x509.Certificate
		token, want string
	}{
		{x509.Certificate{DNSNames: []string{"other", "envoy.prod"}}, "", "edge"},
		{x509.Certificate{URIs: []*url.URL{mesh}}, "", "mesh"},
		{x509.Certificate{DNSNames: []string{"envoy.prod"}}, f.tokens["app"], "app"},
		{x509.Certificate{DNSNames: []string{"envoy.prod"}}, "wrong", ""},
		{x509.Certificate{DNSNames: []string{"other", "*"}, Subject: pkix.Name{CommonName: "envoy.prod"}}, "", ""},
		{x509.Certificate{DNSNames: []string{""}}, "", ""},
		{x509.Certificate{DNSNames: []string{"Envoy.PROD"}}, "", "edge"},
		{x509.Certificate{URIs: []*url.URL{{Scheme: "spiffe", Host: "prod", Path: "/Envoy"}}}, "", ""},
		{x509.Certificate{DNSNames: []string{"envoy.prod"}, NotAfter: time.Now().Add(-time.Second)}, "", ""},
	} {
		if tt.cert.NotAfter.IsZero() {
			tt.cert.NotAfter = time.Now().Add(time.Hour)
		}
		p, ok := b.Authenticate(tt.token, &tls.ConnectionState{PeerCertificates: []*x509.Certificate{&tt.cert}})
		if ok != (tt.want != "") || ok && (p.Name != tt.want || !b.Current(p)) {
			t.Errorf("%v with token %q: got %v, %v", tt.cert.DNSNames, tt.token, p, ok)
		}
	}
	for _, name := range []string{"envoy.prod", "certificate:envoy.prod", ""} {
		if _, ok := b.Authenticate(name, &tls.ConnectionState{}); ok {
			t.Errorf("%q is taken for a token", name)
		}
	}
}
