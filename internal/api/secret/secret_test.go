package secret_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/testkit/redirecttest"
)

const planted = "pl4nted"

// TestRedacted prints a secret and an address in every way that Go offers.
func TestRedacted(t *testing.T) {
	t.Parallel()
	type inside struct {
		Open   secret.Text
		closed secret.Text
		At     secret.Address
	}
	text, at := secret.New(planted), secret.Address("redis://ann:"+planted+"@h:1/2")
	for _, v := range []any{text, &text, at, &at, inside{text, text, at}, &inside{text, text, at}, []secret.Text{text}, map[string]any{"a": text, "b": at}} {
		var out bytes.Buffer
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%T"} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
		body, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(body)
		slog.New(slog.NewTextHandler(&out, nil)).Info("x", slog.Any("v", v))
		slog.New(slog.NewJSONHandler(&out, nil)).Info("x", slog.Any("v", v))
		fmt.Fprintln(&out, fmt.Errorf("%w: %v", fs.ErrInvalid, v))
		if strings.Contains(out.String(), planted) || strings.Contains(out.String(), fmt.Sprintf("%x", planted)) {
			t.Errorf("%T: %s", v, out.String())
		}
	}
	if text.Reveal() != planted || string(at) == at.String() || !text.Given() || (secret.Text{}).Given() {
		t.Error("the secret is lost")
	}
}

func TestAddress(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]struct {
		shown    string
		password bool
	}{
		"redis://ann:pw@h:6379/2?prefix=p":         {"redis://[redacted]@h:6379/2?prefix=p", true},
		"redis://:pw@h":                            {"redis://[redacted]@h", true},
		"redis://:12345@h":                         {"redis://[redacted]@h", true},
		"redis://ann@h":                            {"redis://[redacted]@h", false},
		"redis+sentinel://u:p@a:1,b:2/m":           {"redis+sentinel://[redacted]@a:1,b:2/m", true},
		"redis://:p/w@h":                           {"redis://[redacted]@h", true},
		"redis://:p@w@h":                           {"redis://[redacted]@h", true},
		"redis:ann:pw@h":                           {"redis:[redacted]@h", false},
		"redis://h?password=pw&prefix=p":           {"redis://h?password=[redacted]&prefix=p", false},
		"dynamodb://t?endpoint=http://u:p@h":       {"dynamodb://[redacted]@h", true},
		"dynamodb://t?region=eu-central-1":         {"dynamodb://t?region=eu-central-1", false},
		"https://h:8080/a@b":                       {"https://[redacted]@b", false},
		"disk:./a@b":                               {"disk:./a@b", false},
		"memory:":                                  {"memory:", false},
		"127.0.0.1:8080":                           {"127.0.0.1:8080", false},
		"":                                         {"", false},
		"https://sqs.eu-central-1.amazonaws.com/1": {"https://sqs.eu-central-1.amazonaws.com/1", false},
	} {
		if got := secret.Address(address).String(); got != want.shown {
			t.Errorf("%s: shown as %s, want %s", address, got, want.shown)
		}
		if got := secret.HasPassword(address); got != want.password {
			t.Errorf("%s: has a password: %v", address, got)
		}
	}
}

