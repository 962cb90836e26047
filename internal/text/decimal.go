package text

import (
	"math"
	"strconv"
	"strings"
)

const (
	exactDigits = 15 // significant digits that a float64 preserves
	soundDigits = 14 // significant digits that survive a sum of such numbers
	noiseDigits = 2  // trailing zeros within soundDigits that mark the following digits as noise
)

// Decimal removes the rounding noise of binary fractions: 122.35000000000001 becomes 122.35.
// Numbers with at most exactDigits digits and numbers with endless digits, such as 1/3, do not
// change.
func Decimal(f float64) float64 {
	if f == math.Trunc(f) || significant(strconv.FormatFloat(f, 'e', -1, 64)) <= exactDigits {
		return f
	}

	rounded := strconv.FormatFloat(f, 'e', soundDigits-1, 64)
	if significant(rounded) > soundDigits-noiseDigits {
		return f
	}
	written, err := strconv.ParseFloat(rounded, 64)
	if err != nil {
		return f
	}
	return written
}

// significant returns the number of digits in scientific notation, without trailing zeros.
func significant(number string) int {
	mantissa, _, _ := strings.Cut(strings.TrimPrefix(number, "-"), "e")
	return len(strings.TrimRight(strings.Replace(mantissa, ".", "", 1), "0"))
}
