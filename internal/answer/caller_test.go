package answer_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weirlimits/weir/internal/answer"
)

func nets(list ...string) (ps []netip.Prefix) {
	for _, n := range list {
		ps = append(ps, netip.MustParsePrefix(n))
	}
	return answer.Trusted(ps)
}

func TestClient(t *testing.T) {
	t.Parallel()
	private := nets("10.0.0.0/8", "2001:db8:ffff::/48", "::ffff:172.16.0.0/108")
	for _, tt := range []struct {
		name, peer string
		forwarded  []string
		want       string // "" if there is none
	}{
		{"direct", "192.0.2.1:80", nil, "192.0.2.1"},
		{"direct, IPv6", "[2001:db8::1]:80", nil, "2001:db8::1"},
		{"zone", "[fe80::1%eth0]:80", nil, "fe80::1"},
		{"mapped", "[::ffff:192.0.2.1]:80", nil, "192.0.2.1"},
		{"spoofed", "192.0.2.1:80", []string{"198.51.100.1"}, "192.0.2.1"},
		{"one proxy", "10.0.0.1:80", []string{"198.51.100.1"}, "198.51.100.1"},
		{"one proxy, spoofed", "10.0.0.1:80", []string{"8.8.8.8, 10.0.0.9, 198.51.100.1"}, "198.51.100.1"},
		{"spoofed field before", "10.0.0.1:80", []string{"8.8.8.8", "198.51.100.1"}, "198.51.100.1"},
		{"two proxies", "10.0.0.1:80", []string{"8.8.8.8,198.51.100.1,10.0.0.2"}, "198.51.100.1"},
		{"two proxies, two fields", "10.0.0.1:80", []string{"8.8.8.8,198.51.100.1", "10.0.0.2"}, "198.51.100.1"},
		{"mapped proxy", "[::ffff:10.0.0.1]:80", []string{"::ffff:198.51.100.1"}, "198.51.100.1"},
		{"mapped network", "172.16.0.1:80", []string{"198.51.100.1"}, "198.51.100.1"},
		{"IPv6 proxy", "[2001:db8:ffff::1]:80", []string{"2001:db8::7"}, "2001:db8::7"},
		{"all trusted", "10.0.0.1:80", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"no field", "10.0.0.1:80", nil, "10.0.0.1"},
		{"empty field", "10.0.0.1:80", []string{""}, "10.0.0.1"},
		{"garbage", "10.0.0.1:80", []string{"8.8.8.8, unknown, 10.0.0.2"}, "10.0.0.2"},
		{"garbage of the client's", "10.0.0.1:80", []string{"<script>, 198.51.100.1"}, "198.51.100.1"},
		{"with ports", "10.0.0.1:80", []string{"198.51.100.1:1234"}, "198.51.100.1"},
		{"with ports, IPv6", "10.0.0.1:80", []string{"[2001:db8::7]:1234"}, "2001:db8::7"},
		{"brackets", "10.0.0.1:80", []string{"[2001:db8::7]"}, "2001:db8::7"},
		{"brackets, open", "10.0.0.1:80", []string{"[2001:db8::7"}, "10.0.0.1"},
		{"brackets, IPv4", "10.0.0.1:80", []string{"[198.51.100.1]"}, "10.0.0.1"},
		{"spaces", "10.0.0.1:80", []string{" 198.51.100.1 \t"}, "198.51.100.1"},
		{"Unix socket", "@", []string{"198.51.100.1"}, ""},
		{"no peer", "", nil, ""},
	} {
		addr, ok := answer.Client(tt.peer, tt.forwarded, private)
		if got := addr.String(); ok != (tt.want != "") || ok && got != tt.want {
			t.Errorf("%s: got %s, %t, want %s", tt.name, got, ok, tt.want)
		}
	}
}

func TestAddrID(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{
		"192.0.2.1": "ip-192.0.2.1", "::ffff:192.0.2.1": "ip-192.0.2.1", "2001:db8:1:2:3:4:5:6": "ip-2001:db8:1:2::/64",
		"2001:db8:1:2::": "ip-2001:db8:1:2::/64", "::1": "ip-::/64", "fe80::1%eth0": "ip-fe80::/64",
	} {
		if got := answer.AddrID(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: got %s, want %s", addr, got, want)
		}
	}
}

func TestTrusted(t *testing.T) {
	t.Parallel()
	got := answer.Trusted([]netip.Prefix{netip.MustParsePrefix("10.1.2.3/8"), {}, netip.MustParsePrefix("::ffff:10.0.0.0/104")})
	if len(got) != 2 || got[0].String() != "10.0.0.0/8" || got[1] != got[0] {
		t.Errorf("got %v", got)
	}
}

// FuzzClient checks that what a client can write, the fields before the part that a trusted proxy appended, never
// determines its identity, and that every identity is a valid id.
func FuzzClient(f *testing.F) {
	private := nets("10.0.0.0/8")
	for _, s := range []string{"", "8.8.8.8", "10.0.0.1", "10.0.0.1, 10.0.0.2", "unknown", "[::1]:80", ",", ", ,", "::ffff:10.0.0.1", "1.2.3.4:5, fe80::1%x"} {
		f.Add(s, "198.51.100.1")
		f.Add(s, "10.9.9.9")
		f.Add(s, "nobody")
	}
	f.Fuzz(func(t *testing.T, written, hop string) {
		if addr, ok := answer.Client("192.0.2.1:80", []string{written, hop}, private); !ok || addr.String() != "192.0.2.1" {
			t.Fatalf("an untrusted peer is %s", addr)
		}
		for _, forwarded := range [][]string{{written + "," + hop}, {written, hop}} {
			addr, ok := answer.Client("10.0.0.1:80", forwarded, private)
			if !ok || !addr.IsValid() || addr.Is4In6() || addr.Zone() != "" {
				t.Fatalf("%q: got %s, %t", forwarded, addr, ok)
			}
			id := answer.AddrID(addr)
			if !strings.HasPrefix(id, "ip-") || len(id) > 50 {
				t.Fatalf("%q: got id %q", forwarded, id)
			}
			if strings.Contains(hop, ",") {
				continue
			}
			if client, err := netip.ParseAddr(strings.Trim(hop, " \t")); err == nil && !private[0].Contains(client.Unmap()) {
				if want := client.Unmap().WithZone(""); addr != want {
					t.Fatalf("%q: got %s, the proxy says %s", forwarded, addr, want)
				}
			}
		}
	})
}

// FuzzBearer checks that however a token is written, it identifies the same entity.
func FuzzBearer(f *testing.F) {
	for _, s := range []string{"Bearer abc", "bearer  abc\t", "Basic abc", "", "Bearer", "Bearer a b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, field string) {
		token, ok := answer.Bearer(field)
		if !ok {
			return
		}
		if token == "" || token != strings.Trim(token, " \t") {
			t.Fatalf("%q: got %q", field, token)
		}
		if again, ok := answer.Bearer("bEARER \t " + token + " "); !ok || again != token {
			t.Fatalf("%q: got %q, then %q", field, token, again)
		}
	})
}
