package web_test

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/weirlimits/weir/internal/serve/web"
)

const (
	most     = 250_000 // bytes of all files together: a dashboard is not a download
	maxLines = 300     // per file
)

// get requests a path, with request headers as pairs.
func get(method, target string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, http.NoBody)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	web.Handler().ServeHTTP(w, r)
	return w
}

// files returns the static files by name.
func files(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := fs.WalkDir(os.DirFS("static"), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile("static/" + name)
		all[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"Cache-Control":              "no-cache",
		"Cross-Origin-Opener-Policy": "same-origin",
		"Referrer-Policy":            "no-referrer",
		"X-Content-Type-Options":     "nosniff",
		"X-Frame-Options":            "DENY",
	}
	types := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
	for _, pattern := range web.Patterns() {
		p := strings.TrimSuffix(strings.TrimPrefix(pattern, "GET "), "{$}")
		w := get(http.MethodGet, p)
		if w.Code != http.StatusOK || w.Body.Len() == 0 {
			t.Errorf("%s: %d, %d bytes", p, w.Code, w.Body.Len())
		}
		for name, value := range want {
			if got := w.Header().Get(name); got != value {
				t.Errorf("%s: %s is %q, want %q", p, name, got, value)
			}
		}
		mime := types[path.Ext(p)]
		if p == "/" {
			mime = "text/html; charset=utf-8"
		}
		if got := w.Header().Get("Content-Type"); got != mime || mime == "" {
			t.Errorf("%s: Content-Type is %q, want %q", p, got, mime)
		}
	}
}

// TestPolicy covers what the policy must not allow, however it is written.
func TestPolicy(t *testing.T) {
	t.Parallel()
	policy := get(http.MethodGet, "/").Header().Get("Content-Security-Policy")
	directives := make(map[string]string)
	for d := range strings.SplitSeq(policy, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(d), " ")
		directives[name] = value
	}
	for name, want := range map[string]string{
		"default-src": "'none'", "script-src": "'self'", "style-src": "'self'", "connect-src": "'self'", "base-uri": "'none'",
		"form-action": "'none'", "frame-ancestors": "'none'", "require-trusted-types-for": "'script'", "trusted-types": "'none'",
	} {
		if directives[name] != want {
			t.Errorf("%s is %q, want %q", name, directives[name], want)
		}
	}
	if strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") || strings.Contains(policy, "data:") {
		t.Errorf("the policy lets in too much: %s", policy)
	}
}

func TestETag(t *testing.T) {
	t.Parallel()
	first := get(http.MethodGet, "/assets/js/main.js")
	tag := first.Header().Get("ETag")
	if len(tag) < 16 || tag[0] != '"' {
		t.Fatalf("ETag %q", tag)
	}
	if again := get(http.MethodGet, "/assets/js/main.js", "If-None-Match", tag); again.Code != http.StatusNotModified || again.Body.Len() != 0 {
		t.Errorf("with its ETag: %d, %d bytes", again.Code, again.Body.Len())
	}
	if other := get(http.MethodGet, "/assets/js/api.js", "If-None-Match", tag); other.Code != http.StatusOK {
		t.Errorf("with another's ETag: %d", other.Code)
	}
	if head := get(http.MethodHead, "/assets/js/main.js"); head.Code != http.StatusOK || head.Body.Len() != 0 || head.Header().Get("ETag") != tag {
		t.Errorf("HEAD: %d, %d bytes, %q", head.Code, head.Body.Len(), head.Header().Get("ETag"))
	}
}

func TestUnknown(t *testing.T) {
	t.Parallel()
	for _, p := range []string{"/index.html", "/assets/", "/assets/js", "/assets/index.html", "/assets/../web.go", "/static/base.css"} {
		if w := get(http.MethodGet, p); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", p, w.Code)
		}
	}
}

