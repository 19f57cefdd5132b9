package grpcapi_test

import (
	"bytes"
	"io"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/grpcapi"
	"github.com/weirlimits/weir/store/memory"
)

// TestWithheld checks what happens to a request whose message never comes: without a token it is refused by its headers,
// at once, and otherwise it ends after 20 s, whether it is a stream or not. The connection stays open.
func TestWithheld(t *testing.T) {
	t.Parallel()
	token, e, err := auth.NewEntry(auth.Entry{Name: "app", Roles: []auth.Role{auth.Admin}, Namespaces: []string{"default"}})
	if err != nil {
		t.Fatal(err)
	}
	book := openBook(t, e)
	for name, tt := range map[string]struct {
		method, token, status string
		after                 time.Duration
	}{
		"no token":        {batch, "", "16", 0},
		"a wrong token":   {batch, "x", "16", 0},
		"a token":         {batch, token, "1", 20 * time.Second},
		"a stream":        {"/weir.v1.Limiter/Watch", token, "1", 20 * time.Second},
		"a health check":  {"/grpc.health.v1.Health/Check", "", "1", 20 * time.Second},
		"a health stream": {"/grpc.health.v1.Health/Watch", "", "1", 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				f := over(t, memory.New(nil), grpcapi.Config{Config: decide.Config{Book: book}})
				c, err := f.ln.DialContext(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				fr := http2.NewFramer(c, c)
				fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
				if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
					t.Fatal(err)
				}
				if err := fr.WriteSettings(); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				for id := uint32(1); id < 5; id += 2 { // the second once the first has ended
					s := target{Token: tt.token}
					param := http2.HeadersFrameParam{StreamID: id, BlockFragment: s.headers(tt.method), EndHeaders: true}
					if err := fr.WriteHeaders(param); err != nil {
						t.Fatal(err)
					}
					if err := fr.WriteData(id, false, bytes.Clone(withheld[:100])); err != nil {
						t.Fatal(err)
					}
					if got := ends(t, fr, id); got != tt.status {
						t.Errorf("ended with status %s, want %s", got, tt.status)
					}
				}
				if took := time.Since(began); took != 2*tt.after {
					t.Errorf("took %s for two, want %s", took, 2*tt.after)
				}
			})
		})
	}
}

// ends returns the status with which a stream ends.
func ends(t *testing.T, fr *http2.Framer, id uint32) string {
	t.Helper()
	for {
		frame, err := fr.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if h, ok := frame.(*http2.MetaHeadersFrame); ok && h.StreamID == id && h.StreamEnded() {
			for _, f := range h.RegularFields() {
				if f.Name == "grpc-status" {
					return f.Value
				}
			}
		}
	}
}
