package text_test

import (
	"math"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"rouse/internal/text"
)

func TestDecimal(t *testing.T) {
	t.Parallel()
	tenth, third := 0.1, 1.0
	third /= 3
	sum := 0.0
	for range 10 {
		sum += tenth
	}

	for _, test := range []struct{ from, want float64 }{
		{122.35000000000001, 122.35}, {tenth + 0.2, 0.3}, {-1.1 * 1.1000000000000001, -1.21}, {sum, 1}, {50123.450000000194, 50123.45}, {1.1e-7 + 2.2e-7, 3.3e-7},
		{9999999999.989998, 9999999999.99}, {79.99999999999999, 80},
		{third, third}, {math.Pi, math.Pi}, {1.00000000000005, 1.00000000000005}, {0, 0}, {1e300, 1e300}, {122.35, 122.35}, {1 << 60, 1 << 60},
	} {
		if got := text.Decimal(test.from); got != test.want {
			t.Errorf("%v became %v, want %v", test.from, got, test.want)
		}
	}
	if got := text.Decimal(math.Inf(1)); !math.IsInf(got, 1) {
		t.Error(got)
	}
	if got := text.Decimal(math.NaN()); !math.IsNaN(got) {
		t.Error(got)
	}
}

// Numbers typed by people do not change, and other numbers change at most by noise.
func TestDecimalProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		written, err := strconv.ParseFloat(rapid.StringMatching(`-?[1-9][0-9]{0,7}(\.[0-9]{1,7})?(e-?[1-9])?`).Draw(t, "number"), 64)
		if err != nil {
			t.Fatal(err)
		}
		if got := text.Decimal(written); got != written {
			t.Fatalf("%v became %v", written, got)
		}

		any := rapid.Float64().Draw(t, "any")
		if got := text.Decimal(any); math.Abs(got-any) > math.Abs(any)*1e-13 || text.Decimal(got) != got {
			t.Fatalf("%v became %v", any, got)
		}
	})
}
