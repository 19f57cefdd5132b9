package serve

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/serve/leaseid"
	"github.com/weirlimits/weir/internal/serve/reload"
)

// TestLeaseKeyFile replaces the key of lease ids as the guide shows: on two servers, one after the other.
func TestLeaseKeyFile(t *testing.T) {
	t.Parallel()
	const older, newer = "the older key of lease ids", "the newer key of lease ids"
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		type server struct {
			httpFlags
			signer func() *leaseid.Signer
		}
		file := func(s *server, lines ...string) {
			t.Helper()
			writeFile(t, s.LeaseKey.File, []byte(strings.Join(lines, "\n")+"\n"))
			time.Sleep(reload.Every)
		}
		both := [2]*server{}
		for i := range both {
			s := &server{httpFlags: httpFlags{LeaseKey: secret.Text{File: filepath.Join(t.TempDir(), "keys")}}}
			file(s, older)
			if err := s.LeaseKey.Load(); err != nil {
				t.Fatal(err)
			}
			var err error
			if s.signer, err = s.httpFlags.signer(slog.New(slog.NewTextHandler(&log, nil))); err != nil {
				t.Fatal(err)
			}
			both[i] = s
		}
		var ids []string
		check := func(step string) {
			t.Helper()
			for _, s := range both {
				ids = append(ids, string(s.signer().Append(nil, &leaseid.Lease{Namespace: "n", Held: weir.LeaseToken{Expires: time.Now()}})))
			}
			for _, id := range ids {
				for i, s := range both {
					if _, ok := s.signer().Parse(id); !ok {
						t.Errorf("%s: server %d does not accept a lease", step, i)
					}
				}
			}
		}
		for _, step := range [][]string{{older, newer}, {newer, older}} {
			for _, s := range both {
				file(s, step...)
				check(strings.Join(step, ", then "))
			}
		}
		first := ids[0]
		ids = nil // the leases that the older key signed have expired
		for _, s := range both {
			file(s, newer)
			check("without the older key")
			if _, ok := s.signer().Parse(first); ok {
				t.Error("a key that was removed is accepted")
			}
		}
		file(both[0], "short")
		check("with a broken file")
		if err := os.Chmod(both[1].LeaseKey.File, 0o644); err != nil { //nolint:gosec // it must be refused
			t.Fatal(err)
		}
		time.Sleep(reload.Every)
		check("with a file that others may read")
		for _, want := range []string{"has 5 bytes", "open to other users", "previous keys stay in force"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("logged %s, without %s", log.String(), want)
			}
		}
	})
}