var (
	outside  = regexp.MustCompile(`(?:https?:)?//[\w-]+\.\w`)
	imported = regexp.MustCompile(`(?:\bfrom |\bimport\(|^import )'([^']+)'`)
	linked   = regexp.MustCompile(`\b(?:src|href)="([^"#]+)"`)
	inline   = regexp.MustCompile(`(?i)<style|\sstyle=|\son\w+=|<script(?:\s[^>]*)?>[^<]|javascript:`)
	unsafe   = regexp.MustCompile(`\.(?:inner|outer)HTML\b|insertAdjacentHTML|document\.write|\beval\(|new Function|\bDOMParser\b|setHTMLUnsafe|createContextualFragment`)
)

// broken returns what is wrong with a file.
func broken(all map[string]string, name string) []string {
	text := all[name]
	var found []string
	if lines := strings.Count(text, "\n"); lines > maxLines {
		found = append(found, "is too long")
	}
	// The name of the SVG namespace looks like an address but is not one.
	if url := outside.FindString(strings.ReplaceAll(text, "http://www.w3.org/2000/svg", "")); url != "" {
		found = append(found, "names another server: "+url)
	}
	if s := unsafe.FindString(text); s != "" {
		found = append(found, "makes markup of strings: "+s)
	}
	switch path.Ext(name) {
	case ".js":
		for _, m := range imported.FindAllStringSubmatch(text, -1) {
			if _, ok := all[path.Join(path.Dir(name), m[1])]; !ok {
				found = append(found, "imports "+m[1]+", which is not there")
			}
		}
	case ".html":
		for _, m := range linked.FindAllStringSubmatch(text, -1) {
			if _, ok := all[strings.TrimPrefix(m[1], "/assets/")]; !ok || !strings.HasPrefix(m[1], "/assets/") {
				found = append(found, "links "+m[1]+", which is not there")
			}
		}
		if s := inline.FindString(text); s != "" {
			found = append(found, "has something inline that the policy forbids: "+s)
		}
	}
	return found
}

func TestFiles(t *testing.T) {
	t.Parallel()
	all := files(t)
	size := 0
	for name, text := range all {
		size += len(text)
		for _, f := range broken(all, name) {
			t.Errorf("static/%s %s", name, f)
		}
	}
	if size > most {
		t.Errorf("%d bytes of files, more than %d", size, most)
	}
	if len(all) != len(web.Patterns()) {
		t.Errorf("%d files, but %d are served", len(all), len(web.Patterns()))
	}
}

func TestBrokenFilesCaught(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, text string }{
		{"x.js", "import { a } from './gone.js';\n"},
		{"x.js", "const p = () => import('./gone.js');\n"},
		{"x.js", "el.innerHTML = name;\n"},
		{"x.js", "fetch('https://cdn.example.com/x');\n"},
		{"x.css", "@import '//cdn.example.com/x';\n"},
		{"x.js", strings.Repeat("\n", maxLines+1)},
		{"x.html", `<script src="/assets/gone.js"></script>`},
		{"x.html", `<script src="/elsewhere.js"></script>`},
		{"x.html", `<script>alert(1)</script>`},
		{"x.html", `<p style="color:red">`},
		{"x.html", `<p onclick="f()">`},
	} {
		if found := broken(map[string]string{tt.name: tt.text}, tt.name); len(found) != 1 {
			t.Errorf("%q: found %q, want one", tt.text, found)
		}
	}
}

// TestVisible: ids are shown through dom.js alone, which escapes what cannot be seen in each text that it sets.
func TestVisible(t *testing.T) {
	t.Parallel()
	sets := regexp.MustCompile(`createTextNode\(|textContent = |innerText|innerHTML|document\.title = |(title|aria-label)', `)
	escapes := regexp.MustCompile(`visible\(`)
	for name, text := range files(t) {
		if !strings.HasSuffix(name, ".js") {
			continue
		}
		lines := strings.Split(text, "\n")
		for i, line := range lines {
			if sets.MatchString(line) && !escapes.MatchString(line) && (i == 0 || !escapes.MatchString(lines[i-1])) {
				t.Errorf("%s:%d shows a text without visible(): %s", name, i+1, line)
			}
		}
	}
}