func TestRedact(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`parse "http://ann:pw@[": missing`:             `parse "http://[redacted]@[": missing`,
		"a redis://:pw@h:1/2 b https://u:p@x?y c":      "a redis://[redacted]@h:1/2 b https://[redacted]@x?y c",
		"http://127.0.0.1:8080/a by bob@example.com":   "http://127.0.0.1:8080/a by bob@example.com",
		"entity user:bob@example.com":                  "entity user:bob@example.com",
		`"http://127.0.0.1:8080" and "ann@127.0.0.1"`:  `"http://127.0.0.1:8080" and "ann@127.0.0.1"`,
		"dial redis://u:pa'pw@h:1: refused":            "dial redis://[redacted]@h:1: refused",
		"dial redis://u:pa@pw@h:1: refused":            "dial redis://[redacted]@h:1: refused",
		"dial redis://u:pa/pw@h:1: refused":            "dial redis://[redacted]@h:1: refused",
		"GET https://pw@h/x: 404":                      "GET https://[redacted]@h/x: 404",
		"GET https://h/x?password=pw&y=1: 404":         "GET https://h/x?password=[redacted]&y=1: 404",
		"GET https://h/x?y=1&token=pw":                 "GET https://h/x?y=1&token=[redacted]",
		"is it https://h? token=pw is not a URL's":     "is it https://h? token=pw is not a URL's",
		`{"a":"GET \"https://h?token=pw\"","b":"c@d"}`: `{"a":"GET \"https://h?token=[redacted]\"","b":"c@d"}`,
		`{"a":"redis://u:pa\\pw@h","b":"c@d"}`:         `{"a":"redis://[redacted]@h","b":"c@d"}`,
	} {
		if got := secret.Redact(text); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

// info is a file of a mode and group.
type info struct {
	mode fs.FileMode
	gid  uint32
}

func (info) Name() string        { return "key" }
func (info) Size() int64         { return 0 }
func (i info) Mode() fs.FileMode { return i.mode }
func (info) ModTime() time.Time  { return time.Time{} }
func (info) IsDir() bool         { return false }
func (i info) Sys() any          { return &syscall.Stat_t{Gid: i.gid} }

func TestCheck(t *testing.T) {
	t.Parallel()
	own, foreign := uint32(os.Getegid()), uint32(4_000_000) //nolint:gosec // groups are not negative
	for _, tt := range []struct {
		mode fs.FileMode
		gid  uint32
		ok   bool
	}{
		{0o600, foreign, true},
		{0o400, foreign, true},
		{0o700, foreign, true},
		{0o640, own, true},
		{0o440, own, true},
		{0o440, 0, true},
		{0o640, foreign, false},
		{0o440, foreign, false},
		{0o660, own, false},
		{0o620, own, false},
		{0o644, own, false},
		{0o604, own, false},
		{0o602, own, false},
		{0o666, own, false},
	} {
		err := secret.Check("key", info{tt.mode, tt.gid})
		if (err == nil) != tt.ok || err != nil && !strings.Contains(err.Error(), "chmod 600 key") {
			t.Errorf("%04o of group %d: got %v", tt.mode, tt.gid, err)
		}
	}
}

// TestKubernetes reads a secret as Kubernetes mounts it: through two links, whose modes are 0777.
func TestKubernetes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, err := range []error{
		os.Mkdir(at("..v1"), 0o755), os.WriteFile(at("..v1/key"), []byte(planted+"\n"), 0o440), //nolint:gosec // as mounted
		os.Symlink("..v1", at("..data")), os.Symlink("..data/key", at("key")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s := secret.Text{File: at("key")}
	if err := s.Load(); err != nil || s.Reveal() != planted {
		t.Errorf("got %q, %v", s.Reveal(), err)
	}
	if err := os.Chmod(at("..v1/key"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.Load(); err == nil || !strings.Contains(err.Error(), "defaultMode: 0400") {
		t.Errorf("got %v", err)
	}
}

func TestEnv(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pw")
	if err := os.WriteFile(file, []byte(planted+"\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		env       map[string]string
		want, err string
	}{
		"direct":  {env: map[string]string{"PW": planted + "\n"}, want: planted},
		"file":    {env: map[string]string{"PW_FILE": file}, want: planted},
		"both":    {env: map[string]string{"PW": planted, "PW_FILE": file}, err: "only one"},
		"missing": {env: map[string]string{"PW_FILE": file + "x"}, err: "PW_FILE: "},
		"none":    {},
	} {
		got, err := secret.Env(func(name string) (string, bool) { v, ok := tt.env[name]; return v, ok }, "PW")
		if got.Reveal() != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: got %q, %v", name, got.Reveal(), err)
		}
	}
}

// TestClient is redirected to another port: what it sent does not go there.
func TestClient(t *testing.T) {
	t.Parallel()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, redirecttest.Start(t), strings.NewReader(planted))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", planted)
	resp, err := secret.Client(time.Minute, nil).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if _ = resp.Body.Close(); resp.StatusCode != http.StatusTemporaryRedirect {
		t.Error(resp.Status)
	}
}
