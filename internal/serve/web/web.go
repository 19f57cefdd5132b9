// Package web is the dashboard: static files that call the HTTP API, and the handler that serves them. It has
// no rules about limits, and its pages can read only what the viewer's token can. docs/adr/0015-dashboard.md explains
// the design, docs/operate/dashboard.md what it shows.
package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"
)

//go:embed static
var static embed.FS

// policy allows pages to use files from this server and nothing else: no inline script or style, no other origin, no
// frame around the page, and no string that becomes markup.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types " +
	"'none'"

// asset is a file as it is served.
type asset struct {
	body []byte
	mime string
	etag string
}

// assets are the files by the path they are served at.
var assets = load()

func load() map[string]asset {
	all := make(map[string]asset)
	err := fs.WalkDir(static, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := static.ReadFile(name)
		sum := sha256.Sum256(body)
		all[served(name)] = asset{body, kind(name), `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`}
		return err
	})
	if err != nil {
		panic(err) // embedded files can always be read
	}
	return all
}

// served returns the path at which a file is served.
func served(name string) string {
	if name = strings.TrimPrefix(name, "static/"); name != "index.html" {
		return "/assets/" + name
	}
	return "/"
}

// kind returns the media type of a file. It does not use the machine's own table, which may differ.
func kind(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return ""
}

// Patterns returns the patterns under which a ServeMux should register [Handler], sorted: one for each file, so that
// the mux handles all other paths.
func Patterns() []string {
	var patterns []string
	for p := range assets {
		if p == "/" {
			p = "/{$}"
		}
		patterns = append(patterns, "GET "+p)
	}
	slices.Sort(patterns)
	return patterns
}

// Handler serves GET and HEAD of the files to anyone, because they contain no secrets. For other paths it responds
// with 404.
func Handler() http.Handler { return http.HandlerFunc(serve) }

func serve(w http.ResponseWriter, r *http.Request) {
	a, ok := assets[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", a.mime)
	h.Set("Content-Security-Policy", policy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	// Revalidated each time, sent only if changed: modules import each other by name, so no old version may remain
	// cached.
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", a.etag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(a.body))
}
