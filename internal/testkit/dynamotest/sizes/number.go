package sizes

import (
	"math/big"
	"regexp"
	"strconv"
	"strings"
)

// Numbers have 38 significant digits and magnitudes from 1e-130 to below 1e126.
const (
	maxDigits = 38
	maxPower  = 125
	minPower  = -130
)

// Number is coef × 10^exp. A coef other than 0 does not end in 0.
type Number struct {
	coef *big.Int
	exp  int
}

var numeral = regexp.MustCompile(`^([+-]?)(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d{1,5}))?$`)

// ParseNumber reads a number as requests have it.
func ParseNumber(s string) (Number, error) {
	if small, err := strconv.ParseInt(s, 10, 64); err == nil {
		return Whole(small), nil
	}
	m := numeral.FindStringSubmatch(s)
	if len(m) == 0 || m[2]+m[3] == "" {
		return Number{}, Invalid("The parameter cannot be converted to a numeric value: %s", s)
	}
	exp, _ := strconv.Atoi(m[4]) // no digits: 0
	coef, _ := new(big.Int).SetString(m[1]+m[2]+m[3], 10)
	n := trim(Number{coef, exp - len(m[3])})
	return n, n.check()
}

// Whole returns a whole number.
func Whole(n int64) Number { return trim(Number{coef: big.NewInt(n)}) }

var ten = big.NewInt(10)

func trim(n Number) Number {
	if n.coef.Sign() == 0 {
		return Number{coef: new(big.Int)}
	}
	for rest := new(big.Int); ; {
		quotient, _ := new(big.Int).QuoRem(n.coef, ten, rest)
		if rest.Sign() != 0 {
			return n
		}
		n.coef, n.exp = quotient, n.exp+1
	}
}

// digits returns the significant digits, without a sign.
func (n Number) digits() string { return new(big.Int).Abs(n.coef).String() }

func (n Number) check() error {
	digits := len(n.digits())
	switch power := n.exp + digits - 1; {
	case n.coef.Sign() == 0:
		return nil
	case digits > maxDigits:
		return Invalid("Attempting to store more than 38 significant digits in a Number")
	case power > maxPower:
		return Invalid("Number overflow. Attempting to store a number with magnitude larger than supported range")
	case power < minPower:
		return Invalid("Number underflow. Attempting to store a number with magnitude smaller than supported range")
	}
	return nil
}

// align returns the coefficients at the lesser exponent of the two.
func align(a, b Number) (x, y *big.Int, exp int) {
	exp = min(a.exp, b.exp)
	raise := func(n Number) *big.Int {
		power := new(big.Int).Exp(ten, big.NewInt(int64(n.exp-exp)), nil)
		return power.Mul(power, n.coef)
	}
	return raise(a), raise(b), exp
}

// Cmp compares two numbers: it returns -1, 0 or 1.
func (n Number) Cmp(m Number) int {
	x, y, _ := align(n, m)
	return x.Cmp(y)
}

// Add returns n + sign × m.
func (n Number) Add(m Number, sign int64) (Number, error) {
	x, y, exp := align(n, m)
	sum := trim(Number{x.Add(x, y.Mul(y, big.NewInt(sign))), exp})
	return sum, sum.check()
}

// String formats a number without an exponent, as DynamoDB does.
func (n Number) String() string {
	digits, sign := n.digits(), ""
	if n.coef.Sign() < 0 {
		sign = "-"
	}
	if n.exp >= 0 {
		return sign + digits + strings.Repeat("0", n.exp)
	}
	if missing := 1 - n.exp - len(digits); missing > 0 {
		digits = strings.Repeat("0", missing) + digits
	}
	point := len(digits) + n.exp
	return sign + digits[:point] + "." + digits[point:]
}

// size returns the bytes that a number adds to the size of an item.
func (n Number) size() int {
	if n.coef.Sign() == 0 {
		return 1
	}
	size := (len(n.digits())+1)/2 + 1
	if n.coef.Sign() < 0 {
		size++
	}
	return size
}
