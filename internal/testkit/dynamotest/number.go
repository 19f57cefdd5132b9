package dynamotest

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

// number is coef × 10^exp. A coef other than 0 does not end in 0.
type number struct {
	coef *big.Int
	exp  int
}

var numeral = regexp.MustCompile(`^([+-]?)(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d{1,5}))?$`)

func parseNumber(s string) (number, error) {
	if small, err := strconv.ParseInt(s, 10, 64); err == nil {
		return trim(number{coef: big.NewInt(small)}), nil
	}
	m := numeral.FindStringSubmatch(s)
	if len(m) == 0 || m[2]+m[3] == "" {
		return number{}, invalid("The parameter cannot be converted to a numeric value: %s", s)
	}
	exp, _ := strconv.Atoi(m[4]) // no digits: 0
	coef, _ := new(big.Int).SetString(m[1]+m[2]+m[3], 10)
	n := trim(number{coef, exp - len(m[3])})
	return n, n.check()
}

var ten = big.NewInt(10)

func trim(n number) number {
	if n.coef.Sign() == 0 {
		return number{coef: new(big.Int)}
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
func (n number) digits() string { return new(big.Int).Abs(n.coef).String() }

func (n number) check() error {
	digits := len(n.digits())
	switch power := n.exp + digits - 1; {
	case n.coef.Sign() == 0:
		return nil
	case digits > maxDigits:
		return invalid("Attempting to store more than 38 significant digits in a Number")
	case power > maxPower:
		return invalid("Number overflow. Attempting to store a number with magnitude larger than supported range")
	case power < minPower:
		return invalid("Number underflow. Attempting to store a number with magnitude smaller than supported range")
	}
	return nil
}

// align returns the coefficients at the lesser exponent of the two.
func align(a, b number) (x, y *big.Int, exp int) {
	exp = min(a.exp, b.exp)
	raise := func(n number) *big.Int {
		power := new(big.Int).Exp(ten, big.NewInt(int64(n.exp-exp)), nil)
		return power.Mul(power, n.coef)
	}
	return raise(a), raise(b), exp
}

func (n number) cmp(m number) int {
	x, y, _ := align(n, m)
	return x.Cmp(y)
}

// add returns n + sign × m.
func (n number) add(m number, sign int64) (number, error) {
	x, y, exp := align(n, m)
	sum := trim(number{x.Add(x, y.Mul(y, big.NewInt(sign))), exp})
	return sum, sum.check()
}

// String formats a number without an exponent, as DynamoDB does.
func (n number) String() string {
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
func (n number) size() int {
	if n.coef.Sign() == 0 {
		return 1
	}
	size := (len(n.digits())+1)/2 + 1
	if n.coef.Sign() < 0 {
		size++
	}
	return size
}
