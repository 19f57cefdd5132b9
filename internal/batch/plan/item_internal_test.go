package plan

import (
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

func drawParams(t *rapid.T) clock.Params {
	p := clock.Params{
		Period: rapid.OneOf(rapid.SampledFrom([]int64{1, int64(time.Second), int64(time.Minute), int64(clock.MaxPeriod)}), rapid.Int64Range(1, int64(clock.MaxPeriod))).Draw(t, "period"),
		Burst:  rapid.OneOf(rapid.SampledFrom([]int64{1, 999, 1000, clock.MaxBurst}), rapid.Int64Range(1, clock.MaxBurst)).Draw(t, "burst"),
	}
	p.Amount = rapid.Int64Range(1, max(1, p.Period/250_000*1000)).Draw(t, "amount")
	return p
}

// TestParams checks that the text of a limit's parameters is read back as it was, and that no other text is accepted.
func TestParams(t *testing.T) {
	t.Parallel()
	for p, want := range map[clock.Params]string{
		{Burst: 75_000, Amount: 50_000, Period: int64(time.Minute)}: "75/50/60s",
		{Burst: 1, Amount: 1500, Period: 7}:                         "1m/1500m/7ns",
	} {
		if got := formatParams(p); got != want {
			t.Errorf("%+v: %q, want %q", p, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		p := drawParams(t)
		if p.Check() != nil {
			t.Skip("the clock would be too fast")
		}
		s := formatParams(p)
		if got, ok := parseParams(s); !ok || got != p {
			t.Fatalf("%+v became %q, and that %+v, %t", p, s, got, ok)
		}
	})
	for _, s := range []string{
		"", "//", "1/1", "1/1/1", "1/1/1s/1", "0/1/1s", "1/0/1s", "1/1/0s", "-1/1/1s", "1/-1/1s", "1/1/-1s", "1.5/1/1s", "1/1/1h", "x/1/1s",
		"1/1/1ms", "1 /1/1s", "1/1/31622401s", "1000000000000001/1/1s", "9223372036854775807/1/1s", "9223372036854775808m/1/1s", "1/9000000/1s",
	} {
		if p, ok := parseParams(s); ok {
			t.Errorf("%q is taken for %+v", s, p)
		}
	}
}

// TestLimitName checks that different limits have different attribute names.
func TestLimitName(t *testing.T) {
	t.Parallel()
	name := rapid.OneOf(rapid.SampledFrom(hostile), rapid.StringOfN(rapid.RuneFrom([]rune("ab!%1250/ms")), 1, 8, -1))
	limit := rapid.Custom(func(t *rapid.T) store.Limit {
		l := store.Limit{Name: name.Draw(t, "name"), Override: rapid.Bool().Draw(t, "override"), Amount: 1000, Period: time.Second, Burst: 1000}
		if l.Override {
			l.Burst = rapid.SampledFrom([]int64{1000, 2000, 1, 12_000}).Draw(t, "burst")
		}
		return l
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := limit.Draw(t, "a"), limit.Draw(t, "b")
		if (LimitName(&a) == LimitName(&b)) != (a == b) {
			t.Fatalf("%+v is %q, %+v is %q", a, LimitName(&a), b, LimitName(&b))
		}
		plain, params, override := ParseLimitName(LimitName(&a))
		if plain != a.Name || override != a.Override || override && params != formatParams(paramsOf(&a)) {
			t.Fatalf("%+v became %q, and that %q, %q, %t", a, LimitName(&a), plain, params, override)
		}
	})
}

// TestShare checks that the shares of all shards add up to the whole, and that a shard's share is that of the two into
// which it splits.
func TestShare(t *testing.T) {
	t.Parallel()
	ends := rapid.SampledFrom([]int64{math.MinInt64, math.MinInt64 + 1, -65, -64, -1, 0, 1, 63, 64, math.MaxInt64 - 63, math.MaxInt64 - 1, math.MaxInt64})
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.OneOf(ends, rapid.Int64()).Draw(t, "x")
		n := 1 << rapid.IntRange(0, 6).Draw(t, "log")
		sum := new(big.Int)
		for k := range n {
			pl := Place{k, n}
			got := pl.portion(x)
			want := new(big.Int).Div(new(big.Int).Add(big.NewInt(x), big.NewInt(int64(k))), big.NewInt(int64(n))) // Euclidean: floor, as n > 0
			if want.Cmp(big.NewInt(got)) != 0 {
				t.Fatalf("share %d of %d of %d is %d, want %s", k, n, x, got, want)
			}
			sum.Add(sum, big.NewInt(got))
			if n < MaxShards {
				a, b := Place{k, 2 * n}, Place{k + n, 2 * n}
				if a.portion(x)+b.portion(x) != got {
					t.Fatalf("%d of %d has %d of %d, its halves %d and %d", k, n, got, x, a.portion(x), b.portion(x))
				}
			}
		}
		if sum.Cmp(big.NewInt(x)) != 0 {
			t.Fatalf("%d shares of %d add up to %s", n, x, sum)
		}
	})
}

