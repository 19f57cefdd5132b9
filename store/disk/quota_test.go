package disk_test

import (
	"errors"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/weirlimits/weir/store/disk"
)

// TestQuotaKept checks that a file keeps what was spent of a window, and that versions that know no windows refuse it from
// then on: they would take the limit for another.
func TestQuotaKept(t *testing.T) {
	t.Parallel()
	for _, mode := range disk.Modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			r, usd := setup(t, mode), quota("usd", 1000, "month+15@Europe/Berlin")
			s := r.open()
			r.allow(s, debit(bob, perSecond("rps", 10), 5))
			r.close(s)
			r.wantFormat(1)
			s = r.open()
			r.allow(s, debit(alice, usd, 400))
			r.close(s)
			r.wantFormat(2)
			s = r.open()
			r.wantLeft(s, alice, usd, 600)
			if l := r.state(s, alice).Limits[0].Limit; *l != *usd {
				t.Errorf("the limit is %+v, want %+v", *l, *usd)
			}
			r.clock.Set(time.Date(2026, time.March, 14, 22, 59, 59, 999_999_999, time.UTC))
			r.wantLeft(s, alice, usd, 600)
			r.clock.Advance(1)
			r.wantLeft(s, alice, usd, 1000)
			r.close(s)
		})
	}
}

func (r *rig) wantFormat(version byte) {
	r.Helper()
	db, err := bolt.Open(r.file(), 0o600, nil)
	r.must(err)
	r.must(db.View(func(tx *bolt.Tx) error {
		if v := tx.Bucket(disk.MetaBucket).Get(disk.FormatKey); v[len(v)-1] != version {
			r.Errorf("format %d, want %d", v[len(v)-1], version)
		}
		return nil
	}))
	r.must(db.Close())
}

// TestLimitCodec checks that limits of earlier versions are read as they were written, and that a window of a later
// version is named as such.
func TestLimitCodec(t *testing.T) {
	t.Parallel()
	rate := perSecond("rps", 1)
	if raw, want := disk.AppendLimit(nil, rate), "\x00\x03rps\xe8\x07\x80\x94\xeb\xdc\x03\xe8\x07"; string(raw) != want {
		t.Errorf("a rate is written %q, want %q", raw, want)
	}
	usd := quota("usd", 1, "month@UTC")
	raw := disk.AppendLimit(nil, usd)
	if got, err := disk.ReadLimit(raw); err != nil || *got != *usd {
		t.Errorf("read %+v, %v", got, err)
	}
	copy(raw[len(raw)-3:], "XYZ")
	if _, err := disk.ReadLimit(raw); !errors.Is(err, disk.ErrNewer) {
		t.Errorf("an unknown zone: %v", err)
	}
}