// TestHalves checks that at any reading of the clock, the halves of a shard have no more room than the shard has, that
// neither has room where the shard has none, and that they lack at most two millitokens.
func TestHalves(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 2; n++ {
		for k := range n {
			whole, a, b := Place{k, n}, Place{k, 2 * n}, Place{k + n, 2 * n}
			for burst := range int64(12) {
				for level := range int64(24) {
					low, high := halves(level)
					for reading := range int64(24 * n) {
						room := func(pl Place, level int64) int64 {
							return pl.portion(burst) - clock.Outstanding(level, pl.portion(reading))
						}
						have, left, right := room(whole, level), room(a, low), room(b, high)
						if max(0, left)+max(0, right) > max(0, have) || max(left, right) > 0 && have <= 0 || left+right < have-2 {
							t.Fatalf("%d of %d: level %d at %d, burst %d: room %d becomes %d and %d", k, n, level, reading, burst, have, left, right)
						}
					}
				}
			}
		}
	}
}

// TestNumbers checks that numbers must be whole, and saturate.
func TestNumbers(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]int64{
		"0": 0, "-7": -7, "9223372036854775807": math.MaxInt64, "9223372036854775808": math.MaxInt64,
		"-99999999999999999999999999999999999999": math.MinInt64,
	} {
		if n, err := (Value{Number, s}).number(); err != nil || n != want {
			t.Errorf("%s: %d, %v", s, n, err)
		}
	}
	for _, s := range []string{"", "1.5", "1e3", "x"} {
		if n, err := (Value{Number, s}).number(); err == nil {
			t.Errorf("%q: %d", s, n)
		}
	}
}

// hostile are names of limits that have a meaning in expressions, in the layout, or elsewhere.
var hostile = []string{
	"ttl", "#", "#0", ":0", ":v", "id", "L_x", "P_", "size", "SET", "PK", "a.b", "a-b", "a b", "[0]", "!", "%21", "x!1/1/1s", "é", "日本", "\u202e", "'; --",
}

// TestExpressions checks that names reach expressions only through aliases, one for each attribute, and values only
// through their positions.
func TestExpressions(t *testing.T) {
	t.Parallel()
	u := new(Update)
	for i, name := range hostile {
		u.op(condBetween, prefixLevel+name, int64(i), int64(-i))
		u.op(addTo, prefixLevel+name, int64(i))
		u.op(setOnce, prefixLevel+name, 1)
	}
	u.opText(setTo, attrSet, "SET x")
	u.op(remove, "ttl")
	x := u.render()
	if len(x.Names) != len(hostile)+2 {
		t.Errorf("%d aliases", len(x.Names))
	}
	seen := map[string]bool{}
	for alias, name := range x.Names {
		if seen[name] || strings.Trim(alias, "#0123456789") != "" {
			t.Errorf("alias %q of %q", alias, name)
		}
		seen[name] = true
	}
	if bad := strings.Trim(x.Condition+x.Change, ""); strings.ContainsFunc(bad, func(r rune) bool { return r > 0x7e || r == '!' || r == '%' || r == '.' || r == '-' }) {
		t.Errorf("%s; %s", x.Condition, x.Change)
	}
	var values []string
	u.Each(func(name string, _ Value) { values = append(values, name) })
	for _, name := range values {
		if strings.Count(x.Condition+" "+x.Change+" ", name+" ")+strings.Count(x.Change+x.Condition, name+",")+strings.Count(x.Change+x.Condition, name+")") == 0 {
			t.Errorf("value %s is not used", name)
		}
	}
	if len(values) != 4*len(hostile)+1 {
		t.Errorf("%d values", len(values))
	}
}

// TestExpressionText checks the text of a usual update.
func TestExpressionText(t *testing.T) {
	t.Parallel()
	u := new(Update)
	u.op(condAbsent, AttrShards)
	u.op(condEqual, attrID, 7)
	u.opText(condAbsentEqual, attrSet, "s")
	u.op(condAbsentBelow, "L_rpm", 10)
	u.op(condAtLeast, attrTTL, 5)
	u.op(setTo, "L_rpm", 11)
	u.op(addTo, "D_rpm", 1)
	u.op(setOnce, attrID, 8)
	u.op(remove, attrOverrides)
	u.op(addTo, attrWrites, 1)
	x := u.render()
	const (
		condition = "attribute_not_exists(#0) AND #1 = :0 AND (attribute_not_exists(#2) OR #2 = :1) AND (attribute_not_exists(#3) OR #3 < :2) AND #4 >= :3"
		change    = "SET #3 = :4, #1 = if_not_exists(#1, :6) ADD #5 :5, #7 :7 REMOVE #6"
	)
	if x.Condition != condition {
		t.Errorf("condition %s", x.Condition)
	}
	if x.Change != change {
		t.Errorf("change %s", x.Change)
	}
	var e Expressions
	if first := e.Of(u); first != e.Of(u) {
		t.Error("not remembered")
	}
	u.op(condExists, attrAt)
	if e.Of(u).Condition == condition {
		t.Error("taken for another")
	}
}
